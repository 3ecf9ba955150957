#include "device/placement.h"

#include <errno.h>
#include <inttypes.h>

#include "base/bits.h"

/* What the jobs of a device and one more ask for: all that stays, and the largest peak. */
static uint64_t placement_need(const struct gate *gate, const struct gate_request *request)
{
	uint64_t persistent = request->persistent, peak = request->curve->peak;

	for (uint32_t i = 0; i < gate->n; i++) {
		const struct gate_job *job = &gate->jobs[i];

		if (job->state == GATE_ABSENT)
			continue;
		persistent += job->persistent;
		peak = max_u64(peak, job->curve->peak);
	}
	return persistent + peak;
}

/* The smaller, the better: below 0 it is resident at once. -1 to 0 for the orders' choice of room. */
static double placement_score(const struct gate *gate, const struct gate_request *request)
{
	double budget = (double)(gate->opts.budget - gate->opts.reserved);
	double asked = (double)placement_need(gate, request) / budget;

	if (asked > 1)
		return asked;
	return gate->opts.order == GATE_PACK ? -asked : asked - 1;
}

int placement_choose(const struct gate *const *gates, uint32_t n,
		     const struct gate_request *request, uint32_t *device_out)
{
	uint32_t best = n;
	double least = 0;

	for (uint32_t i = 0; i < n; i++) {
		double score;

		if (!gates[i] || !gate_could_run(gates[i], request))
			continue;
		score = placement_score(gates[i], request);
		if (best == n || score < least) {
			best = i;
			least = score;
		}
	}
	if (best == n)
		return error_set(-ENOSPC,
				 "a job of %" PRIu64 " + %" PRIu64
				 " bytes: no device has such a budget",
				 request->persistent, request->curve->peak);
	*device_out = best;
	return 0;
}
