/*
 * codec.h - deltas alone, without a store: a publisher's array changes in places that are drawn at random,
 * twice; each time it is diffed. Then a reader that lacks both deltas applies them.
 */
#ifndef RLV_BENCH_WEIGHTS_CODEC_H
#define RLV_BENCH_WEIGHTS_CODEC_H

#include <stdint.h>

#include "ds/weights/delta.h"

#include "base/mem/alloc.h"
#include "base/rng.h"
#include "bench/harness/series.h"

enum codec_role { CODEC_MEMCPY, CODEC_SUM, CODEC_DIFF, CODEC_APPLY, CODEC_ROLES };
extern const char *const codec_role_names[CODEC_ROLES];

struct codec {
	struct delta_array array;
	uint64_t bytes;
	double density;
	struct rng rng;
	struct pages now, shadow, reader, deltas[2];
	struct delta_copy published, read;
	struct series gbps[CODEC_ROLES]; /* bytes of the array, once, in the time of the role */
	struct series of_memcpy[CODEC_ROLES]; /* the same, divided by that of memcpy in the window */
	struct series wire_ratio;             /* bytes of the array by those of a delta */
};

/* element_bytes as in struct delta_array; density: part of the elements that changes, up to 1. */
int codec_open(struct codec *c, uint64_t bytes, uint32_t element_bytes, double density,
	       uint64_t seed) RLV_MUST_CHECK;
/* All roles once. */
int codec_window(struct codec *c) RLV_MUST_CHECK;
void codec_close(struct codec *c);

#endif
