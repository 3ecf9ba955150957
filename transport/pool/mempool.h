/*
 * mempool.h - the memory of a target, cut in extents of 2 MiB and handed out as regions.
 *
 *   memory one memfd for each region, never reused      (mempool_memory.c)
 *   private  anonymous pages, for threads of one process        (mempool_memory.c)
 *   file     a file or DAX device: superblock, extent table, extents          (mempool_file.c)
 *   dir      a directory: one file a region                                   (mempool_dir.c)
 *
 * A region has a reference count: one for the pool, one for each attachment within the process. It is
 * unmapped and freed after the last one, when no other process has its file open with a lock. Thread: the target that owns the pool locks it. Slow work on some GiB
 * (clear, discard, persist) is a separate step, which the target calls without its lock.
 */
#ifndef RLV_TRANSPORT_POOL_MEMPOOL_H
#define RLV_TRANSPORT_POOL_MEMPOOL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "wire/pool_layout.h"
#include "wire/rptr.h"

#include "base/mem/alloc.h"
#include "transport/pool/durable.h"
#include "transport/transport.h"

struct mempool;

/*
 * A page of a region that has its own memfd instead of the region's memory (wire/attach_layout.h).
 */
struct mempool_page {
	struct mempool_page *next; /* in order of off */
	uint64_t off;
	int fd;
};

struct mempool_region {
	struct target_region info;
	int fd;                     /* -1: private memory */
	uint64_t fd_off;            /* offset of the region in fd */
	struct extent_entry *entry; /* of a pool in a file */
	struct pages pages;         /* private memory */
	struct durable map;         /* in persistent pools: its mapping */
	struct mempool_page *own_pages;
	bool by_pages;       /* pages were renewed: no other page of it is shared on its own */
	_Atomic bool broken; /* its file was truncated or cannot be read */
	bool hugetlb;
	bool dropped; /* given back; stays while attached */
	uint32_t refs;
};

struct mempool_ops {
	/* Finds room; info.size is whole extents. NULL: always room. */
	int (*reserve)(struct mempool *pool, struct mempool_region *region);
	/* Zeroes the region, or makes its memory, without the lock. NULL: already zero. */
	int (*clear)(struct mempool *pool, struct mempool_region *region);
	/* Allocates the region and fills in base, fd and fd_off. NULL: clear has. */
	int (*alloc)(struct mempool *pool, struct mempool_region *region);
	/* Frees what regions of an earlier process took, if nobody maps it any more. NULL: nothing. */
	void (*reclaim)(struct mempool *pool);
	/* Sets broken if others truncated or damaged the region. NULL: impossible. */
	void (*look)(struct mempool_region *region);
	/* Records that nobody may attach the region any more; it is marked as dropped already.
	   NULL: nothing to record. */
	int (*drop)(struct mempool *pool, struct mempool_region *region);
	/* After drop: frees memory early, without the lock. NULL: memory stays until the last
	   unref. */
	void (*discard)(struct mempool_region *region);
	/* Makes super durable. NULL: the pool ends with this process. */
	int (*put_super)(struct mempool *pool);
	/* Unmaps, except in a forked child, which has no mapping; frees the memory of a dropped region,
	   unless other processes may map it. */
	void (*release)(struct mempool *pool, struct mempool_region *region, bool forked);
	/*
	 * Replaces the page at off by the memory of fd; takes ownership of fd. fd is -1 if the pool
	 * makes_pages. NULL: unsupported.
	 */
	int (*renew)(struct mempool *pool, struct mempool_region *region, uint64_t off, int fd);
	/* forked: in a forked child, frees memory and descriptors only. NULL: nothing is open. */
	void (*close)(struct mempool *pool, bool forked);
};

struct mempool {
	const struct mempool_ops *ops;
	uint64_t bytes, used;
	uint32_t n_regions;
	uint32_t n_broken; /* as last seen */
	uint32_t last_id;
	bool persistent;
	bool private_memory;
	bool shareable; /* other processes may map it */
	bool huge;      /* huge pages are requested */
	enum page_kind wanted;
	bool undivided;   /* a descriptor would map the whole pool: clients get none */
	bool makes_pages; /* renew makes the memory of a page itself */
	bool sole_opener; /* file: nobody else had it mapped at open */
	const char *page_kind;
	struct pool_superblock super; /* zeros: the pool ends with this process */
	struct mempool_region *regions[RPTR_MAX_REGION + 1];
};

