/*
 * Table: the generations that weights keep, and how a reader gets to one of them
 * (wire/weights_layout.h). Nothing here leaves this process. A table that was read is untrusted until
 * weights_table_check has passed it.
 *
 * Thread: any, for all.
 */
#ifndef RLV_DS_WEIGHTS_TABLE_H
#define RLV_DS_WEIGHTS_TABLE_H

#include "wire/weights_layout.h"

#include "base/error.h"

#include <stdbool.h>

static inline size_t weights_table_bytes(uint32_t n)
{
	return WEIGHTS_TABLE_HEAD + n * sizeof(struct weights_gen);
}

/* -EBADMSG: the bytes are no table; else *out is one. */
RLV_MUST_CHECK int weights_table_check(const void *bytes, uint64_t n, struct weights_table *out);

/*
 * Adds a generation in front, and drops those at the end that need not stay: `keep` stay, and what
 * they build on. *n_dropped_out: how many, which the table had at its end.
 */
void weights_table_add(struct weights_table *table, const struct weights_gen *gen,
		       uint32_t *n_dropped_out);

/* The first entry of the owner from `index` on that the table does not name. */
uint16_t weights_table_free(const struct weights_table *table, uint32_t owner, uint16_t index);

/* True if the table names entry `index` of the owner. */
bool weights_table_names(const struct weights_table *table, uint32_t owner, uint32_t index);

/* Bytes of the deltas since the newest anchor; *n_out: their number. Of a table with generations. */
uint64_t weights_table_deltas(const struct weights_table *table, uint32_t *n_out);

/* How a generation is made: the anchor at index `begin`, unless deltas alone lead there, and then the deltas of
   all generations up to it. */
struct weights_way {
	uint32_t begin;
	bool anchor;
	uint64_t bytes; /* of all its entries */
};

/* The way with the fewest bytes to generation `target` from a payload of sequence `seq`, which is below
   that; 0 = there is none. */
struct weights_way weights_table_way(const struct weights_table *table, uint32_t target,
				     uint64_t seq);

#endif
