#include "ds/heap/find.h"

#include "transport/barrier.h"

#include "base/bits.h"

#include <errno.h>
#include <string.h>

enum place { PLACE_DONE, PLACE_TORN, PLACE_OTHER };
enum bucket { BUCKET_FREE = 1, BUCKET_OTHER };

static const struct heap_head *head_at(const struct heap_access *acc, uint32_t bucket)
{
	const struct heap *heap = acc->heap;

	return (const void *)(heap->tree->base + heap_head_off(heap, bucket));
}

/* Where the key's head is, as far as this access knows. */
static const struct heap_head *guessed_head(const struct heap_access *acc,
					    const struct chain_key *key, uint64_t guess)
{
	return head_at(acc, chain_place(key->hash, acc->heap->desc.buckets) +
				    heap_guess_distance(guess, key));
}

/* Word i of the cell: 1 = lengths, tag and checksum, 2 = the first of the value. */
static uint64_t cell_word(const struct heap_head *head, uint32_t i)
{
	const struct rword64 *words = (const void *)&head->cell;

	return rword64_load_relaxed(&words[i]);
}

static bool cell_has_value(const struct heap_head *head)
{
	return (cell_word(head, 1) & UINT16_MAX) <= HEAP_INLINE_MAX;
}

/* Fetches lines of the rows region into the L1 cache, or, of a later key, into L2: a core waits for few lines on
   behalf of L1. */
static inline void prefetch_lines(const struct heap_access *acc, uint64_t off, uint64_t lines,
				  bool later)
{
	const uint8_t *from = acc->heap->rows->base + off;

#pragma GCC unroll 4
	for (uint64_t i = 0; i < lines; i++)
		if (later)
			__builtin_prefetch(from + i * WIRE_LINE, 0, 2);
		else
			__builtin_prefetch(from + i * WIRE_LINE, 0, 3);
}

void heap_prefetch(const struct heap_access *acc, const struct chain_key *key, uint32_t lines)
{
	const struct heap_head *first;
	uint64_t guess;
	uint32_t distance;

	if (!acc->in_place)
		return;
	/* Most keys are in their first bucket: it does not wait for the guess. */
	first = head_at(acc, chain_place(key->hash, acc->heap->desc.buckets));
	__builtin_prefetch(first, 0, 3);
	guess = *heap_guess_of(acc, key);
	distance = heap_guess_distance(guess, key);
	if (distance)
		__builtin_prefetch(first + distance, 0, 3);
	if (!lines) /* a put reads the cell, too */
		__builtin_prefetch((const uint8_t *)(first + distance) + WIRE_LINE, 0, 3);
	prefetch_lines(acc, head_off(guess), min_u64(lines, heap_guess_lines(guess, key)), false);
}

/* The entry that the head names. */
static void prefetch_entry(const struct heap_access *acc, const struct heap_head *head,
			   uint64_t word)
{
	uint64_t bytes = sizeof(struct heap_entry) + HEAP_KEY_MAX / 4 + cell_word(head, 2);
	uint64_t room = heap_entry_room(acc, word, min_u64(bytes, HEAP_PREFETCH_LINES * WIRE_LINE));

	prefetch_lines(acc, head_off(word), div_up(room, WIRE_LINE), false);
}

void heap_prefetch_entry(const struct heap_access *acc, const struct chain_key *key)
{
	const struct heap_head *head;
	uint64_t guess, word;

	if (!acc->in_place)
		return;
	guess = *heap_guess_of(acc, key);
	if (heap_guess_lines(guess, key)) {
		prefetch_lines(acc, head_off(guess), heap_guess_lines(guess, key), true);
		return;
	}
	head = guessed_head(acc, key, guess);
	word = rword64_load_relaxed(&head->word);
	if (word && !cell_has_value(head))
		prefetch_entry(acc, head, word);
	else
		__builtin_prefetch((const uint8_t *)head + WIRE_LINE, 0, 3);
}

