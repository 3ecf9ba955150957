/*
 * lock.h - ranked mutex with a role that the compiler can check.
 *
 * A role is what a kind of lock protects: one global symbol, with a rank. Any number of locks may
 * have the same role. A thread takes locks in strictly rising rank; debug builds check it, and
 * that a lock is used under its own role. clang's -Wthread-safety checks that data marked
 * LOCK_GUARDED_BY(role) is only touched while a lock of that role is held:
 *
 *   LOCK_ROLE(catalog_role, "catalog", LOCK_RANK_OBJECT);   (static, or extern in a header)
 *   struct catalog { struct lock lock; int n LOCK_GUARDED_BY(catalog_role); };
 *   lock_acquire(&c->lock, &catalog_role); c->n++; lock_release(&c->lock, &catalog_role);
 *
 * (In C, clang 14 cannot name a member in such an attribute, hence the role.)
 * No lock is on the data path, but the turn of a heap with copies: once in a call.
 */
#ifndef RLV_BASE_OS_LOCK_H
#define RLV_BASE_OS_LOCK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#if defined(__clang__)
#define LOCK_ATTRIBUTE(x) __attribute__((x))
#else
#define LOCK_ATTRIBUTE(x)
#endif

#define LOCK_GUARDED_BY(role) LOCK_ATTRIBUTE(guarded_by(role))
#define LOCK_REQUIRES(role) LOCK_ATTRIBUTE(requires_capability(role))
#define LOCK_ACQUIRES(role) LOCK_ATTRIBUTE(acquire_capability(role))
#define LOCK_RELEASES(role) LOCK_ATTRIBUTE(release_capability(role))
#define LOCK_TRY_ACQUIRES(role) LOCK_ATTRIBUTE(try_acquire_capability(true, role))
#define LOCK_UNCHECKED LOCK_ATTRIBUTE(no_thread_safety_analysis)

/* Outermost first: a thread that holds one may take only those below it in this list. */
enum lock_rank {
	LOCK_RANK_PROCESS = 10, /* lists of the whole process: open stores, fork handlers */
	LOCK_RANK_SERVER = 20,  /* a daemon's state */
	LOCK_RANK_HANDLE = 30,  /* a handle, as long as a call of it takes */
	LOCK_RANK_OBJECT = 40,  /* one object: table, catalog, device pool */
	LOCK_RANK_REGION = 45,  /* regions are made and given back one after another */
	LOCK_RANK_CHANNEL = 50, /* one connection */
	LOCK_RANK_MEMORY = 60,  /* allocators, registration caches */
	LOCK_RANK_LEAF = 70,    /* held for a few lines, nothing is taken under it */
};

struct LOCK_ATTRIBUTE(capability("lock role")) lock_role {
	const char *name;
	enum lock_rank rank;
};

#define LOCK_ROLE(symbol, text, rank_value) \
	const struct lock_role symbol = { .name = (text), .rank = (rank_value) }

struct lock {
	pthread_mutex_t mutex;
	const struct lock_role *role; /* as given to lock_init */
};

/* A lock that needs no lock_init: static storage. */
#define LOCK_INIT(role_ptr) \
	{ \
		.mutex = PTHREAD_MUTEX_INITIALIZER, .role = (role_ptr) \
	}

/* Makes an unlocked lock of that role, which is borrowed until lock_fini. Thread: setup. */
void lock_init(struct lock *lock, const struct lock_role *role);

/* Destroys the lock; nobody may hold it. */
void lock_fini(struct lock *lock);

/* Thread: any. */
void lock_acquire(struct lock *lock, const struct lock_role *role) LOCK_ACQUIRES(role);
/* False: not acquired before deadline_ns of clock_monotonic(). */
bool lock_acquire_until(struct lock *lock, const struct lock_role *role, uint64_t deadline_ns)
	LOCK_TRY_ACQUIRES(role);
bool lock_try_acquire(struct lock *lock, const struct lock_role *role) LOCK_TRY_ACQUIRES(role);
void lock_release(struct lock *lock, const struct lock_role *role) LOCK_RELEASES(role);

/*
 * Debug builds: true if the rank rule lets this thread take a lock of this role now. Release
 * builds: true.
 */
bool lock_rank_allows(const struct lock_role *role);

#endif
