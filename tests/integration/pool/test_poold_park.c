/* Jobs that are parked: others run in their place, and their bytes come back. */
#include <errno.h>
#include <signal.h>
#include <string.h>

#include "base/mem/alloc.h"
#include "base/os/clock.h"
#include "tests/support/fixture/poold_fixture.h"
#include "tests/support/must.h"

static struct poold_fixture fx;

static int begin(void **state)
{
	(void)state;
	poold_start(&fx, NULL, NULL);
	return 0;
}

static int end(void **state)
{
	(void)state;
	poold_stop(&fx);
	return 0;
}

TEST_WITH(rlv_pool_park__another_job_is_resident_meanwhile, begin, end)
{
	struct rlv_pool *a = poold_join("a", 6, 1), *b = poold_join_brief("b", 6, 1);
	uint8_t *first = poold_tensor(a, RLV_POOL_PERSISTENT, 2, 1);
	uint8_t *second = poold_tensor(a, RLV_POOL_PERSISTENT, 4, 2), *theirs;
	void *ptr;

	expect(rlv_pool_alloc(b, RLV_POOL_PERSISTENT, POOLD_EXTENT, 0, &ptr), -ETIMEDOUT);
	must(rlv_pool_park(a, POOLD_SOON), "park a");
	assert_int_equal(poold_job("a").state, RLV_POOL_JOB_PARKED);
	assert_true(poold_holds(0, 0));
	expect(rlv_pool_alloc(a, RLV_POOL_ITERATION, 1, 0, &ptr), -EBUSY);
	expect(rlv_pool_free(a, first, 0), -EBUSY);
	expect(rlv_pool_iteration_begin(a, 0), -EBUSY);
	must(rlv_pool_park(a, POOLD_SOON), "park a again");

	theirs = poold_tensor(b, RLV_POOL_PERSISTENT, 6, 3);
	must(rlv_pool_iteration_begin(b, 0), "b begins");
	must(rlv_pool_iteration_end(b), "b ends");
	expect(rlv_pool_resume(a, POOLD_SECOND / 20), -ETIMEDOUT);
	assert_int_equal(poold_job("a").state, RLV_POOL_JOB_PARKED);
	expect(rlv_pool_alloc(a, RLV_POOL_ITERATION, 1, 0, &ptr), -EBUSY);

	must(rlv_pool_park(b, POOLD_SOON), "park b");
	must(rlv_pool_resume(a, POOLD_SOON), "resume a");
	poold_expect_bytes(first, 2, 1);
	poold_expect_bytes(second, 4, 2);
	must(rlv_pool_iteration_begin(a, 0), "a begins");
	must(rlv_pool_iteration_end(a), "a ends");
	must(rlv_pool_resume(a, 0), "nothing to resume");
	must(rlv_pool_close(&a), "close a");
	must(rlv_pool_resume(b, POOLD_SOON), "resume b");
	poold_expect_bytes(theirs, 6, 3);
	must(rlv_pool_close(&b), "close b");
	assert_true(poold_holds(0, POOLD_SOON));
}

TEST_WITH(rlv_pool_park__new_broker_knows_it, begin, end)
{
	struct rlv_pool *a = poold_join("a", 6, 1), *b = poold_join("b", 6, 1);
	uint8_t *mine = poold_tensor(a, RLV_POOL_PERSISTENT, 6, 1);
	uint64_t room;

	must(rlv_pool_park(a, POOLD_SOON), "park a");
	processes_kill(&fx.ps, fx.broker, SIGKILL);
	poold_again(&fx, NULL, NULL);
	must(rlv_pool_free_bytes(a, &room), "a comes back");
	assert_int_equal(poold_job("a").state, RLV_POOL_JOB_PARKED);
	(void)poold_tensor(b, RLV_POOL_PERSISTENT, 6, 2);
	must(rlv_pool_close(&b), "close b");
	processes_kill(&fx.ps, fx.broker, SIGKILL);
	poold_again(&fx, NULL, NULL);
	must(rlv_pool_resume(a, POOLD_SOON), "resume a");
	poold_expect_bytes(mine, 6, 1);
	must(rlv_pool_close(&a), "close a");
}

