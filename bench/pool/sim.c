#include "bench/pool/sim.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/mem/alloc.h"
#include "base/rng.h"
#include "bench/pool/draw.h"
#include "device/estimate.h"

#define MARKS 16u

/* A job within the run. */
struct actor {
	struct sim_job *job;
	uint32_t slots[SIM_STAGES]; /* at the gates of its stages' devices */
	uint32_t stage, done;
	double ready;    /* since when it could run; or, if it sleeps, when it will */
	double from, to; /* of the running stage, on its device's own clock */
	double factor;   /* time of the running stage by that of its curve */
	bool sleeps, runs, ended;
	struct rng rng;
	struct estimate estimate;
};

/* Its own clock advances by the progress of each running job. */
struct device {
	struct gate gate;
	double clock, demand, work;
	uint32_t running[GATE_RUNNING], n_running, ready;
};

struct sim {
	const struct sim_opts *opts;
	struct actor *actors;
	struct curve *seen; /* curves as the gate sees them, by job and stage */
	uint32_t n, arrived, left;
	double now;
	uint64_t measured; /* iterations of all jobs, and their times */
	double measured_ns;
	struct device devices[SIM_DEVICES];
	struct sim_result result;
};

double sim_capacity(double gain, double demand)
{
	return demand <= 1 ? 1 : 1 + (gain - 1) * (2 - exp2(2 - fmax(demand, 1)));
}

static int compare_doubles(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

double sim_quantile(double *values, size_t n, double q)
{
	size_t rank = (size_t)ceil(q * (double)n);

	qsort(values, n, sizeof(*values), compare_doubles);
	return values[rank ? (rank < n ? rank : n) - 1 : 0];
}

/* Wall time that a device takes to advance its clock by 1. */
static double device_pace(const struct sim *sim, const struct device *device)
{
	return device->demand <= 1 ? 1
				   : device->demand / sim_capacity(sim->opts->gain, device->demand);
}

static const struct sim_stage *actor_stage(const struct actor *actor)
{
	return &actor->job->stages[actor->stage];
}

static struct device *actor_device(struct sim *sim, const struct actor *actor)
{
	uint32_t device = actor_stage(actor)->device;

	return device == SIM_NOWHERE ? NULL : &sim->devices[device];
}

static double actor_phase(const struct actor *actor, double clock)
{
	return (clock - actor->from) / actor->factor;
}

/* Bytes beside the persistent ones that a running stage needs at a time of its device's clock. */
static uint64_t actor_bytes(const struct actor *actor, double clock)
{
	double phase = actor_phase(actor, clock);

	return phase < 0 ? 0 : curve_at(actor_stage(actor)->curve, (uint64_t)phase);
}

static void sim_watch(struct sim *sim, const struct device *device)
{
	for (uint32_t i = 0; sim->opts->watch && i < device->n_running; i++) {
		const struct actor *actor = &sim->actors[device->running[i]];

		sim->opts->watch(sim->opts->ctx, sim->now, device->running[i],
				 actor_stage(actor)->persistent +
					 actor_bytes(actor, device->clock));
	}
}

static uint64_t device_bytes(const struct sim *sim, const struct device *device, double clock)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < device->n_running; i++)
		sum += actor_bytes(&sim->actors[device->running[i]], clock);
	return sum;
}

/* The most that the running stages need together from now on, if that may be over the budget. */
static uint64_t device_peak(const struct sim *sim, const struct device *device)
{
	uint64_t peak = 0, budget = device->gate.opts.budget;

	for (uint32_t i = 0; i < device->n_running; i++)
		peak += actor_stage(&sim->actors[device->running[i]])->curve->peak;
	if (sim->opts->unified_per_s > 0)
		budget = sim->opts->unified_capacity;
	if (peak + device->gate.persistent <= budget)
		return peak;
	peak = device_bytes(sim, device, device->clock);
	for (uint32_t i = 0; i < device->n_running; i++) {
		const struct actor *actor = &sim->actors[device->running[i]];
		double bin = (double)actor_stage(actor)->curve->period_ns / CURVE_BINS;

		for (unsigned at = 0; at < CURVE_BINS; at++) {
			double clock = actor->from + ceil(at * bin) * actor->factor;

			if (clock > device->clock)
				peak = max_u64(peak, device_bytes(sim, device, clock));
		}
	}
	return peak;
}

