/* A pool's broker and its jobs, as processes: memory changes hands, jobs wait, brokers change. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

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

static void expect_in_message(const char *words)
{
	if (!strstr(rlv_last_error(), words))
		fail_msg("\"%s\" is not in \"%s\"", words, rlv_last_error());
}

TEST_WITH(poold__memory_goes_from_one_job_to_another, begin, end)
{
	struct rlv_pool *a = poold_join("a", 2, 5), *b = poold_join("b", 1, 5);
	uint8_t *weights = poold_tensor(a, RLV_POOL_PERSISTENT, 2, 1), *tensor;
	uint64_t handovers;

	must(rlv_pool_iteration_begin(a, 0), "a begins");
	tensor = poold_tensor(a, RLV_POOL_ITERATION, 5, 2);
	assert_true(poold_holds(7, 0));
	assert_int_equal(poold_job("a").state, RLV_POOL_JOB_RUNS);
	must(rlv_pool_free(a, tensor, 5 * POOLD_EXTENT), "free");
	must(rlv_pool_iteration_end(a), "a ends");
	assert_true(poold_holds(2, POOLD_SOON));
	handovers = poold_status().handovers;

	must(rlv_pool_iteration_begin(b, 0), "b begins");
	tensor = poold_tensor(b, RLV_POOL_EPHEMERAL, 5, 3);
	assert_int_equal(poold_status().handovers, handovers + 5);
	poold_expect_bytes(weights, 2, 1);
	poold_expect_bytes(tensor, 5, 3);
	must(rlv_pool_free(b, tensor, 0), "free");
	must(rlv_pool_iteration_end(b), "b ends");
	must(rlv_pool_close(&a), "close a");
	must(rlv_pool_close(&b), "close b");
	assert_true(poold_holds(0, POOLD_SOON));
	assert_int_equal(poold_status().jobs, 0);
}

TEST_WITH(poold__job_that_does_not_fit_waits_in_the_queue, begin, end)
{
	struct rlv_pool *a = poold_join("a", 1, 6), *b = poold_join("b", 1, 6);
	struct rlv_pool_job job;

	must(rlv_pool_iteration_begin(a, 0), "a begins");
	expect(rlv_pool_iteration_begin(b, POOLD_SECOND / 20), -ETIMEDOUT);
	expect_in_message("job b waits for memory");
	assert_int_equal(poold_job("b").state, RLV_POOL_JOB_IDLE);

	/* It is in the queue while it waits: seen from a child that waits. */
	must(rlv_pool_close(&b), "close b");
	if (fork() == 0) {
		b = poold_join("b", 1, 6);
		_exit(rlv_pool_iteration_begin(b, POOLD_SOON) == 0 && rlv_pool_iteration_end(b) == 0
			      ? 0
			      : 1);
	}
	do
		job = poold_job("b");
	while (job.state != RLV_POOL_JOB_WAITS);
	assert_int_equal(job.reason, RLV_POOL_WAITS_MEMORY);
	assert_int_equal(job.position, 0);
	must(rlv_pool_iteration_end(a), "a ends");
	{
		int status;

		assert_true(wait(&status) > 0);
		assert_int_equal(status, 0);
	}
	must(rlv_pool_close(&a), "close a");
}

TEST_WITH(rlv_pool_open__waits_for_admission_and_refuses_what_never_fits, begin, end)
{
	struct rlv_pool_opts opts = RLV_POOL_OPTS_INIT;
	struct rlv_pool *a = poold_join("a", 5, 3), *b = poold_join_brief("b", 4, 1), *c;
	void *ptr;

	opts.persistent_bytes = 9 * POOLD_EXTENT;
	expect(rlv_pool_open("test", "c", &opts, &c), -ENOSPC);
	expect(rlv_pool_open("test", "a", NULL, &c), -EEXIST);
	expect(rlv_pool_open("none", "a", NULL, &c), -ENOENT);
	expect(rlv_pool_alloc(b, RLV_POOL_PERSISTENT, POOLD_EXTENT, 0, &ptr), -ETIMEDOUT);
	expect_in_message("job b");
	must(rlv_pool_close(&a), "close a");
	must(rlv_pool_alloc(b, RLV_POOL_PERSISTENT, POOLD_EXTENT, 0, &ptr), "alloc");
	must(rlv_pool_close(&b), "close b");
}

