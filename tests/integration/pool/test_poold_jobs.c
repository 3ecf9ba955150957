/* Jobs of a pool's broker that are killed at every message, lie, or send anything. */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/os/clock.h"
#include "base/rng.h"
#include "client/pool/lease.h"
#include "tests/support/fixture/raw_job.h"
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

/* -------- killed at every message -------- */

/* Messages of a job's life, in order. */
static const enum lease_type life[] = {
	LEASE_HELLO, LEASE_TAKE,   LEASE_BEGIN, LEASE_TAKE, LEASE_GIVE, LEASE_ROOM,
	LEASE_END,   LEASE_CANCEL, LEASE_HELLO, LEASE_HOLD, LEASE_TAKE, LEASE_BYE,
};

#define LIFE (sizeof(life) / sizeof(life[0]))

struct victim {
	size_t messages; /* that it sends; then it is killed */
	bool waits;      /* for the last answer */
};

static void fill_message(struct raw_job *job, enum lease_type type)
{
	struct lease_message *message = &job->message;

	memset(message, 0, sizeof(*message));
	if (type == LEASE_HELLO) {
		memcpy(message->hello.name, "victim", 7);
		message->hello.incarnation = job->incarnation;
		message->hello.peak = 5 * POOLD_EXTENT;
		message->hello.weight = 1000;
		message->fds[0] = job->pidfd;
		message->fds[1] = job->page_fd;
		message->fds[2] = job->permit_fd;
		message->n_fds = 3;
	} else if (type == LEASE_TAKE) {
		message->take.n = 2;
	} else if (type == LEASE_GIVE) {
		message->refs.n = 1;
		message->refs.refs[0] = job->held[--job->n_held];
		message->refs.marks[0] = 1; /* which its stream never reaches */
	} else if (type == LEASE_HOLD) {
		message->refs.n = job->n_held;
		message->n_fds = job->n_held;
		message->refs.flags = LEASE_LAST;
		message->refs.marks[0] = 1;
		memcpy(message->refs.refs, job->held, job->n_held * sizeof(job->held[0]));
		memcpy(message->fds, job->fds, job->n_held * sizeof(job->fds[0]));
	} else if (type == LEASE_BYE) {
		message->refs.marks[0] = 1;
	}
}

