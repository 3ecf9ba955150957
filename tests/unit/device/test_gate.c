#include "device/gate.h"

#include <errno.h>

#include "base/mem/alloc.h"
#include "tests/support/test.h"

#define PERIOD (CURVE_BINS * 1000u)
#define NOBODY UINT32_MAX

static struct gate gate;
static struct curve hill; /* 60 in the first half, 20 in the second */

static void begin(enum gate_order order, enum gate_sharing sharing, uint64_t budget, uint32_t aging)
{
	const struct gate_opts opts = {
		.order = order, .sharing = sharing, .budget = budget, .aging = aging
	};

	assert_int_equal(gate_init(&gate, &opts, 8), 0);
	curve_begin(&hill, PERIOD);
	curve_add(&hill, 0, PERIOD, 20);
	curve_add(&hill, 0, PERIOD / 2, 60);
}

static uint32_t arrive(uint64_t persistent, uint64_t remaining_ns, double weight, int priority)
{
	const struct gate_request request = { persistent, &hill, remaining_ns, weight, priority, 0 };
	uint32_t job;

	assert_int_equal(gate_arrive(&gate, &request, &job), 0);
	return job;
}

static uint32_t start(void)
{
	uint32_t job;

	return gate_start(&gate, &job) ? job : NOBODY;
}

static uint32_t start_and_end(uint64_t remaining_ns)
{
	uint32_t job = start();

	if (job != NOBODY)
		gate_end(&gate, job, PERIOD, remaining_ns);
	return job;
}

TEST(gate_start__fifo_alone_runs_the_first)
{
	uint32_t a, b;

	begin(GATE_FIFO, GATE_ALONE, 1000, 0);
	a = arrive(10, 0, 1, 0);
	b = arrive(10, 0, 1, 0);
	for (int i = 0; i < 10; i++)
		assert_int_equal(start_and_end(0), a);
	assert_int_equal(start(), a);
	assert_int_equal(start(), NOBODY);
	gate_end(&gate, a, PERIOD, 0);
	gate_leave(&gate, a);
	assert_int_equal(start(), b);
	gate_destroy(&gate);
}

TEST(gate_start__srtf_runs_the_shortest)
{
	uint32_t a, b;

	begin(GATE_SRTF, GATE_ALONE, 1000, GATE_AGING);
	a = arrive(10, 500, 1, 0);
	assert_int_equal(start_and_end(400), a);
	b = arrive(10, 300, 1, 0);
	assert_int_equal(start_and_end(450), b);
	assert_int_equal(start_and_end(0), a);
	gate_destroy(&gate);
}

TEST(gate_start__fair_gives_time_by_weight)
{
	uint32_t count[8] = { 0 }, a, b;

	begin(GATE_FAIR, GATE_ALONE, 1000, GATE_AGING);
	a = arrive(10, 0, 3, 0);
	b = arrive(10, 0, 1, 0);
	for (int i = 0; i < 400; i++)
		count[start_and_end(0)]++;
	assert_int_equal(count[a], 300);
	assert_int_equal(count[b], 100);
	gate_destroy(&gate);
}

TEST(gate_start__priority_then_arrival)
{
	uint32_t high;

	begin(GATE_PRIORITY, GATE_ALONE, 1000, GATE_AGING);
	arrive(10, 0, 1, 1);
	high = arrive(10, 0, 1, 2);
	arrive(10, 0, 1, 2);
	assert_int_equal(start(), high);
	gate_destroy(&gate);
}

TEST(gate_start__round_robin_takes_turns)
{
	uint32_t jobs[3];

	begin(GATE_ROUND_ROBIN, GATE_ALONE, 1000, GATE_AGING);
	for (int i = 0; i < 3; i++)
		jobs[i] = arrive(10, 0, 1, 0);
	for (int i = 0; i < 9; i++)
		assert_int_equal(start_and_end(0), jobs[i % 3]);
	gate_destroy(&gate);
}

