/*
 * place.h - private to ds/sumtree/: both ends of a draw. Maps points of the total mass,
 * stratified or not, to nodes of the tops (ds/sumtree/tops.h), and leaves to results.
 */
#ifndef RLV_DS_SUMTREE_PLACE_H
#define RLV_DS_SUMTREE_PLACE_H

#include "ds/sumtree/sumtree.h"
#include "ds/sumtree/descent.h"
#include "ds/sumtree/tops.h"

#define DRAW_RESTARTS 64 /* restarts of one draw before -ENODATA */

/* Strata: where each begins, as a fraction of 2^64, and its width. */
struct strata {
	uint64_t n;     /* 0 = independent draws */
	uint64_t width; /* 2^64 / n */
	uint64_t rest;  /* 2^64 mod n */
	uint64_t rank, step;
};

struct strata strata_make(const struct draw_opts *opts, size_t n);

/*
 * Begins draws first .. first + n - 1 of the strata, n <= DRAW_CHUNK: each lane names a sum of the
 * topmost private level. The caller has set from, rng and kernel of down, and
 * sumtree_tops_begin_draw found mass.
 */
void sumtree_place(struct sumtree_descent *down, const struct sumtree_tops *tops,
		   const struct strata *strata, size_t first, uint32_t n);

/*
 * Writes the results of all draws of down from index `to` on; sumtree_emit_one: of draw i, at index
 * `to`. Those of lost draws are meaningless.
 */
void sumtree_emit(const struct sumtree_descent *down, const struct draws *out, size_t to);
void sumtree_emit_one(const struct sumtree_descent *down, uint32_t i, const struct draws *out,
		      size_t to);

#endif
