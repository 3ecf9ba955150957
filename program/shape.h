/*
 * shape.h - columns of a step, written as text.
 *
 *   obs:f32[4],action:i64,reward:f32,done:u8          shape [84,84] may be written [84x84], too
 *
 * The name of a column defines its role in sampling: reward is summed to the n-step return, obs and
 * obs_* are observations, next_* is a next observation stored by the actor; other columns are
 * returned unchanged. A name without a colon is a predefined shape: cartpole, cartpole-next, atari.
 */
#ifndef RLV_PROGRAM_SHAPE_H
#define RLV_PROGRAM_SHAPE_H

#include <stddef.h>
#include <stdint.h>

#include "relive/relive.h"

#include "base/error.h"

struct shape {
	uint32_t n_columns;
	struct rlv_column columns[RLV_MAX_COLUMNS]; /* names point into names */
	size_t bytes[RLV_MAX_COLUMNS];              /* bytes of one step */
	size_t row_bytes;                           /* bytes of all columns of one step */
	char names[RLV_MAX_COLUMNS][RLV_NAME_BYTES];
};

/*
 * Parses "obs:f32[4],action:i64" or a name, as "atari", into columns. -EINVAL: the message names
 * the error. *shape_out must not move: its columns point into it.
 */
int shape_parse(const char *text, struct shape *shape_out) RLV_MUST_CHECK;

/*
 * Adds a column; its role follows from its name. -EINVAL: name or type is bad, or there are too
 * many.
 */
int shape_add(struct shape *shape, const char *name, uint32_t dtype, uint32_t ndim,
	      const uint32_t *dims) RLV_MUST_CHECK;

/* Name of a dtype, as "f32" for RLV_F32; "?" if unknown. Static. */
const char *shape_dtype_name(uint32_t dtype);

/* The dtype that numpy writes as "<f4", "|u1" or "|b1"; 0 if unknown. */
uint32_t shape_numpy_dtype(const char *numpy);

/* Bytes of one element; 0 if dtype is unknown. */
size_t shape_dtype_bytes(uint32_t dtype);

/* Text of a column's type, as "f32[84,84]". */
#define SHAPE_TYPE_BYTES 96
const char *shape_type_text(const struct rlv_column *column, char text[SHAPE_TYPE_BYTES]);

#endif
