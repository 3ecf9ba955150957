#include "ds/heap/fetch.h"

#define PROBES_AHEAD 4u /* buckets of a key that are looked at */

/* Where the keys' heads are, as far as this access knows. */
static void fetch_aim(const struct heap_access *acc, struct heap_fetch *fetch)
{
	for (uint32_t i = 0; i < fetch->n; i++)
		__builtin_prefetch(heap_guess_of(acc, fetch->keys[i]), 0, 3);
	for (uint32_t i = 0; i < fetch->n; i++) {
		const struct chain_key *key = fetch->keys[i];
		uint32_t distance = heap_guess_distance(*heap_guess_of(acc, key), key);

		fetch->heads[i] = heap_head_at(
			acc, chain_place(key->hash, acc->heap->desc.buckets) + distance);
	}
}

/* Finds the head and the entry of key i, whose head had that word in the bucket that was guessed. */
static void fetch_find(const struct heap_access *acc, struct heap_fetch *fetch, uint32_t i,
		       uint64_t word)
{
	const struct chain_key *key = fetch->keys[i];
	const struct heap_head *head = fetch->heads[i];
	const struct heap_head *end =
		heap_head_at(acc, chain_place(key->hash, acc->heap->desc.buckets) + HEAP_PROBES);

	if (head + PROBES_AHEAD < end)
		end = head + PROBES_AHEAD;
	while (word && head_tag(word) != chain_head_tag(key) && head + 1 < end)
		word = rword64_load_relaxed(&(++head)->word);
	fetch->heads[i] = head;
	fetch->entries[i] = (const void *)head;
	fetch->lines[i] = 0;
	if (word && !heap_cell_has_value(head))
		fetch->lines[i] = (uint32_t)heap_entry_lines(acc, head, word);
	if (fetch->lines[i])
		fetch->entries[i] = acc->heap->rows->base + head_off(word);
}

void heap_fetch_begin(const struct heap_access *acc, struct heap_fetch *fetch)
{
	uint64_t words[HEAP_MANY];
	uint32_t n = fetch->n;

	fetch_aim(acc, fetch);
	for (uint32_t i = 0; i < n; i++)
		words[i] = rword64_load_relaxed(&fetch->heads[i]->word);
	for (uint32_t i = 0; i < n; i++)
		fetch_find(acc, fetch, i, words[i]);
	for (uint32_t i = 0; i < n; i++) {
		uint64_t word = rword64_load_relaxed((const void *)fetch->entries[i]);

		__asm__ volatile("" : : "r"(word)); /* it is loaded, though nobody uses it */
	}
}

void heap_fetch_ahead(const struct heap_fetch *fetch, uint32_t i)
{
	if (i >= fetch->n)
		return;
	heap_fetch_lines((const uint8_t *)fetch->heads[i], fetch->lines[i] ? 1 : 2);
	heap_fetch_lines(fetch->entries[i], fetch->lines[i]);
}
