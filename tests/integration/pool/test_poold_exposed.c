/*
 * Extents that an RDMA device may know: jobs say so (EXPOSE), and no other job gets the same physical memory. What a
 * registration holds on to is seen as a file: the extent's own memfd, or the dma-buf of the fake driver.
 */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/os/clock.h"
#include "client/pool/lease.h"
#include "client/pool/pool.h"
#include "tests/support/fake/fake_cuda.h"
#include "tests/support/fixture/poold_fixture.h"
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

/* -------- by messages -------- */

static void joins(struct raw_job *job, const char *name)
{
	raw_job_connect(job);
	must(raw_job_hello(job, name, 0), "hello");
}

static void leaves(struct raw_job *job)
{
	memset(&job->message, 0, sizeof(job->message));
	must(raw_job_call(job, LEASE_BYE), "bye");
	raw_job_close(job);
}

/* Sends references to held extents from the first on. */
static int sends(struct raw_job *job, enum lease_type type, uint32_t n, uint32_t flags)
{
	memset(&job->message, 0, sizeof(job->message));
	job->message.refs.n = n;
	for (uint32_t i = 0; i < n; i++) {
		job->message.refs.refs[i] = job->held[i];
		job->message.refs.refs[i].flags = flags;
	}
	if (type == LEASE_HOLD) {
		job->message.refs.flags = LEASE_LAST;
		job->message.n_fds = n;
		memcpy(job->message.fds, job->fds, n * sizeof(job->fds[0]));
	}
	return raw_job_call(job, type);
}

static ino_t memory_of(int fd)
{
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	return st.st_ino;
}

struct memories {
	ino_t of[POOLD_EXTENTS];
	uint32_t n;
};

static struct memories memories(const struct raw_job *job)
{
	struct memories seen = { .n = job->n_held };

	for (uint32_t i = 0; i < job->n_held; i++)
		seen.of[i] = memory_of(job->fds[i]);
	return seen;
}

/* Of a job's extents, how many have memory of those of `before` from the first-th to the one before the end-th. */
static uint32_t shared(const struct raw_job *job, const struct memories *before, uint32_t first,
		       uint32_t end_)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < job->n_held; i++) {
		for (uint32_t j = first; j < end_; j++)
			n += memory_of(job->fds[i]) == before->of[j];
	}
	return n;
}

TEST_WITH(expose__goes_to_no_other_job_with_its_memory, begin, end)
{
	struct memories before;
	struct raw_job a, b;

	joins(&a, "a");
	joins(&b, "b");
	must(raw_job_take(&a, POOLD_EXTENTS), "take");
	before = memories(&a);
	must(sends(&a, LEASE_EXPOSE, 3, 0), "expose");
	must(sends(&a, LEASE_EXPOSE, 1, 0), "expose again");
	must(raw_job_give(&a, POOLD_EXTENTS, 0), "give");
	must(raw_job_take(&a, POOLD_EXTENTS), "take again");
	assert_int_equal(shared(&a, &before, 0, POOLD_EXTENTS), POOLD_EXTENTS); /* its own */
	must(raw_job_give(&a, POOLD_EXTENTS, 0), "give");
	must(raw_job_take(&b, POOLD_EXTENTS), "take");
	assert_int_equal(shared(&b, &before, 0, 3), 0);
	assert_int_equal(shared(&b, &before, 3, POOLD_EXTENTS), POOLD_EXTENTS - 3);
	before = memories(&b);
	must(raw_job_give(&b, POOLD_EXTENTS, 0), "give");
	must(raw_job_take(&a, POOLD_EXTENTS), "take");
	assert_int_equal(shared(&a, &before, 0, POOLD_EXTENTS),
			 POOLD_EXTENTS); /* new, so not exposed */
	leaves(&a);
	leaves(&b);
}

/* The memory that a new broker takes over from a job is known to it by the job alone. */
TEST_WITH(hold__tells_a_broker_that_was_started_anew, begin, end)
{
	for (uint32_t flags = 0; flags <= LEASE_EXPOSED; flags++) {
		struct memories before;
		struct raw_job a, b;

		joins(&a, "a");
		must(raw_job_take(&a, 4), "take");
		before = memories(&a);
		if (flags)
			must(sends(&a, LEASE_EXPOSE, 4, 0), "expose");
		processes_kill(&fx.ps, fx.broker, SIGKILL);
		poold_again(&fx, NULL, NULL);
		close(a.sock);
		must(lease_connect("test", &a.sock), "connect");
		must(raw_job_hello(&a, "a", 0), "hello");
		must(sends(&a, LEASE_HOLD, 4, flags), "hold");
		must(raw_job_give(&a, 4, 0), "give");
		joins(&b, "b");
		must(raw_job_take(&b, 4), "take");
		assert_int_equal(shared(&b, &before, 0, 4), flags ? 0 : 4);
		leaves(&a);
		leaves(&b);
	}
}