TEST_WITH(rlv_pool_free__refuses_what_is_not_a_tensor, begin, end)
{
	struct rlv_pool *a = poold_join("a", 4, 2), *b = poold_join("b", 1, 1);
	uint8_t *tensor = poold_tensor(a, RLV_POOL_PERSISTENT, 1, 1);

	expect(rlv_pool_free(b, tensor, 0), -EINVAL);
	expect_in_message("job b");
	expect(rlv_pool_free(a, tensor + 8, 0), -EINVAL);
	expect(rlv_pool_free(a, tensor, 3 * POOLD_EXTENT), -EINVAL);
	expect_in_message("job a: the tensor at");
	must(rlv_pool_free(a, tensor, POOLD_EXTENT), "free");
	expect(rlv_pool_free(a, tensor, POOLD_EXTENT), -EINVAL);
	expect_in_message("job a: no tensor at");
	expect(rlv_pool_iteration_end(a), -EINVAL);
	must(rlv_pool_close(&a), "close a");
	must(rlv_pool_close(&b), "close b");
}

TEST_WITH(rlv_pool_alloc__full_pool_times_out_and_gives_nothing_up, begin, end)
{
	struct rlv_pool *a = poold_join("a", 0, 0), *b = poold_join_brief("b", 0, 0);
	uint8_t *tensors[POOLD_EXTENTS];
	uint64_t room;
	void *ptr;

	for (unsigned i = 0; i < POOLD_EXTENTS; i++) {
		must(rlv_pool_free_bytes(b, &room), "free bytes");
		assert_int_equal(room, (POOLD_EXTENTS - i) * POOLD_EXTENT);
		tensors[i] = poold_tensor(a, RLV_POOL_ITERATION, 1, (uint8_t)i);
		if (i + 1 < POOLD_EXTENTS)
			continue;
		expect(rlv_pool_alloc(b, RLV_POOL_ITERATION, 1, 0, &ptr), -ETIMEDOUT);
		expect(rlv_pool_alloc(b, RLV_POOL_ITERATION, 9 * POOLD_EXTENT, 0, &ptr), -ENOSPC);
	}
	for (unsigned i = 0; i < POOLD_EXTENTS; i++)
		poold_expect_bytes(tensors[i], 1, (uint8_t)i);
	must(rlv_pool_close(&a), "close a");
	must(rlv_pool_alloc(b, RLV_POOL_ITERATION, 8 * POOLD_EXTENT, 0, &ptr), "alloc");
	must(rlv_pool_close(&b), "close b");
}

TEST_WITH(rlv_pool_limit__changes_budget_and_quotas_of_running_jobs, begin, end)
{
	struct rlv_pool *a = poold_join("a", 0, 0), *b;
	uint64_t room;
	void *ptr;

	must(rlv_pool_limit("test", 4 * POOLD_EXTENT), "limit");
	assert_int_equal(poold_status().budget_bytes, 4 * POOLD_EXTENT);
	expect(rlv_pool_alloc(a, RLV_POOL_ITERATION, 5 * POOLD_EXTENT, 0, &ptr), -ENOSPC);
	must(rlv_pool_limit("test", 8 * POOLD_EXTENT), "limit");
	must(rlv_pool_limit_user("test", (uint32_t)getuid(), 3 * POOLD_EXTENT), "limit user");
	must(rlv_pool_free_bytes(a, &room), "free bytes");
	assert_int_equal(room, 3 * POOLD_EXTENT);
	must(rlv_pool_limit_user("test", (uint32_t)getuid(), 0), "limit user");
	must(rlv_pool_limit_job("test", "a", 2 * POOLD_EXTENT), "limit job");
	assert_int_equal(poold_job("a").quota_bytes, 2 * POOLD_EXTENT);
	expect(rlv_pool_alloc(a, RLV_POOL_ITERATION, 3 * POOLD_EXTENT, 0, &ptr), -ENOSPC);
	expect(rlv_pool_limit_job("test", "b", POOLD_EXTENT), -ENOENT);
	expect(rlv_pool_limit("test", 1), -EINVAL);
	expect(rlv_pool_limit("test", 9 * POOLD_EXTENT), -EINVAL);
	must(rlv_pool_drain("test", 1), "drain");
	expect(rlv_pool_open("test", "b", NULL, &b), -EBUSY);
	assert_true(poold_status().flags & RLV_POOL_DRAINS);
	must(rlv_pool_drain("test", 0), "drain");
	must(rlv_pool_open("test", "b", NULL, &b), "open b");
	must(rlv_pool_close(&b), "close b");
	must(rlv_pool_close(&a), "close a");
}

