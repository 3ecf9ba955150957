/*
 * Memnode jobs: requests that may take long (registering memory, writing a pool out, waiting for a
 * death) are done by a thread of their own, so that the node answers everything else meanwhile
 * and does not look dead.
 *
 *   control loop --- job ---> pipe ---> worker --- the same job, answered ---> pipe ---> loop
 *
 * The control loop alone uses the channel. A job whose connection ended meanwhile is done all the
 * same; its answer is thrown away, and what it made is undone (memnode_undo).
 */
#ifndef RLV_SERVER_MEMNODE_JOBS_H
#define RLV_SERVER_MEMNODE_JOBS_H

#include "server/memnode/service.h"

struct memnode_jobs;

struct memnode_job {
	struct memnode_service svc;
	struct frame_header head;
	uint8_t *body;
	uint64_t connection; /* that it came over */
	struct memnode_answer answer;
};

/* -ENOMEM, -EMFILE. */
RLV_MUST_CHECK int memnode_jobs_open(struct memnode_jobs **jobs_out);
/* Waits for the one that runs; NULL is a no-op. */
void memnode_jobs_close(struct memnode_jobs **jobs);

/* Copies the request and puts it in line. -ENOMEM, -EBUSY (thousands are in line). */
RLV_MUST_CHECK int memnode_jobs_put(struct memnode_jobs *jobs, const struct memnode_service *svc,
				    const struct channel_frame *frame, uint64_t connection);

/* Polls readable when memnode_jobs_get has one. */
int memnode_jobs_fd(const struct memnode_jobs *jobs);
/* One that is done, or NULL. The caller frees it. */
struct memnode_job *memnode_jobs_get(struct memnode_jobs *jobs);
void memnode_job_free(struct memnode_job *job);

#endif