TEST(gate_start__curves_shift_where_peaks_do_not_fit)
{
	const uint64_t budget = 20 + 80; /* persistent of both, 60 + 20 */
	uint32_t a, b;

	begin(GATE_FIFO, GATE_PEAKS, budget, GATE_AGING);
	a = arrive(10, 0, 1, 0);
	b = arrive(10, 0, 1, 0);
	assert_int_equal(start(), a);
	gate_progress(&gate, a, PERIOD / 2);
	assert_int_equal(start(), NOBODY);
	gate_destroy(&gate);

	begin(GATE_FIFO, GATE_CURVES, budget, GATE_AGING);
	a = arrive(10, 0, 1, 0);
	b = arrive(10, 0, 1, 0);
	assert_int_equal(start(), a);
	assert_int_equal(start(), NOBODY);
	assert_int_equal(gate_place(&gate, b).reason, GATE_WAITS_MEMORY);
	gate_progress(&gate, a, PERIOD / 2 - 1);
	assert_int_equal(start(), NOBODY);
	gate_progress(&gate, a, PERIOD / 2);
	assert_int_equal(start(), b);
	gate_destroy(&gate);
}

TEST(gate_start__sum_of_peaks_as_budget_never_waits)
{
	begin(GATE_FIFO, GATE_CURVES, (uint64_t)3 * 70, 0);
	for (int i = 0; i < 3; i++)
		arrive(10, 0, 1, 0);
	for (int i = 0; i < 3; i++)
		assert_int_not_equal(start(), NOBODY);
	gate_destroy(&gate);
}

TEST(gate_start__admits_by_persistent_and_largest_peak)
{
	uint32_t c;

	begin(GATE_FIFO, GATE_CURVES, 100, 0);
	arrive(20, 0, 1, 0);
	arrive(20, 0, 1, 0);
	c = arrive(20, 0, 1, 0);
	assert_int_equal(start(), 0);
	assert_int_equal(gate_place(&gate, c).reason, GATE_WAITS_ADMISSION);
	gate_end(&gate, 0, PERIOD, 0);
	gate_leave(&gate, 0);
	assert_int_not_equal(start(), NOBODY);
	assert_int_equal(gate.jobs[c].state, GATE_RESIDENT);
	gate_destroy(&gate);
}

TEST(gate_start__admission_waits_for_the_running_to_leave_room)
{
	uint32_t a, b, c;

	begin(GATE_FIFO, GATE_CURVES, 140, 0); /* 2 x 10 + 2 x 60 */
	a = arrive(10, 0, 1, 0);
	b = arrive(10, 0, 1, 0);
	assert_int_equal(start(), a);
	assert_int_equal(start(), b);
	c = arrive(10, 0, 1, 0);
	assert_int_equal(start(), NOBODY);
	gate_end(&gate, a, PERIOD, 0);
	assert_int_equal(start(), NOBODY); /* c's 10 and b's 60 fit, beside a's 60 they do not */
	assert_int_equal(gate.jobs[c].state, GATE_RESIDENT);
	gate_progress(&gate, b, PERIOD / 2);
	assert_int_equal(start(), a);
	gate_destroy(&gate);
}

/* A large job beside small ones that always fit is passed so often, and then goes first. */
TEST(gate_start__aging_lets_a_large_job_run)
{
	struct curve large, small;
	struct gate_request request = { 0, &large, 0, 1, 0, 0 };
	uint32_t big, little[2], running, passed = 0;

	begin(GATE_SRTF, GATE_CURVES, 100, GATE_AGING);
	curve_begin(&large, PERIOD);
	curve_add(&large, 0, PERIOD, 90);
	curve_begin(&small, PERIOD);
	curve_add(&small, 0, PERIOD, 40);
	request.curve = &small;
	for (int i = 0; i < 2; i++)
		assert_int_equal(gate_arrive(&gate, &request, &little[i]), 0);
	assert_int_equal(start(), little[0]);
	request.curve = &large;
	assert_int_equal(gate_arrive(&gate, &request, &big), 0);
	gate.jobs[big].remaining_ns = 0;
	gate.jobs[little[1]].remaining_ns = 1;
	for (running = little[0];; passed++) {
		uint32_t next = start();

		gate_end(&gate, running, PERIOD, 1);
		if (next == NOBODY)
			break;
		running = next;
	}
	assert_int_equal(passed, GATE_AGING);
	assert_int_equal(start(), big);
	gate_destroy(&gate);
}

