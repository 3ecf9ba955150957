#include "ds/limiter/limiter.h"

#include "tests/support/fixture/shard_fixture.h"
#include "tests/support/test.h"
#include "tests/support/fake/wire_transport.h"

#include "tests/support/fake/fault.h"

#include <errno.h>
#include <float.h>
#include <string.h>

static struct shard_fixture fx;
static struct shard_conn wire, faulty;
static struct limiter lim, other, remote, broken;

static struct transport *break_it(struct transport *inner)
{
	struct transport *tr = NULL;

	assert_int_equal(fault_wrap(inner, NULL, &tr), 0);
	return tr;
}

static void open_with(const struct limit_desc *bounds)
{
	struct shard_fixture_opts opts = { .limit = bounds };

	shard_fixture_open(&fx, &opts);
	shard_fixture_connect(&fx, wire_wrap, &wire);
	shard_fixture_connect(&fx, break_it, &faulty);
	limiter_init(&lim, fx.shard, 0, 3);
	limiter_init(&other, fx.shard, 0, 4);
	limiter_init(&remote, wire.shard, 0, 5);
	limiter_init(&broken, faulty.shard, 0, 6);
}

static int setup_free(void **state)
{
	struct limit_desc bounds;

	(void)state;
	assert_int_equal(limit_desc_init(&bounds, 10, 0, 0, 0), 0);
	open_with(&bounds);
	return 0;
}

/* A queue of 8. */
static int setup(void **state)
{
	struct limit_desc bounds;

	(void)state;
	assert_int_equal(limit_desc_init(&bounds, 1, 1, 0, 8), 0);
	open_with(&bounds);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	shard_fixture_disconnect(&faulty);
	shard_fixture_disconnect(&wire);
	shard_fixture_close(&fx);
	return 0;
}

static struct limiter_words words(void)
{
	struct limiter_words now;

	assert_int_equal(limiter_read(&lim, &now), 0);
	return now;
}

static void assert_words(uint64_t ia, uint64_t ic, uint64_t sa, uint64_t sc)
{
	struct limiter_words now = words();

	assert_int_equal(now.ins_admitted, ia);
	assert_int_equal(now.ins_committed, ic);
	assert_int_equal(now.smp_admitted, sa);
	assert_int_equal(now.smp_committed, sc);
}

/* Reservations in the owner's slot: admitted and not committed. */
static int64_t held(uint32_t owner, size_t admitted)
{
	uint64_t off =
		part_page_off(&fx.shard->part, owner - 1) + offsetof(struct client_page, limits);
	uint64_t a = 0, c = 0;

	assert_int_equal(transport_load(fx.shard->part.pages, off + admitted, &a), 0);
	assert_int_equal(transport_load(fx.shard->part.pages, off + admitted + 8, &c), 0);
	return (int64_t)(a - c);
}

#define INSERTS offsetof(struct slot_limits, ins_admitted)
#define SAMPLES offsetof(struct slot_limits, smp_admitted)

#define CASE(name) TEST_WITH(name, setup, teardown)
#define FREE(name) TEST_WITH(name, setup_free, teardown)

/* -------- the bounds from doubles -------- */

TEST(limit_desc_init__all_zero_is_free)
{
	struct limit_desc bounds;

	assert_int_equal(limit_desc_init(&bounds, 0, 0, 0, 0), 0);
	assert_int_equal(bounds.min_size, 1);
	assert_true(bounds.min_diff == INT64_MIN);
	assert_true(bounds.max_diff == INT64_MAX);
}

TEST(limit_desc_init__fixed_point)
{
	struct limit_desc bounds;

	assert_int_equal(limit_desc_init(&bounds, 5, 1.5, -2.25, 100), 0);
	assert_int_equal(bounds.spi, 98304);
	assert_true(bounds.min_diff == -147456);
	assert_true(bounds.max_diff == 6553600);
}

