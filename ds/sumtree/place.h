/*
 * place.h - private to ds/sumtree*.c: both ends of a draw. Points of the whole mass,
 * stratified or not, become nodes of the tops (sumtree_tops.h); leaves become results.
 */
#ifndef RLV_DS_SUMTREE_PLACE_H
#define RLV_DS_SUMTREE_PLACE_H

#include "ds/sumtree/sumtree.h"
#include "ds/sumtree/descent.h"
#include "ds/sumtree/tops.h"

#define DRAW_RESTARTS 64 /* of one draw, before there is nothing to draw */

/* Strata: where each begins, as a fraction of 2^64, and how wide they are. */
struct strata {
	uint64_t n;     /* 0 = independent draws */
	uint64_t width; /* 2^64 / n */
	uint64_t rest;  /* 2^64 mod n */
	uint64_t rank, step;
};

struct strata strata_make(const struct draw_opts *opts, size_t n);

/*
 * Begins draws first .. first + n - 1 of the strata, n <= DRAW_CHUNK: of down, from and rng are set.
 * There is mass. Errors: those of sumtree_tops_load.
 */
RLV_MUST_CHECK int sumtree_place(struct sumtree_descent *down, struct sumtree_tops *tops,
				 const struct strata *strata, size_t first, uint32_t n);

/* Draws of the descent that are at their leaves: all of them, or one, as results from `to` on. */
void sumtree_emit(const struct sumtree_descent *down, const struct draws *out, size_t to);
void sumtree_emit_one(const struct sumtree_descent *down, uint32_t i, const struct draws *out,
		      size_t to);

#endif
