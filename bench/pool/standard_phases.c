#include "bench/pool/standard_sets.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "bench/pool/draw.h"
#include "bench/pool/parameters.h"
#include "bench/pool/standard.h"

#define GROUP PAR_PHASES_GROUP_MOST
#define JOBS PAR_PHASES_POPULATION

/* Jobs that share a pair of pools. */
struct group {
	uint32_t jobs[GROUP], n;
};

struct population {
	struct job_set set;
	double bounds[JOBS]; /* of an iteration in a group by one alone */
	struct group groups[JOBS];
	uint32_t n_groups;
};

/* Each with a pair of pools of its own, all on one pair, each on a card of its own that trains. */
struct costs {
	double own, group, colocated;
	uint32_t late; /* jobs whose bound did not hold */
};

/* Stages of an iteration, a rollout by_sigma standard deviations from its median; in ns. */
static double phases_stage(const struct sim_job *job, uint32_t stage, double by_sigma)
{
	double ns = (double)job->stages[stage].curve->period_ns;

	return stage == 0 ? ns * exp(PAR_PHASES_SIGMA * by_sigma) : ns;
}

static double phases_cycle(const struct sim_job *job, double by_sigma)
{
	double cycle = 0;

	for (uint32_t i = 0; i < job->n_stages; i++)
		cycle += phases_stage(job, i, by_sigma);
	return cycle;
}

/* How full a group is, of 2: phases by cycle. 0: a bound does not hold. */
static double group_fill(const struct population *all, const struct group *group)
{
	double sums[2] = { 0, 0 }, cycle = 0;

	for (uint32_t i = 0; i < group->n; i++) {
		const struct sim_job *job = &all->set.jobs[group->jobs[i]];

		for (uint32_t stage = 0; stage < 2; stage++)
			sums[stage] += phases_stage(job, stage, PAR_PHASES_LONG);
		cycle = fmax(cycle, phases_cycle(job, PAR_PHASES_LONG));
	}
	cycle = fmax(cycle, fmax(sums[0], sums[1]));
	for (uint32_t i = 0; i < group->n; i++) {
		const struct sim_job *job = &all->set.jobs[group->jobs[i]];

		if (cycle > all->bounds[group->jobs[i]] * phases_cycle(job, PAR_PHASES_LONG))
			return 0;
	}
	return (sums[0] + sums[1]) / cycle;
}

static void group_join(struct population *all, uint32_t job)
{
	uint32_t best = all->n_groups;
	double most = 0;

	for (uint32_t i = 0; i < all->n_groups; i++) {
		struct group with = all->groups[i];
		double fill;

		if (with.n == GROUP)
			continue;
		with.jobs[with.n++] = job;
		fill = group_fill(all, &with);
		if (fill > most) {
			most = fill;
			best = i;
		}
	}
	all->n_groups += best == all->n_groups;
	all->groups[best].jobs[all->groups[best].n++] = job;
}

/* What a job would take on a card that trains, in s. */
static double job_colocated(const struct sim_job *job)
{
	double rollout = (double)job->stages[0].curve->period_ns;

	/* The mean of a lognormal factor. */
	return job->iterations * exp(PAR_PHASES_SIGMA * PAR_PHASES_SIGMA / 2) *
	       (phases_cycle(job, 0) + rollout * (PAR_COLOCATED_ROLLOUT - 1)) / 1e9;
}

/* values: of jobs alone, and of the group. */
static int group_costs(const struct population *all, const struct group *group,
		       struct report_values values[2], struct costs *costs_out)
{
	const double price = PAR_PRICE_ROLLOUT + PAR_PRICE_TRAIN;
	const struct pool_policy *policy = pool_policy_find("round-robin");
	struct pool_run run = { .budget = 1, .gain = 1, .seed = group->jobs[0], .devices = 2 };
	double alone[GROUP], mean = 0, sum = 0;
	struct sim_job jobs[GROUP];
	struct job_set set = { .jobs = jobs, .n = group->n };
	struct sim_result result;
	int ret = 0;