TEST(limit_desc_init__huge_is_no_bound)
{
	struct limit_desc bounds;

	assert_int_equal(limit_desc_init(&bounds, 5, 1, -DBL_MAX, (double)INFINITY), 0);
	assert_true(bounds.min_diff == INT64_MIN);
	assert_true(bounds.max_diff == INT64_MAX);
}

static void assert_bounds_refused(double spi, double min_diff, double max_diff, const char *word)
{
	struct limit_desc bounds = { .min_size = 77 };

	assert_int_equal(limit_desc_init(&bounds, 1, spi, min_diff, max_diff), -EINVAL);
	assert_int_equal(bounds.min_size, 77);
	if (!strstr(error_last(), word))
		fail_msg("\"%s\" lacks \"%s\"", error_last(), word);
}

TEST(limit_desc_init__refuses)
{
	assert_bounds_refused((double)NAN, 0, 1, "samples_per_insert");
	assert_bounds_refused(-1, 0, 1, "samples_per_insert -1");
	assert_bounds_refused(1e12, 0, 1, "samples_per_insert 1e+12");
	assert_bounds_refused(1e-9, 0, 1, "samples_per_insert 1e-09");
	assert_bounds_refused(1, (double)NAN, 1, "min_diff");
	assert_bounds_refused(1, 0, (double)NAN, "max_diff");
	assert_bounds_refused(1, 3, 2, "min_diff 3");
	assert_bounds_refused(1, 0, 1e15, "max_diff 1e+15");
	assert_bounds_refused(0, 0, 5, "samples_per_insert 0");
}

static int check(uint64_t min_size, double spi, double min_diff, double max_diff)
{
	struct limit_desc bounds;

	assert_int_equal(limit_desc_init(&bounds, min_size, spi, min_diff, max_diff), 0);
	return limit_desc_check(&bounds, 1000);
}

TEST(limit_desc_check__what_works)
{
	double none = (double)INFINITY;

	assert_int_equal(check(1, 0, 0, 0), 0);
	assert_int_equal(check(1000, 0, 0, 0), 0);
	assert_int_equal(check(1, 1, 0, 1), 0); /* queue of one */
	assert_int_equal(check(1, 1, 0, 1000), 0);
	assert_int_equal(check(1, 8, 0, 8.5), 0);    /* narrow, but 1 gives way to 0 */
	assert_int_equal(check(1, 1, -none, 10), 0); /* stack */
	assert_int_equal(check(100, 8, 800 - 16, 800 + 16), 0);
	assert_int_equal(check(10, 0.25, 2.5 - 1, 2.5 + 1), 0);
}

static void assert_deadlock(uint64_t min_size, double spi, double min_diff, double max_diff)
{
	assert_int_equal(check(min_size, spi, min_diff, max_diff), -EINVAL);
}

TEST(limit_desc_check__built_in_deadlocks)
{
	assert_deadlock(1001, 0, 0, 0);
	assert_non_null(strstr(error_last(), "min_size 1001"));
	assert_deadlock(11, 1, 0, 10); /* inserts stop at 10 */
	assert_non_null(strstr(error_last(), "at 10 items"));
	assert_deadlock(1, 8, 0.5, 8.5); /* at 1: a sample gives 0, an insert 9 */
	assert_deadlock(1, 1, 0.5, 1.25);
	assert_deadlock(1, 2, 0.5, 2.5);
}

TEST(limit_desc_check__numbers_that_contradict)
{
	struct limit_desc bounds = { .min_size = 1, .spi = 65536, .min_diff = 5, .max_diff = 4 };

	assert_int_equal(limit_desc_check(&bounds, 10), -EINVAL);
	bounds = (struct limit_desc){ .min_size = 1, .max_diff = 4 };
	assert_int_equal(limit_desc_check(&bounds, 10), -EINVAL);
	bounds = (struct limit_desc){ 1, UINT64_MAX, INT64_MIN, INT64_MAX };
	assert_int_equal(limit_desc_check(&bounds, 10), -EINVAL);
	bounds = (struct limit_desc){ 0, 65536, INT64_MIN, INT64_MAX };
	assert_int_equal(limit_desc_check(&bounds, 10), -EINVAL);
}

