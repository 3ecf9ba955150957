/*
 * tops.h - private to ds/sumtree/: the top levels of a forest as last read, tree after tree, and
 * private sums above them. A draw begins here: from a point of the total mass to a node of a top.
 *
 *   level 2  [ s s . . ]                             at most TOPS_MOST sums
 *   level 1  [ s s s s | s s s s ]                   each of SUMS_FANOUT words below
 *   level 0  [ tree 0 . . . . | tree 1 . . . . ]     copies, negative sums as 0
 *
 * Where memory is addressable the copies are kept over draws. The owner's changes are added as they
 * are written (sumtree_tops_add); others' are seen with the next read, which is due after TOPS_DRAWS
 * draws, after TOPS_AGE_NS, with another epoch, and when the trees have grown by 1/TOPS_GROWTH. Nodes
 * below a stale copy do not sum up to it, which rule 6 allows for: the draw is repeated within them.
 * With D the others' changes since the last read and S the sum, the distance from the exact
 * distribution is at most D / S.
 */
#ifndef RLV_DS_SUMTREE_TOPS_H
#define RLV_DS_SUMTREE_TOPS_H

#include "ds/sumtree/sumtree.h"
#include "ds/sumtree/kernel.h"

#include "wire/table_layout.h"

#include <stdbool.h>
#include <stdint.h>

#define TOPS_MOST 64u /* sums of the topmost level */
#define TOPS_LEVELS 7 /* 2^10 trees of 2^14 nodes */
#define TOPS_DRAWS 32u
#define TOPS_AGE_NS (200 * UINT64_C(1000))
#define TOPS_GROWTH 16

/* What a draw needs of each tree, side by side; in place only. */
struct tops_tree {
	const struct rword64 *epoch; /* its epoch word */
	uint64_t seen;               /* as last read */
	const uint8_t *inner[2];
	const uint8_t *leaves;
	uint32_t steady; /* tag of its leaves for a flat update, as in struct change */
};

static inline uint32_t tops_parity(const struct tops_tree *tree)
{
	return epoch_number(tree->seen) & 1;
}

struct sumtree_tops {
	const struct forest *from; /* of the current layout; NULL = none */
	uint32_t n_trees;
	uint32_t stride_log2; /* words of one tree in level 0 */
	uint32_t top;         /* topmost level */
	uint32_t nodes[TOPS_LEVELS];
	uint64_t *level[TOPS_LEVELS];
	uint32_t shift; /* the words are in units of 2^shift quanta: 0 unless they would overflow */
	bool in_place;  /* all trees are addressable */
	/*
	 * Several trees of fan-outs that are powers of two: node i of level 1 of tree t is number t <<
	 * flat_log2 | i, and parents' numbers follow as those of one tree. 0 = they have no such numbers.
	 */
	uint32_t flat_log2;
	struct tops_tree *trees;
	uint32_t room_trees;
	bool due;       /* to be read again before the next draw */
	uint32_t draws; /* since the last read */
	uint64_t read_ns;
	int64_t size;   /* live leaves of all trees at the last read */
	int64_t *sizes; /* live leaves of each tree, by the size words; NULL = not wanted */
	uint64_t total; /* of the topmost level, by sumtree_tops_begin_draw */
	uint64_t prefix[TOPS_MOST + 1]; /* before its sum k; UINT64_MAX behind the last */
	uint64_t *words;                /* memory of the levels */
	size_t room_words;
};

void sumtree_tops_fini(struct sumtree_tops *tops);

/*
 * Reads the tops of all trees and refreshes the epochs; all are addressable. -ECHILD after fork.
 * Counted as 1 phase.
 */
RLV_MUST_CHECK int sumtree_tops_read(struct sumtree_tops *tops);

/*
 * Begins a draw at the time now_ns (0 = unknown): refreshes epochs and sizes, and reads the tops
 * again if that is due. -ECHILD after fork.
 */
RLV_MUST_CHECK int sumtree_tops_refresh(struct sumtree_tops *tops, uint64_t now_ns);

/*
 * The same for callers that execute the reads: aim (sets the TOPS_READS reads of one tree, into
 * sumtree_tops_bytes() of mem); take; end. take returns false if the epoch names another array:
 * aim again. With `last` it accepts the data anyway.
 */
#define TOPS_READS 2u

uint32_t sumtree_tops_bytes(const struct forest *from);
void sumtree_tops_aim(const struct forest *from, uint32_t tree, const struct mem *mem,
		      uint8_t *buffer, struct transport_io io[TOPS_READS]);
bool sumtree_tops_take(struct sumtree_tops *tops, uint32_t tree, const uint8_t *buffer, bool last);
void sumtree_tops_end(struct sumtree_tops *tops);

/*
 * Adds changes of the owner to the copies of a tree: those of a run of top nodes, in the inner
 * array of that parity. If the copies are of the other array they are read anew in the next draw.
 */
struct delta_run;
void sumtree_tops_add(struct sumtree_tops *tops, uint32_t tree, uint32_t parity,
		      const struct delta_run *run);

/* The same for flat deltas: run has flat numbers of top nodes, and is of all trees. */
void sumtree_tops_add_flat(struct sumtree_tops *tops, uint32_t parity, const struct delta_run *run);

/*
 * Sets tops->total and prefix from the topmost level, for the draws that follow; false = there is
 * no mass.
 */
bool sumtree_tops_begin_draw(struct sumtree_tops *tops);

/*
 * Returns the last sum of the topmost level whose mass begins at or before r < total. Rising points
 * usually hit `near`, the last one found, or the one behind it: well-predicted branches. Other
 * points take six steps without branches.
 */
static inline uint32_t sumtree_tops_find(const struct sumtree_tops *tops, uint64_t r, uint32_t near)
{
	uint32_t k = 0;

	if (tops->prefix[near] <= r) {
		if (r < tops->prefix[near + 1])
			return near;
		if (near + 2 <= TOPS_MOST && r < tops->prefix[near + 2])
			return near + 1;
	}
	for (uint32_t step = TOPS_MOST / 2; step > 0; step /= 2)
		k += tops->prefix[k + step] <= r ? step : 0;
	return k;
}

#endif
