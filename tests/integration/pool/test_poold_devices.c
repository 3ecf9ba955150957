/* A pool of two devices: where jobs go, what they share, and what a death or a new broker leaves. */
#include <errno.h>
#include <signal.h>
#include <unistd.h>

#include "tests/support/command.h"
#include "tests/support/fixture/poold_fixture.h"
#include "tests/support/must.h"

static struct poold_fixture fx;

static int begin(void **state)
{
	(void)state;
	poold_start(&fx, "--device", "host:512K");
	return 0;
}

static int end(void **state)
{
	(void)state;
	poold_stop(&fx);
	return 0;
}

static uint32_t device_of(const struct rlv_pool *pool)
{
	uint32_t device;

	must(rlv_pool_device(pool, &device), "rlv_pool_device");
	return device;
}

static struct rlv_pool_device_info device_status(uint32_t number)
{
	struct rlv_pool_device_info devices[2];
	size_t n = 2;

	must(rlv_pool_devices("test", devices, sizeof(devices[0]), &n), "rlv_pool_devices");
	assert_int_equal(n, 2);
	assert_int_equal(devices[number].number, number);
	return devices[number];
}

/* Opens a job on a device that it names. */
static int open_on(const char *name, uint32_t device, struct rlv_pool **pool_out)
{
	struct rlv_pool_opts opts = RLV_POOL_OPTS_INIT;

	opts.device = device + 1;
	return rlv_pool_open("test", name, &opts, pool_out);
}

TEST_WITH(devices__jobs_go_where_there_is_room, begin, end)
{
	struct rlv_pool *a = poold_join("a", 2, 5), *b = poold_join("b", 2, 5), *c, *d;
	uint8_t *mine, *theirs;

	assert_int_equal(device_of(a), 0);
	assert_int_equal(device_of(b), 1);
	must(rlv_pool_iteration_begin(a, 0), "a begins");
	must(rlv_pool_iteration_begin(b, 0), "b begins");
	mine = poold_tensor(a, RLV_POOL_ITERATION, 7, 1);
	theirs = poold_tensor(b, RLV_POOL_ITERATION, 6, 2);
	poold_expect_bytes(mine, 7, 1);
	poold_expect_bytes(theirs, 6, 2);
	assert_int_equal(device_status(0).held_bytes, 7 * POOLD_EXTENT);
	assert_int_equal(device_status(1).held_bytes, 6 * POOLD_EXTENT);
	assert_int_equal(device_status(1).jobs, 1);
	assert_int_equal(poold_status().devices, 2);
	assert_int_equal(poold_status().held_bytes, 13 * POOLD_EXTENT);
	assert_int_equal(poold_job("b").device, 1);

	must(open_on("c", 1, &c), "open c");
	assert_int_equal(device_of(c), 1);
	expect(open_on("d", 2, &d), -EINVAL);
	expect(open_on("a", 1, &d), -EEXIST);
	must(rlv_pool_close(&a), "close a");
	must(rlv_pool_close(&b), "close b");
	must(rlv_pool_close(&c), "close c");
}

TEST_WITH(devices__quota_of_a_user_is_one_for_all, begin, end)
{
	struct rlv_pool *a, *b;
	uint8_t *tensor;
	uint64_t room;
	uint32_t stream;
	void *ptr;

	must(rlv_pool_limit_user("test", (uint32_t)getuid(), 6 * POOLD_EXTENT), "limit user");
	a = poold_join_brief("a", 1, 1);
	b = poold_join("b", 1, 1);
	assert_int_equal(device_of(b), 1);
	tensor = poold_tensor(b, RLV_POOL_ITERATION, 4, 1);
	must(rlv_pool_free_bytes(a, &room), "free bytes");
	assert_int_equal(room, 2 * POOLD_EXTENT);
	expect(rlv_pool_alloc(a, RLV_POOL_ITERATION, 3 * POOLD_EXTENT, 0, &ptr), -ETIMEDOUT);
	must(rlv_pool_free(b, tensor, 0), "free");
	must(rlv_pool_close(&b), "close b");
	must(rlv_pool_alloc(a, RLV_POOL_ITERATION, 3 * POOLD_EXTENT, 0, &ptr), "alloc");
	must(rlv_pool_close(&a), "close a");

	/* The budget of one device is not that of the other. */
	must(rlv_pool_limit_user("test", (uint32_t)getuid(), 0), "limit user");
	must(rlv_pool_limit_device("test", 0, 2 * POOLD_EXTENT), "limit device");
	assert_int_equal(device_status(0).budget_bytes, 2 * POOLD_EXTENT);
	assert_int_equal(device_status(1).budget_bytes, 8 * POOLD_EXTENT);
	expect(rlv_pool_limit_device("test", 2, 2 * POOLD_EXTENT), -EINVAL);
	must(open_on("a", 0, &a), "open a");
	must(rlv_pool_stream(a, NULL, &stream), "stream");
	expect(rlv_pool_alloc(a, RLV_POOL_ITERATION, 3 * POOLD_EXTENT, stream, &ptr), -ENOSPC);
	must(rlv_pool_close(&a), "close a");
	must(rlv_pool_limit("test", 4 * POOLD_EXTENT), "limit");
	assert_int_equal(poold_status().budget_bytes, 2 * 4 * POOLD_EXTENT);
}