/* -------- no bounds -------- */

FREE(limiter_try_insert__free_costs_nothing)
{
	struct transport_stats before = fx.conn.tr->stats;

	assert_int_equal(limiter_try_insert(&lim, 1000000), 0);
	assert_memory_equal(&before, &fx.conn.tr->stats, sizeof(before));
	assert_int_equal(limiter_commit_insert(&lim, 1000000, 999), 0);
	assert_int_equal(fx.conn.tr->stats.faa - before.faa, 1);
	assert_int_equal(fx.conn.tr->stats.phases, before.phases);
	assert_words(0, 999, 0, 0);
	assert_int_equal(held(3, INSERTS), 0);
}

FREE(limiter_try_sample__waits_for_min_size_once)
{
	uint64_t phases;

	assert_int_equal(limiter_try_sample(&other, 4), -EAGAIN);
	assert_int_equal(limiter_commit_insert(&lim, 9, 9), 0);
	assert_int_equal(limiter_try_sample(&other, 4), -EAGAIN);
	assert_int_equal(limiter_commit_insert(&lim, 1, 1), 0);
	assert_int_equal(limiter_try_sample(&other, 4), 0);
	phases = fx.conn.tr->stats.phases;
	assert_int_equal(limiter_try_sample(&other, 4), 0);
	assert_int_equal(fx.conn.tr->stats.phases, phases);
	assert_int_equal(limiter_commit_sample(&other, 4, 4), 0);
	assert_words(0, 10, 0, 4);
}

/* -------- a queue of 8 -------- */

static void insert(struct limiter *by, uint64_t n)
{
	assert_int_equal(limiter_try_insert(by, n), 0);
	assert_int_equal(limiter_commit_insert(by, n, n), 0);
}

CASE(limiter_try_insert__up_to_max_diff)
{
	insert(&lim, 5);
	assert_int_equal(limiter_try_insert(&lim, 4), -EAGAIN);
	insert(&lim, 3);
	assert_int_equal(limiter_try_insert(&lim, 1), -EAGAIN);
	assert_words(8, 8, 0, 0);
	assert_int_equal(held(3, INSERTS), 0);
}

CASE(limiter_try_insert__waits_for_committed_samples)
{
	insert(&lim, 8);
	assert_int_equal(limiter_try_sample(&other, 2), 0);
	assert_int_equal(limiter_try_insert(&lim, 1), -EAGAIN);
	assert_int_equal(limiter_commit_sample(&other, 2, 2), 0);
	insert(&lim, 2);
	assert_int_equal(limiter_try_insert(&lim, 1), -EAGAIN);
}

CASE(limiter_try_sample__only_what_is_committed)
{
	assert_int_equal(limiter_try_insert(&lim, 4), 0);
	assert_int_equal(limiter_try_sample(&other, 1), -EAGAIN);
	assert_int_equal(limiter_commit_insert(&lim, 4, 3), 0);
	assert_int_equal(limiter_try_sample(&other, 4), -EAGAIN);
	assert_int_equal(limiter_try_sample(&other, 3), 0);
	assert_words(3, 3, 3, 0);
	assert_int_equal(held(4, SAMPLES), 3);
}

CASE(limiter_commit__gives_the_rest_back)
{
	insert(&lim, 8);
	assert_int_equal(limiter_try_sample(&other, 8), 0);
	assert_int_equal(limiter_commit_sample(&other, 8, 0), 0);
	assert_words(8, 8, 0, 0);
	assert_int_equal(held(4, SAMPLES), 0);
	assert_int_equal(limiter_try_sample(&lim, 8), 0);
}

