/* The simulator of the device pool: its null cases are exact. */
#include "bench/pool/sim.h"

#include <errno.h>
#include <string.h>

#include "base/mem/alloc.h"
#include "bench/pool/jobs.h"
#include "bench/pool/offline.h"
#include "bench/pool/parameters.h"
#include "tests/support/test.h"

#define PERIOD (CURVE_BINS * UINT64_C(1000))
#define MOST 12

static struct trace hill; /* 60 in the first half, 20 in the second */
static struct traces hills;

static int make_hill(void **state)
{
	(void)state;
	snprintf(hill.name, sizeof(hill.name), "hill");
	curve_begin(&hill.curve, PERIOD);
	curve_add(&hill.curve, 0, PERIOD, 20);
	curve_add(&hill.curve, 0, PERIOD / 2, 60);
	hills = (struct traces){ 1, { hill } };
	return 0;
}

static struct sim_opts options(enum gate_order order, enum gate_sharing sharing, uint64_t budget)
{
	struct sim_opts opts = { .gate = { .order = order,
					   .sharing = sharing,
					   .budget = budget,
					   .aging = GATE_AGING },
				 .devices = 1,
				 .gain = 1,
				 .gain_unknown = true };

	return opts;
}

static struct sim_job job_of(double arrival, uint32_t iterations)
{
	return (struct sim_job){ .arrival = arrival,
				 .iterations = iterations,
				 .n_stages = 1,
				 .stages = { { 0, 10, &hill.curve } },
				 .demand = 1,
				 .weight = 1 };
}

static struct sim_result run(const struct sim_opts *opts, struct sim_job *jobs, uint32_t n)
{
	struct sim_result result;

	assert_int_equal(sim_run(opts, jobs, n, &result), 0);
	return result;
}

static void same(double a, double b)
{
	assert_true(!(a < b) && !(a > b));
}

static void near(double a, double b)
{
	assert_true(fabs(a - b) <= 1e-9 * fabs(b));
}

TEST(sim_run__sharing_off_is_fifo_to_the_ns)
{
	struct sim_opts opts = options(GATE_FIFO, GATE_ALONE, 1000);
	struct sim_job jobs[MOST];
	double free_at = 0;

	for (uint32_t i = 0; i < MOST; i++)
		jobs[i] = job_of(i * 777777.0, 1 + i * i % 7);
	opts.gain = 1.4; /* of no effect alone */
	run(&opts, jobs, MOST);
	for (uint32_t i = 0; i < MOST; i++) {
		same(jobs[i].begin, fmax(free_at, jobs[i].arrival));
		free_at = jobs[i].begin + (double)(jobs[i].iterations * PERIOD);
		same(jobs[i].end, free_at);
		same(jobs[i].stall, 0);
	}
	for (int sharing = GATE_PEAKS; sharing <= GATE_CURVES; sharing++) {
		struct sim_job others[MOST];

		memcpy(others, jobs, sizeof(jobs));
		opts.gate.sharing = (enum gate_sharing)sharing;
		opts.gate.running = 1;
		run(&opts, others, MOST);
		for (uint32_t i = 0; i < MOST; i++)
			same(others[i].end, jobs[i].end);
	}
}

TEST(sim_run__no_gain_and_all_memory_is_1_over_fifo)
{
	for (uint32_t n = 1; n <= GATE_RUNNING; n++) {
		struct sim_opts alone = options(GATE_FIFO, GATE_ALONE, n * 70);
		struct sim_opts shared = options(GATE_FIFO, GATE_CURVES, n * 70);
		struct sim_job jobs[MOST];
		struct sim_result serial, together;

		for (uint32_t i = 0; i < n; i++)
			jobs[i] = job_of(0, 10);
		serial = run(&alone, jobs, n);
		together = run(&shared, jobs, n);
		same(together.makespan_s, serial.makespan_s);
		same(together.utilisation, 1);
		same(together.stall_s, 0);
		same(together.avg_jct_s, serial.makespan_s); /* all end at the end */
		assert_int_equal(together.violations, 0);
	}
}

