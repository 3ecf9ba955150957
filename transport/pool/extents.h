/*
 * extents.h - the extent table of a pool file: validation, choice of the current copy, free runs.
 *
 * Nothing here touches a file. Tables read from a file are untrusted: check them before any use.
 */
#ifndef RLV_TRANSPORT_POOL_EXTENTS_H
#define RLV_TRANSPORT_POOL_EXTENTS_H

#include "wire/pool_layout.h"

#include "base/error.h"

/* Makes a table without regions over that many extents; seq 1, not sealed. */
void extents_make_table(struct extent_table *table, uint64_t extents);

/* Computes the crc. */
void extents_seal(struct extent_table *table);

/*
 * -EBADMSG: torn or damaged. -EPROTO: the table counts more extents than the file: it was
 * truncated.
 */
RLV_MUST_CHECK int extents_check_table(const struct extent_table *table, uint64_t file_extents);

/*
 * The current copy, 0 or 1: the newer valid one, which holds every committed change. -EBADMSG,
 * -EPROTO: neither copy is valid.
 */
RLV_MUST_CHECK int extents_choose(const struct extent_table *copies[2], uint64_t file_extents);

/*
 * Returns the first extent of the lowest run of count free extents. 0: there is none; *longest_out
 * is then the length of the longest run.
 */
uint64_t extents_find_run(const struct extent_table *table, uint64_t count, uint64_t *longest_out);

/*
 * Returns a free entry of the table, for the caller to fill in: an earlier one, or a new one, which
 * table->n then counts; NULL if all are in use.
 */
struct extent_entry *extents_take_entry(struct extent_table *table);

/* Extents that are live or in quarantine. */
uint64_t extents_used(const struct extent_table *table);

#endif
