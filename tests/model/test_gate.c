/*
 * Random jobs under the gate on a virtual clock, beside an oracle that knows the levels which their curves
 * are made of: at each begin all that runs fits until all of it has ended; a job runs whenever one could;
 * and of orders with patience none waits for more begins of others than that.
 */
#include "device/gate.h"

#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "tests/support/test.h"

#define JOBS 12u
#define LEVELS 8u
#define MARK_NS 64u
#define ITERATIONS 50000u /* RLV_TEST_ITERATIONS of them, if it is set */

struct job {
	struct curve curve;
	uint64_t levels[LEVELS], period_ns, persistent, phase_ns;
	uint64_t left; /* iterations */
	uint32_t slot, waits;
	bool there, runs, idle;
};

struct world {
	struct rng rng;
	struct gate gate;
	struct job jobs[JOBS];
	uint64_t budget;
	uint64_t begun, together, most_waits;
};

static uint64_t draw(struct world *w, uint64_t least, uint64_t most)
{
	return least + rng_uniform_u64(&w->rng, most - least + 1);
}

static uint64_t usable(const struct world *w)
{
	return w->budget - w->budget / 1000 * w->gate.margin - w->gate.opts.reserved;
}

/* Bytes of a running iteration that far from now. */
static uint64_t bytes_after(const struct job *job, uint64_t after_ns)
{
	uint64_t at = job->phase_ns + after_ns;

	return at < job->period_ns ? job->levels[at * LEVELS / job->period_ns] : 0;
}

static uint64_t all_after(const struct world *w, uint64_t after_ns)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < JOBS; i++) {
		const struct job *job = &w->jobs[i];

		if (job->there && w->gate.jobs[job->slot].state >= GATE_RESIDENT)
			sum += job->persistent;
		sum += job->there && job->runs ? bytes_after(job, after_ns) : 0;
	}
	return sum;
}

/* The most of all that runs, which is where one of them reaches a level. */
static uint64_t most_to_come(const struct world *w)
{
	uint64_t most = all_after(w, 0);

	for (uint32_t i = 0; i < JOBS; i++) {
		const struct job *job = &w->jobs[i];

		for (uint64_t level = 1; job->there && job->runs && level < LEVELS; level++) {
			uint64_t at = (level * job->period_ns + LEVELS - 1) / LEVELS;
			uint64_t sum = at > job->phase_ns ? all_after(w, at - job->phase_ns) : 0;

			most = sum > most ? sum : most;
		}
	}
	return most;
}

static void arrive(struct world *w, struct job *job)
{
	struct gate_request request = { .curve = &job->curve };

	job->period_ns = CURVE_BINS * draw(w, 1, 8);
	curve_begin(&job->curve, job->period_ns);
	for (uint64_t i = 0; i < LEVELS; i++) {
		job->levels[i] = draw(w, 1, 60);
		curve_add(&job->curve, (i * job->period_ns + LEVELS - 1) / LEVELS,
			  (i + 1) * job->period_ns / LEVELS, job->levels[i]);
	}
	job->persistent = request.persistent = draw(w, 0, 20);
	job->left = draw(w, 1, 200);
	request.remaining_ns = job->left * job->period_ns;
	request.weight = (double)draw(w, 1, 4);
	request.priority = (int)draw(w, 0, 3);
	assert_int_equal(gate_arrive(&w->gate, &request, &job->slot), 0);
	job->there = true;
	job->runs = job->idle = false;
	job->waits = 0;
}

static bool ready(const struct world *w, const struct job *job)
{
	return job->there && !job->runs && !job->idle &&
	       w->gate.jobs[job->slot].state == GATE_RESIDENT;
}

static struct job *of_slot(struct world *w, uint32_t slot)
{
	for (uint32_t i = 0; i < JOBS; i++) {
		if (w->jobs[i].there && w->jobs[i].slot == slot)
			return &w->jobs[i];
	}
	fail_msg("the gate starts slot %u, which nobody has", slot);
	return NULL;
}

static uint32_t running(const struct world *w)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < JOBS; i++)
		n += w->jobs[i].there && w->jobs[i].runs;
	return n;
}

static void begins(struct world *w, struct job *begun)
{
	assert_true(begun->there && !begun->runs && !begun->idle);
	for (uint32_t i = 0; i < JOBS; i++)
		w->jobs[i].waits += &w->jobs[i] != begun && ready(w, &w->jobs[i]);
	if (begun->waits > w->most_waits)
		w->most_waits = begun->waits;
	begun->waits = 0;
	begun->runs = true;
	begun->phase_ns = 0;
	w->begun++;
	if (running(w) == 1)
		return;
	w->together++;
	assert_true(most_to_come(w) <= usable(w));
	assert_true(w->gate.opts.sharing != GATE_ALONE && running(w) <= w->gate.opts.running);
}

