#include "bench/harness/series.h"

#include <math.h>
#include <string.h>

#include "base/bits.h"
#include "base/stats.h"

void series_add(struct series *series, double value)
{
	if (series->n < SERIES_MAX)
		series->value[series->n++] = value;
}

struct series series_ratio(const struct series *a, const struct series *b)
{
	struct series ratio = { .n = (uint32_t)min_u64(a->n, b->n) };

	for (uint32_t i = 0; i < ratio.n; i++)
		ratio.value[i] = b->value[i] / a->value[i];
	return ratio;
}

struct interval series_interval(const struct series *series)
{
	double sorted[SERIES_MAX], term = pow(0.5, (double)series->n), below = term;
	struct interval interval = { (double)NAN, (double)NAN, (double)NAN };
	uint32_t cut = 0;

	if (series->n == 0)
		return interval;
	memcpy(sorted, series->value, series->n * sizeof(*sorted));
	interval.median = stats_median(sorted, series->n); /* sorts the array */
	for (uint32_t k = 1; below <= 0.025; k++) {        /* k of n values lie below the median */
		cut = k - 1;
		term *= (double)(series->n - k + 1) / k;
		below += term;
	}
	interval.low = sorted[cut];
	interval.high = sorted[series->n - 1 - cut];
	return interval;
}

struct spread series_spread(const struct series *series, bool higher_is_better)
{
	struct spread spread = { (double)NAN, (double)NAN, (double)NAN, (double)NAN };
	double sorted[SERIES_MAX];

	if (series->n == 0)
		return spread;
	memcpy(sorted, series->value, series->n * sizeof(*sorted));
	spread.median = stats_median(sorted, series->n); /* sorts the array */
	spread.min = sorted[0];
	spread.max = sorted[series->n - 1];
	spread.best = higher_is_better ? spread.max : spread.min;
	return spread;
}
