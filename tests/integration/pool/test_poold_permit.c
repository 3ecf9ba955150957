/* Permits: iterations of a job that is alone take no message, and another job waits no longer for that. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/fixture/raw_job.h"
#include "tests/support/must.h"

#define KILLS 12u

static struct poold_fixture fx;
static bool is_limited;

static int begin(void **state)
{
	(void)state;
	is_limited = false;
	poold_start(&fx, "--sharing", "alone"); /* one iteration at a time */
	return 0;
}

static const char *const limited[] = { "--size",    "512K",  "--extent",          "64K",
				       "--sharing", "alone", "--iteration-limit", "1",
				       NULL };

static int begin_limited(void **state)
{
	(void)state;
	is_limited = true;
	poold_start_as(&fx, limited);
	return 0;
}

static int end(void **state)
{
	(void)state;
	poold_stop(&fx);
	return 0;
}

/* Ends an iteration. If there is a limit, a busy host may take longer. */
static void ends(struct rlv_pool *pool)
{
	int ret = rlv_pool_iteration_end(pool);

	if (!is_limited || ret != -ETIMEDOUT)
		must(ret, "end");
}

/* Iterations of a job; from its second one on by its permit, if it is alone. */
static void iterate(struct rlv_pool *pool, int n)
{
	for (int i = 0; i < n; i++) {
		must(rlv_pool_iteration_begin(pool, POOLD_SOON), "begin");
		ends(pool);
	}
}

TEST_WITH(permit__iterations_of_a_job_alone_take_no_message, begin, end)
{
	struct rlv_pool *a = poold_join("a", 0, 6);

	iterate(a, 5); /* the fourth tells the profile */
	processes_kill(&fx.ps, fx.broker, SIGSTOP);
	iterate(a, 100);
	must(rlv_pool_iteration_begin(a, 0), "begin");
	expect(rlv_pool_iteration_begin(a, 0), -EBUSY);
	processes_kill(&fx.ps, fx.broker, SIGCONT);
	assert_int_equal(poold_job("a").state, RLV_POOL_JOB_RUNS);
	assert_int_equal(poold_job("a").iterations, 106);
	must(rlv_pool_iteration_end(a), "end");
	expect(rlv_pool_iteration_end(a), -EINVAL);
	assert_int_equal(poold_job("a").state, RLV_POOL_JOB_IDLE);
	iterate(a, 3);
	assert_int_equal(poold_job("a").iterations, 109);
	assert_int_equal(poold_status().iterations, 109);
	assert_true(poold_job("a").served_ns > 0);
	must(rlv_pool_close(&a), "close");
}

TEST_WITH(permit__a_job_that_comes_waits_for_the_iteration_that_runs, begin, end)
{
	struct rlv_pool *a = poold_join("a", 0, 6), *b;

	iterate(a, 5);
	must(rlv_pool_iteration_begin(a, 0), "a begins");
	b = poold_join("b", 0, 6);
	expect(rlv_pool_iteration_begin(b, 0), -ETIMEDOUT);
	must(rlv_pool_iteration_end(a), "a ends");
	must(rlv_pool_iteration_begin(b, 0), "b begins");
	expect(rlv_pool_iteration_begin(a, 0), -ETIMEDOUT);
	must(rlv_pool_iteration_end(b), "b ends");
	must(rlv_pool_iteration_begin(a, 0), "a begins");
	must(rlv_pool_iteration_end(a), "a ends");

	iterate(a, 1); /* with another there is no permit */
	must(rlv_pool_iteration_begin(b, 0), "b begins");
	must(rlv_pool_iteration_end(b), "b ends");
	must(rlv_pool_close(&a), "close a");
	iterate(b, 5);
	processes_kill(&fx.ps, fx.broker, SIGSTOP);
	iterate(b, 1);
	processes_kill(&fx.ps, fx.broker, SIGCONT);
	must(rlv_pool_close(&b), "close b");
}

TEST_WITH(permit__a_new_broker_does_not_know_that_of_the_former, begin, end)
{
	struct rlv_pool *a = poold_join("a", 0, 6), *b;

	iterate(a, 5);
	for (int runs = 0; runs < 2; runs++) {
		iterate(a, 1);
		if (runs)
			must(rlv_pool_iteration_begin(a, 0), "a begins");
		processes_kill(&fx.ps, fx.broker, SIGKILL);
		poold_again(&fx, "--sharing", "alone");
		if (runs)
			must(rlv_pool_iteration_end(a), "a ends");
		b = poold_join("b", 0, 6);
		must(rlv_pool_iteration_begin(b, 0), "b begins");
		expect(rlv_pool_iteration_begin(a, 0), -ETIMEDOUT);
		must(rlv_pool_iteration_end(b), "b ends");
		must(rlv_pool_close(&b), "close b");
	}
	iterate(a, 1);
	must(rlv_pool_close(&a), "close a");
}

/* -------- jobs that are stopped or killed -------- */

/* Stops between two iterations, or in one; then it goes on. Returns what the next call did. */
static int stops(void *ctx)
{
	const bool *runs = ctx;
	struct rlv_pool *pool = poold_join("stops", 0, 6);

	iterate(pool, 5);
	if (*runs)
		must(rlv_pool_iteration_begin(pool, 0), "begin");
	(void)raise(SIGSTOP);
	return -(*runs ? rlv_pool_iteration_end(pool) : rlv_pool_iteration_begin(pool, 0));
}