/* Copies and checks the entry; the value goes to the caller's memory or to the stage. */
static enum place place_read(struct heap_access *acc, struct chain_at at,
			     const struct chain_key *key, const struct heap_room *room,
			     struct heap_value *out)
{
	uint64_t most = heap_entry_room(acc, at.word, UINT64_MAX);
	const uint8_t *from = acc->heap->rows->base + head_off(at.word);
	uint8_t *to = room->ptr;
	uint64_t begin = sizeof(struct heap_entry) + key->len;
	struct heap_entry entry;
	uint32_t crc;

	if (!most)
		return PLACE_TORN;
	transport_copy_racy(&entry, from, sizeof(entry));
	if (!chain_header_check(&entry, at))
		return PLACE_TORN;
	if (entry.hash != key->hash || entry.key_len != key->len)
		return PLACE_OTHER;
	if (begin + entry.len > most)
		return PLACE_TORN;
	if (!transport_equals_racy(from + sizeof(entry), key->ptr, key->len))
		return PLACE_OTHER;
	if (!to || entry.len > room->bytes) {
		if (!heap_access_make_room(acc, entry.len))
			return PLACE_TORN;
		to = acc->stage;
	}
	/* Of the caller's key, which is equal: its bytes are not as new as a copy's would be. */
	crc = transport_copy_racy_crc(chain_key_crc(&entry, key->ptr), to, from + begin, entry.len);
	*out = (struct heap_value){
		.ptr = to,
		.len = entry.len,
		.version = entry.version,
		.large = entry.flags & ENTRY_MANIFEST ? entry.epoch : 0,
	};
	return crc == entry.crc ? PLACE_DONE : PLACE_TORN;
}

/* Gets the key from one bucket: as heap_get_in_place, or enum bucket, if it is not there. */
static int bucket_get(struct heap_access *acc, uint32_t bucket, const struct chain_key *key,
		      const struct heap_room *room, struct heap_value *out)
{
	const struct heap_head *head = head_at(acc, bucket);
	/* H4 pairs with H1: the head word, then the entry that it names. */
	uint64_t word = rword64_load_acquire(&head->word);
	const struct chain_at at = { word, bucket };
	struct heap_found found;
	struct heap_head copy;
	enum place place;
	bool guessed;

	if (!word)
		return BUCKET_FREE;
	if (head_tag(word) != chain_head_tag(key))
		return word == HEAD_MOVED ? heap_away(acc) : (int)BUCKET_OTHER;
	if (cell_has_value(head)) {
		copy.word.raw = word;
		transport_copy_racy(&copy.cell, &head->cell, sizeof(copy.cell));
		heap_found_set(&found, bucket, &copy, key);
		if (found.has_cell && found.cell.len <= HEAP_INLINE_MAX)
			return heap_value_of_cell(acc, key, &found, out);
	}
	guessed = head_off(*heap_guess_of(acc, key)) == head_off(word);
	if (!guessed)
		prefetch_entry(acc, head, word);
	place = place_read(acc, at, key, room, out);
	if (place == PLACE_DONE && !guessed)
		heap_guess_set(acc, key, at, out->len);
	if (place == PLACE_DONE)
		return heap_value_found(out, word);
	/* Another key's, unless it was replaced while we read it. */
	if (place == PLACE_TORN || transport_read_validate(&head->word) != word)
		return heap_torn(acc, bucket);
	return BUCKET_OTHER;
}

int heap_get_in_place(struct heap_access *acc, const struct chain_key *key,
		      const struct heap_room *room, struct heap_value *out)
{
	uint32_t first = chain_place(key->hash, acc->heap->desc.buckets);
	uint32_t distance = heap_guess_distance(*heap_guess_of(acc, key), key);
	int ret = BUCKET_OTHER;

	if (distance)
		ret = bucket_get(acc, first + distance, key, room, out);
	if (ret == BUCKET_FREE) /* of an old guess: it says nothing about the others */
		ret = BUCKET_OTHER;
	for (uint32_t i = 0; ret == BUCKET_OTHER && i < HEAP_PROBES; i++)
		ret = bucket_get(acc, first + i, key, room, out);
	return ret > 0 ? error_set(-ENOENT, "no such key") : ret;
}