/* opts as for transport_target_open; the others get pool_bytes in whole extents. */
RLV_MUST_CHECK int mempool_open(const struct target_opts *opts, struct mempool **pool_out);

/* For mempool_open: after an error it closes *pool_out, unless that is NULL, and names the path. */
RLV_MUST_CHECK int mempool_open_memory(const struct target_opts *opts, struct mempool **pool_out);
RLV_MUST_CHECK int mempool_open_file(const struct target_opts *opts, struct mempool **pool_out);
RLV_MUST_CHECK int mempool_open_dir(const struct target_opts *opts, struct mempool **pool_out);

/* For those: makes one of `bytes` zeroed bytes, which begins with its head, of a path. -ENOMEM. */
RLV_MUST_CHECK int mempool_new(size_t bytes, const struct mempool_ops *ops,
			       const struct target_opts *opts, struct mempool **pool_out);

/* For those: makes a region's entry. NULL: no memory. */
struct mempool_region *mempool_region_new(const struct target_region *info);

/* All attachments must have ended. */
void mempool_close(struct mempool **pool, bool forked);

/*
 * Makes a region in three steps: begin, ops->clear, end; one region at a time. spec: the caller sets
 * all but id and base, which end fills in. If end gets an error as argument, or fails, it frees the
 * region. clear needs no lock. -ENOSPC, -ENOMEM, -EINVAL.
 */
RLV_MUST_CHECK int mempool_begin(struct mempool *pool, const struct target_region *spec,
				 struct mempool_region **region_out);
RLV_MUST_CHECK int mempool_end(struct mempool *pool, struct mempool_region *region, int ret,
			       struct target_region *spec);

/* Gives a region back in three steps: drop, ops->discard, unref. discard needs no lock. */
RLV_MUST_CHECK int mempool_drop(struct mempool *pool, uint32_t id,
				struct mempool_region **region_out);

/* NULL and a message if no region has that id. */
struct mempool_region *mempool_find(struct mempool *pool, uint32_t id);

static inline bool mempool_is_broken(const struct mempool_region *region)
{
	/* relaxed: publishes nothing */
	return atomic_load_explicit(&region->broken, memory_order_relaxed);
}

/* -EBADMSG and a message if the region is broken, else 0. */
RLV_MUST_CHECK int mempool_refuse_broken(const struct mempool_region *region);

/* Looks for broken regions, of which it sets the number, and for memory that nobody maps any more. */
void mempool_look(struct mempool *pool);

/* Without the lock. -ENOTSUP: volatile memory. -EBADMSG: broken. */
RLV_MUST_CHECK int mempool_persist(const struct mempool *pool, const struct mempool_region *region,
				   uint64_t off, uint64_t len);

/* True if no other process maps the region. False where it is not known. */
bool mempool_alone(const struct mempool *pool, const struct mempool_region *region);

/*
 * Makes a descriptor to send to another process, of the region's fd or that of a page of its own; of a
 * file it holds a shared flock while anybody has it open.
 */
RLV_MUST_CHECK int mempool_share(struct mempool *pool, struct mempool_region *region, int fd,
				 bool writable, int *fd_out);

/* The first page at or after off that has its own memory, or NULL. */
const struct mempool_page *mempool_page_from(const struct mempool_region *region, uint64_t off);

/*
 * For ops->renew. mempool_put_page: the page at off gets the memory of fd, which is taken over, and
 * loses its former one even after an error. mempool_drop_page: forgets a page's own memory; its
 * mapping stays until another one is put there.
 */
RLV_MUST_CHECK int mempool_put_page(struct mempool_region *region, uint64_t off, int fd);
void mempool_drop_page(struct mempool_region *region, uint64_t off);
void mempool_drop_pages(struct mempool_region *region);

void mempool_unref(struct mempool *pool, struct mempool_region *region);

/* Frees given-back regions that other processes mapped longer than we, if they are gone. */
void mempool_reclaim(struct mempool *pool);

#endif
