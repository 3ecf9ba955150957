#include "client/pool/state.h"
#include "device/pool_park.h"

#include <errno.h>
#include <stdatomic.h>

#define REFUSES_NS (10 * (int64_t)CLOCK_NS_PER_S)

/* Moves tensors until it is done, at most until the deadline. */
static int pool_move(struct rlv_pool *pool, bool out, uint64_t deadline_ns)
{
	uint64_t extents = pool_parked(pool->pool, pool->job) / pool->backend->extent_bytes;
	int ret;

	/* relaxed: a hint */
	atomic_store_explicit(&pool->backend->want, (uint32_t)extents, memory_order_relaxed);
	for (;;) {
		ret = out ? pool_park(pool->pool, pool->job, UINT64_MAX)
			  : pool_unpark(pool->pool, pool->job);
		pool_advance(pool);
		if (ret != -EAGAIN)
			return ret;
		if (deadline_expired(clock_monotonic(), deadline_ns))
			return error_set(-ETIMEDOUT, "job %s: %s", pool->name, error_last());
		if (!out) /* the device's progress is at once, another job's is not */
			lease_wait(&pool->backend->lease, deadline_ns);
	}
}

int rlv_pool_park(struct rlv_pool *pool, int64_t timeout_ns)
{
	struct lease_message message;
	struct error_kept kept;
	int ret = pool_enter_pause(pool);

	if (ret)
		return ret;
	ret = pool->park.store ? park_store_send(pool, pool_deadline(timeout_ns))
			       : pool_move(pool, true, pool_deadline(timeout_ns));
	if (ret) { /* what cannot come back now does so with rlv_pool_resume */
		error_keep(&kept);
		(void)pool_move(pool, false, 0);
		error_restore(&kept);
		return ret;
	}
	ret = pool_give(pool, 0);
	if (ret == 0)
		ret = pool_ask(pool, LEASE_PARK, &message);
	if (ret == 0)
		pool->backend->lease.hello.flags |= LEASE_PARKED;
	return ret;
}

int pool_resume(struct rlv_pool *pool, uint64_t deadline_ns)
{
	struct lease_hello *hello = &pool->backend->lease.hello;
	int ret;

	if (pool_parked(pool->pool, pool->job) == 0 && !(hello->flags & LEASE_PARKED))
		return 0;
	ret = pool_ask_until(pool, LEASE_RESUME, deadline_ns);
	if (ret)
		return ret;
	hello->flags &= ~(uint32_t)LEASE_PARKED;
	ret = pool_move(pool, false, deadline_ns);
	if (ret == 0 && pool->park.store)
		ret = park_store_fetch(pool, deadline_ns);
	if (ret == -ETIMEDOUT)
		pool_give_up(pool);
	/* The host's copies end when what was queued is done. */
	return ret ? ret : pool_unpark(pool->pool, pool->job);
}

int rlv_pool_resume(struct rlv_pool *pool, int64_t timeout_ns)
{
	int ret = pool_enter_pause(pool);

	return ret ? ret : pool_resume(pool, pool_deadline(timeout_ns));
}

void pool_obey(struct rlv_pool *pool)
{
	struct error_kept kept;

	if (!deadline_expired(clock_monotonic(), pool->refuses_ns))
		return;
	error_keep(&kept);
	pool->obeyed = true;
	if (rlv_pool_park(pool, pool->timeout_ns))
		pool->refuses_ns = pool_deadline(REFUSES_NS);
	error_restore(&kept);
}
