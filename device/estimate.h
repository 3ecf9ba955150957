/*
 * estimate.h - how long a job has still to run, for GATE_SRTF where its user does not say.
 *
 * A job that declares its number of iterations has those left, each as long as the last ones were;
 * before its first, as long as the prior says: the mean of other jobs, by which those that wait for
 * memory are ordered. One that ran longer than declared is taken to run over it as long again as it
 * already has; so one that declares none is taken to run as long again as it has run, which puts
 * young jobs first.
 */
#ifndef RLV_DEVICE_ESTIMATE_H
#define RLV_DEVICE_ESTIMATE_H

#include <stdint.h>

struct estimate {
	uint64_t declared, done; /* iterations; declared 0: not known */
	double iteration_ns;     /* mean of the last ones, or the prior */
};

void estimate_begin(struct estimate *estimate, uint64_t declared, double prior_ns);
/* An iteration has ended that took used_ns. */
void estimate_iteration(struct estimate *estimate, uint64_t used_ns);
uint64_t estimate_remaining(const struct estimate *estimate);

#endif