TEST_WITH(rlv_pool_close__child_of_fork_has_nothing, begin, end)
{
	struct rlv_pool *a = poold_join("a", 1, 1);
	uint8_t *tensor = poold_tensor(a, RLV_POOL_PERSISTENT, 1, 7);
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		void *ptr;
		int ret = rlv_pool_alloc(a, RLV_POOL_ITERATION, 1, 0, &ptr);

		_exit(ret == -ECHILD && rlv_pool_close(&a) == -ECHILD ? 0 : 1);
	}
	assert_true(waitpid(pid, &status, 0) == pid);
	assert_int_equal(status, 0);
	poold_expect_bytes(tensor, 1, 7);
	assert_true(poold_holds(1, 0));
	must(rlv_pool_close(&a), "close a");
}

/* -------- brokers -------- */

TEST_WITH(poold__restart_takes_its_jobs_back, begin, end)
{
	struct rlv_pool *a = poold_join("a", 2, 3), *b = poold_join("b", 1, 2);
	uint8_t *mine = poold_tensor(a, RLV_POOL_PERSISTENT, 2, 1);
	uint8_t *theirs = poold_tensor(b, RLV_POOL_PERSISTENT, 1, 2), *more;

	must(rlv_pool_iteration_begin(a, 0), "a begins");
	for (int round = 0; round < 3; round++) {
		more = poold_tensor(a, RLV_POOL_ITERATION, 3, 3);
		processes_kill(&fx.ps, fx.broker, SIGKILL);
		poold_again(&fx, NULL, NULL);
		/* Before they come back, it knows what they hold. */
		assert_int_equal(poold_status().jobs, 2);
		assert_true(poold_holds(6, 0));
		must(rlv_pool_free(a, more, 3 * POOLD_EXTENT), "free");
	}
	must(rlv_pool_iteration_end(a), "a ends");
	assert_int_equal(poold_status().adopted, 1);
	assert_int_equal(poold_job("a").connected, 1);
	assert_int_equal(poold_job("b").connected, 0);
	assert_true(poold_holds(3, POOLD_SOON));

	must(rlv_pool_iteration_begin(b, 0), "b begins");
	more = poold_tensor(b, RLV_POOL_ITERATION, 2, 4);
	poold_expect_bytes(mine, 2, 1);
	poold_expect_bytes(theirs, 1, 2);
	poold_expect_bytes(more, 2, 4);
	must(rlv_pool_close(&a), "close a");
	must(rlv_pool_close(&b), "close b");
	assert_true(poold_holds(0, POOLD_SOON));
}

TEST_WITH(poold__restart_without_a_roster_rebuilds_it_from_jobs, begin, end)
{
	struct rlv_pool *a = poold_join("a", 2, 2);
	uint8_t *mine = poold_tensor(a, RLV_POOL_PERSISTENT, 2, 1);
	char path[PROCESSES_PATH + 64];

	processes_kill(&fx.ps, fx.broker, SIGKILL);
	processes_path(&fx.ps, "pool-test/roster", path);
	assert_int_equal(unlink(path), 0);
	poold_again(&fx, NULL, NULL);
	assert_true(poold_holds(0, 0));
	must(rlv_pool_iteration_begin(a, 0), "a begins");
	assert_true(poold_holds(2, 0));
	poold_expect_bytes(mine, 2, 1);
	must(rlv_pool_close(&a), "close a");
}

TEST_WITH(poold__no_broker_is_an_error_within_the_timeout, begin, end)
{
	struct rlv_pool *a = poold_join_brief("a", 2, 2), *b;
	uint64_t room;

	processes_kill(&fx.ps, fx.broker, SIGKILL);
	/* The first call may have its time spent when the connection ends. */
	for (int i = 0; i < 2; i++)
		expect(rlv_pool_free_bytes(a, &room), -EHOSTDOWN);
	expect_in_message("start relive-poold");
	expect(rlv_pool_open("test", "b", NULL, &b), -EHOSTDOWN);
	poold_again(&fx, NULL, NULL);
	must(rlv_pool_free_bytes(a, &room), "free bytes");
	must(rlv_pool_close(&a), "close a");
}

TEST_WITH(poold__second_broker_is_refused, begin, end)
{
	const char *args[] = { "--name", "test", "--size", "512K", "--extent", "64K", NULL };
	pid_t second = processes_start(&fx.ps, "relive-poold", args);

	assert_int_equal(processes_wait(&fx.ps, second, PROCESSES_WAIT_MS), 3);
	assert_int_equal(poold_status().jobs, 0);
}

