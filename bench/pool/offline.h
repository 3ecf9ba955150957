/*
 * offline.h - the best that equal jobs can do together if everything is known beforehand.
 */
#ifndef RLV_BENCH_POOL_OFFLINE_H
#define RLV_BENCH_POOL_OFFLINE_H

#include "device/curve.h"

/*
 * Progress of n >= 1 jobs of one curve beside that of one after the other, in the best cycle in which
 * each runs one iteration, shifted by the same time from the one before (of two jobs: by any), while
 * the sum stays within room. gain as in sim.h. To within a bin of the curve. For two it is the best of all
 * schedules: each shift of a longer cycle is followed by one that makes up the whole, and no pair of them
 * leaves less time alone than the best pair does. For more, a search over shifts of their own has found
 * none that is better.
 */
double offline_best(const struct curve *curve, unsigned n, uint64_t room, double gain);

#endif