TEST_WITH(rlv_pool_park__without_room_on_the_host_the_job_goes_on, begin, end)
{
	struct rlv_pool *a = poold_join("a", 6, 1);
	uint8_t *mine = poold_tensor(a, RLV_POOL_PERSISTENT, 6, 1);

	mem_fail_after(1);
	expect(rlv_pool_park(a, POOLD_SOON), -ENOMEM);
	mem_fail_after(0);
	assert_int_equal(poold_job("a").state, RLV_POOL_JOB_IDLE);
	must(rlv_pool_iteration_begin(a, 0), "a begins");
	expect(rlv_pool_park(a, POOLD_SOON), -EBUSY);
	must(rlv_pool_iteration_end(a), "a ends");
	poold_expect_bytes(mine, 6, 1);
	must(rlv_pool_close(&a), "close a");
}

static int restless(void *ctx)
{
	struct rlv_pool *pool = poold_join("restless", 4, 1);
	uint8_t *tensors[4];

	(void)ctx;
	for (uint8_t i = 0; i < 4; i++)
		tensors[i] = poold_tensor(pool, RLV_POOL_PERSISTENT, 1, 0x40 + i);
	for (uint64_t i = 0; i < UINT64_MAX; i++) {
		must(rlv_pool_park(pool, POOLD_SOON), "park");
		must(rlv_pool_resume(pool, POOLD_SOON), "resume");
		for (uint8_t k = 0; k < 4; k++)
			poold_expect_bytes(tensors[k], 1, 0x40 + k);
	}
	return 0;
}

static bool is_parked(void *ctx)
{
	return poold_job(ctx).state == RLV_POOL_JOB_PARKED;
}

TEST_WITH(rlv_pool_park__job_killed_meanwhile_leaves_nothing, begin, end)
{
	struct rlv_pool *a = poold_join("a", 2, 1);
	uint8_t *mine = poold_tensor(a, RLV_POOL_PERSISTENT, 2, 0x5a);

	for (int i = 0; i < 20; i++) {
		pid_t pid = processes_fork(&fx.ps, restless, NULL);

		assert_true(processes_until(is_parked, (void *)(uintptr_t) "restless"));
		processes_sleep_ns(i * 100 * (int64_t)CLOCK_NS_PER_US);
		processes_kill(&fx.ps, pid, SIGKILL);
		assert_true(poold_holds(2, POOLD_SOON));
		poold_expect_bytes(mine, 2, 0x5a);
	}
	must(rlv_pool_close(&a), "close a");
}

/* -------- by the broker's wish -------- */

static int begin_wishes(void **state)
{
	(void)state;
	poold_start(&fx, "--park-after", "0.02");
	return 0;
}

/* Two of them are not resident together. */
static struct rlv_pool *large(const char *name, uint64_t flags)
{
	struct rlv_pool_opts opts = RLV_POOL_OPTS_INIT;
	struct rlv_pool *pool;
	uint32_t stream;

	opts.persistent_bytes = 6 * POOLD_EXTENT;
	opts.iteration_bytes = POOLD_EXTENT;
	opts.flags = flags;
	must(rlv_pool_open("test", name, &opts, &pool), "rlv_pool_open");
	must(rlv_pool_stream(pool, NULL, &stream), "rlv_pool_stream");
	return pool;
}

static void iterate(struct rlv_pool *pool, const uint8_t *mine, uint8_t value)
{
	must(rlv_pool_iteration_begin(pool, 30 * (int64_t)POOLD_SECOND), "begin");
	poold_expect_bytes(mine, 6, value);
	must(rlv_pool_iteration_end(pool), "end");
}

static int obedient(void *ctx)
{
	struct rlv_pool *pool = large("obedient", RLV_POOL_PARKS);
	const uint8_t *mine = poold_tensor(pool, RLV_POOL_PERSISTENT, 6, 9);

	(void)ctx;
	for (;;)
		iterate(pool, mine, 9);
	return 0;
}

