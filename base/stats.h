/*
 * stats.h - counters, and a latency histogram of fixed size.
 *
 * The histogram is log-linear: 32 equal buckets in each power of two, exact below 32, so any
 * value is known to within 1/32 over the whole range of uint64_t, in 15 KiB and no allocation.
 */
#ifndef RLV_BASE_STATS_H
#define RLV_BASE_STATS_H

#include <stdatomic.h>
#include <stdint.h>

#define STATS_HIST_SUB_BITS 5
#define STATS_HIST_SUB (1u << STATS_HIST_SUB_BITS)
#define STATS_HIST_BUCKETS ((64u - STATS_HIST_SUB_BITS + 1u) * STATS_HIST_SUB)

/*
 * A counter that any thread may read at any time. Relaxed: readers need the number, no order.
 */
struct stats_counter {
	_Atomic uint64_t value;
};

/* Only the owner adds: no locked instruction. Thread: owner. */
static inline void stats_counter_add(struct stats_counter *counter, uint64_t n)
{
	uint64_t old = atomic_load_explicit(&counter->value, memory_order_relaxed);

	atomic_store_explicit(&counter->value, old + n, memory_order_relaxed);
}

static inline uint64_t stats_counter_get(const struct stats_counter *counter)
{
	return atomic_load_explicit(&counter->value, memory_order_relaxed);
}

/* Thread: owner. Several threads record into one each, then merge. */
struct stats_hist {
	uint64_t count;
	uint64_t min; /* UINT64_MAX while empty */
	uint64_t max;
	uint64_t buckets[STATS_HIST_BUCKETS];
};

void stats_hist_init(struct stats_hist *hist);

/* Cost: a few ns. */
void stats_hist_record(struct stats_hist *hist, uint64_t value);

void stats_hist_merge(struct stats_hist *into, const struct stats_hist *from);

/*
 * The smallest recorded value v (to within 1/32, never below it, never above the max) such that
 * at least q of all values are <= v. q is clamped to [0, 1]; 0 gives the min, empty gives 0.
 */
uint64_t stats_hist_quantile(const struct stats_hist *hist, double q);

/* Sorts n > 0 values in place and returns their median. */
double stats_median(double *values, uint64_t n);

#endif
