#include "ds/heap/fetch.h"

#include "transport/barrier.h"

#include "base/bits.h"

#include <errno.h>
#include <string.h>

enum place { PLACE_DONE, PLACE_TORN, PLACE_OTHER };
enum bucket { BUCKET_FREE = 1, BUCKET_OTHER };

void heap_prefetch(const struct heap_access *acc, const struct chain_key *key, uint32_t lines)
{
	const struct heap_head *first;
	uint64_t guess;
	uint32_t distance;

	if (!acc->in_place)
		return;
	/* Most keys are in their first bucket: it does not wait for the guess. */
	first = heap_head_at(acc, chain_place(key->hash, acc->heap->desc.buckets));
	__builtin_prefetch(first, 0, 3);
	guess = *heap_guess_of(acc, key);
	distance = heap_guess_distance(guess, key);
	if (distance)
		__builtin_prefetch(first + distance, 0, 3);
	if (!lines) /* a put reads the cell, too */
		__builtin_prefetch((const uint8_t *)(first + distance) + WIRE_LINE, 0, 3);
	heap_fetch_lines(acc->heap->rows->base + head_off(guess),
			 min_u64(lines, heap_guess_lines(guess, key)));
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
		.striped = (entry.flags & ENTRY_STRIPED) != 0,
	};
	return crc == entry.crc ? PLACE_DONE : PLACE_TORN;
}

/* Gets the key from one bucket: as heap_get_in_place, or enum bucket, if it is not there. */
static int bucket_get(struct heap_access *acc, uint32_t bucket, const struct chain_key *key,
		      const struct heap_room *room, struct heap_value *out)
{
	const struct heap_head *head = heap_head_at(acc, bucket);
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
	if (heap_cell_has_value(head)) {
		copy.word.raw = word;
		transport_copy_racy(&copy.cell, &head->cell, sizeof(copy.cell));
		heap_found_set(&found, bucket, &copy, key);
		if (found.has_cell && found.cell.len <= HEAP_INLINE_MAX)
			return heap_value_of_cell(acc, key, &found, out);
	}
	guessed = head_off(*heap_guess_of(acc, key)) == head_off(word);
	if (!guessed && !acc->fetched)
		heap_fetch_lines(acc->heap->rows->base + head_off(word),
				 heap_entry_lines(acc, head, word));
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
