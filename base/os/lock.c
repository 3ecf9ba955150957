#include "base/os/lock.h"

#include <assert.h>
#include <stddef.h>
#include <time.h>

#include "base/os/clock.h"

#ifdef NDEBUG
enum { CHECKED = 0 };
#else
enum { CHECKED = 1 };
#endif

/* The locks of this thread, in the order of acquisition. More than HELD_MAX is a bug. */
#define HELD_MAX 16
static _Thread_local const struct lock_role *held[HELD_MAX];
static _Thread_local size_t n_held; /* 0 unless CHECKED */

bool lock_rank_allows(const struct lock_role *role)
{
	if (n_held == HELD_MAX)
		return false;
	for (size_t i = 0; i < n_held; i++)
		if (held[i]->rank >= role->rank)
			return false;
	return true;
}

static void push_held(const struct lock_role *role)
{
	assert(n_held < HELD_MAX);
	if (CHECKED)
		held[n_held++] = role;
}

void lock_init(struct lock *lock, const struct lock_role *role)
{
	lock->mutex = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	lock->role = role;
}

void lock_fini(struct lock *lock)
{
	int ret = pthread_mutex_destroy(&lock->mutex);

	assert(ret == 0);
	(void)ret;
	lock->role = NULL;
}

LOCK_UNCHECKED void lock_acquire(struct lock *lock, const struct lock_role *role)
{
	(void)lock_acquire_until(lock, role, DEADLINE_NEVER);
}

/*
 * False only after the deadline: otherwise a normal mutex fails to lock by misuse alone, which is
 * asserted.
 */
LOCK_UNCHECKED bool lock_acquire_until(struct lock *lock, const struct lock_role *role,
				       uint64_t deadline_ns)
{
	const struct timespec until = {
		.tv_sec = (time_t)(deadline_ns / CLOCK_NS_PER_S),
		.tv_nsec = (long)(deadline_ns % CLOCK_NS_PER_S),
	};
	bool never = deadline_ns == DEADLINE_NEVER;
	int ret;

	assert(lock->role == role);
	assert(lock_rank_allows(role));
	ret = never ? pthread_mutex_lock(&lock->mutex)
		    : pthread_mutex_clocklock(&lock->mutex, CLOCK_MONOTONIC, &until);
	assert(ret == 0 || !never);
	if (ret == 0)
		push_held(role);
	return ret == 0;
}

/* Never blocks, so it cannot deadlock: ranks of locks that are already held do not matter. */
LOCK_UNCHECKED bool lock_try_acquire(struct lock *lock, const struct lock_role *role)
{
	assert(lock->role == role);
	if (pthread_mutex_trylock(&lock->mutex) != 0)
		return false;
	push_held(role);
	return true;
}

LOCK_UNCHECKED void lock_release(struct lock *lock, const struct lock_role *role)
{
	size_t i = n_held;
	int ret;

	assert(lock->role == role);
	while (i > 0 && held[i - 1] != role)
		i--;
	assert(i > 0);
	for (; CHECKED && i < n_held; i++)
		held[i - 1] = held[i];
	n_held -= CHECKED;
	ret = pthread_mutex_unlock(&lock->mutex);
	assert(ret == 0);
	(void)ret;
}
