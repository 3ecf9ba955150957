/*
 * pool_chunk.h - the inside of a pool: its extents, and chunks made of leased ones.
 *
 * A chunk goes through the states of its extents (device/ledger.h), all alike. While no tensor is
 * in it, it is in the pool's list of idle chunks: pending until its marks are reached, then quiet,
 * in strict mode pending once more behind its scrub, then given back.
 */
#ifndef RLV_DEVICE_POOL_CHUNK_H
#define RLV_DEVICE_POOL_CHUNK_H

#include "device/ledger.h"
#include "device/pool.h"

#include "base/os/lock.h"

#define POOL_BUCKETS 4096u /* of the table of addresses */

extern const struct lock_role pool_role;

struct pool_extent {
	uint64_t handle;     /* 0: not created yet */
	bool mapped, access; /* at its own address */
	uint32_t last;       /* job that had it last, LEDGER_NOBODY: none */
};

struct pool_chunk {
	struct chunk chunk; /* first: a region's chunks are these */
	enum extent_state state;
	uint32_t job;
	bool idle;      /* in the pool's list */
	bool in_region; /* false: on its way back, no tensor can get into it */
	bool unmarked;  /* marks could not be queued: to be repeated */
	bool scrubbed;
	uint64_t window;    /* addresses for extents that are not in a row, 0: they are */
	uint32_t in_window; /* extents mapped there */
	uint64_t streams;   /* that used it since it was last quiet, a bit for each */
	uint64_t use;       /* place of its next use, see device/pool_park.h */
	bool use_is_new;    /* of this iteration */
	enum { CHUNK_RESIDENT, CHUNK_LEAVES, CHUNK_COPIES, CHUNK_PARKED, CHUNK_RETURNS } park;
	struct marks park_marks; /* of what park waits for */
	void *copy;              /* in the host's memory, while it is not CHUNK_RESIDENT */
	bool elsewhere; /* CHUNK_PARKED, and its bytes are in pieces that the caller keeps */
	uint64_t piece,
		moved; /* number of the first one; bytes that were given out, or that came */
	struct pool_chunk *previous, *next; /* idle */
	uint32_t n;
	struct extent_ref refs[];
};

struct pool {
	struct lock lock;
	struct backend *backend;
	struct pool_opts opts;
	struct ledger ledger;
	struct pool_extent *extents;
	uint64_t base, bytes; /* addresses of all extents in a row */
	struct region *regions[LEDGER_JOBS];
	uint64_t keep[LEDGER_JOBS];
	bool leaving[LEDGER_JOBS];
	uint64_t parked[LEDGER_JOBS]; /* bytes of chunks that are neither resident nor on the way back */
	uint64_t pieces[LEDGER_JOBS]; /* of their bytes that were given out */
	uint32_t exported[LEDGER_JOBS]; /* tensors that RDMA devices may know: the job is not parked */
	uint64_t uses[LEDGER_JOBS];     /* allocations; since pool_iterate, calls of pool_use */
	uint32_t stream_job[BACKEND_STREAMS]; /* LEDGER_NOBODY: not open */
	uint32_t scrub_stream;                /* strict mode */
	struct pool_chunk *idle;
	struct block *buckets[POOL_BUCKETS];
	uint64_t limbo; /* blocks */
	struct pool_stats stats;
};

/* Leases a chunk of at least that many bytes for a region. Errors as of pool_alloc. */
RLV_MUST_CHECK int pool_chunk_lease(struct pool *pool, struct region *region, uint64_t bytes);

/* Creates and maps what of a chunk's extents is not: also again after a failure. */
RLV_MUST_CHECK int pool_chunk_map(struct pool *pool, struct pool_chunk *chunk);
/* Unmaps a chunk whose addresses stay its own, and releases its physical extents. Goes on after a failure. */
RLV_MUST_CHECK int pool_chunk_unmap(struct pool *pool, struct pool_chunk *chunk);

/* Frees a chunk, but not a copy that the device may yet read or write. */
void pool_chunk_abandon(const struct pool *pool, struct pool_chunk *chunk);

/* A block of an idle chunk was taken. */
RLV_MUST_CHECK int pool_chunk_use(struct pool *pool, struct pool_chunk *chunk);

/* The last block of a chunk was freed: it is idle from now on. */
void pool_chunk_idle(struct pool *pool, struct pool_chunk *chunk);

/* Queues a mark on each of the streams, and adds them to marks. */
RLV_MUST_CHECK int pool_mark(struct pool *pool, uint64_t streams, struct marks *marks);

/*
 * Reads progress and settles idle chunks. Gives back those that are quiet, except what their job may
 * keep; all: these as well. Returns the first error.
 */
RLV_MUST_CHECK int pool_collect(struct pool *pool, bool all);

/* Releases free extents until at most that many are left, or those that are held. */
RLV_MUST_CHECK int pool_shrink(struct pool *pool, uint64_t most);

/* -EBUSY: tensors of the job are parked. */
RLV_MUST_CHECK int pool_check_parked(const struct pool *pool, uint32_t job);

/* The link to a tensor's block, if the job has one there. -EINVAL. */
RLV_MUST_CHECK int pool_find(struct pool *pool, uint32_t job, uint64_t va,
			     struct block ***link_out);

/* Takes over the progress of all streams. */
RLV_MUST_CHECK int pool_progress(struct pool *pool);

#endif