static void start(struct world *w)
{
	uint32_t slot, could = 0;

	while (gate_start(&w->gate, &slot))
		begins(w, of_slot(w, slot));
	for (uint32_t i = 0; i < JOBS; i++)
		could += ready(w, &w->jobs[i]);
	assert_true(running(w) > 0 || could == 0);
}

/* Time until the next end, or a mark before it. */
static void advance(struct world *w)
{
	uint64_t by = draw(w, 1, 8) * MARK_NS;

	for (uint32_t i = 0; i < JOBS; i++) {
		const struct job *job = &w->jobs[i];

		if (job->there && job->runs && job->period_ns - job->phase_ns < by)
			by = job->period_ns - job->phase_ns;
	}
	for (uint32_t i = 0; i < JOBS; i++) {
		struct job *job = &w->jobs[i];

		if (!job->there || !job->runs)
			continue;
		job->phase_ns += by;
		gate_progress(&w->gate, job->slot, job->phase_ns);
		if (job->phase_ns < job->period_ns)
			continue;
		job->runs = false;
		gate_end(&w->gate, job->slot, job->period_ns, --job->left * job->period_ns);
		if (job->left == 0) {
			gate_leave(&w->gate, job->slot);
			job->there = false;
		}
	}
}

static void happens(struct world *w)
{
	struct job *job = &w->jobs[draw(w, 0, JOBS - 1)];
	uint64_t what = draw(w, 0, 999);

	if (!job->there) {
		arrive(w, job);
	} else if (what < 60 && !job->runs && w->gate.jobs[job->slot].state == GATE_RESIDENT) {
		job->idle = !job->idle;
		job->waits = 0;
		(job->idle ? gate_idle : gate_wake)(&w->gate, job->slot);
	} else if (what < 62) {
		w->budget = draw(w, 100, 300);
		gate_limit(&w->gate, w->budget);
	} else if (what < 63) {
		gate_overshoot(&w->gate);
	} else if (what < 64) {
		gate_gain(&w->gate, (uint32_t)draw(w, 2, GATE_RUNNING),
			  1 + (double)draw(w, 0, 9) / 10);
	}
}

/* Returns the iterations that ran. */
static uint64_t run(struct world *w, uint64_t seed, uint64_t steps)
{
	struct gate_opts opts;

	memset(w, 0, sizeof(*w));
	rng_seed(&w->rng, seed, 0);
	w->budget = draw(w, 100, 300);
	opts = (struct gate_opts){ .order = (enum gate_order)draw(w, 0, GATE_ORDERS - 1),
				   .sharing = (enum gate_sharing)draw(w, 0, GATE_SHARINGS - 1),
				   .budget = w->budget,
				   .reserved = draw(w, 0, 10),
				   .aging = (uint32_t)draw(w, 0, 6),
				   .running = (uint32_t)draw(w, 1, GATE_RUNNING),
				   .resident = (uint32_t)draw(w, 0, 1) * (uint32_t)draw(w, 4, 8),
				   .patience = (uint32_t)draw(w, 5, 50) };
	assert_int_equal(gate_init(&w->gate, &opts, JOBS), 0);
	for (uint64_t i = 0; i < steps; i++) {
		happens(w);
		start(w);
		advance(w);
	}
	/* Each job before a starving one starves too, or has been passed, and begins once. */
	if (opts.order != GATE_FIFO)
		assert_true(w->most_waits <= opts.patience + 2 * JOBS);
	gate_destroy(&w->gate);
	return w->begun;
}

TEST(random_jobs__fit_and_none_starves)
{
	static struct world w;
	const char *text = getenv("RLV_TEST_ITERATIONS");
	uint64_t wanted = text ? strtoull(text, NULL, 10) : ITERATIONS;
	uint64_t seed = test_seed("gate", 1), iterations = 0, together = 0, worlds = 0;

	for (; iterations < wanted; worlds++) {
		iterations += run(&w, seed + worlds, 5000);
		together += w.together;
	}
	assert_true(together > iterations / 10);
	print_message("%llu iterations in %llu worlds, %llu began beside others\n",
		      (unsigned long long)iterations, (unsigned long long)worlds,
		      (unsigned long long)together);
}

int main(void)
{
	return test_run(NULL, NULL);
}