	*costs_out = (struct costs){ .own = 0 };
	for (uint32_t i = 0; i < group->n; i++) {
		jobs[i] = all->set.jobs[group->jobs[i]];
		mean += phases_cycle(&jobs[i], 0) / group->n;
	}
	for (uint32_t i = 0; ret == 0 && i < group->n; i++) {
		struct job_set one = { .jobs = &jobs[i], .n = 1 };

		/* Jobs of the same length alone, so that they share all the time. */
		jobs[i].iterations =
			(uint32_t)round(PAR_PHASES_ITERATIONS * mean / phases_cycle(&jobs[i], 0));
		ret = pool_run(&run, policy, &one, &result);
		if (ret)
			return ret;
		alone[i] = result.makespan_s;
		sum += alone[i];
		costs_out->colocated += PAR_PRICE_TRAIN * job_colocated(&jobs[i]);
		report_add(&values[0], &result, result.makespan_s);
	}
	ret = pool_run(&run, policy, &set, &result);
	if (ret)
		return ret;
	costs_out->own = price * sum;
	costs_out->group = price * result.makespan_s;
	for (uint32_t i = 0; i < group->n; i++)
		costs_out->late += jobs[i].end / 1e9 > all->bounds[group->jobs[i]] * alone[i];
	report_add(&values[1], &result, sum);
	return 0;
}

static int phases_report(const struct population *all, const struct report *report)
{
	struct report_values values[2] = { { { { 0 } } } };
	double over_own[JOBS], over_colocated[JOBS], sizes[JOBS];
	struct costs sum = { .own = 0 };
	struct report_case c = {
		.set = "phases", .policy = "own pools", .gain = 1, .jobs = JOBS, .seed = 1
	};

	for (uint32_t i = 0; i < all->n_groups; i++) {
		struct costs costs;
		int ret = group_costs(all, &all->groups[i], values, &costs);

		if (ret)
			return ret;
		over_own[i] = costs.own / costs.group;
		over_colocated[i] = costs.colocated / costs.group;
		sizes[i] = all->groups[i].n;
		sum.own += costs.own;
		sum.group += costs.group;
		sum.colocated += costs.colocated;
		sum.late += costs.late;
	}
	report_heading(report, "RollMux: phases of 120 jobs, in groups on a pair of pools each");
	report_case(report, &c, &values[0]);
	c.policy = "round-robin";
	report_case(report, &c, &values[1]);
	report_ratio(report, &c, "jobs_of_a_group", sizes, all->n_groups);
	report_value(report, &c, "all_cost_over_own_pools", sum.own / sum.group);
	report_value(report, &c, "all_cost_over_colocated", sum.colocated / sum.group);
	report_value(report, &c, "bounds_held", 1 - (double)sum.late / JOBS);
	c.published = 1.84;
	report_ratio(report, &c, "cost_over_own_pools", over_own, all->n_groups);
	c.published = 1.38;
	report_ratio(report, &c, "cost_over_colocated", over_colocated, all->n_groups);
	return 0;
}

int run_phases(const struct traces *traces, uint32_t seeds, const struct report *report)
{
	static struct population all;
	struct rng rng;
	int ret = jobs_phases(&all.set, JOBS, 1);

	(void)traces;
	(void)seeds;
	rng_seed(&rng, 1, 5);
	all.n_groups = 0;
	memset(all.groups, 0, sizeof(all.groups));
	for (uint32_t i = 0; ret == 0 && i < JOBS; i++) {
		all.bounds[i] = draw_between(&rng, 1, PAR_PHASES_BOUND_MOST);
		group_join(&all, i);
	}
	if (ret == 0)
		ret = phases_report(&all, report);
	job_set_free(&all.set);
	return ret;
}