TEST(gate_overshoot__margin_grows_and_shrinks)
{
	uint32_t a;

	begin(GATE_FIFO, GATE_CURVES, 1000, 0);
	a = arrive(10, 0, 1, 0);
	gate_overshoot(&gate);
	assert_int_equal(gate.margin, 10);
	for (int i = 0; i < 1000; i++)
		assert_int_equal(start_and_end(0), a);
	assert_int_equal(gate.margin, 0);
	for (int i = 0; i < 100; i++)
		gate_overshoot(&gate);
	assert_int_equal(gate.margin, 300);
	gate_destroy(&gate);
}

TEST(gate_start__grown_margin_does_not_stop_the_last_job)
{
	begin(GATE_FIFO, GATE_CURVES, 80, 0);
	for (int i = 0; i < 100; i++)
		gate_overshoot(&gate);
	assert_int_equal(start_and_end(arrive(20, 0, 1, 0)), 0);
	gate_destroy(&gate);
}

TEST(gate_arrive__job_that_never_fits_is_enospc)
{
	const struct gate_request request = { 50, &hill, 0, 1, 0, 0 };
	const struct gate_opts bad = { .budget = 5, .reserved = 5 };
	uint32_t job;

	begin(GATE_FIFO, GATE_CURVES, 100, 0);
	assert_int_equal(gate_arrive(&gate, &request, &job), -ENOSPC);
	gate_limit(&gate, 110);
	for (int i = 0; i < 8; i++)
		assert_int_equal(gate_arrive(&gate, &request, &job), 0);
	assert_int_equal(gate_arrive(&gate, &request, &job), -ENOSPC);
	gate_destroy(&gate);
	assert_int_equal(gate_init(&gate, &bad, 1), -EINVAL);
	mem_fail_after(1);
	assert_int_equal(gate_init(&gate, &(struct gate_opts){ .budget = 5 }, 1), -ENOMEM);
	mem_fail_after(0);
}

TEST(gate_place__says_position_and_reason)
{
	struct gate_place place;

	begin(GATE_FIFO, GATE_ALONE, 100, 0);
	arrive(10, 0, 1, 0);
	arrive(10, 0, 1, 0);
	arrive(10, 0, 1, 0);
	assert_int_equal(start(), 0);
	assert_int_equal(gate_place(&gate, 0).reason, GATE_READY);
	place = gate_place(&gate, 2);
	assert_int_equal(place.reason, GATE_WAITS_TURN);
	assert_int_equal(place.position, 1);
	gate_destroy(&gate);
}

TEST(gate_start__pack_takes_the_smallest_that_fit)
{
	uint32_t large, small, middle;

	begin(GATE_PACK, GATE_PEAKS, 190, 100);
	large = arrive(40, 0, 1, 0);
	small = arrive(5, 0, 1, 0);
	middle = arrive(20, 0, 1, 0);
	assert_int_equal(start(), small);
	assert_int_equal(start(), middle);
	assert_int_equal(start(), NOBODY);
	assert_int_equal(gate_place(&gate, large).reason, GATE_WAITS_MEMORY);
	gate_destroy(&gate);
}

TEST(gate_start__patience_lets_a_job_run_that_the_order_starves)
{
	const enum gate_order orders[] = { GATE_SRTF, GATE_PRIORITY };

	for (int i = 0; i < 2; i++) {
		uint32_t starved, count = 0;

		begin(orders[i], GATE_ALONE, 1000, GATE_AGING);
		gate.opts.patience = 9;
		starved = arrive(10, 9000, 1, 0);
		arrive(10, 10, 1, 5);
		for (int j = 0; j < 100; j++) {
			uint32_t job = start();

			count += job == starved;
			gate_end(&gate, job, PERIOD, job == starved ? 9000 : 10);
		}
		assert_int_equal(count, 10);
		gate.opts.patience = 0;
		assert_int_not_equal(start(), starved);
		gate_destroy(&gate);
	}
}

/* One resident at a time, and always a shorter job in the queue. */
TEST(gate_start__patience_admits_a_job_that_the_order_starves)
{
	uint32_t running, starved, begun = 0;

	begin(GATE_SRTF, GATE_ALONE, 100, GATE_AGING);
	gate.opts.patience = 9;
	running = arrive(40, 10, 1, 0);
	starved = arrive(40, 9000, 1, 0);
	for (; running != starved; begun++) {
		assert_in_range(begun, 0, 10);
		assert_int_equal(start(), running);
		gate_end(&gate, running, PERIOD, 0);
		gate_leave(&gate, running);
		running = arrive(40, 10, 1, 0);
		if (gate.jobs[starved].waited >= 9)
			running = starved;
	}
	assert_int_equal(start(), starved);
	gate_destroy(&gate);
}

