/*
 * iteration.c - iterations of a job: their begin and end, and the profile of the first ones.
 */
#include "client/pool/state.h"

#include "device/pool_park.h"

#include <errno.h>
#include <stdatomic.h>

LOCK_ROLE(profile_role, "profile of a job", LOCK_RANK_LEAF);

/* -------- the profile -------- */

enum measured { BEGINS, HOLDS, ENDS };

/* Tells the profile of the job's first iterations what it holds. Blocks that the device is done with do not count. */
static int pool_measure(struct rlv_pool *pool, enum measured what)
{
	struct pool_stats stats;
	uint64_t now;
	int ret = 0;

	if (!atomic_load_explicit(&pool->measures, memory_order_relaxed))
		return 0;
	if (what == BEGINS)
		ret = pool_poll(pool->pool);
	pool_stats(pool->pool, &stats);
	lock_acquire(&pool->lock, &profile_role);
	now = clock_now_ns(clock_monotonic());
	if (what == BEGINS)
		profile_begin(&pool->profile, now, stats.held);
	else if (what == HOLDS)
		profile_held(&pool->profile, now, stats.held);
	else
		profile_end(&pool->profile, now);
	if (profile_is_complete(&pool->profile))
		atomic_store_explicit(&pool->measures, 0, memory_order_relaxed);
	lock_release(&pool->lock, &profile_role);
	return ret;
}

/* Tells the broker, and one that was started anew. What it refuses is no error: it counts with the largest need. */
static void pool_tell_profile(struct rlv_pool *pool)
{
	const struct lease_hello *hello = &pool->backend->lease.hello;
	uint32_t told = pool->backend->lease.resumed + 1;
	struct lease_message message = { .n_fds = 0 };
	struct error_kept kept;

	if (pool->told == told || !profile_is_complete(&pool->profile))
		return;
	pool->told = told;
	profile_fill(&pool->profile, hello->peak, pool->backend->extent_bytes, &message.profile);
	error_keep(&kept);
	if (lease_request(&pool->backend->lease, &message, LEASE_PROFILE,
			  pool_deadline(pool->timeout_ns)) == 0)
		lease_close_fds(&message);
	error_restore(&kept);
}

int pool_measure_held(struct rlv_pool *pool)
{
	return pool_runs(pool) ? pool_measure(pool, HOLDS) : 0;
}

/* -------- begin and end -------- */

int rlv_pool_iteration_begin(struct rlv_pool *pool, int64_t timeout_ns)
{
	uint64_t deadline = pool_deadline(timeout_ns);
	int ret = pool_enter_pause(pool);

	if (ret == 0 && pool->obeyed)
		ret = pool_resume(pool, deadline);
	if (ret == 0 && pool_parked(pool->pool, pool->job))
		ret = error_set(-EBUSY, "job %s is parked: rlv_pool_resume first", pool->name);
	if (ret)
		return ret;
	pool->obeyed = false;
	if (!lease_begin(&pool->backend->lease))
		ret = pool_ask_until(pool, LEASE_BEGIN, deadline);
	if (ret && ret != -EBUSY) /* -EBUSY: it began, and the answer was lost */
		return ret;
	pool_iterate(pool->pool, pool->job);
	pool->resumed = pool->backend->lease.resumed;
	if (pool_measure(pool, BEGINS))
		error_clear(); /* the first call that lacks memory returns it */
	atomic_store_explicit(&pool->runs, 1, memory_order_relaxed);
	return 0;
}

/* END, by the permit if the job has one: then there are no others. */
static int pool_ask_end(struct rlv_pool *pool, struct lease_message *message)
{
	struct lease *lease = &pool->backend->lease;

	message->answer.others = 0;
	return lease_permit_end(lease->permit, clock_now_ns(clock_monotonic()))
		       ? 0
		       : pool_ask(pool, LEASE_END, message);
}

int rlv_pool_iteration_end(struct rlv_pool *pool)
{
	struct lease_message message;
	uint64_t others;
	int ret = pool_enter(pool), given;

	if (ret == 0 && !pool_runs(pool))
		ret = error_set(-EINVAL, "job %s: no iteration runs", pool->name);
	if (ret)
		return ret;
	ret = pool_ask_end(pool, &message);
	if (ret == -EHOSTDOWN)
		return ret;
	atomic_store_explicit(&pool->runs, 0, memory_order_relaxed);
	(void)pool_measure(pool, ENDS);
	others = message.answer.others;
	if (ret == -EINVAL && pool->resumed != pool->backend->lease.resumed)
		ret = 0; /* of an iteration that an earlier broker let begin */
	pool_tell_profile(pool);
	if (others == 0)
		return ret;
	given = pool_give(pool, pool->keep);
	if (message.answer.flags & LEASE_ANSWER_PARK && !given &&
	    pool->backend->lease.hello.flags & LEASE_PARKS)
		pool_obey(pool);
	return ret ? ret : given;
}
