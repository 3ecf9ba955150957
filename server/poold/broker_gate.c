#include "server/poold/broker_parts.h"

#include <errno.h>
#include <inttypes.h>

#include "base/bits.h"

#define UNKNOWN_PERIOD_NS (3600 * CLOCK_NS_PER_S) /* of an iteration that nobody has measured */
#define PHASE_BINS 2u                             /* how far the phase of an iteration may be off */
#define LEAST_NS \
	UINT64_C(100) /* of an iteration that a job counts itself: a system call, at least */

/* A parked job needs nothing. */
static int broker_gate_enter(struct broker *broker, struct broker_job *job, bool parked)
{
	static const struct curve nothing;
	struct gate_request request = {
		.persistent = parked ? 0 : job->kept->persistent,
		.curve = parked ? &nothing : &job->curve,
		.remaining_ns = job->kept->duration_ns > job->served_ns
					? job->kept->duration_ns - job->served_ns
					: 0,
		.weight = job->kept->weight / 1000.0,
		.priority = job->kept->priority,
		.served_ns = job->served_ns,
	};
	int ret = gate_arrive(&broker->gate, &request, &job->gate);

	if (ret == 0)
		gate_idle(&broker->gate, job->gate);
	return ret;
}

int broker_gate_arrive(struct broker *broker, uint32_t at)
{
	struct broker_job *job = &broker->jobs[at];

	curve_begin(&job->curve, UNKNOWN_PERIOD_NS);
	curve_add(&job->curve, 0, UNKNOWN_PERIOD_NS, job->kept->peak);
	return broker_gate_enter(broker, job, false);
}

int broker_park(struct broker *broker, uint32_t at)
{
	struct broker_job *job = &broker->jobs[at];

	broker_recall(broker);
	if (job->runs)
		return error_set(-EBUSY, "job %s: an iteration runs", job->kept->name);
	job->returns = job->wish = false;
	broker_waited(broker, job);
	if (job->parked)
		return 0;
	job->parked = true;
	gate_leave(&broker->gate, job->gate);
	return broker_gate_enter(broker, job, true); /* its place is free */
}

int broker_resume(struct broker *broker, uint32_t at)
{
	struct broker_job *job = &broker->jobs[at];
	const struct gate_request needs = { .persistent = job->kept->persistent,
					    .curve = &job->curve };

	if (job->parked && !gate_could_run(&broker->gate, &needs))
		return error_set(-ENOSPC, "job %s: it needs more than the budget, by now",
				 job->kept->name);
	if (job->parked) {
		int ret;

		gate_leave(&broker->gate, job->gate);
		job->parked = false;
		ret = broker_gate_enter(broker, job, false);
		if (ret)
			return ret;
	}
	job->returns = true;
	broker_waits(broker, job);
	(void)broker_gate_turn(broker);
	if (!broker_gate_admitted(broker, at))
		return error_set(-EAGAIN, "job %s waits for admission", job->kept->name);
	job->returns = false;
	broker_waited(broker, job);
	return 0;
}

/* Ends the iteration of a job, which took used_ns. */
static void broker_stop(struct broker *broker, struct broker_job *job, uint64_t used_ns,
			uint64_t remaining_ns)
{
	job->runs = false;
	job->served_ns += used_ns;
	if (!remaining_ns && job->kept->duration_ns > job->served_ns)
		remaining_ns = job->kept->duration_ns - job->served_ns;
	gate_end(&broker->gate, job->gate, used_ns, remaining_ns);
	gate_idle(&broker->gate, job->gate);
}

static uint64_t broker_used(const struct broker *broker, const struct broker_job *job)
{
	return broker_now(broker) - job->began_ns;
}

/* -------- permits -------- */

static void broker_lend_permit(struct broker *broker, struct broker_job *job)
{
	for (uint32_t i = 0; i < LEDGER_JOBS; i++) {
		if (&broker->jobs[i] != job && broker->jobs[i].state == BROKER_MEMBER)
			return;
	}
	broker->alone = job;
	lease_permit_lend(job->permit, job->began_ns);
}

/* The first iteration under a permit was counted when it began. */
void broker_recall(struct broker *broker)
{
	struct broker_job *job = broker->alone;
	uint64_t most = job ? broker_used(broker, job) : 0, used, n;
	struct lease_permit_use use;

	if (!job)
		return;
	broker->alone = NULL;
	use = lease_permit_recall(job->permit);
	used = min_u64(use.used_ns, most);
	n = min_u64(use.ended, most / LEAST_NS + 1);
	n -= !use.runs && n > 0;
	job->iterations += n;
	broker->stats.iterations += n;
	job->exceeds = job->exceeds && n == 0;
	gate_repeated(&broker->gate, job->gate, n, use.runs ? used : 0);
	if (!use.runs) {
		broker_stop(broker, job, used, 0);
		return;
	}
	job->served_ns += used;
	if (n)
		job->began_ns =
			min_u64(max_u64(use.began_ns, job->began_ns + used), job->began_ns + most);
}