static void spoil(int fd)
{
	uint8_t *ptr = mmap(NULL, POOLD_EXTENT, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	assert_true(ptr != MAP_FAILED);
	memset(ptr, 0xdd, POOLD_EXTENT);
}

static int victim(void *ctx)
{
	const struct victim *want = ctx;
	struct raw_job job;

	raw_job_connect(&job);
	for (size_t i = 0; i < want->messages; i++) {
		if (life[i] == LEASE_HELLO && i > 0) { /* it comes back over a new connection */
			close(job.sock);
			if (lease_connect("test", &job.sock))
				return 2;
		}
		fill_message(&job, life[i]);
		raw_job_send(&job, life[i]);
		if (i + 1 == want->messages && !want->waits)
			break;
		if (raw_job_answer(&job)) {
			print_error("message %zu: %s\n", i, job.message.answer.text);
			return 1;
		}
		if (life[i] == LEASE_HELLO)
			job.incarnation = job.message.answer.incarnation;
		for (uint32_t k = 0; life[i] == LEASE_TAKE && k < 2; k++) {
			job.held[job.n_held] = job.message.answer.refs[k];
			job.fds[job.n_held++] = job.message.fds[k];
			spoil(job.message.fds[k]);
		}
	}
	(void)raise(SIGKILL);
	return 3;
}

TEST_WITH(poold__job_killed_at_any_message_gives_all_back, begin, end)
{
	struct rlv_pool *neighbour = poold_join("neighbour", 2, 6);
	uint8_t *mine = poold_tensor(neighbour, RLV_POOL_PERSISTENT, 2, 0x5a), *more;

	for (size_t i = 0; i < 2 * LIFE; i++) {
		struct victim want = { i / 2 + 1, i % 2 };
		pid_t pid = processes_fork(&fx.ps, victim, &want);

		assert_int_equal(processes_wait(&fx.ps, pid, PROCESSES_WAIT_MS), 128 + SIGKILL);
		assert_true(poold_holds(2, POOLD_SOON));
		assert_int_equal(poold_job("victim").pid, 0);
		poold_expect_bytes(mine, 2, 0x5a);
		more = poold_tensor(neighbour, RLV_POOL_ITERATION, 6, 0xa5);
		poold_expect_bytes(more, 6, 0xa5);
		must(rlv_pool_free(neighbour, more, 0), "free");
		must(rlv_pool_iteration_begin(neighbour, POOLD_SOON), "begin");
		must(rlv_pool_iteration_end(neighbour), "end");
		/* Alone it keeps its memory. */
		assert_true(poold_status().held_bytes <= 8 * POOLD_EXTENT);
		must(rlv_pool_close(&neighbour), "close");
		neighbour = poold_join("neighbour", 2, 6);
		mine = poold_tensor(neighbour, RLV_POOL_PERSISTENT, 2, 0x5a);
	}
	assert_true(poold_status().deaths >= 2 * LIFE - 2);
	must(rlv_pool_close(&neighbour), "close");
}

/* -------- progress -------- */

TEST_WITH(poold__memory_given_back_waits_for_the_device, begin, end)
{
	struct raw_job a, b;

	raw_job_connect(&a);
	raw_job_connect(&b);
	must(raw_job_hello(&a, "a", 0), "hello");
	must(raw_job_hello(&b, "b", 0), "hello");
	must(raw_job_take(&a, 8), "take");
	must(raw_job_give(&a, 4, 7), "give");
	expect(raw_job_take(&b, 4), -EAGAIN);
	assert_int_equal(b.message.answer.reason, RLV_POOL_WAITS_MEMORY);
	atomic_store(&a.page[0], 6);
	expect(raw_job_take(&b, 4), -EAGAIN);
	assert_true(poold_holds(8, 0));
	atomic_store(&a.page[0], 7);
	must(raw_job_take(&b, 4), "take");
	/* Marks do not go back; progress that does is ignored. */
	expect(raw_job_give(&a, 1, 6), -EINVAL);
	a.n_held++;
	raw_job_close(&a);
	raw_job_close(&b);
}

TEST_WITH(poold__what_a_job_says_is_checked, begin, end)
{
	struct raw_job a, b;
	struct lease_ref ref;

	raw_job_connect(&a);
	raw_job_connect(&b);
	must(raw_job_hello(&a, "a", 0), "hello");
	expect(raw_job_hello(&b, "a", 0), -EEXIST);
	must(raw_job_hello(&b, "b", 0), "hello");
	must(raw_job_take(&a, 2), "take");
	ref = a.held[0];
	b.held[b.n_held] = ref;
	b.fds[b.n_held++] = -1;
	expect(raw_job_give(&b, 1, 0), -EINVAL); /* another's */
	a.held[1] = ref;
	expect(raw_job_give(&a, 2, 0), -EINVAL); /* twice in a message */
	a.held[0].generation = ref.generation + 1;
	a.n_held = 1;
	expect(raw_job_give(&a, 1, 0), -ESTALE);
	a.held[0] = ref;
	a.n_held = 1;
	a.fds[0] = -1;
	must(raw_job_give(&a, 1, 0), "give");
	a.held[0] = ref;
	a.n_held = 1;
	a.fds[0] = -1;
	expect(raw_job_give(&a, 1, 0), -EINVAL); /* twice */
	a.held[0].extent = UINT32_MAX;
	a.n_held = 1;
	a.fds[0] = -1;
	expect(raw_job_give(&a, 1, 0), -EINVAL);
	assert_true(poold_holds(1, POOLD_SOON));
	a.n_held = 0;
	raw_job_close(&a);
	raw_job_close(&b);
}

TEST_WITH(poold__page_that_could_shrink_is_refused, begin, end)
{
	struct raw_job job;
	int fd = memfd_create("page", MFD_CLOEXEC);

	assert_int_equal(ftruncate(fd, LEASE_PROGRESS_BYTES), 0);
	raw_job_connect(&job);
	close(job.page_fd);
	job.page_fd = fd;
	expect(raw_job_hello(&job, "a", 0), -EINVAL);
	raw_job_close(&job);
}

/* -------- a stopped job -------- */

struct waiter {
	uint32_t extents;
};

static int waiter(void *ctx)
{
	const struct waiter *want = ctx;
	struct raw_job job;

	raw_job_connect(&job);
	if (raw_job_hello(&job, "waiter", 0) || raw_job_take(&job, want->extents) != -EAGAIN)
		return 1;
	while (pause())
		;
	return 0;
}

TEST_WITH(poold__grant_of_a_stopped_job_goes_to_the_next, begin, end)
{
	struct rlv_pool *a = poold_join("a", 0, 0), *b;
	uint8_t *all = poold_tensor(a, RLV_POOL_ITERATION, 8, 1);
	struct waiter want = { 8 };
	struct rlv_pool_opts opts = RLV_POOL_OPTS_INIT;
	pid_t pid = processes_fork(&fx.ps, waiter, &want);
	uint32_t stream;
	void *ptr;

	while (poold_job("waiter").state != RLV_POOL_JOB_WAITS)
		processes_sleep_ns(1000000);
	processes_kill(&fx.ps, pid, SIGSTOP);
	opts.timeout_ns = POOLD_SOON;
	must(rlv_pool_open("test", "b", &opts, &b), "open b");
	must(rlv_pool_stream(b, NULL, &stream), "stream");
	must(rlv_pool_free(a, all, 0), "free");
	must(rlv_pool_close(&a), "close a");
	must(rlv_pool_alloc(b, RLV_POOL_ITERATION, 8 * POOLD_EXTENT, stream, &ptr), "alloc");
	processes_kill(&fx.ps, pid, SIGKILL);
	must(rlv_pool_close(&b), "close b");
}

/* -------- a job that lies about what it needs, and how long -------- */

TEST_WITH(poold__job_that_lies_about_needs_and_classes_bounds_the_wait_of_others, begin, end)
{
	struct rlv_pool *liar = poold_join("liar", 1, 1), *b = poold_join_brief("b", 2, 1);
	uint8_t *kept, *theirs = poold_tensor(b, RLV_POOL_PERSISTENT, 2, 2);
	void *ptr;

	expect(rlv_pool_alloc(liar, (enum rlv_pool_class)4, 1, 0, &ptr), -EINVAL);
	must(rlv_pool_iteration_begin(liar, 0), "liar begins");
	kept = poold_tensor(liar, RLV_POOL_EPHEMERAL, 6, 1);
	assert_int_equal(poold_status().overshoots, 1);
	must(rlv_pool_iteration_end(liar), "liar ends");
	/* It keeps what it called ephemeral: the ledger counts it, and others wait no longer than they said. */
	assert_true(poold_holds(8, 0));
	must(rlv_pool_iteration_begin(b, 0), "b begins");
	expect(rlv_pool_alloc(b, RLV_POOL_ITERATION, POOLD_EXTENT, 0, &ptr), -ETIMEDOUT);
	must(rlv_pool_iteration_end(b), "b ends");
	poold_expect_bytes(kept, 6, 1);
	poold_expect_bytes(theirs, 2, 2);
	must(rlv_pool_limit_job("test", "liar", 2 * POOLD_EXTENT), "limit job");
	must(rlv_pool_free(liar, kept, 0), "free");
	must(rlv_pool_iteration_begin(liar, 0), "liar begins");
	must(rlv_pool_iteration_end(liar), "liar ends: it gives back what is free");
	expect(rlv_pool_alloc(liar, RLV_POOL_EPHEMERAL, 6 * POOLD_EXTENT, 0, &ptr), -ENOSPC);
	must(rlv_pool_close(&liar), "close liar");
	must(rlv_pool_close(&b), "close b");
}

/* -------- noise -------- */

TEST_WITH(poold__noise_is_hung_up_on_and_others_go_on, begin, end)
{
	struct rlv_pool *a = poold_join("a", 2, 2);
	uint8_t *mine = poold_tensor(a, RLV_POOL_PERSISTENT, 2, 3);
	struct rng rng;
	uint8_t noise[LEASE_BYTES_MAX + 64];

	rng_seed(&rng, test_seed("noise", 1), 0);
	for (int i = 0; i < 200; i++) {
		size_t n = 1 + rng_uniform_u64(&rng, sizeof(noise));
		struct raw_job job;

		raw_job_connect(&job);
		for (size_t k = 0; k < n; k++)
			noise[k] = (uint8_t)rng_next_u64(&rng);
		if (i % 2) { /* a sound message out of turn, or with fields of noise */
			memcpy(job.message.bytes, noise, LEASE_BYTES_MAX);
			raw_job_send(&job,
				     (enum lease_type)(1 + rng_uniform_u64(&rng, LEASE_WAKE)));
		} else {
			assert_true(send(job.sock, noise, n, MSG_NOSIGNAL) >= 0);
		}
		(void)raw_job_answer(&job);
		raw_job_close(&job);
	}
	poold_expect_bytes(mine, 2, 3);
	assert_true(poold_holds(2, 0));
	assert_int_equal(poold_status().jobs, 1);
	must(rlv_pool_close(&a), "close a");
}

/* -------- the list of jobs -------- */

#define LISTED 20u /* more than a message has */

/* 0, or the error of a connection on which the broker hangs up. */
static int ask_jobs(int sock, uint32_t first, struct lease_message *message)
{
	memset(message, 0, sizeof(*message));
	message->ask.first = first;
	return lease_call(sock, message, LEASE_ASK,
			  deadline_after(clock_monotonic(), 10 * CLOCK_NS_PER_S));
}

static void join_many(struct rlv_pool *pools[LISTED])
{
	for (uint32_t i = 0; i < LISTED; i++) {
		char name[16];

		snprintf(name, sizeof(name), "job-%02" PRIu32, i);
		pools[i] = poold_join(name, 0, 1);
	}
}

TEST_WITH(rlv_pool_jobs__lists_more_than_a_message_has, begin, end)
{
	struct rlv_pool *pools[LISTED];
	struct rlv_pool_job jobs[LISTED + 1];
	size_t n = LISTED + 1;

	join_many(pools);
	must(rlv_pool_jobs("test", jobs, sizeof(jobs[0]), &n), "jobs");
	assert_int_equal(n, LISTED);
	for (uint32_t i = 0; i < LISTED; i++) {
		char name[16];

		snprintf(name, sizeof(name), "job-%02" PRIu32, i);
		assert_string_equal(jobs[i].name, name);
		assert_int_equal(jobs[i].iteration_bytes, POOLD_EXTENT);
	}
	n = 3;
	must(rlv_pool_jobs("test", jobs, sizeof(jobs[0]), &n), "jobs");
	assert_int_equal(n, LISTED);
	for (uint32_t i = 0; i < LISTED; i++)
		must(rlv_pool_close(&pools[i]), "close");
	n = 3;
	must(rlv_pool_jobs("test", jobs, sizeof(jobs[0]), &n), "jobs");
	assert_int_equal(n, 0);
}

TEST_WITH(poold__list_of_jobs_is_of_the_moment_it_was_asked_for, begin, end)
{
	struct rlv_pool *pools[LISTED];
	struct lease_message message;
	uint64_t held = 0;
	void *ptr;
	int sock;

	join_many(pools);
	must(rlv_pool_alloc(pools[0], RLV_POOL_EPHEMERAL, POOLD_EXTENT, 0, &ptr), "alloc");
	must(lease_connect("test", &sock), "connect");
	must(ask_jobs(sock, 0, &message), "the first");
	assert_int_equal(message.jobs.n, LEASE_JOBS);
	for (uint32_t i = 0; i < LEASE_JOBS; i++)
		held += message.jobs.jobs[i].held;
	/* The extent goes to a job of the next message, and another leaves. */
	must(rlv_pool_free(pools[0], ptr, POOLD_EXTENT), "free");
	must(rlv_pool_close(&pools[0]), "close");
	must(rlv_pool_close(&pools[LISTED - 1]), "close");
	must(rlv_pool_alloc(pools[LISTED - 2], RLV_POOL_EPHEMERAL, POOLD_EXTENT, 0, &ptr), "alloc");
	must(ask_jobs(sock, LEASE_JOBS, &message), "the rest");
	assert_int_equal(message.head.type, LEASE_JOBS_ANSWER);
	assert_int_equal(message.jobs.total, LISTED);
	assert_int_equal(message.jobs.n, LISTED - LEASE_JOBS);
	assert_string_equal(message.jobs.jobs[LISTED - LEASE_JOBS - 1].name, "job-19");
	for (uint32_t i = 0; i < message.jobs.n; i++)
		held += message.jobs.jobs[i].held;
	assert_int_equal(held, POOLD_EXTENT);
	/* Anew it is of now. */
	must(ask_jobs(sock, 0, &message), "again");
	assert_int_equal(message.jobs.total, LISTED - 2);
	assert_string_equal(message.jobs.jobs[0].name, "job-01");
	close(sock);
	for (uint32_t i = 1; i < LISTED - 1; i++)
		must(rlv_pool_close(&pools[i]), "close");
}

TEST_WITH(poold__hangs_up_on_who_asks_for_jobs_that_are_not_listed, begin, end)
{
	static const uint32_t firsts[] = { 1, LEASE_JOBS, LEASE_POOL - 1 };
	struct lease_message message;
	struct rlv_pool *pools[LISTED];
	int sock;

	join_many(pools);
	for (size_t i = 0; i < 3; i++) { /* without a list */
		must(lease_connect("test", &sock), "connect");
		expect(ask_jobs(sock, firsts[i], &message), -ECONNRESET);
		close(sock);
	}
	must(lease_connect("test", &sock), "connect"); /* behind its end */
	must(ask_jobs(sock, 0, &message), "the first");
	expect(ask_jobs(sock, LISTED + 1, &message), -ECONNRESET);
	close(sock);
	must(lease_connect("test", &sock), "connect"); /* after its end */
	must(ask_jobs(sock, 0, &message), "the first");
	must(ask_jobs(sock, LEASE_JOBS, &message), "the rest");
	expect(ask_jobs(sock, LEASE_JOBS, &message), -ECONNRESET);
	close(sock);
	for (uint32_t i = 0; i < LISTED; i++)
		must(rlv_pool_close(&pools[i]), "close");
}

int main(void)
{
	if (test_skips_msan("libevent"))
		return TEST_EXIT_SKIP;
	return test_run(NULL, NULL);
}