/* Iterates until the other one has been resident and begun so many more; returns its iterations. */
static uint64_t take_turns(struct rlv_pool *pool, const uint8_t *mine, uint64_t more)
{
	uint64_t deadline = deadline_after(clock_monotonic(), 30 * (int64_t)POOLD_SECOND);
	uint64_t begun = poold_job("obedient").iterations;

	while (poold_job("obedient").iterations < begun + more) {
		assert_false(deadline_expired(clock_monotonic(), deadline));
		iterate(pool, mine, 1);
	}
	return poold_job("obedient").iterations;
}

TEST_WITH(wish__jobs_that_do_not_fit_together_take_turns, begin_wishes, end)
{
	struct rlv_pool *a = large("a", RLV_POOL_PARKS);
	const uint8_t *mine = poold_tensor(a, RLV_POOL_PERSISTENT, 6, 1);
	pid_t child = processes_fork(&fx.ps, obedient, NULL);
	void *ptr;

	assert_true(take_turns(a, mine, 1) > 0);
	(void)take_turns(a, mine, 1);
	processes_kill(&fx.ps, fx.broker, SIGKILL);
	poold_again(&fx, "--park-after", "0.02");
	iterate(a, mine, 1);
	(void)take_turns(a, mine, 1);
	for (int i = 0; i < 5; i++) {
		processes_sleep_ns(i * 5 * CLOCK_NS_PER_MS);
		processes_kill(&fx.ps, child, SIGKILL);
		iterate(a, mine, 1);
		child = processes_fork(&fx.ps, obedient, NULL);
		(void)take_turns(a, mine, 1);
	}
	processes_kill(&fx.ps, child, SIGKILL);
	iterate(a, mine, 1);
	expect(rlv_pool_alloc(a, RLV_POOL_STAGING, 1, 0, &ptr), -EINVAL);
	must(rlv_pool_close(&a), "close a");
	assert_true(poold_holds(0, POOLD_SOON));
}

TEST_WITH(wish__job_that_polls_has_waited_all_along, begin_wishes, end)
{
	uint64_t deadline = deadline_after(clock_monotonic(), 20 * (int64_t)POOLD_SECOND);
	struct rlv_pool *b = large("b", RLV_POOL_PARKS);
	pid_t child = processes_fork(&fx.ps, obedient, NULL);
	int ret;

	must(rlv_pool_park(b, POOLD_SOON), "park b"); /* so that the other is resident */
	do {
		assert_false(deadline_expired(clock_monotonic(), deadline));
	} while (poold_job("obedient").iterations == 0);
	while ((ret = rlv_pool_resume(b, POOLD_SECOND / 500)) == -ETIMEDOUT)
		assert_false(deadline_expired(clock_monotonic(), deadline));
	must(ret, "resume b");
	processes_kill(&fx.ps, child, SIGKILL);
	must(rlv_pool_close(&b), "close b");
}

TEST_WITH(wish__job_that_did_not_agree_keeps_its_place, begin_wishes, end)
{
	struct rlv_pool *a = large("a", 0), *b = large("b", RLV_POOL_PARKS);
	const uint8_t *mine = poold_tensor(a, RLV_POOL_PERSISTENT, 6, 1);
	struct rlv_pool_opts opts = RLV_POOL_OPTS_INIT;
	struct rlv_pool *none;

	expect(rlv_pool_iteration_begin(b, POOLD_SECOND / 5), -ETIMEDOUT);
	iterate(a, mine, 1);
	iterate(a, mine, 1);
	assert_int_equal(poold_job("a").state, RLV_POOL_JOB_IDLE);
	opts.flags = 2;
	expect(rlv_pool_open("test", "c", &opts, &none), -EINVAL);
	must(rlv_pool_close(&a), "close a");
	must(rlv_pool_close(&b), "close b");
}

int main(void)
{
	if (test_skips_msan("libevent"))
		return TEST_EXIT_SKIP;
	return test_run(NULL, NULL);
}
