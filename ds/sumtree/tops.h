/*
 * tops.h - private to ds/sumtree/: the top levels of a forest, as read at the beginning of a
 * draw, and the first step down: from a point of the total mass to a node of a top.
 */
#ifndef RLV_DS_SUMTREE_TOPS_H
#define RLV_DS_SUMTREE_TOPS_H

#include "ds/sumtree/sumtree.h"

#include "wire/table_layout.h"

#include <stdbool.h>
#include <stdint.h>

#define TOPS_KEPT 128u /* shards whose top is kept as read; for further shards it is re-read */

struct sumtree_tops {
	const struct forest *from;
	/* Prefix mass before each shard, 2^62 x 2^10 at most; the last entry is the total. */
	unsigned __int128 before[TABLE_MAX_SHARDS + 1];
	int64_t *sizes; /* live leaves of each tree, by the size words; NULL = not wanted */
	uint64_t kept[TOPS_KEPT][SUMTREE_TOP_MAX];

	/* The loaded shard (sumtree_tops_load). */
	uint32_t shard;
	uint64_t total;                       /* its current sum */
	uint64_t prefix[SUMTREE_TOP_MAX + 1]; /* before node k; UINT64_MAX behind the last node */
	uint64_t value[SUMTREE_TOP_MAX];
};

/* Reads all tops and sizes and refreshes the epochs; all are addressable. Counted as 1 phase. */
RLV_MUST_CHECK int sumtree_tops_read(struct sumtree_tops *tops, const struct forest *from);

/*
 * The same for callers that execute the reads: begin; aim (sets the TOPS_READS reads of one
 * tree, into sumtree_tops_bytes() of mem); take; end. take returns false if the epoch names
 * another array: aim again. With `last` it accepts the data anyway.
 */
#define TOPS_READS 2u

void sumtree_tops_begin(struct sumtree_tops *tops, const struct forest *from);
uint32_t sumtree_tops_bytes(const struct forest *from);
void sumtree_tops_aim(const struct forest *from, uint32_t tree, const struct mem *mem,
		      uint8_t *buffer, struct transport_io io[TOPS_READS]);
bool sumtree_tops_take(struct sumtree_tops *tops, uint32_t tree, const uint8_t *buffer, bool last);
void sumtree_tops_end(struct sumtree_tops *tops);

static inline unsigned __int128 sumtree_tops_total(const struct sumtree_tops *tops)
{
	return tops->before[tops->from->n];
}

/* The last tree whose mass begins at or before the point `at`, which is below the total. */
static inline uint32_t sumtree_tops_find_tree(const struct sumtree_tops *tops, unsigned __int128 at)
{
	uint32_t tree = 0, half;

	for (uint32_t n = tops->from->n; n > 1; n -= half) {
		half = n / 2;
		tree += tops->before[tree + half] <= at ? half : 0;
	}
	return tree;
}

/* Loads prefix and value of a shard. */
RLV_MUST_CHECK int sumtree_tops_load(struct sumtree_tops *tops, uint32_t shard);

/*
 * The last node of the loaded shard whose mass begins at or before r < total. Rising points
 * usually hit `near`, the last node found, or the one behind it: well-predicted branches. Other
 * points take six steps without branches.
 */
static inline uint32_t sumtree_tops_find(const struct sumtree_tops *tops, uint64_t r, uint32_t near)
{
	uint32_t k = 0;

	if (tops->prefix[near] <= r) {
		if (r < tops->prefix[near + 1])
			return near;
		if (near + 2 <= SUMTREE_TOP_MAX && r < tops->prefix[near + 2])
			return near + 1;
	}
	for (uint32_t step = SUMTREE_TOP_MAX / 2; step > 0; step /= 2)
		k += tops->prefix[k + step] <= r ? step : 0;
	return k;
}

#endif
