/*
 * tops.h - private to ds/sumtree*.c: the top levels of a forest, as read at the beginning
 * of a draw, and the first step down: from a point of the whole mass to a node of a top.
 */
#ifndef RLV_DS_SUMTREE_TOPS_H
#define RLV_DS_SUMTREE_TOPS_H

#include "ds/sumtree/sumtree.h"

#include "wire/table_layout.h"

#include <stdbool.h>
#include <stdint.h>

#define TOPS_KEPT 128u /* shards whose top is kept as read; of more, it is read again */

struct sumtree_tops {
	const struct forest *from;
	/* Mass of the shards before each, 2^62 x 2^10 at most; the last is all of it. */
	unsigned __int128 before[TABLE_MAX_SHARDS + 1];
	int64_t *sizes; /* live leaves of each tree, by the size words; NULL = not asked */
	uint64_t kept[TOPS_KEPT][SUMTREE_TOP_MAX];

	/* The shard that the last draw fell in. */
	uint32_t shard;
	uint64_t total;                       /* its sum, now */
	uint64_t prefix[SUMTREE_TOP_MAX + 1]; /* before node k; UINT64_MAX behind the last node */
	uint64_t value[SUMTREE_TOP_MAX];
};

/* Looks at all tops and sizes and refreshes the epochs; all are addressable. Counted as 1 phase. */
RLV_MUST_CHECK int sumtree_tops_read(struct sumtree_tops *tops, const struct forest *from);

/*
 * The same for those who read themselves: begin; of each tree what TOPS_READS reads bring, one after
 * the other in a buffer of sumtree_tops_bytes() (`aim` says where from and to); end. `take` is false
 * when the epoch names another array: `last` takes what was read all the same, else aim again.
 */
#define TOPS_READS 2u

void sumtree_tops_begin(struct sumtree_tops *tops, const struct forest *from);
uint32_t sumtree_tops_bytes(const struct forest *from);
void sumtree_tops_aim(const struct forest *from, uint32_t tree, uint8_t *buffer,
		      struct transport_io io[TOPS_READS]);
bool sumtree_tops_take(struct sumtree_tops *tops, uint32_t tree, const uint8_t *buffer, bool last);
void sumtree_tops_end(struct sumtree_tops *tops);

static inline unsigned __int128 sumtree_tops_total(const struct sumtree_tops *tops)
{
	return tops->before[tops->from->n];
}

/* The last tree whose mass begins at or before the point, which is below the total. */
static inline uint32_t sumtree_tops_find_tree(const struct sumtree_tops *tops, unsigned __int128 at)
{
	uint32_t tree = 0, half;

	for (uint32_t n = tops->from->n; n > 1; n -= half) {
		half = n / 2;
		tree += tops->before[tree + half] <= at ? half : 0;
	}
	return tree;
}

/* Makes prefix and value those of a shard. */
RLV_MUST_CHECK int sumtree_tops_load(struct sumtree_tops *tops, uint32_t shard);

/*
 * The last node of the loaded shard whose mass begins at or before r < total. Rising points find
 * theirs at or right behind the last one, `near`, by guesses of the CPU that are mostly right; others in
 * six steps without a branch to guess.
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
