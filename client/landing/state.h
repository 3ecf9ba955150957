/*
 * state.h - what the files of a landing share. Private to them.
 */
#ifndef RLV_CLIENT_LANDING_STATE_H
#define RLV_CLIENT_LANDING_STATE_H

#include <sys/types.h>

#include "relive/landing.h"

#include "client/landing/landing.h"
#include "device/backend.h"
#include "base/os/lock.h"

#define LANDING_PATHS 6
#define LANDING_STREAMS 16 /* the landing's own, which copies, and 15 of its users */

extern const struct lock_role landing_role;

struct landing_stream {
	void *native; /* NULL: the landing's own */
	uint32_t number;
	uint64_t marked; /* the last mark */
};

/* Gathers of one buffer: addresses of the device. */
struct landing_plan {
	struct backend_copy lists; /* to the device */
	struct backend_gather work[LANDING_LISTS];
	uint32_t n;
	uint64_t graph; /* recorded; 0 = none */
};

struct landing_buffer {
	struct landing_buffer *next;
	uint8_t *host;
	size_t bytes;          /* of both sides, rounded up */
	uint64_t at;           /* on the device; the host's address if it is in place */
	uint64_t extent;       /* without a pool: its handle */
	uint64_t device_bytes; /* taken of the device */
	struct mem side;       /* the same for READs; len 0 = it was not lent */
	bool exported;         /* of a pool, which lends a dma-buf of it */
	bool pinned;           /* the host's side is page-locked */
	uint32_t used;         /* a bit for each stream that may still be given work with it */
	struct landing_plan *recorded; /* NULL: nothing */
	uint64_t marks[LANDING_STREAMS]; /* that must be reached: the copy's, then of uses; 0 = none */
};

/* Memory of the host that the device reads, as whole pages. */
struct landing_range {
	struct landing_range *next;
	uint64_t from, end;         /* addresses in this process */
	uint64_t va;                /* of the device */
	uint32_t users;             /* 0: it could not be ended yet */
	struct shared_pages *pages; /* share.c */
};

struct rlv_landing {
	struct backend *backend; /* NULL: in place */
	struct rlv_pool *pool;
	uint32_t pool_stream; /* of the tensors; nothing is queued on it */
	pid_t pid;
	int64_t timeout_ns;
	bool unwaited, gathers, graphs, direct, weighs;
	uint32_t asked; /* opts.path */
	bool strict;
	uint32_t avoid;     /* bits of enum rlv_landing_path */
	char unpinned[160]; /* why the host's memory cannot be page-locked; "" = it can */
	char fallen[256] LOCK_GUARDED_BY(landing_role); /* why better ones do not */
	uint32_t way
		LOCK_GUARDED_BY(landing_role); /* enum rlv_landing_path: the best that may work */
	struct lock lock;
	struct landing_buffer *buffers LOCK_GUARDED_BY(landing_role);
	struct landing_range *ranges LOCK_GUARDED_BY(landing_role);
	struct landing_stream streams[LANDING_STREAMS] LOCK_GUARDED_BY(landing_role);
	uint32_t n_streams LOCK_GUARDED_BY(landing_role);
	struct rlv_landing_info info LOCK_GUARDED_BY(landing_role);
	bool probed LOCK_GUARDED_BY(landing_role);
	struct rlv_landing_path_info paths[LANDING_PATHS] LOCK_GUARDED_BY(landing_role);
	uint64_t landed[LANDING_PATHS + 1] LOCK_GUARDED_BY(landing_role); /* batches, by path */
};

/* -ECHILD after a fork, -EINVAL without a landing. */
RLV_MUST_CHECK int landing_enter(const struct rlv_landing *landing);

/* The buffer that holds the byte at ptr. NULL with an error: none. */
struct landing_buffer *landing_find(struct rlv_landing *landing, const void *ptr)
	LOCK_REQUIRES(landing_role);

/* The index of a user's stream, which is opened if it is new. -ENOSPC. */
RLV_MUST_CHECK int landing_stream(struct rlv_landing *landing, void *native, uint32_t *index_out)
	LOCK_REQUIRES(landing_role);

/* Queues a mark on that stream: its number is streams[index].marked then. */
RLV_MUST_CHECK int landing_queue_mark(struct rlv_landing *landing, uint32_t index)
	LOCK_REQUIRES(landing_role);

/* Where the first range that has one of these bytes is linked; NULL there: none has. */
struct landing_range **landing_range_link(struct rlv_landing *landing, uint64_t from, uint64_t end)
	LOCK_REQUIRES(landing_role);

/* Forgets what was recorded for the buffer. */
void landing_drop_graph(struct rlv_landing *landing, struct landing_buffer *buffer)
	LOCK_REQUIRES(landing_role);

extern const char landing_no_dmabuf[]; /* what such a device lacks */
extern const char landing_pool_needs_dmabuf[];
/* Why RDMA devices of the host cannot fill memory of a device, which they know by its address, or else as a
   dma-buf; NULL: they may. sys: where sysfs is. */
const char *landing_lacks_rdma(const char *sys, bool by_address);
/* Sets `way` and `direct`, of a landing on a device of its own memory. */
void landing_choose_way(struct rlv_landing *landing);
/* Ends READs' knowledge of the buffer, none of which is under way. */
void landing_unlend(struct landing_buffer *buffer);

/* Sets `weighs`, of a landing whose device is open, by opts.weights. -ENODEV; what the device lacks if it must have it. */
RLV_MUST_CHECK int landing_choose_weights(struct rlv_landing *landing, uint32_t wish);

/* Queues the computing of weights behind the copy of the buffer. */
RLV_MUST_CHECK int landing_queue_weights(struct rlv_landing *landing,
					 const struct landing_buffer *buffer,
					 const struct landing_weights *weights)
	LOCK_REQUIRES(landing_role);

/* Takes the ranges back that nobody uses. */
void landing_end_ranges(struct rlv_landing *landing) LOCK_REQUIRES(landing_role);

/* Frees what is known of the others. */
void landing_forget_ranges(struct rlv_landing *landing) LOCK_REQUIRES(landing_role);

/* Queues a mark behind the landing's own work with the buffer. -ENODEV, also of a device that took the work. */
RLV_MUST_CHECK int landing_mark_own(struct rlv_landing *landing, struct landing_buffer *buffer)
	LOCK_REQUIRES(landing_role);

/* Queues a mark on each stream that uses the buffer. After an error, which is not -ENODEV, some still do. */
RLV_MUST_CHECK int landing_mark_uses(struct rlv_landing *landing, struct landing_buffer *buffer)
	LOCK_REQUIRES(landing_role);

/* Waits, at most for the landing's timeout, until the device is done with the buffer. */
RLV_MUST_CHECK int landing_await_uses(struct rlv_landing *landing, struct landing_buffer *buffer)
	LOCK_REQUIRES(landing_role);

#endif
