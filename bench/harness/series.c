#include "bench/harness/series.h"

#include <math.h>
#include <string.h>

#include "base/stats.h"

void series_add(struct series *series, double value)
{
	if (series->n < SERIES_MAX)
		series->value[series->n++] = value;
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
