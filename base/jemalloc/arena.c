#include "base/jemalloc/arena.h"

#include "base/bits.h"
#include "base/os/lock.h"

#include <jemalloc/jemalloc.h>

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define NO_ARENA (-1)

/* By how much the reserve grows at a time, and the largest alignment: one chunk. */
#define GROW_BYTES ((size_t)2 << 20)

static _Atomic int arena = NO_ARENA;      /* written under the lock */
static const struct arena_source *origin; /* written before `arena`, and not again */

static LOCK_ROLE(arena_role, "arena", LOCK_RANK_MEMORY);
static struct lock arena_lock = LOCK_INIT(&arena_role);
static bool ready LOCK_GUARDED_BY(arena_role); /* for forks and ends of threads */

/* Number of this thread's cache + 1; 0 = none yet. The key's value says that there is one. */
static _Thread_local unsigned cache;
static pthread_key_t cache_key;

/* -------- extents -------- */

/* NOLINTBEGIN(readability-function-size): jemalloc sets the arguments of its extent hooks */

static void *extent_alloc(extent_hooks_t *hooks, void *at, size_t size, size_t align, bool *zero,
			  bool *commit, unsigned index)
{
	void *ptr = at ? NULL : origin->alloc(align, size);

	(void)hooks;
	(void)index;
	if (!ptr)
		return NULL;
	if (*zero)
		memset(ptr, 0, size);
	*commit = true;
	return ptr;
}

static bool extent_split(extent_hooks_t *hooks, void *ptr, size_t size, size_t first, size_t second,
			 bool committed, unsigned index)
{
	(void)hooks;
	(void)ptr;
	(void)size;
	(void)first;
	(void)second;
	(void)committed;
	(void)index;
	return false;
}

/*
 * Lets jemalloc merge two adjacent extents (returns false) only if one registration covers both: a
 * buffer across two chunks would be known to devices by halves.
 */
static bool extent_merge(extent_hooks_t *hooks, void *first, size_t first_size, void *second,
			 size_t second_size, bool committed, unsigned index)
{
	(void)hooks;
	(void)second;
	(void)committed;
	(void)index;
	return !origin->is_one(first, first_size + second_size);
}

/* NOLINTEND(readability-function-size) */

/* Nothing is given back, purged or decommitted: a device holds the pages. */
static extent_hooks_t extent_hooks = {
	.alloc = extent_alloc,
	.split = extent_split,
	.merge = extent_merge,
};

/* -------- making -------- */

static void drop_cache(void *value)
{
	unsigned index = cache - 1;

	(void)value;
	cache = 0;
	(void)mallctl("tcache.destroy", NULL, NULL, &index, sizeof(index));
}

LOCK_UNCHECKED static void forget_in_child(void)
{
	lock_init(&arena_lock, &arena_role);
	atomic_store_explicit(&arena, NO_ARENA, memory_order_relaxed); /* one thread */
	cache = 0;
	(void)pthread_setspecific(cache_key, NULL);
}

static int arena_set(unsigned index, const char *what, void *value, size_t bytes)
{
	char name[64];

	(void)snprintf(name, sizeof(name), "arena.%u.%s", index, what);
	return mallctl(name, NULL, NULL, value, bytes);
}

static int open_locked(const struct arena_source *source) LOCK_REQUIRES(arena_role)
{
	extent_hooks_t *hooks = &extent_hooks;
	size_t grow = GROW_BYTES, bytes = sizeof(unsigned);
	unsigned index;
	int code;

	if (atomic_load_explicit(&arena, memory_order_relaxed) != NO_ARENA) /* by the lock */
		return 0;
	if (!ready && pthread_key_create(&cache_key, drop_cache))
		return error_set(-ENOMEM, "arena: cannot create a key of thread data");
	if (!ready && pthread_atfork(NULL, NULL, forget_in_child)) {
		(void)pthread_key_delete(cache_key);
		return error_set(-ENOMEM, "arena: cannot register a fork handler");
	}
	ready = true;
	/* Made with jemalloc's own hooks first, so that its own data stay out of the chunks. */
	code = mallctl("arenas.create", &index, &bytes, NULL, 0);
	origin = source;
	if (code == 0)
		code = arena_set(index, "extent_hooks", &hooks, sizeof(extent_hooks_t *));
	if (code == 0)
		code = arena_set(index, "retain_grow_limit", &grow, sizeof(grow));
	if (code)
		return error_set(-ENOMEM, "jemalloc: no arena: error %d", code);
	/* A1 pairs with A2: the source and the key before the arena's number */
	atomic_store_explicit(&arena, (int)index, memory_order_release);
	return 0;
}

int arena_open(const struct arena_source *source, unsigned *index_out)
{
	/* A2 pairs with A1: the number before what belongs to it */
	int known = atomic_load_explicit(&arena, memory_order_acquire);
	int ret = 0;

	if (known == NO_ARENA) {
		lock_acquire(&arena_lock, &arena_role);
		ret = open_locked(source);
		known = atomic_load_explicit(&arena, memory_order_relaxed); /* by the lock */
		lock_release(&arena_lock, &arena_role);
	}
	if (ret == 0)
		*index_out = (unsigned)known;
	return ret;
}

/* -------- buffers -------- */

/*
 * Flag of mallocx that names this thread's cache for the arena, made at first use.
 * MALLOCX_TCACHE_NONE (no cache) if none can be made.
 */
static int cache_flag(void)
{
	unsigned index;
	size_t bytes = sizeof(index);

	if (cache)
		return MALLOCX_TCACHE(cache - 1);
	if (mallctl("tcache.create", &index, &bytes, NULL, 0))
		return MALLOCX_TCACHE_NONE;
	cache = index + 1;
	if (pthread_setspecific(cache_key, &cache) == 0)
		return MALLOCX_TCACHE(index);
	drop_cache(NULL);
	return MALLOCX_TCACHE_NONE;
}

void *arena_alloc(void *source, size_t align, size_t bytes)
{
	unsigned index;

	if (!bits_is_pow2(align) || align > GROW_BYTES || bytes > (size_t)PTRDIFF_MAX / 2 ||
	    mem_fail_now() || arena_open(source, &index))
		return NULL;
	return mallocx(bytes ? bytes : 1,
		       MALLOCX_ARENA(index) | cache_flag() | MALLOCX_ALIGN(align));
}

void arena_free(void *source, void *ptr, size_t bytes)
{
	(void)source;
	(void)bytes;
	if (ptr)
		dallocx(ptr, cache_flag());
}
