/*
 * steps.h - draws as steps whose reads the caller executes: all draws of a step share one phase,
 * over any mix of transports, and the caller may do other work between two steps.
 *
 *   begin --> next: reads --- the caller runs them ---> next: reads --> ... --> next: none, done
 *
 *   1. the tops, sizes and epochs of all trees; again those whose epoch names another array
 *   2. one level for all draws; neighbours with the same node share its read
 *   3. lost draws: from 1 on, over all trees, all together
 *
 * Draw semantics: sumtree_draw in ds/sumtree/sumtree.h. Thread: owner.
 */
#ifndef RLV_DS_SUMTREE_STEPS_H
#define RLV_DS_SUMTREE_STEPS_H

#include "ds/sumtree/sumtree.h"

struct sumtree_steps;

/* Allocates an empty struct sumtree_steps, to begin draws with. -ENOMEM. */
RLV_MUST_CHECK int sumtree_steps_open(struct sumtree_steps **steps_out);
/* Frees the steps; no reads are outstanding. NULL is a no-op. */
void sumtree_steps_close(struct sumtree_steps **steps);

/* One draw, as for sumtree_draw. All but opts is borrowed until the end. */
struct steps_task {
	const struct forest *from; /* trees of one shape */
	const struct draw_opts *opts;
	struct rng *rng;
	size_t n; /* > 0 */
	struct draws out;
};

/*
 * Begins a draw and drops an unfinished one. -ENOMEM. Allocates only if n, or the forest, is
 * larger than ever before.
 */
RLV_MUST_CHECK int sumtree_steps_begin(struct sumtree_steps *steps, const struct steps_task *task);

/*
 * Consumes the results of the last reads and returns the next reads, into memory of the steps that
 * devices know: valid until the next call. *n_out 0: all is drawn. Errors: -ENODATA (a draw found
 * no item after a bounded number of restarts), -ENOMEM.
 */
RLV_MUST_CHECK int sumtree_steps_next(struct sumtree_steps *steps,
				      const struct transport_io **io_out, size_t *n_out);

#endif
