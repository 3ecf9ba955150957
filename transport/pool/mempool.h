/*
 * mempool.h - the memory of a target, cut in extents of 2 MiB and handed out as regions.
 *
 *   memory   one memfd for each region, never used for two      (mempool_memory.c)
 *   private  anonymous pages, for threads of one process        (mempool_memory.c)
 *   file     a file or DAX device: superblock, extent table, extents          (mempool_file.c)
 *   dir      a directory: one file a region                                   (mempool_dir.c)
 *
 * A region has a count of references: one of the pool, one for each attachment within the process.
 * Its mapping goes with the last. Not locked: the target that owns the pool does that. What takes
 * long, some GiB of it, is made a step of its own, for which the target lets go of its lock.
 */
#ifndef RLV_TRANSPORT_POOL_MEMPOOL_H
#define RLV_TRANSPORT_POOL_MEMPOOL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "wire/rptr.h"

#include "base/mem/alloc.h"
#include "transport/pool/durable.h"
#include "transport/transport.h"

struct mempool;

/* A page of a region with memory of its own, in the place of the region's (wire/attach_layout.h). */
struct mempool_page {
	struct mempool_page *next; /* by off */
	uint64_t off;
	int fd;
};

struct mempool_region {
	struct target_region info;
	int fd;             /* -1: private memory */
	uint64_t fd_off;    /* where the region begins in it */
	struct pages pages; /* private memory */
	struct durable map; /* a file of its own */
	struct mempool_page *own_pages;
	bool by_pages;       /* pages were renewed: no other page of it is shared for itself */
	_Atomic bool broken; /* that file was cut short, or cannot be read */
	bool hugetlb;
	bool dropped; /* given back; lives on for those who have it attached */
	uint32_t refs;
};

struct mempool_ops {
	/* Finds room; info.size is whole extents. NULL = there is some. */
	int (*reserve)(struct mempool *pool, struct mempool_region *region);
	/* Zeroes it, or makes its memory, without the lock; NULL = it is zero. */
	int (*clear)(struct mempool *pool, struct mempool_region *region);
	/* Takes it: base, fd and fd_off are filled in then. */
	int (*alloc)(struct mempool *pool, struct mempool_region *region);
	/* Frees what was kept back and is not needed any more; NULL = nothing ever is. */
	void (*reclaim)(struct mempool *pool);
	/* Finds out what others did to it: regions that are broken, n_broken. NULL = nothing. */
	void (*look)(struct mempool *pool);
	/* Nobody may attach it any more; NULL = nothing to note. */
	int (*drop)(struct mempool *pool, struct mempool_region *region);
	/* Then frees what memory it can, without the lock; NULL = none before the last reference
	   goes. */
	void (*discard)(struct mempool *pool, struct mempool_region *region);
	/* Notes for good that the pool belongs to that store; NULL = it does not outlive us. */
	int (*own)(struct mempool *pool, const uint8_t store_uuid[16], const char *store_name);
	/* The last reference is gone: unmap, except in a forked child, which has no mapping. */
	void (*release)(struct mempool *pool, struct mempool_region *region, bool forked);
	/* Without the lock. */
	int (*persist)(struct mempool *pool, struct mempool_region *region, uint64_t off,
		       uint64_t len);
	/* Has no other process it mapped? NULL = nobody can tell. */
	bool (*alone)(struct mempool *pool, struct mempool_region *region);
	/* The page at off is from now on the memory of fd, which it takes over. NULL = it cannot. */
	int (*renew)(struct mempool *pool, struct mempool_region *region, uint64_t off, int fd);
	/* A descriptor to send to another process. */
	int (*share)(struct mempool *pool, struct mempool_region *region, bool writable,
		     int *fd_out);
	/* In a forked child (forked): frees memory and descriptors only. */
	void (*close)(struct mempool *pool, bool forked);
};

struct mempool {
	const struct mempool_ops *ops;
	uint64_t bytes, used;
	uint32_t n_regions;
	uint32_t n_broken; /* as last seen */
	uint32_t last_id;
	bool persistent;
	bool shareable; /* other processes may map it */
	bool huge;      /* huge pages are wished for */
	enum page_kind wanted;
	bool undivided; /* each descriptor maps all of it, and not every client may: none is given */
	bool sole_opener; /* file: nobody had it mapped at open */
	const char *page_kind;
	struct pool_identity identity; /* zeros, of a pool that does not outlive us */
	struct mempool_region *regions[RPTR_MAX_REGION + 1];
};

/* opts as for transport_target_open. */
RLV_MUST_CHECK int mempool_open(const struct target_opts *opts, struct mempool **pool_out);
RLV_MUST_CHECK int mempool_open_memory(const struct target_opts *opts, struct mempool **pool_out);
RLV_MUST_CHECK int mempool_open_file(const struct target_opts *opts, struct mempool **pool_out);
RLV_MUST_CHECK int mempool_open_dir(const struct target_opts *opts, struct mempool **pool_out);

/* Regions that are still attached elsewhere must be gone. */
void mempool_close(struct mempool **pool, bool forked);

/*
 * A new region: begin, clear, end, by one maker at a time. spec in: all but id and base; out, of end:
 * the rest. Where end is told of an error, or meets one, the region is gone. clear needs no
 * lock. -ENOSPC, -ENOMEM, -EINVAL.
 */
RLV_MUST_CHECK int mempool_begin(struct mempool *pool, const struct target_region *spec,
				 struct mempool_region **region_out);
RLV_MUST_CHECK int mempool_clear(struct mempool *pool, struct mempool_region *region);
RLV_MUST_CHECK int mempool_end(struct mempool *pool, struct mempool_region *region, int ret,
			       struct target_region *spec);

/* Gives a region back: drop, discard, unref. discard needs no lock. */
RLV_MUST_CHECK int mempool_drop(struct mempool *pool, uint32_t id,
				struct mempool_region **region_out);
void mempool_discard(struct mempool *pool, struct mempool_region *region);

/* NULL and a message if there is none of that number. */
struct mempool_region *mempool_find(struct mempool *pool, uint32_t id);

static inline bool mempool_is_broken(const struct mempool_region *region)
{
	/* relaxed: nothing is published with it */
	return atomic_load_explicit(&region->broken, memory_order_relaxed);
}

/* -EBADMSG, with words, for a region that is broken. */
RLV_MUST_CHECK int mempool_refuse_broken(const struct mempool_region *region);

/* The first page with memory of its own from off on, or NULL. */
const struct mempool_page *mempool_page_from(const struct mempool_region *region, uint64_t off);

void mempool_ref(struct mempool_region *region);
void mempool_unref(struct mempool *pool, struct mempool_region *region);

#endif