CASE(limiter_try__never)
{
	assert_int_equal(limiter_try_insert(&lim, 9), -EINVAL);
	assert_non_null(strstr(error_last(), "insert of 9"));
	assert_int_equal(limiter_try_sample(&lim, 9), -EINVAL);
	assert_non_null(strstr(error_last(), "sample of 9"));
	assert_int_equal(limiter_try_insert(&lim, UINT64_MAX), -EINVAL);
	assert_words(0, 0, 0, 0);
	assert_int_equal(held(3, INSERTS), 0);
}

CASE(limiter_try__nothing_is_always_allowed)
{
	insert(&lim, 8);
	assert_int_equal(limiter_try_insert(&lim, 0), 0);
	assert_int_equal(limiter_commit_insert(&lim, 0, 0), 0);
	assert_int_equal(limiter_try_sample(&lim, 0), 0);
	assert_words(8, 8, 0, 0);
}

CASE(limiter_try__same_over_a_wire)
{
	uint64_t phases = wire.tr->stats.phases;

	assert_int_equal(limiter_try_insert(&remote, 6), 0);
	assert_int_equal(wire.tr->stats.phases - phases, 2);
	assert_int_equal(held(5, INSERTS), 6);
	assert_int_equal(limiter_commit_insert(&remote, 6, 5), 0);
	assert_int_equal(limiter_try_insert(&remote, 4), -EAGAIN);
	assert_int_equal(limiter_try_sample(&remote, 5), 0);
	assert_int_equal(limiter_commit_sample(&remote, 5, 5), 0);
	assert_int_equal(limiter_try_sample(&remote, 1), -EAGAIN);
	assert_int_equal(transport_order(wire.tr), 0);
	assert_words(5, 5, 5, 5);
	assert_int_equal(held(5, INSERTS), 0);
	assert_int_equal(held(5, SAMPLES), 0);
}

/* Whatever was taken in the end, the slot says at least as much. */
CASE(limiter_try_insert__a_lost_answer_stands_in_the_slot)
{
	struct fault_plan none = { 0 };

	for (int done = 0; done < 2; done++) {
		struct fault_plan plan = { .unknown_rate = 65536,
					   .unknown = done ? FAULT_UNKNOWN_DONE
							   : FAULT_UNKNOWN_NOT_DONE };
		uint64_t before = words().ins_admitted;

		fault_set(faulty.tr, &plan);
		assert_int_equal(limiter_try_insert(&broken, 2), -EIO);
		fault_set(faulty.tr, &none);
		assert_int_equal(words().ins_admitted - before, done ? 2 : 0);
		assert_int_equal(held(6, INSERTS), 2 * (done + 1));
	}
}

static void fill_queue(void *ctx, uint64_t delay_ns)
{
	uint64_t *left = ctx;

	(void)delay_ns;
	if (*left && !limiter_try_insert(&other, *left))
		*left = 0;
}

/*
 * Another client changes the word between the read and the CAS: the bounds are checked against the
 * new value.
 */
CASE(limiter_try_insert__another_takes_the_last_place)
{
	uint64_t theirs = 8;
	struct fault_plan plan = {
		.delay_rate = 65536, .delay_ns = 1, .delay = fill_queue, .delay_ctx = &theirs
	};
	struct fault_plan none = { 0 };

	fault_set(faulty.tr, &plan);
	assert_int_equal(limiter_try_insert(&broken, 1), -EAGAIN);
	fault_set(faulty.tr, &none);
	assert_int_equal(theirs, 0);
	assert_words(8, 0, 0, 0);
	assert_int_equal(held(6, INSERTS), 0);
}

CASE(limiter_try_insert__another_takes_some_of_it)
{
	uint64_t theirs = 7;
	struct fault_plan plan = {
		.delay_rate = 65536, .delay_ns = 1, .delay = fill_queue, .delay_ctx = &theirs
	};
	struct fault_plan none = { 0 };

	fault_set(faulty.tr, &plan);
	assert_int_equal(limiter_try_insert(&broken, 1), 0);
	fault_set(faulty.tr, &none);
	assert_words(8, 0, 0, 0);
	assert_int_equal(faulty.tr->stats.cas_failed, 1);
}

