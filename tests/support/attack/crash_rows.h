/*
 * crash_rows.h - a table in which a sampler can check every byte without knowing what was appended.
 * Step n of writer w follows from (w, n) alone; episodes have CRASH_EPISODE steps; each row holds a
 * checksum over its columns and each observation one of its own, so that torn rows, rows of another
 * lap and foreign rows in a window are detected.
 */
#ifndef RLV_TESTS_SUPPORT_ATTACK_CRASH_ROWS_H
#define RLV_TESTS_SUPPORT_ATTACK_CRASH_ROWS_H

#include <stddef.h>
#include <stdint.h>

#include "relive/relive.h"

#define CRASH_EPISODE 50u /* a writer begins at a multiple of it */
#define CRASH_OBS 12u     /* words of an observation */
#define CRASH_COLUMNS 5u
#define CRASH_ROWS 256u /* most steps of one fill */
#define CRASH_STACK 2u
#define CRASH_STEPS 3u /* n-step */
#define CRASH_FUTURE CRASH_STEPS
#define CRASH_WHY 160

enum crash_view { CRASH_PRIORITIZED = 0, CRASH_UNIFORM = 1, CRASH_VIEWS = 2 };

extern const struct rlv_column crash_columns[CRASH_COLUMNS];
extern const struct rlv_view crash_views[CRASH_VIEWS]; /* alpha 1: priorities as given */

/* Of a table with those columns and views. */
struct rlv_table_opts crash_table_opts(uint64_t capacity);

/* What one append takes. */
struct crash_rows {
	uint32_t obs[CRASH_ROWS][CRASH_OBS];
	uint64_t id[CRASH_ROWS];
	float reward[CRASH_ROWS];
	uint16_t action[CRASH_ROWS][3];
	uint32_t check[CRASH_ROWS];
	uint16_t flags[CRASH_ROWS];
	double td[CRASH_ROWS];
	const void *columns[CRASH_COLUMNS];
	struct rlv_steps steps;
};

/* Steps first .. first + n of the writer, with the priorities that crash_priority gives. */
void crash_rows_fill(struct crash_rows *rows, uint32_t writer, uint32_t first, uint32_t n);

/* 1.0 to 2.0 in steps of 1/64. salt: another number, another priority. */
float crash_priority(uint32_t n, uint32_t salt);

/* Step number of an item. */
static inline uint32_t crash_step_of(uint64_t id)
{
	return (uint32_t)id;
}

/* The array of a batch with that name, or NULL. */
const struct rlv_array *crash_array(const struct rlv_batch *batch, const char *name);

/* Ids of the items of a batch. */
const uint64_t *crash_ids(const struct rlv_batch *batch);

/*
 * Checks every byte of a batch of a sampler with gamma 1. Returns the number of wrong items; why:
 * the first problem.
 */
uint32_t crash_batch_check(const struct rlv_batch *batch, char why[CRASH_WHY]);

#endif
