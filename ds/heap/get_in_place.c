#include "ds/heap/find.h"

#include "transport/barrier.h"

#include "base/bits.h"

#include <errno.h>
#include <string.h>

enum place { PLACE_DONE, PLACE_TORN, PLACE_OTHER };

static const struct heap_head *head_at(const struct heap_access *acc, uint32_t bucket)
{
	const struct heap *heap = acc->heap;

	return (const void *)(heap->tree->base + heap_head_off(heap, bucket));
}

static const struct heap_head *first_head(const struct heap_access *acc,
					  const struct chain_key *key)
{
	return head_at(acc, chain_place(key->hash, acc->heap->desc.buckets));
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

static void prefetch_lines(const struct heap_access *acc, uint64_t off, uint64_t lines)
{
	const uint8_t *from = acc->heap->rows->base + off;

	for (uint64_t i = 0; i < lines; i++)
		__builtin_prefetch(from + i * WIRE_LINE, 0, 3);
}

/* Lines that the guess has for the key. */
static uint64_t guess_lines(uint64_t guess, const struct chain_key *key)
{
	return head_tag(guess) == chain_head_tag(key) ? head_version(guess) : 0;
}

void heap_prefetch(const struct heap_access *acc, const struct chain_key *key, uint32_t lines)
{
	uint64_t guess;

	if (!acc->in_place)
		return;
	__builtin_prefetch(first_head(acc, key), 0, 3);
	if (!lines)
		return;
	guess = *heap_guess_of(acc, key);
	prefetch_lines(acc, head_off(guess), min_u64(lines, guess_lines(guess, key)));
}

/* The entry that the head names. */
static void prefetch_entry(const struct heap_access *acc, const struct heap_head *head,
			   uint64_t word)
{
	uint64_t bytes = sizeof(struct heap_entry) + HEAP_KEY_MAX / 4 + cell_word(head, 2);
	uint64_t room = heap_entry_room(acc, word, min_u64(bytes, HEAP_PREFETCH_LINES * WIRE_LINE));

	prefetch_lines(acc, head_off(word), div_up(room, WIRE_LINE));
}

void heap_prefetch_entry(const struct heap_access *acc, const struct chain_key *key)
{
	const struct heap_head *head;
	uint64_t guess, word;

	if (!acc->in_place)
		return;
	guess = *heap_guess_of(acc, key);
	if (guess_lines(guess, key)) {
		prefetch_lines(acc, head_off(guess), guess_lines(guess, key));
		return;
	}
	head = first_head(acc, key);
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
	uint8_t own[HEAP_KEY_MAX], *to = room->ptr;
	struct heap_entry entry;
	uint32_t crc;

	if (!most)
		return PLACE_TORN;
	transport_copy_racy(&entry, from, sizeof(entry));
	if (!chain_header_check(&entry, at))
		return PLACE_TORN;
	if (entry.hash != key->hash || entry.key_len != key->len)
		return PLACE_OTHER;
	if (sizeof(entry) + key->len + entry.len > most)
		return PLACE_TORN;
	transport_copy_racy_bytes(own, from + sizeof(entry), key->len);
	if (memcmp(own, key->ptr, key->len) != 0)
		return PLACE_OTHER;
	if (!to || entry.len > room->bytes) {
		if (!heap_access_make_room(acc, entry.len))
			return PLACE_TORN;
		to = acc->stage;
	}
	crc = transport_copy_racy_crc(chain_key_crc(&entry, own), to,
				      from + sizeof(entry) + key->len, entry.len);
	*out = (struct heap_value){
		.ptr = to,
		.len = entry.len,
		.version = entry.version,
		.large = entry.flags & ENTRY_MANIFEST ? entry.epoch : 0,
	};
	return crc == entry.crc ? PLACE_DONE : PLACE_TORN;
}

int heap_get_in_place(struct heap_access *acc, const struct chain_key *key,
		      const struct heap_room *room, struct heap_value *out)
{
	uint32_t first = chain_place(key->hash, acc->heap->desc.buckets);
	struct heap_found found;
	struct heap_head copy;

	for (uint32_t i = 0; i < HEAP_PROBES; i++) {
		const struct heap_head *head = head_at(acc, first + i);
		/* H4 pairs with H1: the head word, then the entry that it names. */
		uint64_t word = rword64_load_acquire(&head->word);
		enum place place;
		bool guessed;

		if (!word)
			break;
		if (head_tag(word) != chain_head_tag(key)) {
			if (word == HEAD_MOVED)
				return heap_away(acc);
			continue;
		}
		if (cell_has_value(head)) {
			copy.word.raw = word;
			transport_copy_racy(&copy.cell, &head->cell, sizeof(copy.cell));
			heap_found_set(&found, first + i, &copy, key);
			if (found.has_cell && found.cell.len <= HEAP_INLINE_MAX)
				return heap_value_of_cell(acc, key, &found, out);
		}
		guessed = head_off(*heap_guess_of(acc, key)) == head_off(word);
		if (!guessed)
			prefetch_entry(acc, head, word);
		place = place_read(acc, (struct chain_at){ word, first + i }, key, room, out);
		if (place == PLACE_DONE && !guessed)
			heap_guess_set(acc, key, word, out->len);
		if (place == PLACE_DONE)
			return heap_value_found(out, word);
		/* Another key's, unless it was replaced while we read it. */
		if (place == PLACE_TORN || transport_read_validate(&head->word) != word)
			return heap_torn(acc, first + i);
	}
	return error_set(-ENOENT, "no such key");
}
