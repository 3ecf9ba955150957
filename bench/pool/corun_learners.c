/*
 * corun_learners.c - two learners, which act for half as long as they learn, in a cgroup that has room for 1.3
 * of one of them: one after the other, by the sum of peaks, under the gate, and without a gate. Without a cgroup
 * the pool has room for 1.3 of one's tensors and each process has address space for no more. No process is then
 * the other's neighbour in the limit, so without a gate nothing would be seen.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>

#include "base/bits.h"
#include "bench/pool/corun.h"

#define ROOM 1.3
#define ITERATIONS 30u
#define SLACK (UINT64_C(1) << 20) /* of a process, beside what it needed in the first run */

enum way { SERIAL, SUM_OF_PEAKS, GATE, UNGATED };

static const char *const way_names[] = { "serial", "sum of peaks", "gate", "no gate" };

struct learners {
	struct corun_job job;
	uint64_t limit, budget;
	bool each; /* limit: of the address space of each process, not of a cgroup */
	double makespan[UNGATED + 1][CORUN_ROUNDS];
	uint64_t kills[UNGATED + 1];
};

/* The most memory that a learner needs alone, and what of it is not the pool's. */
static int learners_measure_group(struct learners *learners)
{
	const uint64_t pool = corun_budget(&learners->job, 1, 1);
	struct corun_place place = { .budget = pool };
	struct corun_job job = learners->job;
	struct memory_group group;
	uint64_t peak = 0;
	int ret = memory_group_make(0, &group);

	if (ret)
		return ret;
	place.group = &group;
	ret = corun_jobs(&job, 1, &place);
	if (ret == 0)
		ret = memory_group_peak(&group, &peak);
	memory_group_remove(&group);
	learners->limit = (uint64_t)(ROOM * (double)peak);
	peak = 2 * ((peak > pool ? peak - pool : 0) + SLACK);
	learners->budget = learners->limit > peak ? learners->limit - peak : 0;
	if (ret == 0 && learners->budget < pool + corun_persistent(&job))
		ret = error_set(-ENOTSUP,
				"learners: processes need %" PRIu64
				" bytes beside the pool, too much for a group of %" PRIu64,
				peak, learners->limit);
	return ret;
}

/* The address space of a learner that the pool gives 1.3 of what it needs, and would use all of it. */
static int learners_measure_each(struct learners *learners)
{
	const uint64_t pool = corun_budget(&learners->job, 1, 1);
	const uint64_t more = (uint64_t)((ROOM - 1) * (double)pool);
	const struct corun_place place = { .budget = pool + more };
	struct corun_job job = learners->job;
	int ret = corun_jobs(&job, 1, &place);

	learners->each = true;
	learners->budget = place.budget;
	learners->limit = job.address_space + more;
	if (ret == 0 && !job.address_space)
		ret = error_set(-ENOTSUP, "learners: /proc/self/status has no VmPeak");
	return ret;
}

static int learners_measure(const struct corun *corun, struct learners *learners)
{
	int ret = -ENOTSUP;

	if (corun->limit != CORUN_ADDRESS_SPACE)
		ret = learners_measure_group(learners);
	if (ret != -ENOTSUP || corun->limit == CORUN_CGROUP)
		return ret;
	if (corun->limit == CORUN_AUTO)
		report_note(corun->report, "learners: RLIMIT_AS for each process: %s",
			    error_last());
	return learners_measure_each(learners);
}

/* Returns once both have ended: well, except without a gate. */
static int learners_once(struct learners *learners, enum way way, double *makespan_out)
{
	struct corun_place place = { .budget = learners->budget };
	struct corun_job jobs[2] = { learners->job, learners->job };
	struct memory_group group;
	uint64_t kills = 0;
	int ret = 0, counted;

	if (learners->each)
		memory_group_each(learners->limit, &group);
	else
		ret = memory_group_make(learners->limit, &group);
	if (ret)
		return ret;
	place.group = &group;
	jobs[0].reserves = jobs[1].reserves = way == SUM_OF_PEAKS;
	if (way == UNGATED)
		place.budget = corun_budget(jobs, 2, 2);
	ret = corun_jobs(jobs, way == SERIAL ? 1 : 2, &place);
	if (way == SERIAL && ret == 0)
		ret = corun_jobs(&jobs[1], 1, &place);
	if (way == UNGATED && ret == -ECHILD)
		ret = 0;
	counted = memory_group_kills(&group, &kills);
	memory_group_remove(&group);
	learners->kills[way] += kills;
	*makespan_out = way == SERIAL ? jobs[0].jct_s + jobs[1].jct_s
				      : fmax(jobs[0].jct_s, jobs[1].jct_s);
	return ret ? ret : counted;
}

static void learners_report(const struct corun *corun, struct learners *learners)
{
	struct report_case c = { .set = learners->each ? "learners, each" : "learners",
				 .trace = learners->job.name,
				 .jobs = 2 };
	double ratios[UNGATED][CORUN_ROUNDS];

	for (uint32_t k = 0; k < corun->rounds; k++) {
		for (uint32_t way = SERIAL; way <= GATE; way++)
			ratios[way][k] = learners->makespan[SERIAL][k] / learners->makespan[way][k];
	}
	report_heading(corun->report, "learners");
	c.budget = (double)learners->limit;
	for (uint32_t way = SERIAL; way <= (learners->each ? GATE : UNGATED); way++) {
		c.policy = way_names[way];
		report_value(corun->report, &c, "oom_kills", (double)learners->kills[way]);
		if (way == UNGATED)
			break;
		report_ratio(corun->report, &c, "makespan_s", learners->makespan[way],
			     corun->rounds);
		report_ratio(corun->report, &c, "speedup_over_serial", ratios[way], corun->rounds);
	}
}

int corun_learners(const struct corun *corun)
{
	static struct learners learners;
	uint32_t last;
	int ret = corun_job_make(corun, "nature-cnn", ITERATIONS, &learners.job);

	learners.job.acts = learners.job.products / 2;
	if (ret == 0)
		ret = learners_measure(corun, &learners);
	last = learners.each ? GATE : UNGATED;
	for (uint32_t k = 0; ret == 0 && k < corun->rounds; k++) {
		for (uint32_t way = SERIAL; ret == 0 && way <= last; way++)
			ret = learners_once(&learners, way, &learners.makespan[way][k]);
	}
	if (ret == 0)
		learners_report(corun, &learners);
	return ret;
}