/* ended: the running iteration counts as done. */
static uint64_t actor_remaining(const struct sim *sim, const struct actor *actor, bool ended)
{
	const struct sim_job *job = actor->job;

	return sim->opts->remaining != SIM_GIVEN
		       ? estimate_remaining(&actor->estimate)
		       : (uint64_t)(job->iterations - actor->done - ended) *
				 job->stages[0].curve->period_ns;
}

/* Lets the job run its next stage: now, or when the clock reaches actor->ready. */
static void actor_prepare(struct sim *sim, struct actor *actor)
{
	struct device *device = actor_device(sim, actor);

	actor->sleeps = !device || actor->ready > sim->now;
	if (!device) {
		actor->ready = sim->now + (double)actor_stage(actor)->curve->period_ns;
	} else if (!actor->sleeps) {
		gate_wake(&device->gate, actor->slots[actor->stage]);
		device->ready++;
	}
}

static int actor_arrive(struct sim *sim, struct actor *actor)
{
	struct sim_job *job = actor->job;
	size_t index = (size_t)(actor - sim->actors);

	estimate_begin(&actor->estimate, sim->opts->remaining == SIM_DECLARED ? job->declared : 0,
		       sim->measured ? sim->measured_ns / (double)sim->measured : 1);
	for (uint32_t i = 0; i < job->n_stages; i++) {
		struct gate_request request = {
			.persistent = job->stages[i].persistent,
			.curve = &sim->seen[index * SIM_STAGES + i],
			.remaining_ns = actor_remaining(sim, actor, false),
			.weight = job->weight,
			.priority = job->priority,
		};
		struct gate *gate;
		int ret;

		if (job->stages[i].device == SIM_NOWHERE)
			continue;
		gate = &sim->devices[job->stages[i].device].gate;
		ret = gate_arrive(gate, &request, &actor->slots[i]);
		if (ret)
			return error_prefix(ret, "job %zu: ", index);
		gate_idle(gate, actor->slots[i]);
	}
	actor->ready = job->requests ? job->requests[0] : job->arrival;
	actor_prepare(sim, actor);
	return 0;
}

static void actor_leave(struct sim *sim, struct actor *actor)
{
	for (uint32_t i = 0; i < actor->job->n_stages; i++) {
		if (actor->job->stages[i].device != SIM_NOWHERE)
			gate_leave(&sim->devices[actor->job->stages[i].device].gate,
				   actor->slots[i]);
	}
	actor->ended = true;
	actor->job->end = sim->now;
	sim->left--;
}

/* A stage has ended. */
static void actor_advance(struct sim *sim, struct actor *actor)
{
	struct sim_job *job = actor->job;

	actor->ready = sim->now;
	actor->stage = (actor->stage + 1) % job->n_stages;
	if (actor->stage == 0) {
		sim->result.iterations++;
		if (job->latencies)
			job->latencies[actor->done] = sim->now - job->requests[actor->done];
		actor->done++;
		if (actor->done == job->iterations) {
			actor_leave(sim, actor);
			return;
		}
		if (job->requests)
			actor->ready = fmax(sim->now, job->requests[actor->done]);
	}
	actor_prepare(sim, actor);
}