TEST_WITH(expose__of_what_is_not_its_own_is_an_error, begin, end)
{
	struct raw_job a, b;
	struct lease_ref mine;

	joins(&a, "a");
	joins(&b, "b");
	must(raw_job_take(&a, 2), "take");
	must(raw_job_take(&b, 2), "take");
	mine = a.held[0];
	a.held[0] = b.held[0];
	expect(sends(&a, LEASE_EXPOSE, 1, 0), -EINVAL);
	a.held[0] = mine;
	a.held[0].generation++;
	expect(sends(&a, LEASE_EXPOSE, 1, 0), -ESTALE);
	a.held[0].generation--;
	a.held[0].extent = POOLD_EXTENTS;
	expect(sends(&a, LEASE_EXPOSE, 1, 0), -EINVAL);
	a.held[0] = a.held[1];
	expect(sends(&a, LEASE_EXPOSE, 2, 0), -EINVAL);
	a.held[0] = mine;
	must(raw_job_give(&a, 2, 0), "give");
	a.held[0] = mine;
	expect(sends(&a, LEASE_EXPOSE, 1, 0), -EINVAL); /* given back */
	expect(sends(&a, LEASE_EXPOSE, 0, 0), -ECONNRESET);
	expect(sends(&b, LEASE_EXPOSE, 1, LEASE_EXPOSED), -ECONNRESET);
	a.incarnation = 0;
	close(a.sock);
	must(lease_connect("test", &a.sock), "connect");
	must(raw_job_hello(&a, "c", 0), "hello");
	must(raw_job_take(&a, 1), "take");
	expect(sends(&a, LEASE_HOLD, 1, LEASE_EXPOSED << 1), -ECONNRESET);
	raw_job_close(&a);
	raw_job_close(&b);
}

/* -------- a job that is killed -------- */

#define EXTENT ((uint64_t)2 << 20)
#define ALL 4u /* extents of the device */

/* What processes share: a child of the job that has its dma-buf, as one that has its queue pairs would. */
static struct late {
	_Atomic uint32_t began, stop, rounds;
} * late;

static int begin_cuda(void **state)
{
	const char *const options[] = { "--device", "cuda:0:8M", "--extent", "2M", NULL };

	(void)state;
	if (getenv("RLV_TEST_GPU")) {
		print_message(
			"skipped: RLV_TEST_GPU: the CPU writes dma-bufs of the fake driver alone\n");
		skip();
	}
	fake_cuda_open()->reset();
	poold_start_as(&fx, options);
	late = mmap(NULL, sizeof(*late), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(late != MAP_FAILED);
	return 0;
}

static int end_cuda(void **state)
{
	atomic_store(&late->stop, 1);
	munmap(late, sizeof(*late));
	return end(state);
}

static struct rlv_pool *job_opens(const char *name)
{
	struct rlv_pool_opts opts = RLV_POOL_OPTS_INIT;
	struct rlv_pool *pool;

	opts.persistent_bytes = ALL * EXTENT;
	opts.timeout_ns = POOLD_SOON;
	must(rlv_pool_open("test", name, &opts, &pool), "rlv_pool_open");
	return pool;
}

static void *job_takes(struct rlv_pool *pool, uint64_t bytes)
{
	uint32_t stream;
	void *ptr;

	must(rlv_pool_stream(pool, NULL, &stream), "stream");
	must(rlv_pool_alloc(pool, RLV_POOL_PERSISTENT, bytes, stream, &ptr), "alloc");
	return ptr;
}

/* READs that go on after the job: they fill what the dma-buf holds on to. */
static int writes_late(int fd)
{
	uint64_t deadline =
		deadline_after(clock_monotonic(), 6 * PROCESSES_WAIT_MS * CLOCK_NS_PER_MS);
	uint8_t *memory = mmap(NULL, EXTENT, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (memory == MAP_FAILED)
		return 1;
	while (!atomic_load(&late->stop) && !deadline_expired(clock_monotonic(), deadline)) {
		memset(memory, 0xee, EXTENT);
		atomic_fetch_add(&late->rounds, 1);
	}
	return 0;
}

static int exposes(void *ctx)
{
	struct rlv_pool *pool = job_opens("victim");
	void *tensor = job_takes(pool, EXTENT);
	uint64_t off;
	int fd;

	(void)ctx;
	must(pool_tensor_dmabuf(pool, (uint64_t)(uintptr_t)tensor, &fd, &off),
	     "pool_tensor_dmabuf");
	assert_int_equal(off, 0);
	if (fork() == 0)
		_exit(writes_late(fd));
	atomic_store(&late->began, 1);
	for (;;)
		processes_sleep_ns(POOLD_SECOND);
}

static bool has_begun(void *arg)
{
	(void)arg;
	return atomic_load(&late->began) && atomic_load(&late->rounds) > 1;
}

static bool has_gone_on(void *arg)
{
	return atomic_load(&late->rounds) > *(uint32_t *)arg + 1;
}

TEST_WITH(killed__late_reads_reach_nobody, begin_cuda, end_cuda)
{
	pid_t child = processes_fork(&fx.ps, exposes, NULL);
	uint32_t rounds;
	struct rlv_pool *pool;
	uint8_t *ours;

	assert_true(processes_until(has_begun, NULL));
	processes_kill(&fx.ps, child, SIGKILL);
	pool = job_opens("b");
	ours = job_takes(pool, ALL * EXTENT); /* all of the device */
	memset(ours, 3, ALL * EXTENT);        /* of the fake driver */
	rounds = atomic_load(&late->rounds);
	assert_true(processes_until(has_gone_on, &rounds));
	for (uint64_t i = 0; i < ALL * EXTENT; i++)
		assert_int_equal(ours[i], 3);
	assert_int_equal(poold_status().deaths, 1);
	must(rlv_pool_close(&pool), "close");
}

int main(void)
{
	if (test_skips_msan("libevent"))
		return TEST_EXIT_SKIP;
	return test_run(NULL, NULL);
}
