/*
 * estimate.h - how long a job has still to run, for GATE_SRTF where its user does not say.
 *
 * A job that declares its number of iterations has those left, each as long as the last ones were.
 * One that declares none, or ran longer than declared, is taken to run as long again as it has
 * run, which puts young jobs first. Before its first iteration a job has 0, so that it runs one and
 * is measured.
 */
#ifndef RLV_DEVICE_ESTIMATE_H
#define RLV_DEVICE_ESTIMATE_H

#include <stdint.h>

struct estimate {
	uint64_t declared, done; /* iterations; declared 0: not known */
	uint64_t served_ns;
	double iteration_ns; /* mean of the last ones */
};

void estimate_begin(struct estimate *estimate, uint64_t declared);
/* An iteration has ended that took used_ns. */
void estimate_iteration(struct estimate *estimate, uint64_t used_ns);
uint64_t estimate_remaining(const struct estimate *estimate);

#endif
