/*
 * extents.c - checks and searches of the extent table.
 */
#include "transport/pool/extents.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "base/bits.h"
#include "base/crc32c.h"

/* -------- table -------- */

static uint32_t extents_checksum(const struct extent_table *table)
{
	return crc32c(crc32c(0, table, offsetof(struct extent_table, crc)), table->entries,
		      table->n * sizeof(table->entries[0]));
}

void extents_make_table(struct extent_table *table, uint64_t extents)
{
	memset(table, 0, sizeof(*table));
	table->magic = POOL_TABLE_MAGIC;
	table->seq = 1;
	table->extents = extents;
}

void extents_seal(struct extent_table *table)
{
	table->crc = extents_checksum(table);
}

/*
 * Checks the fields of entry i, and that it overlaps no entry before it and is no second live one
 * of its region. -EBADMSG.
 */
static int check_entry(const struct extent_table *table, uint32_t i)
{
	const struct extent_entry *entry = &table->entries[i], *other = table->entries;

	if (entry->state == EXTENT_FREE)
		return bits_all_zero(entry, sizeof(*entry))
			       ? 0
			       : error_set(-EBADMSG,
					   "extent table: an entry marked free is in use");
	if (entry->state > EXTENT_QUARANTINE || entry->region == 0 ||
	    entry->region > RPTR_MAX_REGION || entry->extents == 0 || entry->first == 0 ||
	    entry->first >= table->extents || entry->extents > table->extents - entry->first)
		return error_set(-EBADMSG, "extent table: the entry of region %u is damaged",
				 entry->region);
	for (; other < entry; other++) {
		if (other->state == EXTENT_FREE)
			continue;
		if (entry->first < other->first + other->extents &&
		    other->first < entry->first + entry->extents)
			return error_set(-EBADMSG, "extent table: regions %u and %u overlap",
					 entry->region, other->region);
		if (entry->region == other->region && entry->state == EXTENT_LIVE &&
		    other->state == EXTENT_LIVE)
			return error_set(-EBADMSG, "extent table: region %u has two entries",
					 entry->region);
	}
	return 0;
}

int extents_check_table(const struct extent_table *table, uint64_t file_extents)
{
	int ret = 0;

	if (table->magic != POOL_TABLE_MAGIC || table->n > POOL_TABLE_ENTRIES)
		return error_set(-EBADMSG, "extent table is damaged");
	if (table->crc != extents_checksum(table))
		return error_set(-EBADMSG, "extent table is damaged: crc32c is wrong");
	if (table->extents == 0 || table->extents > file_extents)
		return error_set(-EPROTO, "pool has %llu extents, its file only %llu",
				 (unsigned long long)table->extents,
				 (unsigned long long)file_extents);
	if (table->last_region > RPTR_MAX_REGION)
		return error_set(-EBADMSG,
				 "extent table: the number %u of its last region is not possible",
				 table->last_region);
	for (uint32_t i = 0; ret == 0 && i < table->n; i++)
		ret = check_entry(table, i);
	return ret;
}

int extents_choose(const struct extent_table *copies[2], uint64_t file_extents)
{
	int broken0 = extents_check_table(copies[0], file_extents);
	int broken1 = extents_check_table(copies[1], file_extents);

	if (broken0 && broken1)
		return error_prefix(broken1, "both copies are damaged: ");
	if (broken0 || broken1)
		return broken0 ? 1 : 0;
	return copies[1]->seq > copies[0]->seq;
}

/* -------- searches -------- */

uint64_t extents_find_run(const struct extent_table *table, uint64_t count, uint64_t *longest_out)
{
	uint64_t at = 1, longest = 0;

	while (at < table->extents) {
		uint64_t end = table->extents, next = end;

		/* The used run with the lowest first extent that ends behind at. */
		for (uint32_t i = 0; i < table->n; i++) {
			const struct extent_entry *entry = &table->entries[i];

			if (entry->state == EXTENT_FREE || entry->first + entry->extents <= at ||
			    entry->first >= end)
				continue;
			end = entry->first;
			next = entry->first + entry->extents;
		}
		if (end - at >= count)
			return at;
		longest = max_u64(longest, end - at);
		at = next;
	}
	*longest_out = longest;
	return 0;
}

struct extent_entry *extents_take_entry(struct extent_table *table)
{
	for (uint32_t i = 0; i < table->n; i++) {
		if (table->entries[i].state == EXTENT_FREE)
			return &table->entries[i];
	}
	return table->n < POOL_TABLE_ENTRIES ? &table->entries[table->n++] : NULL;
}

uint64_t extents_used(const struct extent_table *table)
{
	uint64_t used = 0;

	for (uint32_t i = 0; i < table->n; i++)
		used += table->entries[i].extents; /* 0 in a free one */
	return used;
}
