/*
 * kept.h - contents of a table that a persist must keep: a table of crash_rows whose items get a
 * second priority, and the check of the items that are left afterwards.
 */
#ifndef RLV_TESTS_SUPPORT_ATTACK_KEPT_H
#define RLV_TESTS_SUPPORT_ATTACK_KEPT_H

#include <stdbool.h>
#include <stdint.h>

#include "relive/relive.h"

#define KEPT_STEPS 600u /* covered by the persist */
#define KEPT_MORE 300u  /* appended after it, at most */

int kept_create(struct rlv_store *store, struct rlv_table **table_out);

/* Steps [from, to) of one writer, in hundreds. */
int kept_append(struct rlv_writer *writer, uint32_t from, uint32_t to);

/* Gives every item its second priority. */
int kept_reprioritise(struct rlv_table *table);

struct kept {
	bool step[KEPT_STEPS + KEPT_MORE];
	uint32_t items;            /* below KEPT_STEPS */
	uint32_t missing;          /* items of steps below KEPT_STEPS that are missing */
	uint32_t wrong_bytes;      /* of any item */
	uint32_t wrong_priorities; /* below KEPT_STEPS */
};

/* Draws every item. */
int kept_look(struct rlv_table *table, struct kept *kept_out);

#endif
