#include "device/gate.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/bits.h"
#include "base/mem/alloc.h"

#define MARGIN_STEP 10u /* of 1000 */
#define MARGIN_MOST 300u
#define CLEAN_ITERATIONS 100u
#define PACE_AGAIN 64u /* iterations until jobs that come and go are looked at again */

int gate_init(struct gate *gate, const struct gate_opts *opts, uint32_t n)
{
	if (n == 0 || opts->reserved >= opts->budget || (unsigned)opts->order >= GATE_ORDERS ||
	    (unsigned)opts->sharing >= GATE_SHARINGS || opts->running > GATE_RUNNING)
		return error_set(-EINVAL, "gate: room for %" PRIu32 " jobs, budget %" PRIu64, n,
				 opts->budget);
	memset(gate, 0, sizeof(*gate));
	gate->opts = *opts;
	gate->opts.running = opts->running ? opts->running : GATE_RUNNING;
	gate->jobs = mem_array(n, sizeof(*gate->jobs));
	if (!gate->jobs)
		return error_set(-ENOMEM, "gate: cannot allocate %" PRIu32 " jobs", n);
	gate->n = n;
	return 0;
}

void gate_destroy(struct gate *gate)
{
	mem_free(gate->jobs);
	memset(gate, 0, sizeof(*gate));
}

/* Bytes that jobs may use, without margin and staging. */
static uint64_t gate_budget(const struct gate *gate)
{
	uint64_t usable = gate->opts.budget - gate->opts.budget / 1000 * gate->margin;

	return usable > gate->opts.reserved ? usable - gate->opts.reserved : 0;
}

bool gate_could_run(const struct gate *gate, const struct gate_request *request)
{
	uint64_t room = gate->opts.budget - gate->opts.reserved;

	return request->persistent <= room && request->curve->peak <= room - request->persistent;
}

int gate_arrive(struct gate *gate, const struct gate_request *request, uint32_t *job_out)
{
	uint32_t job = 0;

	if (!gate_could_run(gate, request))
		return error_set(-ENOSPC,
				 "a job of %" PRIu64 " + %" PRIu64 " bytes: the budget is %" PRIu64,
				 request->persistent, request->curve->peak,
				 gate->opts.budget - gate->opts.reserved);
	while (job < gate->n && gate->jobs[job].state != GATE_ABSENT)
		job++;
	if (job == gate->n)
		return error_set(-ENOSPC, "gate: all %" PRIu32 " jobs are taken", gate->n);
	gate->jobs[job] = (struct gate_job){
		.state = GATE_QUEUED,
		.arrival = ++gate->last,
		.turn = gate->last,
		.persistent = request->persistent,
		.curve = request->curve,
		.remaining_ns = request->remaining_ns,
		.served_ns = request->served_ns,
		.weight = request->weight > 0 ? request->weight : 1,
		.priority = request->priority,
	};
	gate->admits = true;
	*job_out = job;
	return 0;
}

void gate_leave(struct gate *gate, uint32_t job)
{
	if (gate->jobs[job].state == GATE_RESIDENT)
		gate->persistent -= gate->jobs[job].persistent;
	gate->residents -= gate->jobs[job].state == GATE_RESIDENT;
	gate->jobs[job].state = GATE_ABSENT;
	gate->admits = true;
}

static bool gate_starves(const struct gate *gate, const struct gate_job *job)
{
	return gate->opts.order != GATE_FIFO && gate->opts.patience &&
	       job->waited >= gate->opts.patience;
}

/* Less than 0: a goes before b by the policy; 0: it does not say. */
static int gate_compare(enum gate_order order, const struct gate_job *a, const struct gate_job *b)
{
	double served_a = (double)a->served_ns / a->weight;
	double served_b = (double)b->served_ns / b->weight;
	uint64_t bytes_a, bytes_b;

	switch (order) {
	case GATE_SRTF:
		return (a->remaining_ns > b->remaining_ns) - (a->remaining_ns < b->remaining_ns);
	case GATE_FAIR:
		return (served_a > served_b) - (served_a < served_b);
	case GATE_PRIORITY:
		return (a->priority < b->priority) - (a->priority > b->priority);
	case GATE_ROUND_ROBIN:
		return (a->turn > b->turn) - (a->turn < b->turn);
	case GATE_PACK:
		bytes_a = a->persistent + a->curve->peak;
		bytes_b = b->persistent + b->curve->peak;
		return (bytes_a > bytes_b) - (bytes_a < bytes_b);
	case GATE_FIFO:
		break;
	}
	return 0;
}

