#include "base/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"

/*
 * The bucket of a value. Values below 32 have a bucket each. Above, each power of two is a group of
 * 32 buckets, and the five bits after the leading one number the bucket in it.
 */
static unsigned bucket_of(uint64_t value)
{
	unsigned shift;

	if (value < STATS_HIST_SUB)
		return (unsigned)value;
	shift = bits_log2_floor(value) - STATS_HIST_SUB_BITS;
	return (shift + 1) * STATS_HIST_SUB + ((unsigned)(value >> shift) & (STATS_HIST_SUB - 1));
}

static uint64_t bucket_last(unsigned bucket)
{
	unsigned shift;
	uint64_t first;

	if (bucket < STATS_HIST_SUB)
		return bucket;
	shift = bucket / STATS_HIST_SUB - 1;
	first = (uint64_t)(STATS_HIST_SUB + bucket % STATS_HIST_SUB) << shift;
	return first + bits_mask(shift);
}

void stats_hist_init(struct stats_hist *hist)
{
	memset(hist, 0, sizeof(*hist));
	hist->min = UINT64_MAX;
}

void stats_hist_record(struct stats_hist *hist, uint64_t value)
{
	hist->count++;
	hist->min = min_u64(hist->min, value);
	hist->max = max_u64(hist->max, value);
	hist->buckets[bucket_of(value)]++;
}

void stats_hist_merge(struct stats_hist *into, const struct stats_hist *from)
{
	into->count += from->count;
	into->min = min_u64(into->min, from->min);
	into->max = max_u64(into->max, from->max);
	for (unsigned i = 0; i < STATS_HIST_BUCKETS; i++)
		into->buckets[i] += from->buckets[i];
}

uint64_t stats_hist_quantile(const struct stats_hist *hist, double q)
{
	uint64_t rank, seen = 0;

	if (hist->count == 0)
		return 0;
	if (!(q > 0)) /* NaN as well */
		return hist->min;
	/* How many values are to be <= the quantile. */
	rank = q < 1 ? (uint64_t)ceil(q * (double)hist->count) : hist->count;
	for (unsigned i = 0; i < STATS_HIST_BUCKETS; i++) {
		seen += hist->buckets[i];
		if (seen >= rank)
			return min_u64(bucket_last(i), hist->max);
	}
	return hist->max;
}

static int compare_doubles(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

double stats_median(double *values, uint64_t n)
{
	qsort(values, n, sizeof(*values), compare_doubles);
	return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}