static pid_t start_stopped(bool *runs)
{
	pid_t pid = processes_fork(&fx.ps, stops, runs);
	siginfo_t info;

	assert_int_equal(waitid(P_PID, (id_t)pid, &info, WSTOPPED | WNOWAIT), 0);
	assert_int_equal(info.si_code, CLD_STOPPED);
	return pid;
}

/* It goes on, and has lost its turn. */
static void expect_late(pid_t pid)
{
	processes_kill(&fx.ps, pid, SIGCONT);
	assert_int_equal(processes_wait(&fx.ps, pid, PROCESSES_WAIT_MS), ETIMEDOUT);
}

TEST_WITH(permit__is_taken_back_from_a_job_that_is_stopped_between_iterations, begin, end)
{
	bool runs = false;
	pid_t pid = start_stopped(&runs);
	struct rlv_pool *b = poold_join("b", 0, 6);

	must(rlv_pool_iteration_begin(b, 0), "b begins");
	expect_late(pid);
	must(rlv_pool_iteration_end(b), "b ends");
	must(rlv_pool_close(&b), "close b");
}

TEST_WITH(permit__limit_ends_an_iteration_that_is_stopped, begin_limited, end)
{
	bool runs = true;
	pid_t pid = start_stopped(&runs);
	struct rlv_pool *b = poold_join("b", 0, 6);

	must(rlv_pool_iteration_begin(b, POOLD_SOON), "b begins");
	expect_late(pid);
	assert_true(poold_status().cut >= 1);
	ends(b);
	must(rlv_pool_close(&b), "close b");
}

TEST_WITH(permit__limit_holds_for_a_job_alone, begin_limited, end)
{
	struct rlv_pool *a = poold_join("a", 0, 6);
	uint64_t before;

	iterate(a, 5);
	before = poold_status().cut;
	must(rlv_pool_iteration_begin(a, 0), "begin");
	do
		processes_sleep_ns(POOLD_SECOND / 100);
	while (poold_status().cut == before);
	expect(rlv_pool_iteration_end(a), -ETIMEDOUT);
	iterate(a, 1);
	must(rlv_pool_close(&a), "close");
}

static int iterates(void *ctx)
{
	const int *ready = ctx;
	struct rlv_pool *pool = poold_join("iterates", 0, 6);

	iterate(pool, 5);
	assert_int_equal(write(ready[1], "", 1), 1);
	while (pool)
		iterate(pool, 1);
	return 0;
}

TEST_WITH(permit__job_that_is_killed_leaves_its_place, begin, end)
{
	for (unsigned i = 0; i < KILLS; i++) {
		struct rlv_pool *b;
		int ready[2];
		char byte;
		pid_t pid;

		assert_int_equal(pipe(ready), 0);
		pid = processes_fork(&fx.ps, iterates, ready);
		assert_int_equal(read(ready[0], &byte, 1), 1);
		processes_sleep_ns(i * 10007);
		processes_kill(&fx.ps, pid, SIGKILL);
		b = poold_join("b", 0, 6);
		must(rlv_pool_iteration_begin(b, POOLD_SOON), "b begins");
		must(rlv_pool_iteration_end(b), "b ends");
		must(rlv_pool_close(&b), "close b");
		(void)close(ready[0]);
		(void)close(ready[1]);
	}
	assert_int_equal(poold_status().deaths, KILLS);
}

/* -------- jobs that lie -------- */

TEST_WITH(permit__noise_in_its_page_keeps_nobody_waiting, begin_limited, end)
{
	static const uint64_t words[] = { 0, 1, 2, 3, 4, 5, UINT64_MAX, UINT64_MAX - 1, 1ull << 63 };

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		struct rlv_pool *b;
		struct raw_job a;

		raw_job_connect(&a);
		must(raw_job_hello(&a, "liar", 6), "hello");
		memset(&a.message, 0, sizeof(a.message));
		must(raw_job_call(&a, LEASE_BEGIN), "begin");
		a.permit->used_ns[0] = a.permit->used_ns[1] = words[i];
		a.permit->began_ns = UINT64_MAX - words[i];
		a.permit->word = words[i];
		b = poold_join("b", 0, 6);
		must(rlv_pool_iteration_begin(b, POOLD_SOON), "b begins");
		assert_int_equal(a.permit->word, 0);
		assert_true(poold_job("liar").served_ns < 20 * (uint64_t)POOLD_SECOND);
		ends(b);
		must(rlv_pool_close(&b), "close b");
		raw_job_send(&a, LEASE_BYE);
		must(raw_job_answer(&a), "bye");
		raw_job_close(&a);
	}
}

TEST_WITH(permit__page_that_could_shrink_is_refused, begin, end)
{
	struct raw_job job;

	raw_job_connect(&job);
	close(job.permit_fd);
	job.permit_fd = memfd_create("permit", MFD_CLOEXEC);
	assert_int_equal(ftruncate(job.permit_fd, sizeof(struct lease_permit)), 0);
	expect(raw_job_hello(&job, "a", 0), -EINVAL);
	raw_job_close(&job);
}

int main(void)
{
	if (test_skips_msan("libevent"))
		return TEST_EXIT_SKIP;
	return test_run(NULL, NULL);
}