TEST_WITH(poold__other_sizes_are_refused_while_jobs_live, begin, end)
{
	const char *args[] = { "--name", "test", "--size", "1M", "--extent", "64K", NULL };
	struct rlv_pool *a = poold_join("a", 1, 1);
	pid_t other;

	processes_kill(&fx.ps, fx.broker, SIGKILL);
	other = processes_start(&fx.ps, "relive-poold", args);
	assert_int_equal(processes_wait(&fx.ps, other, PROCESSES_WAIT_MS), 5);
	poold_again(&fx, NULL, NULL);
	must(rlv_pool_close(&a), "close a");
}

/* -------- jobs that do not end what they began -------- */

/* A job of another process, up to the given step; then it does not go on. */
struct stray {
	const char *name;
	uint64_t extents;
	bool runs;
};

static int stray(void *ctx)
{
	const struct stray *want = ctx;
	struct rlv_pool *pool = poold_join(want->name, 0, want->extents);

	if (want->runs)
		must(rlv_pool_iteration_begin(pool, POOLD_SOON), "stray begins");
	(void)poold_tensor(pool, RLV_POOL_ITERATION, want->extents, 9);
	while (pause())
		;
	return 0;
}

TEST_WITH(poold__stopped_job_bounds_the_wait_of_others, begin, end)
{
	struct rlv_pool *a = poold_join_brief("a", 1, 2);
	struct stray want = { "stray", 4, true };
	pid_t pid = processes_fork(&fx.ps, stray, &want);
	void *ptr;

	assert_true(poold_holds(4, POOLD_SOON));
	processes_kill(&fx.ps, pid, SIGSTOP);
	/* Free memory is had; a wait for more ends in time. */
	must(rlv_pool_iteration_begin(a, 0), "a begins");
	must(rlv_pool_alloc(a, RLV_POOL_ITERATION, 2 * POOLD_EXTENT, 0, &ptr), "alloc");
	expect(rlv_pool_alloc(a, RLV_POOL_ITERATION, 4 * POOLD_EXTENT, 0, &ptr), -ETIMEDOUT);
	processes_kill(&fx.ps, pid, SIGKILL);
	assert_true(poold_holds(2, POOLD_SOON));
	must(rlv_pool_alloc(a, RLV_POOL_ITERATION, 4 * POOLD_EXTENT, 0, &ptr), "alloc");
	must(rlv_pool_close(&a), "close a");
}

static int begin_limited(void **state)
{
	(void)state;
	poold_start(&fx, "--iteration-limit", "0.3");
	return 0;
}

TEST_WITH(poold__iteration_without_end_is_ended_by_the_limit, begin_limited, end)
{
	struct rlv_pool *a = poold_join("a", 0, 6), *b = poold_join("b", 0, 6);
	int ret;

	must(rlv_pool_iteration_begin(a, 0), "a begins");
	must(rlv_pool_iteration_begin(b, POOLD_SOON), "b begins");
	assert_true(poold_status().cut >= 1);
	expect(rlv_pool_iteration_end(a), -ETIMEDOUT);
	ret = rlv_pool_iteration_end(b);
	if (ret != -ETIMEDOUT) /* a busy host may take longer than the limit itself */
		must(ret, "b ends");
	must(rlv_pool_iteration_begin(a, 0), "a begins");
	must(rlv_pool_close(&a), "close a");
	must(rlv_pool_close(&b), "close b");
}

TEST_WITH(poold__socket_is_the_users_alone, begin, end)
{
	char path[PROCESSES_PATH + 64];
	struct stat st;

	processes_path(&fx.ps, "pool-test/poold.sock", path);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	processes_path(&fx.ps, "pool-test/roster", path);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
}

#define LEARNS 20u

/* A learner that needs 5 extents, of which 1 stays. Its bytes are its own while it learns. */
static int learner(void *ctx)
{
	const char *name = ctx;
	struct rlv_pool_opts opts = RLV_POOL_OPTS_INIT;
	struct rlv_pool *pool;
	uint8_t first = (uint8_t)name[0], *weights, *batch;
	uint32_t stream;

	opts.persistent_bytes = POOLD_EXTENT;
	opts.iteration_bytes = 4 * POOLD_EXTENT;
	must(rlv_pool_open("test", name, &opts, &pool), "rlv_pool_open");
	must(rlv_pool_stream(pool, NULL, &stream), "rlv_pool_stream");
	weights = poold_tensor(pool, RLV_POOL_PERSISTENT, 1, first);
	for (uint32_t i = 0; i < LEARNS; i++) {
		must(rlv_pool_iteration_begin(pool, -1), "begin");
		batch = poold_tensor(pool, RLV_POOL_ITERATION, 4, (uint8_t)(first + i));
		poold_expect_bytes(batch, 4, (uint8_t)(first + i));
		must(rlv_pool_free(pool, batch, 4 * POOLD_EXTENT), "free");
		must(rlv_pool_iteration_end(pool), "end");
	}
	poold_expect_bytes(weights, 1, first);
	return rlv_pool_close(&pool);
}