static void device_begin(struct sim *sim, struct device *device, uint32_t index)
{
	struct actor *actor = &sim->actors[index];
	struct sim_job *job = actor->job;
	double excess, period = (double)actor_stage(actor)->curve->period_ns;

	if (actor->done == 0 && actor->stage == 0)
		job->begin = sim->now;
	else
		job->stall += sim->now - actor->ready;
	actor->factor = actor->stage == 0 && job->jitter > 0
				? exp(job->jitter * draw_normal(&actor->rng))
				: 1;
	actor->from = device->clock;
	actor->to = actor->from + round(period * actor->factor);
	actor->runs = true;
	device->ready--;
	device->running[device->n_running++] = index;
	device->demand += job->demand;
	excess = (double)device_peak(sim, device) + (double)device->gate.persistent;
	if (sim->opts->unified_per_s > 0) {
		excess = fmax(0, excess - (double)sim->opts->unified_capacity);
		actor->to += 2e9 * excess / sim->opts->unified_per_s / device_pace(sim, device);
	} else if (excess > (double)device->gate.opts.budget) {
		sim->result.violations++;
		gate_overshoot(&device->gate);
	}
	sim_watch(sim, device);
}

static void device_end(struct sim *sim, struct device *device, uint32_t place)
{
	uint32_t index = device->running[place];
	struct actor *actor = &sim->actors[index];
	uint64_t used = (uint64_t)(actor->to - actor->from);
	uint32_t slot = actor->slots[actor->stage];
	uint64_t persistent = actor_stage(actor)->persistent;
	bool last = actor->stage + 1 == actor->job->n_stages;

	device->running[place] = device->running[--device->n_running];
	device->demand = 0;
	for (uint32_t i = 0; i < device->n_running; i++)
		device->demand += sim->actors[device->running[i]].job->demand;
	actor->runs = false;
	if (last) {
		estimate_iteration(&actor->estimate, used);
		sim->measured++;
		sim->measured_ns += (double)used;
	}
	gate_end(&device->gate, slot, used, actor_remaining(sim, actor, last));
	gate_idle(&device->gate, slot);
	actor_advance(sim, actor);
	if (sim->opts->watch)
		sim->opts->watch(sim->opts->ctx, sim->now, index, actor->ended ? 0 : persistent);
}

/* The job of a slot of a device. */
static uint32_t device_job(const struct sim *sim, uint32_t device, uint32_t slot)
{
	for (uint32_t i = 0; i < sim->arrived; i++) {
		const struct actor *actor = &sim->actors[i];

		if (!actor->ended && actor_stage(actor)->device == device &&
		    actor->slots[actor->stage] == slot)
			return i;
	}
	return UINT32_MAX;
}

static void device_start(struct sim *sim, uint32_t number)
{
	struct device *device = &sim->devices[number];
	uint32_t slot;

	for (uint32_t i = 0; i < device->n_running; i++) {
		const struct actor *actor = &sim->actors[device->running[i]];

		gate_progress(&device->gate, actor->slots[actor->stage],
			      (uint64_t)actor_phase(actor, device->clock));
	}
	while (device->n_running < GATE_RUNNING && gate_start(&device->gate, &slot))
		device_begin(sim, device, device_job(sim, number, slot));
}

/* The next mark of a running stage, or its end. */
static double actor_mark(const struct sim *sim, const struct actor *actor, double clock)
{
	double marks = sim->opts->marks ? sim->opts->marks : MARKS;
	double period = (double)actor_stage(actor)->curve->period_ns;
	double mark = floor(actor_phase(actor, clock) * marks / period) + 1;
	double at = actor->from + ceil(mark * period / marks) * actor->factor;

	return at > clock ? fmin(at, actor->to) : actor->to;
}

/* The next time of a device's clock at which something ends, or one that waits may begin. */
static double device_next(const struct sim *sim, const struct device *device)
{
	double next = INFINITY;
	bool asks = device->ready && device->gate.opts.sharing == GATE_CURVES;

	for (uint32_t i = 0; i < device->n_running; i++) {
		const struct actor *actor = &sim->actors[device->running[i]];

		next = fmin(next, asks ? actor_mark(sim, actor, device->clock) : actor->to);
	}
	return next;
}