/* True if a goes before b. */
static bool gate_before(const struct gate *gate, const struct gate_job *a, const struct gate_job *b)
{
	bool starves_a = gate_starves(gate, a), starves_b = gate_starves(gate, b);
	int by_policy = gate_compare(gate->opts.order, a, b);

	if (starves_a != starves_b)
		return starves_a;
	if (starves_a && a->waited != b->waited)
		return a->waited > b->waited;
	return by_policy ? by_policy < 0 : a->arrival < b->arrival;
}

/* The job of a state that comes next after `last` in the order; NULL if there is none. */
static struct gate_job *gate_after(struct gate *gate, int state, const struct gate_job *last)
{
	struct gate_job *best = NULL;

	for (uint32_t i = 0; i < gate->n; i++) {
		struct gate_job *job = &gate->jobs[i];

		if ((int)job->state != state || (state == GATE_RESIDENT && job->idle) ||
		    (last && !gate_before(gate, last, job)))
			continue;
		if (!best || gate_before(gate, job, best))
			best = job;
	}
	return best;
}

static uint64_t gate_largest_peak(const struct gate *gate)
{
	uint64_t peak = 0;

	for (uint32_t i = 0; i < gate->n; i++) {
		if (gate->jobs[i].state == GATE_RESIDENT || gate->jobs[i].state == GATE_RUNS)
			peak = max_u64(peak, gate->jobs[i].curve->peak);
	}
	return peak;
}

static size_t gate_runs(const struct gate *gate, struct curve_run runs[GATE_RUNNING])
{
	size_t n = 0;

	for (uint32_t i = 0; i < gate->n && n < GATE_RUNNING; i++) {
		if (gate->jobs[i].state == GATE_RUNS)
			runs[n++] =
				(struct curve_run){ gate->jobs[i].curve, gate->jobs[i].phase_ns };
	}
	return n;
}

/* True if running iterations fit beside that much more persistent memory. */
static bool gate_leaves_room(const struct gate *gate, uint64_t persistent)
{
	struct curve_run runs[GATE_RUNNING];
	uint64_t need = gate->persistent + persistent, budget = gate_budget(gate);
	size_t n = gate_runs(gate, runs);

	return n == 0 || (need <= budget && curves_fit(runs, n, budget - need));
}

/* Salus' condition. A margin that has grown must not keep the last job out. */
static bool gate_admissible(const struct gate *gate, const struct gate_job *job, uint64_t largest)
{
	return (gate->persistent == 0 && largest == 0) ||
	       gate->persistent + job->persistent + max_u64(largest, job->curve->peak) <=
		       gate_budget(gate);
}

/* A later job goes before those that did not fit. */
static void gate_pass(struct gate *gate)
{
	for (uint32_t i = 0; i < gate->n; i++)
		gate->jobs[i].passed += gate->jobs[i].skipped;
}

static void gate_forget_skipped(struct gate *gate)
{
	for (uint32_t i = 0; i < gate->n; i++)
		gate->jobs[i].skipped = false;
}

static void gate_admit(struct gate *gate)
{
	uint64_t largest = gate_largest_peak(gate);
	struct gate_job *job = gate_after(gate, GATE_QUEUED, NULL), *next;

	gate->admits = gate->drains = false;
	for (; job && (!gate->opts.resident || gate->residents < gate->opts.resident); job = next) {
		next = gate_after(gate, GATE_QUEUED, job);
		if (gate_admissible(gate, job, largest)) {
			if (!gate_leaves_room(gate, job->persistent)) {
				gate->drains = true;
				break;
			}
			job->state = GATE_RESIDENT;
			gate->persistent += job->persistent;
			gate->residents++;
			largest = max_u64(largest, job->curve->peak);
			gate_pass(gate);
			job->passed = 0;
			continue;
		}
		job->skipped = true;
		if (job->passed >= gate->opts.aging)
			break;
	}
	gate_forget_skipped(gate);
}