TEST(sim_run__gain_is_the_speedup_where_nothing_waits)
{
	struct sim_opts opts = options(GATE_FIFO, GATE_PEAKS, 140);
	struct sim_job jobs[2] = { job_of(0, 10), job_of(0, 10) };

	opts.gain = 1.4;
	near(run(&opts, jobs, 2).makespan_s, 20 * PERIOD / 1.4 / 1e9);
	opts.gate.budget = 139;
	near(run(&opts, jobs, 2).makespan_s, 20 * PERIOD / 1e9);
}

TEST(sim_run__curves_shift_one_job_by_half_an_iteration)
{
	struct sim_opts opts = options(GATE_FIFO, GATE_CURVES, 20 + 80);
	struct sim_job jobs[2] = { job_of(0, 10), job_of(0, 10) };
	struct sim_result result;

	opts.gain = 1.4;
	result = run(&opts, jobs, 2);
	/* Alone for half an iteration at each end. */
	near(result.makespan_s, (19 / 1.4 + 1) * PERIOD / 1e9);
	assert_int_equal(result.violations, 0);
}

TEST(sim_run__no_gain_known_to_the_gate_is_serial)
{
	struct sim_opts opts = options(GATE_SRTF, GATE_CURVES, 1000);
	struct sim_job jobs[3] = { job_of(0, 30), job_of(0, 20), job_of(0, 10) };

	opts.gain_unknown = false;
	run(&opts, jobs, 3);
	same(jobs[2].end, 10.0 * PERIOD);
	same(jobs[1].end, 30.0 * PERIOD);
	same(jobs[0].end, 60.0 * PERIOD);
}

TEST(sim_run__small_jobs_do_not_slow_each_other)
{
	struct sim_opts opts = options(GATE_PACK, GATE_PEAKS, 1000);
	struct sim_job jobs[4];
	struct sim_result result;

	for (int i = 0; i < 4; i++) {
		jobs[i] = job_of(0, 10);
		jobs[i].demand = 0.25;
	}
	result = run(&opts, jobs, 4);
	same(result.makespan_s, 10 * PERIOD / 1e9);
	same(result.utilisation, 1);
}

TEST(sim_run__estimates_find_the_order_of_given_ones)
{
	struct sim_opts opts = options(GATE_SRTF, GATE_ALONE, 1000);
	struct sim_job jobs[3] = { job_of(0, 30), job_of(0, 20), job_of(0, 10) };

	for (int i = 0; i < 3; i++)
		jobs[i].declared = jobs[i].iterations;
	opts.remaining = SIM_DECLARED;
	run(&opts, jobs, 3);
	same(jobs[2].end, 12.0 * PERIOD); /* one iteration of each of the others measures it */
	same(jobs[0].end, 60.0 * PERIOD);
	opts.remaining = SIM_ATTAINED;
	run(&opts, jobs, 3);
	assert_true(jobs[2].end < jobs[1].end && jobs[1].end < jobs[0].end);
}

TEST(sim_run__phases_of_two_jobs_fill_each_others_gaps)
{
	struct sim_opts opts = options(GATE_ROUND_ROBIN, GATE_ALONE, 100);
	struct sim_job jobs[2];

	for (int i = 0; i < 2; i++) {
		jobs[i] = job_of(0, 10);
		jobs[i].n_stages = 2;
		jobs[i].stages[1] = (struct sim_stage){ 1, 10, &hill.curve };
	}
	opts.devices = 2;
	same(run(&opts, jobs, 1).makespan_s, 20 * PERIOD / 1e9);
	same(run(&opts, jobs, 2).makespan_s, 21 * PERIOD / 1e9);
	assert_true(jobs[0].stall + jobs[1].stall < 1);
}

TEST(sim_run__requests_are_served_when_they_come)
{
	const double requests[] = { 0, 10.0 * PERIOD, 10.5 * PERIOD };
	struct sim_opts opts = options(GATE_FIFO, GATE_ALONE, 100);
	struct sim_job job = job_of(0, 3);
	double latencies[3];

	job.requests = requests;
	job.latencies = latencies;
	run(&opts, &job, 1);
	same(latencies[0], PERIOD);
	same(latencies[1], PERIOD);
	same(latencies[2], 1.5 * PERIOD);
}

