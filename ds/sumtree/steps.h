/*
 * steps.h - draws as steps, whose reads the caller makes: all draws of a step share one
 * phase, whatever transports the trees are on, and between two steps the caller may do other things.
 *
 *   begin --> next: reads --- the caller has them made ---> next: reads --> ... --> next: none, done
 *
 *   1. the tops, sizes and epochs of all trees; again those whose epoch names another array
 *   2. a level for all draws; neighbours of one node share its read
 *   3. draws that were lost on the way: from 1 on, over everything, all together
 *
 * What is read is drawn from as ds/sumtree/sumtree.h says of sumtree_draw. Thread: owner.
 */
#ifndef RLV_DS_SUMTREE_STEPS_H
#define RLV_DS_SUMTREE_STEPS_H

#include "ds/sumtree/sumtree.h"

struct sumtree_steps;

/* -ENOMEM. */
RLV_MUST_CHECK int sumtree_steps_open(struct sumtree_steps **steps_out);
/* Nothing of it is under way. NULL is a no-op. */
void sumtree_steps_close(struct sumtree_steps **steps);

/* What is to be drawn, as of sumtree_draw. All but opts is borrowed until the end. */
struct steps_task {
	const struct forest *from; /* trees of one shape */
	const struct draw_opts *opts;
	struct rng *rng;
	size_t n; /* > 0 */
	struct draws out;
};

/*
 * Begins; what was begun before is forgotten. -ENOMEM. Allocates only where n, or the forest, is
 * larger than ever before.
 */
RLV_MUST_CHECK int sumtree_steps_begin(struct sumtree_steps *steps, const struct steps_task *task);

/*
 * Takes what the reads of the last step brought, and says which come next, into memory of the steps
 * that devices know: valid until the next call. *n_out 0: all is drawn. Errors: -ENODATA, -ENOMEM.
 */
RLV_MUST_CHECK int sumtree_steps_next(struct sumtree_steps *steps,
				      const struct transport_io **io_out, size_t *n_out);

#endif
