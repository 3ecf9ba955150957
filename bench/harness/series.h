/*
 * series.h - one metric over the windows of a case.
 *
 * The best window shows the machine's capability; median and spread show the reliability.
 */
#ifndef RLV_BENCH_HARNESS_SERIES_H
#define RLV_BENCH_HARNESS_SERIES_H

#include <stdbool.h>
#include <stdint.h>

#define SERIES_MAX 64u

/* All zero: empty. */
struct series {
	uint32_t n;
	double value[SERIES_MAX];
	double cpu_ns, wall_ns; /* sum over all windows, 0 if not measured */
};

/* Adds a value; if there are SERIES_MAX already, it is dropped. */
void series_add(struct series *series, double value);

/* All NaN for an empty series. best: max if higher_is_better, else min. */
struct spread {
	double best, median, min, max;
};
struct spread series_spread(const struct series *series, bool higher_is_better);

/* The ratios b / a of windows that alternated. */
struct series series_ratio(const struct series *a, const struct series *b);

/* The median, and the values that hold that of all possible windows between them with a probability of
   95 % or more (sign test); of less than 6 values the least and the largest. NaN for an empty series. */
struct interval {
	double low, median, high;
};
struct interval series_interval(const struct series *series);

#endif