/* The next time of the wall's clock; *device_out: the device it is of, or SIM_NOWHERE. */
static double sim_next(const struct sim *sim, uint32_t *device_out, double *clock_out)
{
	double next = sim->arrived < sim->n ? sim->actors[sim->arrived].job->arrival : INFINITY;

	*device_out = SIM_NOWHERE;
	for (uint32_t i = 0; i < sim->arrived; i++) {
		if (sim->actors[i].sleeps && !sim->actors[i].ended)
			next = fmin(next, sim->actors[i].ready);
	}
	for (uint32_t i = 0; i < sim->opts->devices; i++) {
		const struct device *device = &sim->devices[i];
		double clock = device_next(sim, device), at;

		if (clock == INFINITY)
			continue;
		at = sim->now + (clock - device->clock) * device_pace(sim, device);
		if (at <= next) {
			next = at;
			*device_out = i;
			*clock_out = clock;
		}
	}
	return next;
}

static void sim_advance(struct sim *sim, double to, uint32_t exact, double clock)
{
	for (uint32_t i = 0; i < sim->opts->devices; i++) {
		struct device *device = &sim->devices[i];
		double before = device->clock;

		if (device->n_running == 0)
			continue;
		device->clock = i == exact ? clock
					   : before + (to - sim->now) / device_pace(sim, device);
		device->work += (device->clock - before) * device->demand;
	}
	sim->now = to;
}

static int sim_step(struct sim *sim)
{
	uint32_t exact;
	double clock = 0, to = sim_next(sim, &exact, &clock);
	int ret = 0;

	if (to == INFINITY)
		return error_set(-ENODATA, "simulate: %" PRIu32 " jobs never begin", sim->left);
	sim_advance(sim, to, exact, clock);
	for (uint32_t i = 0; i < sim->opts->devices; i++) {
		struct device *device = &sim->devices[i];

		sim_watch(sim, device);
		for (uint32_t j = device->n_running; j-- > 0;) {
			if (sim->actors[device->running[j]].to <= device->clock)
				device_end(sim, device, j);
		}
	}
	for (uint32_t i = 0; i < sim->arrived; i++) {
		struct actor *actor = &sim->actors[i];

		if (actor->ended || !actor->sleeps || actor->ready > sim->now)
			continue;
		if (actor_device(sim, actor))
			actor_prepare(sim, actor);
		else
			actor_advance(sim, actor);
	}
	while (ret == 0 && sim->arrived < sim->n &&
	       sim->actors[sim->arrived].job->arrival <= sim->now)
		ret = actor_arrive(sim, &sim->actors[sim->arrived++]);
	for (uint32_t i = 0; ret == 0 && i < sim->opts->devices; i++)
		device_start(sim, i);
	return ret;
}

/* The gate is told what n jobs of the mean demand do together. */
static void device_gain(struct gate *gate, double gain, double demand)
{
	for (uint32_t n = 2; n <= GATE_RUNNING; n++)
		gate_gain(gate, n, fmin(n, sim_capacity(gain, n * demand) / fmin(1, demand)));
}

static int sim_open(struct sim *sim, struct sim_job *jobs)
{
	double demand = 0;
	int ret = 0;

	sim->actors = mem_array(sim->n, sizeof(*sim->actors));
	sim->seen = mem_array((size_t)sim->n * SIM_STAGES, sizeof(*sim->seen));
	if (!sim->actors || !sim->seen)
		return error_set(-ENOMEM, "simulate: cannot allocate %" PRIu32 " jobs", sim->n);
	for (uint32_t i = 0; i < sim->n; i++) {
		struct actor *actor = &sim->actors[i];

		jobs[i].begin = jobs[i].end = jobs[i].stall = 0;
		actor->job = &jobs[i];
		rng_seed(&actor->rng, sim->opts->seed, i);
		for (uint32_t j = 0; j < jobs[i].n_stages; j++) {
			struct curve *seen = &sim->seen[i * SIM_STAGES + j];

			*seen = *jobs[i].stages[j].curve;
			curve_dilate(seen, sim->opts->dilate);
		}
		demand += jobs[i].demand / sim->n;
	}
	for (uint32_t i = 0; ret == 0 && i < sim->opts->devices; i++) {
		ret = gate_init(&sim->devices[i].gate, &sim->opts->gate, sim->n);
		if (ret == 0 && !sim->opts->gain_unknown)
			device_gain(&sim->devices[i].gate, sim->opts->gain, demand);
	}
	return ret;
}

