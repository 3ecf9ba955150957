/*
 * fetch.h - private to ds/heap: fetches the heads and entries of many keys into the cache, in place.
 *
 * A prefetch whose page is not in the TLB may be dropped by the CPU. So the first line of each head and of each entry is
 * loaded, in loops that do nothing else: their loads overlap, and all later accesses find the page. What was fetched is a
 * hint: a get reads the head and the entry again.
 */
#ifndef RLV_DS_HEAP_FETCH_H
#define RLV_DS_HEAP_FETCH_H

#include "ds/heap/find.h"

#include "transport/barrier.h"

#include "base/bits.h"

#define HEAP_FETCH_AHEAD 8u /* entries that are fetched into the L1 cache before they are copied */

struct heap_fetch {
	const struct chain_key *keys[HEAP_MANY];
	const struct heap_head *heads[HEAP_MANY];
	const uint8_t *entries[HEAP_MANY]; /* or the head again, if its cell has the value */
	uint32_t lines[HEAP_MANY];         /* of the entry; 0: there is none to fetch */
	uint32_t n;
};

/* Finds the heads and entries of fetch->keys, fetches the first line of each, and sets the other members. In place. */
void heap_fetch_begin(const struct heap_access *acc, struct heap_fetch *fetch);

/* Fetches the lines of key i, some keys before its get; a no-op behind the last one. */
void heap_fetch_ahead(const struct heap_fetch *fetch, uint32_t i);

/* Where a bucket's head is. */
static inline const struct heap_head *heap_head_at(const struct heap_access *acc, uint32_t bucket)
{
	const struct heap *heap = acc->heap;

	return (const void *)(heap->tree->base + heap_head_off(heap, bucket));
}

/* Word i of the cell: 1 = lengths, tag and checksum, 2 = the first of the value. */
static inline uint64_t heap_cell_word(const struct heap_head *head, uint32_t i)
{
	const struct rword64 *words = (const void *)&head->cell;

	return rword64_load_relaxed(&words[i]);
}

static inline bool heap_cell_has_value(const struct heap_head *head)
{
	return (heap_cell_word(head, 1) & UINT16_MAX) <= HEAP_INLINE_MAX;
}

/* Lines to fetch of the entry that the head names. They lie in the rows region; 0: the word cannot be an entry's. */
static inline uint64_t heap_entry_lines(const struct heap_access *acc, const struct heap_head *head,
					uint64_t word)
{
	uint64_t bytes = sizeof(struct heap_entry) + HEAP_KEY_MAX / 4 + heap_cell_word(head, 2);
	uint64_t most = HEAP_PREFETCH_LINES * WIRE_LINE;

	return div_up(heap_entry_room(acc, word, min_u64(bytes, most)), WIRE_LINE);
}

/* Fetches lines into the L1 cache. */
static inline void heap_fetch_lines(const uint8_t *from, uint64_t lines)
{
#pragma GCC unroll 4
	for (uint64_t i = 0; i < lines; i++)
		__builtin_prefetch(from + i * WIRE_LINE, 0, 3);
}

#endif
