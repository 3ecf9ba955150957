/*
 * Memnode jobs: a thread for requests that may take long (registering memory, writing a pool out,
 * waiting for a death). The node keeps answering other requests meanwhile, so that it does not
 * appear dead.
 *
 *   control loop --- job ---> pipe ---> worker --- the same job, answered ---> pipe ---> loop
 *
 * Only the control loop uses the channel. A job whose connection has ended is still done; its
 * answer is discarded and its effects are undone (memnode_undo).
 */
#ifndef RLV_SERVER_MEMNODE_JOBS_H
#define RLV_SERVER_MEMNODE_JOBS_H

#include "server/memnode/service.h"

struct memnode_jobs;

struct memnode_job {
	struct memnode_service svc;
	struct frame_header head;
	uint64_t connection; /* connection that it came over */
	struct memnode_answer answer;
	uint8_t body[];
};

/* -ENOMEM, -EMFILE. */
RLV_MUST_CHECK int memnode_jobs_open(struct memnode_jobs **jobs_out);
/* Waits until all queued jobs are done, then frees them without sending their answers. *jobs NULL
   is a no-op. */
void memnode_jobs_close(struct memnode_jobs **jobs);

/* Queues a copy of the request for the worker. connection: number of the connection that it came
   over. -ENOMEM; -EBUSY: the queue is full, with thousands of requests. */
RLV_MUST_CHECK int memnode_jobs_put(struct memnode_jobs *jobs, const struct memnode_service *svc,
				    const struct channel_frame *frame, uint64_t connection);

/* Descriptor that polls readable when memnode_jobs_get has a job. */
int memnode_jobs_fd(const struct memnode_jobs *jobs);
/* Takes the next finished job, with its answer; the caller frees it by mem_free. NULL: none is
   finished. */
struct memnode_job *memnode_jobs_get(struct memnode_jobs *jobs);

#endif