/* It keeps longer ones back, but does not go before shorter ones. */
TEST(gate_start__aging_does_not_change_the_order)
{
	uint32_t large, small, shortest;

	begin(GATE_SRTF, GATE_PEAKS, 150, 1);
	small = arrive(10, 100, 1, 0);
	assert_int_equal(start(), small);
	large = arrive(30, 500, 1, 0);
	gate.jobs[large].passed = 1;
	assert_int_equal(start(), NOBODY);
	gate_end(&gate, small, PERIOD, 0);
	gate_leave(&gate, small);
	shortest = arrive(10, 100, 1, 0);
	assert_int_equal(start(), shortest);
	gate_destroy(&gate);
}

TEST(gate_start__starved_jobs_take_turns_whatever_the_order)
{
	uint32_t count[8] = { 0 };

	begin(GATE_SRTF, GATE_ALONE, 1000, GATE_AGING);
	gate.opts.patience = 2;
	for (uint32_t i = 0; i < 6; i++)
		arrive(10, (i + 1) * 100, 1, 0);
	for (int i = 0; i < 600; i++) {
		uint32_t job = start();

		count[job]++;
		gate_end(&gate, job, PERIOD, (job + 1) * UINT64_C(100));
	}
	for (int i = 0; i < 6; i++)
		assert_in_range(count[i], 90, 110);
	gate_destroy(&gate);
}

TEST(gate_start__resident_bounds_the_jobs_admitted)
{
	begin(GATE_FIFO, GATE_CURVES, 10000, GATE_AGING);
	gate.opts.resident = 2;
	for (int i = 0; i < 4; i++)
		arrive(10, 0, 1, 0);
	assert_int_equal(start(), 0);
	assert_int_equal(start(), 1);
	assert_int_equal(start(), NOBODY);
	assert_int_equal(gate.persistent, 20);
	assert_int_equal(gate_place(&gate, 2).reason, GATE_WAITS_ADMISSION);
	gate_end(&gate, 0, PERIOD, 0);
	gate_leave(&gate, 0);
	assert_int_equal(start(), 2);
	gate_destroy(&gate);
}

TEST(gate_idle__job_keeps_its_memory_and_is_not_asked)
{
	uint32_t a, b;

	begin(GATE_ROUND_ROBIN, GATE_ALONE, 110, GATE_AGING);
	a = arrive(20, 0, 1, 0);
	b = arrive(20, 0, 1, 0);
	gate_idle(&gate, a);
	assert_int_equal(start_and_end(0), b);
	assert_int_equal(gate.persistent, 40);
	assert_int_equal(start_and_end(0), b);
	assert_int_equal(gate_place(&gate, a).reason, GATE_IDLE);
	gate_wake(&gate, a);
	assert_int_equal(start_and_end(0), a);
	gate_idle(&gate, a);
	gate_idle(&gate, b);
	assert_int_equal(start(), NOBODY);
	gate_destroy(&gate);
}

static uint32_t started(void)
{
	uint32_t n = 0;

	while (start() != NOBODY)
		n++;
	return n;
}

TEST(gate_gain__says_how_many_run_together)
{
	const struct {
		enum gate_order order;
		double gain2, gain3;
		uint32_t jobs, running;
	} cases[] = {
		{ GATE_FIFO, 0, 0, 6, 3 },       /* not known */
		{ GATE_FIFO, 1, 1, 6, 1 },       /* no gain */
		{ GATE_FIFO, 1.4, 1.3, 6, 2 },   /* less of three than of two */
		{ GATE_FIFO, 1.4, 1.6, 6, 3 },   /* .. */
		{ GATE_SRTF, 1.3, 1.3, 2, 1 },   /* (2 + 2) / 1.3 > (2 + 1) / 1 */
		{ GATE_SRTF, 1.35, 1.35, 2, 2 }, /* (2 + 2) / 1.35 < 3 */
		{ GATE_SRTF, 1.2, 1.25, 6, 2 },  /* 7; 6.67; 7.2 */
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		begin(cases[i].order, GATE_CURVES, 10000, GATE_AGING);
		gate.opts.running = 3;
		gate_gain(&gate, 2, cases[i].gain2);
		gate_gain(&gate, 3, cases[i].gain3);
		for (uint32_t j = 0; j < cases[i].jobs; j++)
			arrive(10, 100, 1, 0);
		assert_int_equal(started(), cases[i].running);
		gate_destroy(&gate);
	}
}

