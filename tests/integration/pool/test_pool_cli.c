/* The commands of relive pool on a broker. */
#include <signal.h>
#include <string.h>

#include "tests/support/command.h"
#include "tests/support/fixture/poold_fixture.h"
#include "tests/support/must.h"

static struct poold_fixture fx;
static struct command command;

static int begin(void **state)
{
	(void)state;
	poold_start(&fx, NULL, NULL);
	command.ps = &fx.ps;
	return 0;
}

static int end(void **state)
{
	(void)state;
	poold_stop(&fx);
	return 0;
}

static int waiter(void *ctx)
{
	struct rlv_pool *pool = poold_join("waiter", 1, 6);

	(void)ctx;
	return rlv_pool_iteration_begin(pool, -1);
}

TEST_WITH(pool_commands__show_jobs_and_set_limits, begin, end)
{
	struct rlv_pool *a = poold_join("a", 1, 6);

	(void)poold_tensor(a, RLV_POOL_PERSISTENT, 1, 1);
	must(rlv_pool_iteration_begin(a, 0), "a begins");
	(void)processes_fork(&fx.ps, waiter, NULL);
	while (poold_job("waiter").state != RLV_POOL_JOB_WAITS)
		processes_sleep_ns(1000000);

	command_expect(&command, 0, "pool status --pool test");
	command_expect_words(command.out, "pool test");
	command_expect_words(command.out, "runs");
	command_expect(&command, 0, "pool status --pool test --json");
	command_expect_words(command.out, "\"held_bytes\":65536");
	command_expect_words(command.out, "\"job\":\"waiter\"");
	command_expect(&command, 0, "pool queue --pool test");
	command_expect_words(command.out, "waits for memory");
	command_expect(&command, 0, "pool queue --pool test --json");
	command_expect_words(command.out, "\"queue\":[{\"position\":0,\"job\":\"waiter\"");
	command_expect(&command, 0, "pool top --pool test --times 2 --every 1ms");
	command_expect_words(command.out, "waiter");
	command_expect(&command, 0, "pool limit --pool test --job a --bytes 128K --json");
	assert_int_equal(poold_job("a").quota_bytes, 128 << 10);
	command_expect(&command, 0, "pool limit --pool test --bytes 448K");
	assert_int_equal(poold_status().budget_bytes, 448 << 10);
	command_expect(&command, 0, "pool drain --pool test");
	command_expect(&command, 0, "pool status --pool test");
	command_expect_words(command.out, "draining");
	command_expect(&command, 0, "pool drain --pool test --off");
	must(rlv_pool_close(&a), "close a");
}

TEST_WITH(pool_commands__refuse_wrong_usage, begin, end)
{
	command_expect(&command, 2, "pool limit --pool test");
	command_expect_words(command.err, "--bytes is missing");
	command_expect(&command, 2, "pool limit --pool test --bytes 1M --job a --user 1");
	command_expect(&command, 2, "pool top --pool test --every 0s");
	command_expect(&command, 1, "pool limit --pool test --bytes 1");
	command_expect_words(command.err, "an extent has 65536");
	command_expect(&command, 1, "pool status --pool none");
	command_expect(&command, 1, "pool queue --pool none --json");
	command_expect_words(command.out, "\"error\":");
	assert_int_equal(poold_status().budget_bytes, POOLD_EXTENTS * POOLD_EXTENT);
}

int main(void)
{
	if (test_skips_msan("libevent"))
		return TEST_EXIT_SKIP;
	return test_run(NULL, NULL);
}
