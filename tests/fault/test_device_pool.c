/* Each call of the backend, and each allocation, fails once: the pool keeps its books. */
#include <errno.h>
#include <string.h>

#include "base/mem/alloc.h"
#include "device/backend_fault.h"
#include "device/host/backend_host.h"
#include "device/pool.h"
#include "tests/support/test.h"

#define EXTENT ((uint64_t)16 << 10)
#define DEVICE 6u

struct scene {
	struct backend *host;
	struct backend_fault fault;
	struct pool *pool;
	uint32_t job[2], stream[2], other;
	int failures;
};

static void expect(struct scene *s, int ret)
{
	s->failures += ret != 0;
}

/* A call that is made until it succeeds: the n-th failure is behind it then. */
#define AGAIN(call) \
	do { \
		int again_ret = call; \
\
		expect(s, again_ret); \
		if (again_ret) \
			again_ret = call; \
		assert_int_equal(again_ret, 0); \
	} while (0)

static uint64_t take(struct scene *s, int job, uint64_t bytes)
{
	const struct pool_tensor tensor = { s->job[job], s->stream[job], TENSOR_ITERATION, bytes };
	uint64_t va = 0;

	AGAIN(pool_alloc(s->pool, &tensor, &va));
	memset((void *)(uintptr_t)va, 0x11 + job, bytes);
	return va;
}

static void poll_twice(struct scene *s)
{
	for (int i = 0; i < 3; i++) {
		backend_host_advance(s->host, 1000);
		expect(s, pool_poll(s->pool));
	}
	assert_int_equal(pool_check(s->pool), 0);
}

/* Hand-overs, a window over scattered extents, another stream, a lower budget, the end. */
static void life(struct scene *s)
{
	uint64_t va[5], large;
	struct pool_stats stats;

	for (int i = 0; i < 2; i++) {
		const struct pool_job job = { .name = i ? "two" : "one" };

		AGAIN(pool_attach(s->pool, &job, &s->job[i]));
		AGAIN(pool_stream(s->pool, s->job[i], NULL, &s->stream[i]));
	}
	AGAIN(pool_stream(s->pool, s->job[0], NULL, &s->other));
	for (int i = 0; i < 5; i++)
		va[i] = take(s, 0, EXTENT);
	AGAIN(pool_use(s->pool, s->job[0], va[1], s->other));
	AGAIN(pool_free(s->pool, s->job[0], va[1]));
	AGAIN(pool_free(s->pool, s->job[0], va[3]));
	poll_twice(s);
	large = take(s, 1, 2 * EXTENT + 1);
	for (int i = 0; i < 5; i += 2) { /* the neighbours' bytes are intact */
		for (uint64_t k = 0; k < EXTENT; k++)
			assert_int_equal(((const uint8_t *)(uintptr_t)va[i])[k], 0x11);
	}
	AGAIN(pool_free(s->pool, s->job[1], large));
	AGAIN(pool_limit(s->pool, 4 * EXTENT));
	poll_twice(s);
	for (int i = 0; i < 2; i++) {
		int ret = -EAGAIN;

		for (int k = 0; k < 8 && ret; k++) {
			ret = pool_detach(s->pool, s->job[i]);
			s->failures += ret && ret != -EAGAIN;
			backend_host_advance(s->host, 1000);
		}
		assert_int_equal(ret, 0);
	}
	pool_stats(s->pool, &stats);
	assert_int_equal(stats.held, 0);
	assert_int_equal(pool_check(s->pool), 0);
}

static int open_scene(struct scene *s, bool strict, uint64_t fail_at, int code)
{
	const struct backend_host_opts host = { .device_bytes = DEVICE * EXTENT };
	struct pool_opts opts = { .extent_bytes = EXTENT, .strict = strict };

	memset(s, 0, sizeof(*s));
	assert_int_equal(backend_host_open(&host, &s->host), 0);
	backend_fault_init(&s->fault, s->host, fail_at, code);
	opts.backend = &s->fault.base;
	return pool_open(&opts, &s->pool);
}

static void close_scene(struct scene *s)
{
	if (s->pool)
		assert_int_equal(pool_close(&s->pool), 0);
	s->host->ops->close(s->host);
}

static void sweep(bool strict)
{
	struct scene s;
	uint64_t n = 1, last = 0;

	for (; last + 1 >= n; n++) {
		if (open_scene(&s, strict, n, -ENOMEM) == 0)
			life(&s);
		else
			assert_int_equal(error_last_code(), -ENOMEM);
		last = s.fault.calls;
		close_scene(&s);
	}
	print_message("%llu calls of the backend failed\n", (unsigned long long)n - 1);
	assert_true(n > 30);
}

TEST(trusted__each_backend_call_fails_once)
{
	sweep(false);
}

TEST(strict__each_backend_call_fails_once)
{
	sweep(true);
}

/* A lost device: every call returns, with -ENODEV or done, and the pool can be left to its end. */
static void lose(bool strict)
{
	struct scene s;

	for (uint64_t n = 1; n < 60; n++) {
		const struct pool_tensor tensor = { 0, 0, TENSOR_ITERATION, 3 * EXTENT };
		const struct pool_job job = { .name = "one" };
		uint64_t va = 0;
		int ret = open_scene(&s, strict, n, -ENODEV);

		ret = ret ? ret : pool_attach(s.pool, &job, &s.job[0]);
		ret = ret ? ret : pool_stream(s.pool, s.job[0], NULL, &s.stream[0]);
		for (int i = 0; i < 4 && ret == 0; i++) {
			struct pool_tensor wish = tensor;

			wish.stream = s.stream[0];
			ret = pool_alloc(s.pool, &wish, &va);
			if (ret == 0)
				ret = pool_free(s.pool, s.job[0], va);
			backend_host_advance(s.host, 10);
			if (ret == 0)
				ret = pool_poll(s.pool);
		}
		assert_true(ret == 0 || ret == -ENODEV);
		if (s.pool) {
			ret = pool_detach(s.pool, s.job[0]);
			assert_true(ret == 0 || ret == -ENODEV || ret == -EAGAIN || ret == -EINVAL);
			assert_int_equal(pool_check(s.pool), 0);
			pool_abandon(&s.pool);
		}
		s.host->ops->close(s.host);
	}
}

TEST(trusted__device_is_lost_at_each_call)
{
	lose(false);
}

TEST(strict__device_is_lost_at_each_call)
{
	lose(true);
}

/* Allocations of the pool and of the host device alike. */
TEST(pool__each_allocation_fails_once)
{
	for (uint64_t n = 1;; n++) {
		struct scene s;
		bool fired;
		int ret = open_scene(&s, true, 0, 0);

		assert_int_equal(ret, 0);
		mem_fail_after(n);
		life(&s);
		fired = mem_fail_fired();
		mem_fail_after(0);
		close_scene(&s);
		if (!fired) {
			print_message("%llu allocations failed\n", (unsigned long long)n - 1);
			assert_true(n > 20);
			return;
		}
	}
}

int main(void)
{
	return test_run(NULL, NULL);
}