TEST(sim_run__unified_memory_pays_for_bytes_over_the_budget)
{
	struct sim_opts opts = options(GATE_FIFO, GATE_PEAKS, 140);
	struct sim_job jobs[2] = { job_of(0, 1), job_of(0, 1) };

	opts.unified_per_s = 1e9; /* a byte a ns */
	opts.unified_capacity = 140;
	same(run(&opts, jobs, 2).makespan_s, 2 * PERIOD / 1e9);
	/* 40 over for the first, which begins alone: 80 of its clock; 100 for the second: 200 at half
	   the pace. */
	opts.unified_capacity = 40;
	same(run(&opts, jobs, 2).makespan_s, (2 * (PERIOD + 80) + 20) / 1e9);
}

TEST(sim_run__curves_that_lie_are_violations_and_grow_the_margin)
{
	struct sim_opts opts = options(GATE_FIFO, GATE_CURVES, 100);
	struct sim_job jobs[2] = { job_of(0, 300), job_of(0, 300) };
	struct sim_result wild, careful;
	static struct curve valley; /* 20, then 60 */

	curve_begin(&valley, PERIOD);
	curve_add(&valley, 0, PERIOD, 20);
	curve_add(&valley, PERIOD / 2, PERIOD, 60);
	jobs[0].stages[0].curve = jobs[1].stages[0].curve = &valley;
	jobs[0].jitter = jobs[1].jitter = 0.2;
	wild = run(&opts, jobs, 2);
	assert_true(wild.violations > 0);
	opts.dilate = 40;
	careful = run(&opts, jobs, 2);
	assert_true(careful.violations < wild.violations);
}

TEST(sim_run__bad_jobs_are_errors)
{
	struct sim_opts opts = options(GATE_FIFO, GATE_ALONE, 60);
	struct sim_job job = job_of(0, 1);
	struct sim_result result;

	assert_int_equal(sim_run(&opts, &job, 1, &result), -ENOSPC);
	opts.gate.budget = 100;
	job.demand = 0;
	assert_int_equal(sim_run(&opts, &job, 1, &result), -EINVAL);
	job = job_of(0, 1);
	job.stages[0].device = 1;
	assert_int_equal(sim_run(&opts, &job, 1, &result), -EINVAL);
	assert_int_equal(sim_run(&opts, &job, 0, &result), -EINVAL);
	job = job_of(0, 1);
	for (uint64_t n = 1;; n++) {
		int ret;

		mem_fail_after(n);
		ret = sim_run(&opts, &job, 1, &result);
		if (!mem_fail_fired()) {
			mem_fail_after(0);
			assert_int_equal(ret, 0);
			break;
		}
		assert_int_equal(ret, -ENOMEM);
	}
}

TEST(jobs_salus__srtf_beats_fifo_and_packing_beats_srtf)
{
	struct sim_opts opts = options(GATE_FIFO, GATE_ALONE, (uint64_t)PAR_SALUS_BUDGET);
	struct sim_result fifo, srtf, packed;
	struct job_set set;

	opts.gain = PAR_GAIN;
	opts.gain_unknown = false;
	assert_int_equal(jobs_salus(&set, &hills, 40, 1.25, 7), 0);
	fifo = run(&opts, set.jobs, set.n);
	opts.gate.order = GATE_SRTF;
	srtf = run(&opts, set.jobs, set.n);
	opts.gate.sharing = GATE_CURVES;
	packed = run(&opts, set.jobs, set.n);
	assert_true(srtf.avg_jct_s < fifo.avg_jct_s);
	assert_true(packed.avg_jct_s < srtf.avg_jct_s);
	assert_int_equal(packed.violations, 0);
	job_set_free(&set);
}

TEST(offline_best__two_hills)
{
	near(offline_best(&hill.curve, 2, 120, 1.4), 1.4);
	near(offline_best(&hill.curve, 2, 80, 1.4), 1.4);
	near(offline_best(&hill.curve, 2, 79, 1.4), 1);
	near(offline_best(&hill.curve, 4, 160, 1.4), 1.7);
}

int main(void)
{
	return test_run(make_hill, NULL);
}