static bool gate_fits(const struct gate *gate, const struct gate_job *job)
{
	struct curve_run runs[GATE_RUNNING + 1] = { { NULL, 0 } };
	uint64_t budget = gate_budget(gate), peaks = job->curve->peak;
	size_t n;

	if (gate->running == 0)
		return true;
	if (gate->persistent > budget)
		return false;
	n = gate_runs(gate, runs);
	runs[n++] = (struct curve_run){ job->curve, 0 };
	for (size_t i = 0; i + 1 < n; i++)
		peaks += runs[i].curve->peak;
	if (gate->opts.sharing == GATE_PEAKS)
		return peaks <= budget - gate->persistent;
	return curves_fit(runs, n, budget - gate->persistent);
}

/*
 * True if it is good to run the job beside the running ones, as far as gains are known. For GATE_SRTF:
 * while they progress by 1, all jobs before it lose the time by which they become slower, and those
 * after it, and it itself, win what its own progress would have taken.
 */
static bool gate_pays(const struct gate *gate, const struct gate_job *job)
{
	uint32_t n = gate->running, before = 0, after = 0;
	double now = n > 1 ? gate->gain[n] : 1, slower;

	if (n == 0 || !(now > 0 && gate->gain[n + 1] > 0))
		return true;
	if (gate->opts.order != GATE_SRTF)
		return gate->gain[n + 1] > now;
	for (uint32_t i = 0; i < gate->n; i++) {
		const struct gate_job *other = &gate->jobs[i];
		bool first;

		if (other->state == GATE_ABSENT)
			continue;
		first = other->state == GATE_RUNS || gate_before(gate, other, job);
		before += first;
		after += !first;
	}
	slower = (n + 1) / gate->gain[n + 1] - n / now;
	return after * (1 / now - slower) > before * slower;
}

/*
 * The jobs that run or soon will: idle ones for as long as each job needs for two iterations. Returns a
 * number of theirs; 0 if they are too many or too few to be paced.
 */
static uint64_t gate_active(const struct gate *gate, const struct curve *curves[PACE_JOBS],
			    size_t *n_out)
{
	uint64_t sum = 0, recent = 2 * (uint64_t)gate->residents;

	*n_out = 0;
	for (uint32_t i = 0; i < gate->n; i++) {
		const struct gate_job *job = &gate->jobs[i];

		if (job->state < GATE_RESIDENT || (job->idle && gate->last - job->turn > recent))
			continue;
		if (*n_out == PACE_JOBS)
			return 0;
		curves[(*n_out)++] = job->curve;
		sum = sum * 0x9e3779b97f4a7c15u + job->arrival;
	}
	return *n_out > 1 ? sum : 0;
}

static void gate_pace(struct gate *gate)
{
	const struct curve *curves[PACE_JOBS];
	uint64_t budget = gate_budget(gate), active;
	size_t n;

	if (gate->opts.sharing != GATE_CURVES || gate->persistent >= budget)
		return;
	active = gate_active(gate, curves, &n);
	if (active == gate->paced ||
	    (active && gate->paced && gate->last - gate->looked < PACE_AGAIN))
		return;
	gate->paced = active;
	gate->looked = gate->last;
	gate->gap_ns = active ? pace_find(curves, n, budget - gate->persistent, gate->gain) : 0;
}

/* True if a begin now would be too near to the last one. */
static bool gate_is_paced(const struct gate *gate)
{
	const struct gate_job *newest = &gate->jobs[gate->newest];

	/* One that takes longer than its curve stays at the end of it. */
	return newest->state == GATE_RUNS &&
	       newest->phase_ns < min_u64(gate->gap_ns, newest->curve->period_ns - 1);
}

/* True if no further iteration may begin, whichever it is. */
static bool gate_is_full(const struct gate *gate)
{
	return gate->running >= gate->opts.running ||
	       (gate->running && (gate->opts.sharing == GATE_ALONE || gate->drains));
}

/* True if it is ready, or will be once it is admitted. */
static bool gate_waits(const struct gate_job *job)
{
	return (job->state == GATE_RESIDENT || job->state == GATE_QUEUED) && !job->idle;
}

bool gate_start(struct gate *gate, uint32_t *job_out)
{
	struct gate_job *job;

	if (gate->admits)
		gate_admit(gate);
	gate_pace(gate);
	if (gate_is_full(gate) || gate_is_paced(gate))
		return false;
	for (job = gate_after(gate, GATE_RESIDENT, NULL); job;
	     job = gate_after(gate, GATE_RESIDENT, job)) {
		if (!gate_pays(gate, job)) {
			job = NULL;
			break;
		}
		if (gate_fits(gate, job))
			break;
		job->skipped = true;
		if (job->passed >= gate->opts.aging || gate_starves(gate, job)) {
			job = NULL;
			break;
		}
	}
	if (job) {
		gate_pass(gate);
		job->state = GATE_RUNS;
		job->phase_ns = 0;
		job->passed = 0;
		for (uint32_t i = 0; i < gate->n; i++)
			gate->jobs[i].waited += gate_waits(&gate->jobs[i]);
		job->waited = 0;
		gate->running++;
		gate->newest = *job_out = (uint32_t)(job - gate->jobs);
	}
	gate_forget_skipped(gate);
	return job != NULL;
}