static int begin_tight(void **state)
{
	(void)state;
	poold_start(&fx, "--budget", "384K");
	return 0;
}

/* 1.2 times the peak of one: both are there at a time, and take turns. */
TEST_WITH(poold__two_learners_finish_in_memory_for_little_more_than_one, begin_tight, end)
{
	char a[] = "a", b[] = "b";
	pid_t first = processes_fork(&fx.ps, learner, a);
	pid_t second = processes_fork(&fx.ps, learner, b);

	assert_int_equal(processes_wait(&fx.ps, first, PROCESSES_WAIT_MS), 0);
	assert_int_equal(processes_wait(&fx.ps, second, PROCESSES_WAIT_MS), 0);
	assert_int_equal(poold_status().iterations, 2 * LEARNS);
	assert_int_equal(poold_status().overshoots, 0);
	assert_int_equal(poold_status().cut, 0);
	assert_true(poold_holds(0, POOLD_SOON));
}

/* -------- profiles -------- */

/* A job that needs 6 extents of 8 at most, and waits as long as it takes. */
static struct rlv_pool *patient(const char *name)
{
	struct rlv_pool_opts opts = RLV_POOL_OPTS_INIT;
	struct rlv_pool *pool;
	uint32_t stream;

	opts.iteration_bytes = 6 * POOLD_EXTENT;
	must(rlv_pool_open("test", name, &opts, &pool), "rlv_pool_open");
	must(rlv_pool_stream(pool, NULL, &stream), "rlv_pool_stream");
	return pool;
}

/* An iteration that holds one extent, and six from the middle of its time on. False: what it waits for did not come. */
static bool rising(struct rlv_pool *pool, uint64_t half_ns, bool (*until)(void *), void *ctx)
{
	void *first, *rest;
	bool came;

	must(rlv_pool_iteration_begin(pool, 30 * (int64_t)POOLD_SECOND), "begin");
	must(rlv_pool_alloc(pool, RLV_POOL_ITERATION, POOLD_EXTENT, 0, &first), "alloc");
	processes_sleep_ns((int64_t)half_ns);
	must(rlv_pool_alloc(pool, RLV_POOL_ITERATION, 5 * POOLD_EXTENT, 0, &rest), "alloc");
	processes_sleep_ns((int64_t)half_ns);
	came = !until || processes_until(until, ctx);
	must(rlv_pool_free(pool, first, 0), "free");
	must(rlv_pool_free(pool, rest, 0), "free");
	must(rlv_pool_iteration_end(pool), "end");
	return came;
}

static int second(void *ctx)
{
	struct rlv_pool *pool = patient("second");

	(void)ctx;
	for (;;)
		(void)rising(pool, 5000000, NULL, NULL);
	return 0;
}

/* It holds memory only while an iteration of it runs. */
static bool second_runs(void *ctx)
{
	(void)ctx;
	return poold_job("second").held_bytes > 0;
}

static bool second_is_gone(void *ctx)
{
	(void)ctx;
	return poold_job("second").pid == 0;
}

/* Without their profiles the second one waits for the end of the first one. */
static bool runs_beside_the_end(void)
{
	struct rlv_pool *pool = patient("first");
	pid_t other = processes_fork(&fx.ps, second, NULL);
	bool runs;

	for (int i = 0; i < 4; i++)
		(void)rising(pool, 5000000, NULL, NULL);
	while (poold_job("second").iterations < 5)
		processes_sleep_ns(1000000);
	runs = rising(pool, 5000000, second_runs, NULL);
	processes_kill(&fx.ps, other, SIGKILL);
	assert_true(processes_until(second_is_gone, NULL));
	must(rlv_pool_close(&pool), "close");
	return runs;
}

/* A profile of iterations that a busy host held up is another one: jobs that join anew have a new one. */
TEST_WITH(profile__lets_an_iteration_begin_beside_the_end_of_another, begin, end)
{
	bool runs = false;

	for (int i = 0; i < 10 && !runs; i++)
		runs = runs_beside_the_end();
	assert_true(runs);
}

int main(void)
{
	if (test_skips_msan("libevent"))
		return TEST_EXIT_SKIP;
	return test_run(NULL, NULL);
}
