/*
 * guard.c - ranges in chunks that are never freed, so that the handler walks them without a lock.
 */
#include "base/mem/guard.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/mem/alloc.h"
#include "base/os/lock.h"

#define CHUNK_RANGES 255u

struct range {
	_Atomic uintptr_t base; /* 0 = free */
	_Atomic uintptr_t end;
	_Atomic bool *broken;
};

struct chunk {
	struct chunk *next; /* the older one */
	struct range ranges[CHUNK_RANGES];
};

static LOCK_ROLE(guard_role, "guarded ranges", LOCK_RANK_LEAF);

static struct {
	bool installed;
	struct lock lock; /* serializes guard_add and guard_remove */
	struct sigaction before;
	uintptr_t page;
	_Atomic(struct chunk *) chunks;
} guard;

/* The guarded range that contains the address, or NULL. Async-signal-safe: the handler calls it. */
static struct range *guard_find_range(uintptr_t at)
{
	/* M2 pairs with M1: the chunk before its links */
	struct chunk *chunk = atomic_load_explicit(&guard.chunks, memory_order_acquire);

	for (; chunk; chunk = chunk->next) {
		for (uint32_t i = 0; i < CHUNK_RANGES; i++) {
			struct range *range = &chunk->ranges[i];
			/*
			 * M4 pairs with M3: the base is read before the other fields of its range
			 */
			uintptr_t base = atomic_load_explicit(&range->base, memory_order_acquire);
			/* acquire: the second look at base comes after it */
			uintptr_t end = atomic_load_explicit(&range->end, memory_order_acquire);

			/* relaxed: the base is read again, in case the range was replaced meanwhile */
			if (base && at >= base && at < end &&
			    atomic_load_explicit(&range->base, memory_order_relaxed) == base)
				return range;
		}
	}
	return NULL;
}

/*
 * Handles SIGBUS: maps zeros from a guarded page to its range's end and sets the range's flag. For
 * another fault restores the former handler, which gets it when the access faults again.
 */
static void on_bus_error(int number, siginfo_t *info, void *context)
{
	uintptr_t at = (uintptr_t)info->si_addr;
	struct range *range = info->si_code == BUS_ADRERR ? guard_find_range(at) : NULL;
	uintptr_t from = at & ~(guard.page - 1);
	/* relaxed: the range is in use, so it stays as it is */
	uintptr_t end = range ? atomic_load_explicit(&range->end, memory_order_relaxed) : from;
	int saved = errno;

	(void)context;
	/* Maps zeros to the range's end at once, so that further touches do not fault. */
	if (range &&
	    syscall(SYS_mmap, from, end - from, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) == (long)from) {
		/* relaxed: the interrupted thread reads it itself; others check again later */
		atomic_store_explicit(range->broken, true, memory_order_relaxed);
		errno = saved;
		return;
	}
	(void)sigaction(SIGBUS, &guard.before, NULL);
	if (info->si_code <= 0) /* sent by a process: no access that faults again */
		(void)raise(number);
	errno = saved;
}

int guard_install(void)
{
	struct sigaction action = { .sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO };

	if (guard.installed)
		return 0;
	lock_init(&guard.lock, &guard_role);
	guard.page = (uintptr_t)sysconf(_SC_PAGESIZE);
	if (sigaction(SIGBUS, &action, &guard.before))
		return error_set(-errno, "install the handler of SIGBUS: %s", strerror(errno));
	guard.installed = true;
	return 0;
}

static struct range *find_free(void)
{
	struct chunk *newest = atomic_load_explicit(&guard.chunks, memory_order_relaxed);
	struct chunk *chunk;

	for (chunk = newest; chunk; chunk = chunk->next) {
		for (uint32_t i = 0; i < CHUNK_RANGES; i++)
			/* relaxed: it changes under our lock only, and so does chunks */
			if (!atomic_load_explicit(&chunk->ranges[i].base, memory_order_relaxed))
				return &chunk->ranges[i];
	}
	chunk = mem_zalloc(sizeof(*chunk));
	if (!chunk)
		return NULL;
	chunk->next = newest;
	/* M1 pairs with M2: the chunk's links before it */
	atomic_store_explicit(&guard.chunks, chunk, memory_order_release);
	return &chunk->ranges[0];
}

int guard_add(const void *base, uint64_t size, _Atomic bool *broken)
{
	struct range *range;

	if (!guard.installed)
		return 0;
	lock_acquire(&guard.lock, &guard_role);
	range = find_free();
	if (range) {
		/* relaxed: the base publishes it */
		atomic_store_explicit(&range->end, (uintptr_t)base + size, memory_order_relaxed);
		range->broken = broken;
		/* M3 pairs with M4: the fields of the range are written before its base */
		atomic_store_explicit(&range->base, (uintptr_t)base, memory_order_release);
	}
	lock_release(&guard.lock, &guard_role);
	return range ? 0 : error_set(-ENOMEM, "cannot allocate memory to record a mapped range");
}

void guard_remove(const void *base)
{
	struct range *range;

	if (!guard.installed || !base)
		return;
	lock_acquire(&guard.lock, &guard_role);
	range = guard_find_range((uintptr_t)base);
	if (range)
		/* relaxed: the range is no longer accessed */
		atomic_store_explicit(&range->base, 0, memory_order_relaxed);
	lock_release(&guard.lock, &guard_role);
}