static int sim_times(const struct sim_job *jobs, uint32_t n, struct sim_result *result)
{
	size_t all = 0, used = 0;
	double *times, sum = 0;

	for (uint32_t i = 0; i < n; i++)
		all += jobs[i].latencies ? jobs[i].iterations : 1;
	times = mem_array(all, sizeof(*times));
	if (!times)
		return error_set(-ENOMEM, "simulate: cannot allocate %zu times", all);
	for (uint32_t i = 0; i < n; i++) {
		uint32_t count = jobs[i].latencies ? jobs[i].iterations : 1;

		for (uint32_t j = 0; j < count; j++)
			times[used++] = jobs[i].latencies ? jobs[i].latencies[j]
							  : jobs[i].end - jobs[i].arrival;
		result->stall_s += jobs[i].stall / 1e9 / n;
		result->makespan_s = fmax(result->makespan_s, jobs[i].end / 1e9);
	}
	for (size_t i = 0; i < used; i++)
		sum += times[i];
	result->avg_jct_s = sum / (double)used / 1e9;
	result->p99_jct_s = sim_quantile(times, used, 0.99) / 1e9;
	mem_free(times);
	return 0;
}

static int sim_check(const struct sim_opts *opts, const struct sim_job *jobs, uint32_t n)
{
	bool ok = n > 0 && opts->devices > 0 && opts->devices <= SIM_DEVICES && opts->gain >= 1;

	for (uint32_t i = 0; ok && i < n; i++) {
		ok = jobs[i].iterations > 0 && jobs[i].n_stages > 0 &&
		     jobs[i].n_stages <= SIM_STAGES && jobs[i].demand > 0 && jobs[i].demand <= 1 &&
		     (i == 0 || jobs[i].arrival >= jobs[i - 1].arrival);
		for (uint32_t j = 0; ok && j < jobs[i].n_stages; j++)
			ok = jobs[i].stages[j].curve->period_ns >= CURVE_BINS &&
			     (jobs[i].stages[j].device == SIM_NOWHERE ||
			      jobs[i].stages[j].device < opts->devices);
		if (!ok)
			return error_set(-EINVAL, "simulate: job %" PRIu32 " is not valid", i);
	}
	return ok ? 0 : error_set(-EINVAL, "simulate: %" PRIu32 " jobs, gain %g", n, opts->gain);
}

int sim_run(const struct sim_opts *opts, struct sim_job *jobs, uint32_t n,
	    struct sim_result *result_out)
{
	struct sim *sim = mem_zalloc(sizeof(*sim));
	double work = 0;
	int ret = sim ? sim_check(opts, jobs, n) : error_set(-ENOMEM, "simulate: no memory");

	if (ret) {
		mem_free(sim);
		return ret;
	}
	sim->opts = opts;
	sim->n = sim->left = n;
	ret = sim_open(sim, jobs);
	while (ret == 0 && sim->left)
		ret = sim_step(sim);
	if (ret == 0)
		ret = sim_times(jobs, n, &sim->result);
	for (uint32_t i = 0; i < opts->devices; i++) {
		work += sim->devices[i].work / 1e9;
		gate_destroy(&sim->devices[i].gate);
	}
	if (ret == 0) {
		sim->result.utilisation = work / opts->devices / sim->result.makespan_s;
		*result_out = sim->result;
	}
	mem_free(sim->seen);
	mem_free(sim->actors);
	mem_free(sim);
	return ret;
}
