/*
 * pattern.h - rows in which each byte is a function of the row's number, so that torn or mixed rows
 * are detected; the priority is one too, so that draws can be tested.
 *
 *   number   writer << 40 | row of the writer's stream, stored in a column `seq`
 *   episode  PATTERN_EPISODE steps, the last terminated, then the final observation
 *   class    row % PATTERN_CLASSES selects the |TD error|
 */
#ifndef RLV_BENCH_REPLAY_PATTERN_H
#define RLV_BENCH_REPLAY_PATTERN_H

#include <stddef.h>
#include <stdint.h>

#include "relive/relive.h"

#include "base/error.h"
#include "program/shape.h"

#define PATTERN_EPISODE 199
#define PATTERN_CLASSES 13

/* Adds the column `seq`, which holds the row's number. -EINVAL: it exists already, or no room. */
int pattern_shape(struct shape *shape) RLV_MUST_CHECK;

/* Number of a writer's first row. */
static inline uint64_t pattern_first(uint32_t writer)
{
	return (uint64_t)writer << 40;
}

uint16_t pattern_flags(uint64_t number);
uint32_t pattern_class(uint64_t number);
double pattern_td(uint64_t number);

/* Writes the n rows of the pattern from `number` on; out[c] has room for n rows of column c. */
void pattern_fill(const struct shape *shape, uint64_t number, uint32_t n, uint8_t *const *out);

/* A block of rows of the pattern, as a writer appends them. Zero-initialized: no memory. */
struct pattern_rows {
	uint8_t *made[RLV_MAX_COLUMNS];
	const void *columns[RLV_MAX_COLUMNS]; /* the same, for struct rlv_steps */
	uint16_t *flags;
	double *td;
};

/* Allocates room for n rows. -ENOMEM: call pattern_rows_close nevertheless. */
int pattern_rows_open(struct pattern_rows *rows, const struct shape *shape, uint32_t n)
	RLV_MUST_CHECK;
void pattern_rows_close(struct pattern_rows *rows);

/* Makes the n rows from `number` on, with flags and TD errors, and points *steps to them. */
void pattern_rows_fill(struct pattern_rows *rows, const struct shape *shape, uint64_t number,
		       uint32_t n, struct rlv_steps *steps);

/* Window options of a sampler. */
struct pattern_view {
	const struct shape *shape;
	uint32_t stack, n_step;
	double gamma;
};

/*
 * Returns the number of wrong items in the batch, with the first one in why. Adds the classes of
 * the other items to classes.
 */
#define PATTERN_WHY_BYTES 128
uint32_t pattern_check(const struct pattern_view *view, const struct rlv_batch *batch,
		       uint64_t classes[PATTERN_CLASSES], char why[PATTERN_WHY_BYTES]);

/* Writes the |TD error| of each item, for an update: a function of its row's number only; 1
   without a column `seq`. */
void pattern_update(const struct rlv_batch *batch, float *td_out);

#endif
