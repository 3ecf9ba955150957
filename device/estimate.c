#include "device/estimate.h"

#define WEIGHT_OF_LAST 0.25

void estimate_begin(struct estimate *estimate, uint64_t declared, double prior_ns)
{
	*estimate = (struct estimate){ .declared = declared, .iteration_ns = prior_ns };
}

void estimate_iteration(struct estimate *estimate, uint64_t used_ns)
{
	double weight = estimate->done ? WEIGHT_OF_LAST : 1;

	estimate->iteration_ns += weight * ((double)used_ns - estimate->iteration_ns);
	estimate->done++;
}

uint64_t estimate_remaining(const struct estimate *estimate)
{
	uint64_t iterations = estimate->done < estimate->declared
				      ? estimate->declared - estimate->done
				      : estimate->done - estimate->declared;

	return (uint64_t)((double)iterations * estimate->iteration_ns);
}