/* -------- iterations -------- */

void broker_gate_leave(struct broker *broker, uint32_t at)
{
	struct broker_job *job = &broker->jobs[at];

	if (job->runs)
		broker_stop(broker, job, broker_used(broker, job), 0);
	job->wants = false;
	broker_waited(broker, job);
	gate_leave(&broker->gate, job->gate);
}

bool broker_gate_admitted(const struct broker *broker, uint32_t at)
{
	return broker->gate.jobs[broker->jobs[at].gate].state != GATE_QUEUED;
}

void broker_gate_taken(struct broker *broker, uint32_t at)
{
	struct broker_job *job = &broker->jobs[at];
	uint64_t said = broker_extents_of(broker, job->kept->persistent) +
			broker_extents_of(broker, job->kept->peak);

	if (!job->runs || job->exceeds || broker->ledger.jobs[at].held <= said)
		return;
	job->exceeds = true;
	broker->stats.overshoots++;
	gate_overshoot(&broker->gate);
}

static struct broker_job *broker_of_gate(struct broker *broker, uint32_t gate)
{
	for (uint32_t i = 0; i < LEDGER_JOBS; i++) {
		if (broker->jobs[i].state == BROKER_MEMBER && broker->jobs[i].gate == gate)
			return &broker->jobs[i];
	}
	return NULL;
}

static void broker_start(struct broker *broker)
{
	uint32_t gate;

	while (gate_start(&broker->gate, &gate)) {
		struct broker_job *job = broker_of_gate(broker, gate);

		job->wants = false;
		job->runs = true;
		job->told = false;
		job->exceeds = job->cut = false;
		job->began_ns = broker_now(broker);
		broker->opts.wake(broker->opts.ctx, (uint32_t)(job - broker->jobs));
	}
}

/* -------- wishes -------- */

/* The job that has been resident longest, of those that park if asked to and were not. */
static struct broker_job *broker_wish_next(struct broker *broker)
{
	struct broker_job *best = NULL;

	for (uint32_t i = 0; i < LEDGER_JOBS; i++) {
		struct broker_job *job = &broker->jobs[i];

		if (job->state == BROKER_MEMBER && job->parks && job->connected && !job->parked &&
		    !job->wish && job->resident_ns &&
		    (!best || job->resident_ns < best->resident_ns))
			best = job;
	}
	return best;
}

/* When the job that has waited longest for admission did ask; DEADLINE_NEVER: none waits. Those that poll, or
   wait in slices, give up and ask again. */
static uint64_t broker_waits_since(struct broker *broker)
{
	uint64_t since = DEADLINE_NEVER, now = broker_now(broker);

	for (uint32_t i = 0; i < LEDGER_JOBS; i++) {
		struct broker_job *job = &broker->jobs[i];
		bool admitted = job->state == BROKER_MEMBER && !job->parked &&
				broker_gate_admitted(broker, i);

		if (!admitted)
			job->resident_ns = 0;
		else if (!job->resident_ns)
			job->resident_ns = now;
		if (admitted || (!job->asked_ns && now - job->left_ns >= BROKER_AGAIN_NS))
			job->first_ns = 0;
		else if (!job->first_ns)
			job->first_ns = job->asked_ns;
		if (job->state == BROKER_MEMBER && job->first_ns)
			since = deadline_min(since, job->first_ns);
	}
	return since;
}

/* Asks one job after the other to park while one waits for admission too long. Returns when it is due. */
static uint64_t broker_wish(struct broker *broker)
{
	uint64_t since = broker_waits_since(broker), due;
	struct broker_job *job;

	if (!broker->opts.park_ns || since == DEADLINE_NEVER) {
		for (uint32_t i = 0; i < LEDGER_JOBS; i++)
			broker->jobs[i].wish = false;
		return DEADLINE_NEVER;
	}
	due = max_u64(since, broker->wished_ns) + broker->opts.park_ns;
	job = broker_now(broker) < due ? NULL : broker_wish_next(broker);
	if (!job)
		return broker_now(broker) < due ? due : DEADLINE_NEVER;
	job->wish = true;
	broker->wished_ns = broker_now(broker);
	return broker->wished_ns + broker->opts.park_ns;
}