void gate_changed(struct gate *gate)
{
	gate->paced = 0;
}

void gate_progress(struct gate *gate, uint32_t job, uint64_t phase_ns)
{
	gate->jobs[job].phase_ns = phase_ns;
}

/* So many iterations have ended: the margin shrinks. */
static void gate_clean(struct gate *gate, uint64_t n)
{
	uint64_t clean = gate->clean + n;

	if (gate->margin == 0)
		return;
	gate->margin -= (uint32_t)min_u64(gate->margin, clean / CLEAN_ITERATIONS);
	gate->clean = (uint32_t)(clean % CLEAN_ITERATIONS);
}

void gate_end(struct gate *gate, uint32_t job, uint64_t used_ns, uint64_t remaining_ns)
{
	struct gate_job *found = &gate->jobs[job];

	found->state = GATE_RESIDENT;
	found->served_ns += used_ns;
	found->remaining_ns = remaining_ns;
	found->turn = ++gate->last;
	gate->running--;
	gate->admits |= gate->drains;
	gate_clean(gate, 1);
}

void gate_repeated(struct gate *gate, uint32_t job, uint64_t n, uint64_t used_ns)
{
	gate->jobs[job].served_ns += used_ns;
	gate_clean(gate, n);
}

void gate_idle(struct gate *gate, uint32_t job)
{
	gate->jobs[job].idle = true;
	gate->jobs[job].waited = 0;
}

void gate_wake(struct gate *gate, uint32_t job)
{
	gate->jobs[job].idle = false;
}

void gate_gain(struct gate *gate, uint32_t n, double gain)
{
	if (n >= 2 && n <= GATE_RUNNING)
		gate->gain[n] = gain;
	gate_changed(gate);
}

void gate_overshoot(struct gate *gate)
{
	gate->margin = gate->margin + MARGIN_STEP < MARGIN_MOST ? gate->margin + MARGIN_STEP
								: MARGIN_MOST;
	gate->clean = 0;
}

struct gate_place gate_place(const struct gate *gate, uint32_t job)
{
	const struct gate_job *found = &gate->jobs[job];
	struct gate_place place = { GATE_READY, 0 };

	if (found->state == GATE_RUNS || found->state == GATE_ABSENT)
		return place;
	if (found->idle)
		return (struct gate_place){ GATE_IDLE, 0 };
	for (uint32_t i = 0; i < gate->n; i++) {
		const struct gate_job *other = &gate->jobs[i];

		place.position += other->state == found->state && !other->idle && other != found &&
				  gate_before(gate, other, found);
	}
	if (found->state == GATE_QUEUED)
		place.reason = GATE_WAITS_ADMISSION;
	else if (place.position || gate_is_full(gate) || !gate_pays(gate, found))
		place.reason = GATE_WAITS_TURN;
	else if (gate_is_paced(gate) || !gate_fits(gate, found))
		place.reason = GATE_WAITS_MEMORY;
	return place;
}

void gate_limit(struct gate *gate, uint64_t budget)
{
	gate->opts.budget = max_u64(budget, gate->opts.reserved + 1);
	gate->admits = true;
	gate_changed(gate);
}

const char *gate_order_name(enum gate_order order)
{
	static const char *const names[] = { "fifo",     "srtf",        "fair",
					     "priority", "round-robin", "pack" };

	return (unsigned)order < ARRAY_LEN(names) ? names[order] : "?";
}

const char *gate_sharing_name(enum gate_sharing sharing)
{
	static const char *const names[] = { "alone", "peaks", "curves" };

	return (unsigned)sharing < ARRAY_LEN(names) ? names[sharing] : "?";
}

const char *gate_reason_name(enum gate_reason reason)
{
	static const char *const names[] = { "ready", "waits for admission", "waits for memory",
					     "waits for its turn", "idle" };

	return (unsigned)reason < ARRAY_LEN(names) ? names[reason] : "?";
}