/* Begun whenever they fit, two would meet in their last quarter and keep the third out. */
TEST(gate_start__begins_some_time_apart_where_more_run_so)
{
	struct gate_request request = { 0, &hill, 0, 1, 0, 0 };
	uint32_t jobs[3];

	begin(GATE_FIFO, GATE_CURVES, 60, GATE_AGING);
	curve_begin(&hill, PERIOD);
	curve_add(&hill, 0, PERIOD, 10);
	curve_add(&hill, PERIOD / 4 * 3, PERIOD, 30);
	for (int i = 0; i < 3; i++)
		assert_int_equal(gate_arrive(&gate, &request, &jobs[i]), 0);
	assert_int_equal(start(), jobs[0]);
	for (uint32_t i = 1; i < 3; i++) {
		assert_int_equal(start(), NOBODY);
		assert_int_equal(gate_place(&gate, jobs[i]).reason, GATE_WAITS_MEMORY);
		gate_progress(&gate, jobs[i - 1], PERIOD / 4 - 1);
		assert_int_equal(start(), NOBODY);
		for (uint32_t j = 0; j < i; j++)
			gate_progress(&gate, jobs[j], (i - j) * PERIOD / 4);
		assert_int_equal(start(), jobs[i]);
	}
	gate_end(&gate, jobs[0], PERIOD, 0); /* at once, before the others got on */
	assert_int_equal(start(), NOBODY);
	gate_idle(&gate, jobs[0]);
	gate_progress(&gate, jobs[1], PERIOD / 2);
	gate_end(&gate, jobs[2], PERIOD, 0); /* the newest ended: nothing to keep apart from */
	assert_int_equal(start(), jobs[2]);
	gate_destroy(&gate);
}

/* It stays at the end of its curve, which may be nearer than the gap. */
TEST(gate_start__newest_that_takes_longer_than_its_curve_keeps_nobody_waiting)
{
	uint32_t a, b;

	begin(GATE_FIFO, GATE_CURVES, 100, GATE_AGING);
	a = arrive(0, 0, 1, 0);
	b = arrive(0, 0, 1, 0);
	assert_int_equal(start(), a);
	gate.gap_ns = 2 * PERIOD;
	gate_progress(&gate, a, PERIOD - 2);
	assert_int_equal(start(), NOBODY);
	gate_progress(&gate, a, PERIOD - 1);
	assert_int_equal(start(), b);
	gate_destroy(&gate);
}

/* The budget for all, or curves that are flat, end the waiting. */
TEST(gate_changed__curves_and_budget_are_looked_at_again)
{
	struct gate_request request = { 0, &hill, 0, 1, 0, 0 };
	uint32_t jobs[3];

	begin(GATE_FIFO, GATE_CURVES, 60, GATE_AGING);
	curve_begin(&hill, PERIOD);
	curve_add(&hill, 0, PERIOD, 10);
	curve_add(&hill, PERIOD / 4 * 3, PERIOD, 30);
	for (int i = 0; i < 3; i++)
		assert_int_equal(gate_arrive(&gate, &request, &jobs[i]), 0);
	assert_int_equal(start(), jobs[0]);
	assert_int_equal(start(), NOBODY);
	gate_limit(&gate, 90);
	assert_int_equal(start(), jobs[1]);
	gate_limit(&gate, 60);
	gate_progress(&gate, jobs[0], PERIOD / 4);
	assert_int_equal(start(), NOBODY);
	curve_begin(&hill, PERIOD);
	curve_add(&hill, 0, PERIOD, 10);
	gate_changed(&gate);
	assert_int_equal(start(), jobs[2]);
	gate_destroy(&gate);
}

int main(void)
{
	return test_run(NULL, NULL);
}