static int stray(void *ctx)
{
	struct rlv_pool *pool;
	uint32_t stream;
	void *ptr;

	must(open_on("stray", *(const uint32_t *)ctx, &pool), "open");
	must(rlv_pool_stream(pool, NULL, &stream), "stream");
	must(rlv_pool_alloc(pool, RLV_POOL_ITERATION, 6 * POOLD_EXTENT, stream, &ptr), "alloc");
	while (pause())
		;
	return 0;
}

TEST_WITH(devices__death_and_new_broker_leave_each_job_on_its_own, begin, end)
{
	struct rlv_pool *a = poold_join("a", 2, 2), *b = poold_join("b", 2, 2);
	uint8_t *mine = poold_tensor(a, RLV_POOL_PERSISTENT, 2, 1);
	uint8_t *theirs = poold_tensor(b, RLV_POOL_PERSISTENT, 2, 2);

	for (uint32_t on = 0; on < 2; on++) {
		pid_t pid = processes_fork(&fx.ps, stray, &on);

		assert_true(poold_holds(10, POOLD_SOON));
		assert_int_equal(device_status(on).held_bytes, 8 * POOLD_EXTENT);
		processes_kill(&fx.ps, pid, SIGKILL);
		assert_true(poold_holds(4, POOLD_SOON));
		processes_kill(&fx.ps, fx.broker, SIGKILL);
		poold_again(&fx, "--device", "host:512K");
		assert_int_equal(device_status(0).held_bytes, 2 * POOLD_EXTENT);
		assert_int_equal(device_status(1).held_bytes, 2 * POOLD_EXTENT);
		must(rlv_pool_iteration_begin(b, POOLD_SOON), "b begins");
		must(rlv_pool_iteration_end(b), "b ends");
		assert_int_equal(poold_job("b").device, 1);
		assert_int_equal(poold_job("b").connected, 1);
	}
	poold_expect_bytes(mine, 2, 1);
	poold_expect_bytes(theirs, 2, 2);
	must(rlv_pool_close(&a), "close a");
	must(rlv_pool_close(&b), "close b");
}

TEST_WITH(devices__one_with_jobs_is_not_left_out, begin, end)
{
	const char *args[] = { "--name", "test", "--size", "512K", "--extent", "64K", NULL };
	struct rlv_pool *a;
	pid_t other;

	must(open_on("a", 1, &a), "open a");
	processes_kill(&fx.ps, fx.broker, SIGKILL);
	other = processes_start(&fx.ps, "relive-poold", args);
	assert_int_equal(processes_wait(&fx.ps, other, PROCESSES_WAIT_MS), 5);
	poold_again(&fx, "--device", "host:512K");
	must(rlv_pool_close(&a), "close a");
	assert_int_equal(kill(fx.broker, SIGTERM), 0);
	assert_int_equal(processes_wait(&fx.ps, fx.broker, PROCESSES_WAIT_MS), 0);
	poold_again(&fx, NULL, NULL);
	assert_int_equal(poold_status().devices, 1);
}

TEST_WITH(devices__command_shows_each, begin, end)
{
	struct command command = { .ps = &fx.ps };

	command_expect(&command, 0, "pool limit --pool test --device 1 --bytes 256K");
	command_expect(&command, 0, "pool status --pool test --json");
	command_expect_words(command.out, "\"devices\":2");
	command_expect_words(command.out, "\"device\":1,");
	command_expect_words(command.out, "\"budget_bytes\":262144");
	command_expect(&command, 0, "pool status --pool test");
	command_expect_words(command.out, "handovers");
	command_expect(&command, 2, "pool limit --pool test --device 1 --user 1 --bytes 256K");
}

int main(void)
{
	if (test_skips_msan("libevent"))
		return TEST_EXIT_SKIP;
	return test_run(NULL, NULL);
}