uint64_t broker_gate_turn(struct broker *broker)
{
	uint64_t now = broker_now(broker), due = DEADLINE_NEVER;
	bool runs = false, wants = false;

	if (broker->alone && broker->opts.iteration_ns &&
	    broker_used(broker, broker->alone) >= broker->opts.iteration_ns)
		broker_recall(broker); /* it tells whether it is one iteration that takes so long */
	for (uint32_t i = 0; i < LEDGER_JOBS; i++) {
		struct broker_job *job = &broker->jobs[i];
		uint64_t limit = job->told ? broker->opts.iteration_ns : BROKER_FETCH_NS;

		if (!job->runs || job->state != BROKER_MEMBER)
			continue;
		/* One that takes longer than it did still needs its last bin. */
		gate_progress(&broker->gate, job->gate,
			      min_u64(now - job->began_ns, job->curve.period_ns - 1));
		if (limit && now - job->began_ns >= limit) {
			job->cut = job->told;
			broker->stats.cut += job->told;
			broker_stop(broker, job, now - job->began_ns, 0);
			continue;
		}
		due = limit ? deadline_min(due, job->began_ns + limit) : due;
	}
	broker_start(broker);
	for (uint32_t i = 0; i < LEDGER_JOBS; i++) {
		const struct broker_job *job = &broker->jobs[i];

		runs |= job->runs;
		wants |= job->wants;
		if (job->state == BROKER_MEMBER && job->returns && broker_gate_admitted(broker, i))
			broker->opts.wake(broker->opts.ctx, i);
	}
	/* Whether curves fit changes with time. */
	if (runs && wants && broker->opts.sharing == GATE_CURVES)
		due = deadline_min(due, now + BROKER_POLL_NS);
	return deadline_min(due, broker_wish(broker));
}

int broker_begin(struct broker *broker, uint32_t at)
{
	struct broker_job *job = &broker->jobs[at];

	broker_recall(broker);
	if (job->runs && job->told)
		return error_set(-EBUSY, "job %s: an iteration runs", job->kept->name);
	if (job->parked)
		return broker_is_parked(job);
	if (!job->runs) {
		job->wants = true;
		broker_waits(broker, job);
		gate_wake(&broker->gate, job->gate);
		(void)broker_gate_turn(broker);
	}
	if (!job->runs)
		return error_set(-EAGAIN, "job %s %s", job->kept->name,
				 gate_reason_name(broker_place(broker, at).reason));
	job->told = true;
	job->iterations++;
	broker->stats.iterations++;
	broker_waited(broker, job);
	broker_lend_permit(broker, job);
	return 0;
}

int broker_end(struct broker *broker, uint32_t at, uint64_t remaining_ns)
{
	struct broker_job *job = &broker->jobs[at];

	broker_recall(broker);
	if (job->runs && job->told) {
		broker_stop(broker, job, broker_used(broker, job), remaining_ns);
		return 0;
	}
	if (!job->cut)
		return error_set(-EINVAL, "job %s: no iteration runs", job->kept->name);
	job->cut = false;
	return error_set(-ETIMEDOUT,
			 "job %s: its iteration took longer than the limit of %" PRIu64
			 " ms, and others went on",
			 job->kept->name, broker->opts.iteration_ns / CLOCK_NS_PER_MS);
}

int broker_profile(struct broker *broker, uint32_t at, const struct lease_profile *profile)
{
	struct broker_job *job = &broker->jobs[at];
	uint64_t most = 0;

	_Static_assert(LEASE_BINS == CURVE_BINS, "a profile is a curve");
	broker_recall(broker);
	if (job->runs)
		return error_set(-EBUSY, "job %s: an iteration runs", job->kept->name);
	for (uint32_t i = 0; i < LEASE_BINS; i++)
		most = max_u64(most, profile->bins[i]);
	if (most > job->kept->peak)
		return error_set(-ENOSPC,
				 "job %s: a profile with %" PRIu64 " bytes, and it said %" PRIu64,
				 job->kept->name, most, job->kept->peak);
	curve_begin(&job->curve, profile->period_ns);
	for (uint32_t i = 0; i < LEASE_BINS; i++)
		job->curve.bins[i] = profile->bins[i];
	job->curve.peak = most;
	curve_dilate(&job->curve, PHASE_BINS);
	gate_changed(&broker->gate);
	return 0;
}

struct gate_place broker_place(const struct broker *broker, uint32_t at)
{
	const struct broker_job *job = &broker->jobs[at];
	struct gate_place place = { GATE_WAITS_MEMORY, 0 };

	if (job->state != BROKER_MEMBER)
		return (struct gate_place){ GATE_IDLE, 0 };
	if (!job->want || !broker_gate_admitted(broker, at))
		return gate_place(&broker->gate, job->gate);
	for (uint32_t i = 0; i < LEDGER_JOBS; i++)
		place.position += broker->jobs[i].state == BROKER_MEMBER && broker->jobs[i].want &&
				  broker->jobs[i].turn < job->turn;
	return place;
}
