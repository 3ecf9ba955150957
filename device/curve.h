/*
 * curve.h - the memory of a job over one of its iterations.
 *
 * Dynamic memory (all but what stays between iterations) in bins of equal time, the most of each
 * bin. A curve is of the job running alone; where jobs slow each other down alike, their phases
 * stay aligned. Times are ns.
 */
#ifndef RLV_DEVICE_CURVE_H
#define RLV_DEVICE_CURVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CURVE_BINS 256u

struct curve {
	uint64_t period_ns; /* of an iteration, at least CURVE_BINS */
	uint64_t peak;
	uint64_t bins[CURVE_BINS];
};

/* An iteration at some point: bytes of it are curve_at(curve, phase_ns). */
struct curve_run {
	const struct curve *curve;
	uint64_t phase_ns;
};

/* Empties a curve. */
void curve_begin(struct curve *curve, uint64_t period_ns);
/* That many bytes were in use from one time to another, exclusive. */
void curve_add(struct curve *curve, uint64_t from_ns, uint64_t to_ns, uint64_t bytes);
/* Raises each bin to the most of its neighbours up to `by` bins away: for phases not known exactly. */
void curve_dilate(struct curve *curve, unsigned by);

/* Bytes at a phase; 0 at the end of the period and after. */
uint64_t curve_at(const struct curve *curve, uint64_t phase_ns);

/*
 * True if the n iterations, left to run to their ends together, never need more than room. Exact:
 * it looks at each time when a bin of any of them begins.
 */
bool curves_fit(const struct curve_run *runs, size_t n, uint64_t room);

#endif
