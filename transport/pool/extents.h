/*
 * extents.h - the extent table of a pool file: is it whole, which copy holds, where is room.
 *
 * Nothing here touches a file. What is read from one is untrusted: the checks come before any use.
 */
#ifndef RLV_TRANSPORT_POOL_EXTENTS_H
#define RLV_TRANSPORT_POOL_EXTENTS_H

#include "wire/pool_layout.h"

#include "base/error.h"

/* A table without regions over so many extents, seq 1, not sealed. */
void extents_make_table(struct extent_table *table, uint64_t extents);

/* Computes the crc. */
void extents_seal(struct extent_table *table);

/* -EBADMSG: it is not whole. -EPROTO: its file had more extents once: it was cut short. */
RLV_MUST_CHECK int extents_check_table(const struct extent_table *table, uint64_t file_extents);

/*
 * Which of two copies holds, 0 or 1: the newer of those that are whole, which has at least what was
 * used. -EBADMSG, -EPROTO: neither is.
 */
RLV_MUST_CHECK int extents_choose(const struct extent_table *copies[2], uint64_t file_extents);

/* The first run of count free extents; 0 if there is none, and then the longest in *longest_out. */
uint64_t extents_find_run(const struct extent_table *table, uint64_t count, uint64_t *longest_out);

/* An unused entry, NULL if all are taken. Counts it in. */
struct extent_entry *extents_take_entry(struct extent_table *table);

/* The used entry of the run that begins there, or NULL. */
struct extent_entry *extents_find(struct extent_table *table, uint64_t first);

/* Extents that are live or in quarantine. */
uint64_t extents_used(const struct extent_table *table);

#endif
