#include "device/estimate.h"

#define WEIGHT_OF_LAST 0.25

void estimate_begin(struct estimate *estimate, uint64_t declared)
{
	*estimate = (struct estimate){ .declared = declared };
}

void estimate_iteration(struct estimate *estimate, uint64_t used_ns)
{
	double weight = estimate->done ? WEIGHT_OF_LAST : 1;

	estimate->iteration_ns += weight * ((double)used_ns - estimate->iteration_ns);
	estimate->served_ns += used_ns;
	estimate->done++;
}

uint64_t estimate_remaining(const struct estimate *estimate)
{
	if (estimate->done >= estimate->declared)
		return estimate->served_ns;
	return (uint64_t)((double)(estimate->declared - estimate->done) * estimate->iteration_ns);
}
