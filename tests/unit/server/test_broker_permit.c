/* What a broker makes of a job that begins and ends iterations by its permit. */
#include "tests/support/test.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "device/host/backend_host.h"
#include "server/poold/broker.h"
#include "tests/support/fake/fake_clock.h"
#include "tests/support/must_internal.h"
#include "tests/support/sealed_page.h"

#define EXTENT ((uint64_t)4096)
#define MS CLOCK_NS_PER_MS

static struct backend *host;
static struct broker *broker;
static struct fake_clock fake;
static struct lease_permit *permit; /* as job a has it mapped */
static int pages[2][2];
static uint32_t a;

static void wake(void *ctx, uint32_t job)
{
	(void)ctx;
	(void)job;
}

static int join(const char *name, int of, uint32_t *job_out)
{
	const struct broker_peer peer = { .process = { .pid = 1 } };
	struct lease_hello hello = { .peak = 6 * EXTENT, .weight = 1000 };

	memcpy(hello.name, name, strlen(name));
	return broker_hello(broker, &peer, &hello, pages[of], job_out);
}

static int begin(void **state)
{
	const struct backend_host_opts opts = { .device_bytes = 16 * EXTENT };
	struct broker_opts broker_opts = { .clock = &fake.clock,
					   .bytes = 8 * EXTENT,
					   .extent_bytes = EXTENT,
					   .iteration_ns = 100 * MS,
					   .wake = wake };

	(void)state;
	fake_clock_init(&fake, CLOCK_NS_PER_S);
	sealed_pages(pages[0]);
	sealed_pages(pages[1]);
	permit = mmap(NULL, sizeof(*permit), PROT_READ | PROT_WRITE, MAP_SHARED, pages[0][1], 0);
	assert_true(permit != MAP_FAILED);
	must(backend_host_open(&opts, &host));
	broker_opts.backend = host;
	must(broker_open(&broker_opts, &broker));
	must(join("a", 0, &a));
	return 0;
}

static int end(void **state)
{
	(void)state;
	must(broker_check(broker));
	broker_close(&broker);
	host->ops->close(host);
	munmap(permit, sizeof(*permit));
	for (int i = 0; i < 2; i++) {
		close(pages[i][0]);
		close(pages[i][1]);
	}
	return 0;
}

static void pass(uint64_t ns)
{
	fake_clock_advance(&fake, ns);
}

/* An iteration by the permit. */
static void iterate(uint64_t ns)
{
	assert_true(lease_permit_begin(permit, clock_now_ns(&fake.clock)));
	pass(ns);
	assert_true(lease_permit_end(permit, clock_now_ns(&fake.clock)));
}

/* The first one is a message. */
static void begin_and_end(uint64_t ns)
{
	must(broker_begin(broker, a));
	pass(ns);
	assert_true(lease_permit_end(permit, clock_now_ns(&fake.clock)));
}

TEST_WITH(broker_recall__counts_iterations_and_their_time, begin, end)
{
	const struct broker_job *job = &broker->jobs[a];

	begin_and_end(2 * MS);
	pass(5 * MS); /* between iterations is not served */
	iterate(3 * MS);
	broker_recall(broker);
	assert_false(job->runs);
	assert_int_equal(job->iterations, 2);
	assert_int_equal(broker->stats.iterations, 2);
	assert_int_equal(job->served_ns, 5 * MS);
	assert_int_equal(broker->gate.jobs[job->gate].served_ns, 5 * MS);
	assert_int_equal(broker_place(broker, a).reason, GATE_IDLE);
	broker_recall(broker);
	assert_int_equal(job->iterations, 2);
	assert_int_equal(broker_end(broker, a, 0), -EINVAL);
}

