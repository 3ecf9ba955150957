#include "ds/heap/find.h"

#include "base/bits.h"
#include "base/crc32c.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

uint64_t heap_entry_room(const struct heap_access *acc, uint64_t word, uint64_t wish)
{
	const struct heap_desc *desc = &acc->heap->desc;
	uint64_t off = head_off(word);

	if (!heap_holds(desc, off, sizeof(struct heap_entry)))
		return 0;
	return min_u64(wish, heap_extent_rest(desc, off));
}

/* H4 pairs with H1: the head word was read before. */
int heap_read_entry(struct heap_access *acc, struct chain_at at, const struct chain_key *key,
		    uint64_t guess, bool whole)
{
	uint64_t wish = max_u64(guess, sizeof(struct heap_entry) + HEAP_KEY_MAX), room;
	enum chain_found found = CHAIN_SHORT;
	struct heap_entry entry;
	int ret;

	for (uint32_t i = 0; i < 2 && found == CHAIN_SHORT; i++) {
		room = heap_entry_room(acc, at.word, wish);
		if (!room)
			return CHAIN_TORN;
		if (!heap_access_make_room(acc, room))
			return error_set(-ENOMEM, "heap: cannot allocate memory for an entry");
		ret = transport_fetch(acc->heap->rows, head_off(at.word), acc->stage,
				      (uint32_t)room);
		if (ret)
			return ret;
		found = chain_entry_check(acc->stage, room, at, key, whole);
		memcpy(&entry, acc->stage, sizeof(entry));
		wish = chain_entry_bytes(entry.key_len, entry.len);
	}
	return found == CHAIN_SHORT ? (int)CHAIN_TORN : (int)found;
}

int heap_torn(struct heap_access *acc, uint32_t bucket)
{
	acc->stats.rereads++;
	return error_set(acc->pinned ? -EBADMSG : -EAGAIN,
			 "heap %s: the entry of bucket %u is damaged", acc->heap->desc.name,
			 bucket);
}

int heap_away(struct heap_access *acc)
{
	acc->away = true;
	return heap_moved(acc->heap);
}

int heap_no_bucket(const struct heap *heap)
{
	return error_set(-ENOSPC,
			 "heap %s: no bucket is free near that of the key: it has too many keys, "
			 "deleted ones included; create it with a larger keys",
			 heap->desc.name);
}

void heap_found_set(struct heap_found *found, uint32_t bucket, const struct heap_head *head,
		    const struct chain_key *key)
{
	found->bucket = bucket;
	found->word = head->word.raw;
	found->cell = head->cell;
	found->has_cell = found->word && chain_cell_check(&found->cell, found->word, key);
	found->version = found->has_cell ? found->cell.version : 0;
}

int heap_identify(struct heap_access *acc, struct heap_found *found, const struct chain_key *key)
{
	struct heap_entry entry;
	int ret;

	if (found->version)
		return 0;
	ret = heap_read_entry(acc, heap_found_at(found), key, 0, false);
	if (ret < 0 || ret == CHAIN_OTHER)
		return ret < 0 ? ret : 1;
	if (ret != CHAIN_OK)
		return heap_torn(acc, found->bucket);
	memcpy(&entry, acc->stage, sizeof(entry));
	found->version = entry.version;
	return 0;
}

/* Judges a bucket by its head, as heap_identify. */
static int find_judge(struct heap_access *acc, uint32_t bucket, const struct heap_head *head,
		      const struct chain_key *key, struct heap_found *found)
{
	if (head->word.raw == HEAD_MOVED)
		return heap_away(acc);
	if (head->word.raw && head_tag(head->word.raw) != chain_head_tag(key))
		return 1;
	heap_found_set(found, bucket, head, key);
	return found->word ? heap_identify(acc, found, key) : 0;
}

/* Looks for the key from its first bucket on. -ENOSPC: all of its buckets are other keys'. */
static int find_probe(struct heap_access *acc, const struct chain_key *key,
		      struct heap_found *found)
{
	uint32_t first = chain_place(key->hash, acc->heap->desc.buckets);
	/* A round trip costs more than records that are not needed; in place it is the other way. */
	uint32_t at_once = transport_changes_in_place(acc->heap->tree) ? 1 : HEAP_RECORDS_AT_ONCE;
	struct heap_head heads[HEAP_RECORDS_AT_ONCE]; /* not cleared: a KiB takes as long as a look */

