/*
 * Deltas between versions of an array, and the sum that says that a copy is right; the format is in
 * wire/delta_layout.h. Pure functions over memory.
 *
 *   publisher   delta_density, delta_diff: finds what changed, brings its copy up to date
 *   reader      delta_apply: writes the changed elements into its copy, and checks the result
 *
 * The sum depends on values and places, so it finds a wrong base, a delta that was left out, and noise
 * in the copy or the delta. It does not withstand an attacker. Arrays of a whole have keys of their own;
 * their sums add up.
 *
 * Cost: a diff reads both arrays once and writes the 64-byte lines that differ; an apply touches the
 * changed elements only. Thread: owner of the arrays, for all.
 */
#ifndef RLV_DS_WEIGHTS_DELTA_H
#define RLV_DS_WEIGHTS_DELTA_H

#include "wire/delta_layout.h"

#include "base/error.h"

#define DELTA_SPARE 8256u /* bytes of room that a delta may leave unused */
#define DELTA_CHAIN 16u   /* deltas that are applied at once */

/* Side by side, at any address. */
struct delta_array {
	uint64_t elements;
	uint32_t element_bytes; /* 1, 2, 4 or 8 */
	uint64_t key;           /* of its sum */
};

/* A copy of an array, and its sum. */
struct delta_copy {
	void *bytes;
	uint64_t sum;
};

struct delta_out {
	void *at; /* at a multiple of 8 bytes */
	uint64_t room;
	uint64_t bytes; /* set by delta_diff, as is changed */
	uint64_t changed;
};

struct delta_in {
	const void *at; /* at a multiple of 8 bytes */
	uint64_t bytes;
};

/*
 * The sum's part of n bytes from offset `at` on, which is a multiple of DELTA_RUN; n may be one only before
 * the end. The parts add up to the sum of the array.
 */
uint64_t delta_sum(const struct delta_array *array, uint64_t at, const void *bytes, uint64_t n);

/* Room that suffices for a delta with that many changed elements. */
uint64_t delta_room(const struct delta_array *array, uint64_t changed);

/*
 * The part of elements that differ, 0 to 1: of all if the array has up to 4 MiB, else of 1024 runs
 * that are spread over it.
 */
double delta_density(const struct delta_array *array, const void *old, const void *now);

/*
 * Writes the delta from the copy to `now`, which must not change meanwhile, and copies what
 * differs: then the copy is equal to `now`, and so is its sum. -ENOSPC: the delta needs more room than
 * out->room, and there is none; the copy is nevertheless up to date. -EINVAL: element_bytes, or `at`.
 */
RLV_MUST_CHECK int delta_diff(const struct delta_array *array, struct delta_copy *copy,
			      const void *now, struct delta_out *out);

/*
 * Applies n deltas, each to the result of the one before, in one pass over the copy. They may be any bytes,
 * and may change meanwhile. -ESTALE: one is to another base than the sum of the copy, or of the delta before;
 * nothing was done. -EBADMSG: one is no delta of such an array, or the result has not its sum: what the copy
 * holds is not known. -EINVAL: as delta_diff, and n above DELTA_CHAIN.
 */
RLV_MUST_CHECK int delta_apply_chain(const struct delta_array *array, struct delta_copy *copy,
				     const struct delta_in *deltas, uint32_t n);

/* The same with one delta, of n bytes. */
RLV_MUST_CHECK int delta_apply(const struct delta_array *array, struct delta_copy *copy,
			       const void *delta, uint64_t n);

#endif