CASE(limiter_commit_insert__a_lost_answer_is_told)
{
	struct fault_plan plan = { .unknown_rate = 65536 }, none = { 0 };

	assert_int_equal(limiter_try_insert(&broken, 2), 0);
	fault_set(faulty.tr, &plan);
	assert_int_equal(limiter_commit_insert(&broken, 2, 2), -EIO);
	fault_set(faulty.tr, &none);
}

CASE(limiter_try_insert__counts_beyond_64_bits)
{
	uint64_t big = UINT64_MAX / 2, off = shard_limits_off(fx.shard, 0);
	uint64_t sc = big - 3;

	assert_int_equal(transport_store(fx.shard->part.limits, off, &big, 8), 0);
	assert_int_equal(transport_store(fx.shard->part.limits,
					 off + offsetof(struct view_limits, smp_committed), &sc, 8),
			 0);
	assert_int_equal(limiter_try_insert(&lim, 6), -EAGAIN);
	assert_int_equal(limiter_try_insert(&lim, 5), 0);
}

/* A reservation given back that was never taken. */
CASE(limiter_try_insert__a_count_below_zero)
{
	uint64_t below = (uint64_t)-2;

	assert_int_equal(
		transport_store(fx.shard->part.limits, shard_limits_off(fx.shard, 0), &below, 8),
		0);
	assert_int_equal(limiter_try_insert(&lim, 8), 0);
	assert_int_equal(limiter_try_insert(&lim, 3), -EAGAIN);
	assert_int_equal(limiter_try_insert(&lim, 2), 0);
}

struct wanted {
	uint64_t min_size;
	double spi, min_diff, max_diff;
};

static void expect_lacks(const struct wanted *want, const struct limiter_words *now, uint64_t n)
{
	struct limiter bounds = { .bounded_insert = true, .bounded_sample = true };
	double inserts, samples;
	uint64_t k;

	assert_int_equal(limit_desc_init(&bounds.bounds, want->min_size, want->spi, want->min_diff,
					 want->max_diff),
			 0);
	k = 0;
	samples = (double)(now->smp_admitted + n);
	do
		inserts = (double)now->ins_committed + (double)k++;
	while (inserts < (double)want->min_size || inserts * want->spi - samples < want->min_diff);
	assert_int_equal(limiter_lacks_inserts(&bounds, now, n), k - 1);
	k = 0;
	inserts = (double)(now->ins_admitted + n);
	do
		samples = (double)now->smp_committed + (double)k++;
	while (inserts * want->spi - samples > want->max_diff);
	assert_int_equal(limiter_lacks_samples(&bounds, now, n), k - 1);
}

TEST(limiter_lacks__the_least_that_fits)
{
	static const struct wanted laws[] = {
		{ 1, 1, 0, 8 }, { 10, 2, -3, 20 }, { 1, 0.25, 5, 7.5 }, { 30, 3, 0, 100 }
	};

	for (uint64_t i = 0; i < 400; i++) {
		struct limiter_words now = { .ins_committed = i * 7 % 40,
					     .smp_committed = i * 11 % 60 };

		now.ins_admitted = now.ins_committed + i % 3;
		now.smp_admitted = now.smp_committed + i % 5;
		expect_lacks(&laws[i % 4], &now, 1 + i % 6);
	}
}

TEST(limiter_lacks__without_bounds_only_min_size)
{
	const struct limiter bounds = { .bounds = { .min_size = 5 } };
	const struct limiter_words now = { .ins_committed = 3, .smp_admitted = 1000 };

	assert_int_equal(limiter_lacks_inserts(&bounds, &now, 100), 2);
	assert_int_equal(limiter_lacks_samples(&bounds, &now, 100), 0);
}

int main(void)
{
	return test_run(NULL, NULL);
}