	for (uint32_t i = 0; i < HEAP_PROBES; i++) {
		const struct heap_head *head = &heads[i % at_once];
		int ret = i % at_once == 0
				  ? heap_access_read(acc, heap_head_off(acc->heap, first + i),
						     heads, at_once * (uint32_t)sizeof(heads[0]))
				  : 0;

		if (ret)
			return ret;
		ret = find_judge(acc, first + i, head, key, found);
		if (ret != 1)
			return ret;
	}
	*found = (struct heap_found){ 0 };
	return heap_no_bucket(acc->heap);
}

/* The key's bucket, by its cursor or guess; false: it has none, or it is the first one anyway. */
static bool find_hint(const struct heap_access *acc, const struct chain_key *key,
		      uint32_t *bucket_out)
{
	const struct heap_cursor *cursor = heap_cursor_of(acc, key);
	uint32_t distance;

	if (!heap_guesses(acc)) {
		*bucket_out = cursor->bucket;
		return heap_cursor_is_of(cursor, key);
	}
	distance = heap_guess_distance(*heap_guess_of(acc, key), key);
	*bucket_out = chain_place(key->hash, acc->heap->desc.buckets) + distance;
	return distance;
}

/* Finds the key: where it was last, else by probing. */
int heap_find(struct heap_access *acc, const struct chain_key *key, struct heap_found *found)
{
	struct heap_head head;
	uint32_t bucket;
	int ret;

	if (find_hint(acc, key, &bucket)) {
		ret = heap_access_read(acc, heap_head_off(acc->heap, bucket), &head, sizeof(head));
		if (ret == 0)
			ret = find_judge(acc, bucket, &head, key, found);
		if (ret < 0 || (ret == 0 && found->word))
			return ret;
		if (!heap_guesses(acc)) /* another key of that hash */
			heap_cursor_of(acc, key)->word = 0;
	}
	return find_probe(acc, key, found);
}

/* The cursor has the key's version, not only one of its hash. */
static bool cursor_knows(const struct heap_cursor *cursor, const struct chain_key *key)
{
	return heap_cursor_is_of(cursor, key) && cursor->version &&
	       cursor->check == crc32c(0, key->ptr, key->len);
}

bool heap_cursor_tells(const struct heap_access *acc, const struct chain_key *key,
		       struct heap_found *found)
{
	const struct heap_cursor *cursor = heap_cursor_of(acc, key);

	if (cursor->word != found->word || !cursor_knows(cursor, key))
		return false;
	found->version = cursor->version;
	return true;
}

bool heap_find_known(const struct heap_access *acc, const struct chain_key *key,
		     struct heap_found *found)
{
	const struct heap_cursor *cursor = heap_cursor_of(acc, key);

	if (!acc->copies || acc->writers || !cursor_knows(cursor, key))
		return false;
	*found = (struct heap_found){ .bucket = cursor->bucket,
				      .word = cursor->word,
				      .version = cursor->version };
	return true;
}

void heap_guess_set(const struct heap_access *acc, const struct chain_key *key, struct chain_at at,
		    uint64_t len)
{
	uint64_t distance = at.bucket - chain_place(key->hash, acc->heap->desc.buckets);
	uint64_t lines =
		len <= HEAP_INLINE_MAX ? 0 : div_up(chain_entry_bytes(key->len, len), WIRE_LINE);

	*heap_guess_of(acc, key) = head_make(distance * (2 * HEAP_PREFETCH_LINES) +
						     min_u64(lines, HEAP_PREFETCH_LINES),
					     head_off(at.word), head_tag(at.word));
}

void heap_remember(const struct heap_access *acc, const struct chain_key *key,
		   const struct heap_found *found, uint64_t len)
{
	if (heap_guesses(acc)) {
		heap_guess_set(acc, key, heap_found_at(found), len);
		return;
	}
	*heap_cursor_of(acc, key) = (struct heap_cursor){
		.hash = key->hash,
		.word = found->word,
		.version = found->version,
		.bucket = found->bucket,
		.check = acc->copies ? crc32c(0, key->ptr, key->len) : 0,
		.bytes = len <= HEAP_INLINE_MAX ? 0 : (uint32_t)chain_entry_bytes(key->len, len),
	};
}
