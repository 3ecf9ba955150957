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
	/* Finds room for info.size bytes, whole extents. -ENOSPC. NULL: there is always room. */
	int (*reserve)(struct mempool *pool, struct mempool_region *region);
	/* Zeroes the region's memory, or makes it zeroed. Called without the target's lock. NULL:
	   it is zero already. */
	int (*clear)(struct mempool *pool, struct mempool_region *region);
	/* Allocates the region and fills in base, fd and fd_off. NULL: clear has done that. */
	int (*alloc)(struct mempool *pool, struct mempool_region *region);
	/* Frees extents that regions of an earlier process left in quarantine, once no process maps
	   the file. NULL: there are none. */
	void (*reclaim)(struct mempool *pool);
	/* Sets broken if the region's file, or that of a page, was cut short. NULL: impossible. */
	void (*look)(struct mempool_region *region);
	/* Records durably that the region, whose `dropped` is set, was given back; after an error
	   it was not. NULL: nothing to record. */
	int (*drop)(struct mempool *pool, struct mempool_region *region);
	/* Frees memory of a dropped region early, without the lock. NULL: memory stays until the
	   last unref. */
	void (*discard)(struct mempool_region *region);
	/* Writes pool->super to the pool's file, durably. NULL: the pool ends with this process. */
	int (*put_super)(struct mempool *pool);
	/* Unmaps, except in a forked child, which has no mapping; frees the memory of a dropped region,
	   unless other processes may map it. */
	void (*release)(struct mempool *pool, struct mempool_region *region, bool forked);
	/*
	 * Replaces the page at off by the memory of fd; takes ownership of fd, also on an error. If
	 * the pool makes_pages, fd is -1 and this makes the memory. NULL: unsupported.
	 */
	int (*renew)(struct mempool *pool, struct mempool_region *region, uint64_t off, int fd);
	/* Closes, unmaps and unlocks the pool's own files. forked: in a forked child, closes
	   descriptors only. NULL: the pool has no files of its own. */
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

/*
 * Opens the pool that opts (as for transport_target_open) name: in memory, a file or a directory.
 * pool_bytes is rounded up to whole extents. -EINVAL: it is too large; or errors of the kind of
 * pool.
 */
RLV_MUST_CHECK int mempool_open(const struct target_opts *opts, struct mempool **pool_out);

/*
 * Called by mempool_open, one for each kind of pool. opts->pool_bytes is in whole extents. -ENOMEM:
 * more than is free, or than a limit allows; -EINVAL: unknown page_kind. If a pool in a file or
 * directory fails, mempool_open closes *pool_out, unless that is NULL.
 */
RLV_MUST_CHECK int mempool_open_memory(const struct target_opts *opts, struct mempool **pool_out);
RLV_MUST_CHECK int mempool_open_file(const struct target_opts *opts, struct mempool **pool_out);
RLV_MUST_CHECK int mempool_open_dir(const struct target_opts *opts, struct mempool **pool_out);

/*
 * Makes a pool of `bytes` zeroed bytes, which begin with struct mempool, and fills that in from ops
 * and opts. mempool_close frees it. -ENOMEM.
 */
RLV_MUST_CHECK int mempool_new(size_t bytes, const struct mempool_ops *ops,
			       const struct target_opts *opts, struct mempool **pool_out);

/* Makes a region's entry with that info, no descriptor and one reference. NULL: no memory. */
struct mempool_region *mempool_region_new(const struct target_region *info);

/*
 * Releases all regions, closes and frees the pool, and sets *pool to NULL. All attachments must
 * have ended. forked: this is a forked child, which unmaps and unlocks nothing.
 */
void mempool_close(struct mempool **pool, bool forked);

/*
 * Makes a region in three steps: begin, ops->clear, end; one region at a time. spec: the caller
 * sets all but id and base, which end fills in. ret of end: that of clear; if it is an error, or
 * end fails, end frees the region. clear needs no lock. -ENOSPC (the pool is full), -ENOMEM,
 * -EINVAL (size).
 */
RLV_MUST_CHECK int mempool_begin(struct mempool *pool, const struct target_region *spec,
				 struct mempool_region **region_out);
RLV_MUST_CHECK int mempool_end(struct mempool *pool, struct mempool_region *region, int ret,
			       struct target_region *spec);

/*
 * Gives a region back in three steps: drop, ops->discard, unref. drop marks the region, so that
 * nobody finds it any more, and records that. -ENOENT: no such region. discard needs no lock.
 */
RLV_MUST_CHECK int mempool_drop(struct mempool *pool, uint32_t id,
				struct mempool_region **region_out);

/* The pool's region with that id; NULL and a message if there is none, or it was given back. */
struct mempool_region *mempool_find(struct mempool *pool, uint32_t id);

static inline bool mempool_is_broken(const struct mempool_region *region)
{
	/* relaxed: the flag publishes no other data */
	return atomic_load_explicit(&region->broken, memory_order_relaxed);
}

/* -EBADMSG and a message if the region is broken, else 0. */
RLV_MUST_CHECK int mempool_refuse_broken(const struct mempool_region *region);

/*
 * Looks which regions have a file that was cut short, sets pool->n_broken to the number of broken
 * ones, and frees regions given back that nobody maps any more.
 */
void mempool_look(struct mempool *pool);

/*
 * Makes len bytes of the region from off durable. Called without the target's lock. -ENOTSUP:
 * volatile memory. -EBADMSG: the region is broken.
 */
RLV_MUST_CHECK int mempool_persist(const struct mempool *pool, const struct mempool_region *region,
				   uint64_t off, uint64_t len);

/*
 * True if no other process maps the region or a page of it. False for a pool in memory: it is not
 * known.
 */
bool mempool_alone(const struct mempool *pool, const struct mempool_region *region);

/*
 * Makes a descriptor to send to another process, of fd: the region's, or that of a page of its own.
 * If the pool is in files, it holds a shared flock until all its copies are closed. -EBADMSG: the
 * region is broken. The caller closes *fd_out.
 */
RLV_MUST_CHECK int mempool_share(struct mempool *pool, struct mempool_region *region, int fd,
				 bool writable, int *fd_out);

/* The first page at or after off that has its own memory, or NULL. */
const struct mempool_page *mempool_page_from(const struct mempool_region *region, uint64_t off);

/*
 * For ops->renew. mempool_put_page: maps the memory of fd as the page at off; it takes over fd, and
 * the page's former memory is dropped, also on an error. mempool_drop_page: drops a page's own
 * memory; its mapping stays until another one is put there.
 */
RLV_MUST_CHECK int mempool_put_page(struct mempool_region *region, uint64_t off, int fd);
void mempool_drop_page(struct mempool_region *region, uint64_t off);
void mempool_drop_pages(struct mempool_region *region);

void mempool_unref(struct mempool *pool, struct mempool_region *region);

/*
 * Frees the regions given back that neither this process nor another one maps any more, and calls
 * ops->reclaim.
 */
void mempool_reclaim(struct mempool *pool);

#endif