TEST_WITH(broker_recall__an_iteration_that_runs_goes_on, begin, end)
{
	const struct broker_job *job = &broker->jobs[a];
	uint32_t b;

	begin_and_end(2 * MS);
	pass(5 * MS);
	assert_true(lease_permit_begin(permit, clock_now_ns(&fake.clock)));
	pass(4 * MS);
	must(join("b", 1, &b));
	assert_true(job->runs);
	assert_int_equal(job->iterations, 2);
	assert_int_equal(broker_begin(broker, b), -EAGAIN);
	assert_false(lease_permit_end(permit, clock_now_ns(&fake.clock)));
	must(broker_end(broker, a, 0));
	assert_int_equal(job->served_ns, 6 * MS);
	must(broker_begin(broker, b));
	assert_false(lease_permit_allows(permit));
	must(broker_end(broker, b, 0));
	must(broker_begin(broker, a));
	assert_false(lease_permit_end(permit, 0)); /* no permit beside another */
	must(broker_end(broker, a, 0));
	broker_died(broker, b);
	begin_and_end(MS);
}

TEST_WITH(broker_turn__limit_is_of_one_iteration, begin, end)
{
	const struct broker_job *job = &broker->jobs[a];

	begin_and_end(MS);
	for (int i = 0; i < 98; i++)
		iterate(MS);
	assert_true(lease_permit_begin(permit, clock_now_ns(&fake.clock)));
	pass(2 * MS); /* 101 ms since the permit */
	(void)broker_turn(broker);
	assert_true(job->runs);
	assert_int_equal(job->iterations, 100);
	pass(97 * MS);
	(void)broker_turn(broker);
	assert_true(job->runs);
	pass(MS);
	(void)broker_turn(broker);
	assert_false(job->runs);
	assert_int_equal(broker->stats.cut, 1);
	assert_false(lease_permit_end(permit, clock_now_ns(&fake.clock)));
	assert_int_equal(broker_end(broker, a, 0), -ETIMEDOUT);
}

TEST_WITH(broker_recall__clean_iterations_shrink_the_margin, begin, end)
{
	gate_overshoot(&broker->gate);
	assert_int_equal(broker->gate.margin, 10);
	begin_and_end(MS / 10);
	for (int i = 0; i < 249; i++)
		iterate(MS / 10);
	broker_recall(broker);
	assert_int_equal(broker->gate.margin, 8);
	assert_int_equal(broker->gate.clean, 50);
}

TEST_WITH(broker_recall__counts_iterations_of_less_than_a_microsecond, begin, end)
{
	begin_and_end(200);
	for (int i = 0; i < 100; i++)
		iterate(200);
	broker_recall(broker);
	assert_int_equal(broker->jobs[a].iterations, 101);
}

TEST_WITH(broker_recall__believes_no_more_than_the_time_that_has_passed, begin, end)
{
	const struct broker_job *job = &broker->jobs[a];

	must(broker_begin(broker, a));
	pass(10 * MS);
	permit->used_ns[0] = permit->used_ns[1] = UINT64_MAX;
	permit->word = UINT64_MAX - 2; /* between two, after nearly all that fit a word */
	broker_recall(broker);
	assert_int_equal(job->served_ns, 10 * MS);
	assert_int_equal(job->iterations, 1 + 100000);

	must(broker_begin(broker, a));
	pass(10 * MS);
	permit->began_ns = 0;          /* long ago */
	permit->word = UINT64_MAX - 1; /* in one */
	broker_recall(broker);
	assert_true(job->runs);
	assert_int_equal(job->served_ns, 20 * MS);
	assert_int_equal(job->began_ns, clock_now_ns(&fake.clock));
	must(broker_end(broker, a, 0));
	assert_int_equal(job->served_ns, 20 * MS);

	must(broker_begin(broker, a));
	permit->word = 1; /* it ended none, and is between two */
	broker_recall(broker);
	assert_false(job->runs);
}

TEST_WITH(broker_hello__job_that_comes_back_begins_without_a_permit, begin, end)
{
	struct lease_hello hello = { .peak = 6 * EXTENT, .weight = 1000, .name = "a" };
	const struct broker_peer peer = { .process = { .pid = 1 } };
	uint32_t again;

	begin_and_end(MS);
	hello.incarnation = broker->jobs[a].kept->incarnation;
	must(broker_hello(broker, &peer, &hello, pages[0], &again));
	assert_int_equal(again, a);
	assert_false(lease_permit_allows(permit));
	assert_int_equal(broker->jobs[a].iterations, 1);
	begin_and_end(MS);
	broker_connected(broker, a, false);
	assert_false(lease_permit_allows(permit));
}

int main(void)
{
	return test_run(NULL, NULL);
}
