#include "ds/heap/large.h"

#include "ds/part/wr_list.h"

#include "base/bits.h"

#include <errno.h>
#include <string.h>

int heap_value_found(struct heap_value *out, uint64_t word)
{
	out->deleted = (word & HEAD_DELETED) != 0;
	return out->deleted ? error_set(-ENOENT, "the key was deleted") : 0;
}

/* The value that is in the stage. */
static int get_from_stage(struct heap_access *acc, const struct chain_key *key,
			  const struct heap_found *found, struct heap_value *out)
{
	struct heap_entry entry;

	memcpy(&entry, acc->stage, sizeof(entry));
	heap_remember(acc, key, found, entry.len);
	*out = (struct heap_value){
		.ptr = acc->stage + sizeof(entry) + entry.key_len,
		.len = entry.len,
		.version = entry.version,
		.large = entry.flags & ENTRY_MANIFEST ? entry.epoch : 0,
		.striped = (entry.flags & ENTRY_STRIPED) != 0,
	};
	return heap_value_found(out, found->word);
}

int heap_value_of_cell(struct heap_access *acc, const struct chain_key *key,
		       const struct heap_found *found, struct heap_value *out)
{
	const struct heap_cell *cell = &found->cell;

	memcpy(acc->stage, cell->value, sizeof(cell->value)); /* it has room for that always */
	heap_remember(acc, key, found, cell->len);
	*out = (struct heap_value){
		.ptr = acc->stage,
		.len = cell->len,
		.version = cell->version,
	};
	return heap_value_found(out, found->word);
}

/* Entry and head together, behind the pin if it is due. */
static int warm_read(struct heap_access *acc, const struct transport_io ios[2])
{
	struct transport *tr = acc->heap->tree->tr;
	struct transport_wr wrs[4];

	if (!acc->pin_due)
		return transport_read(tr, ios, 2);
	for (uint32_t i = 0; i < 2; i++)
		wrs[2 + i] = wr_read(ios[i].region, ios[i].off, ios[i].dst, ios[i].len);
	return heap_access_run_pinned(acc, wrs, 4);
}

/*
 * By its cursor: the entry, and the head record behind it, in one read. 1 = the head has moved, or its
 * entry is not this: *found is as the head says.
 */
static int get_warm(struct heap_access *acc, const struct chain_key *key, struct heap_found *found,
		    struct heap_value *out)
{
	const struct heap_cursor cursor = *heap_cursor_of(acc, key);
	uint64_t bytes = heap_entry_room(acc, cursor.word, cursor.bytes);
	struct heap_head head;
	const struct transport_io ios[] = {
		{ .region = acc->heap->rows,
		  .off = head_off(cursor.word),
		  .dst = acc->stage,
		  .len = (uint32_t)bytes },
		{ .region = acc->heap->tree,
		  .off = heap_head_off(acc->heap, cursor.bucket),
		  .dst = &head,
		  .len = sizeof(head) },
	};
	int ret = heap_access_make_room(acc, bytes) ? 0 : -ENOMEM;

	if (ret || (acc->pin_due && transport_changes_in_place(acc->heap->tree)) || !bytes ||
	    ios[0].dst != acc->stage)
		return 1;
	ret = warm_read(acc, ios);
	if (ret)
		return ret;
	heap_found_set(found, cursor.bucket, &head, key);
	if (found->word != cursor.word ||
	    chain_entry_check(acc->stage, bytes, heap_found_at(found), key, true) != CHAIN_OK)
		return 1;
	return get_from_stage(acc, key, found, out);
}

int heap_get_once(struct heap_access *acc, const struct chain_key *key, struct heap_value *out)
{
	struct heap_cursor *cursor = heap_cursor_of(acc, key);
	struct heap_found found = { 0 };
	uint64_t guess = HEAP_GUESS_BYTES;
	int ret;

	if (heap_cursor_is_of(cursor, key) && cursor->bytes) {
		guess = cursor->bytes;
		ret = get_warm(acc, key, &found, out);
		if (ret != 1)
			return ret;
	}
	if (!found.version) {
		ret = heap_find(acc, key, &found);
		if (ret)
			return ret == -ENOSPC ? error_set(-ENOENT, "no such key") : ret;
	}
	if (!found.word)
		return error_set(-ENOENT, "no such key");
	if (found.has_cell && found.cell.len <= HEAP_INLINE_MAX)
		return heap_value_of_cell(acc, key, &found, out);
	if (found.has_cell)
		guess = chain_entry_bytes(key->len, chain_cell_value_len(&found.cell));
	ret = heap_read_entry(acc, heap_found_at(&found), key, guess, true);
	if (ret < 0)
		return ret;
	return ret == CHAIN_OK ? get_from_stage(acc, key, &found, out)
			       : heap_torn(acc, found.bucket);
}

int heap_get(struct heap_access *acc, const struct chain_key *key, const struct heap_room *room,
	     struct heap_value *out)
{
	int ret = -EAGAIN;

	if (acc->plane)
		return acc->plane->get(acc, key, out);
	for (uint32_t i = 0; ret == -EAGAIN && i < HEAP_MOST_READS; i++) {
		if (i == 2 && acc->owner)
			heap_access_pin(acc);
		/* With a pin by copies, which cannot be overtaken: they tell damage apart. */
		ret = acc->in_place && i < 2 ? heap_get_in_place(acc, key, room, out)
					     : heap_get_once(acc, key, out);
		if (ret == 0 && out->large)
			ret = heap_large_get(acc, key, NULL, room, out);
	}
	return acc->pinned || acc->pin_due ? heap_access_unpin(acc, ret) : ret;
}

/* The bytes of the range, of a value that was read whole. */
static void range_cut(const struct heap_range *range, struct heap_value *out)
{
	uint64_t len = heap_range_in(range, out->len);

	if (len)
		out->ptr = (const uint8_t *)out->ptr + range->offset;
	out->len = len;
}

/* Pins at once: a value in chunks needs it anyway. */
int heap_get_range(struct heap_access *acc, const struct chain_key *key,
		   const struct heap_range *range, const struct heap_room *room,
		   struct heap_value *out)
{
	int ret = -EAGAIN;

	if (acc->plane)
		ret = acc->plane->get(acc, key, out);
	for (uint32_t i = 0; !acc->plane && ret == -EAGAIN && i < HEAP_MOST_READS; i++) {
		if (acc->owner)
			heap_access_pin(acc);
		ret = heap_get_once(acc, key, out);
		if (ret == 0 && out->large)
			ret = heap_large_get(acc, key, range, room, out);
	}
	if (ret == 0 && !out->large && !out->striped)
		range_cut(range, out);
	return acc->plane ? ret : heap_access_unpin(acc, ret);
}

int heap_version(struct heap_access *acc, const struct chain_key *key, uint64_t *version_out)
{
	struct heap_found found = { 0 };
	int ret = -EAGAIN;

	if (acc->plane)
		return acc->plane->version(acc, key, version_out);
	for (uint32_t i = 0; ret == -EAGAIN && i < HEAP_MOST_READS; i++) {
		if (i == 2 && acc->owner)
			heap_access_pin(acc);
		ret = heap_find(acc, key, &found);
	}
	ret = heap_access_unpin(acc, ret == -ENOSPC ? 0 : ret);
	if (ret == 0)
		*version_out = found.word ? found.version : 0;
	return ret;
}

#define LOOK_WHOLE 4096u /* bytes of an entry that is read whole, rather than its header first */

/* Reads what heap_look tells of the entry that the head names. */
static int look_entry(struct heap_access *acc, const struct chain_key *key,
		      const struct heap_found *found, struct heap_value *out)
{
	bool is_short = found->has_cell &&
			chain_entry_bytes(key->len, chain_cell_value_len(&found->cell)) <=
				LOOK_WHOLE;
	struct heap_entry entry;
	int ret = heap_read_entry(acc, heap_found_at(found), key, is_short ? LOOK_WHOLE : 0,
				  is_short);

	if (ret == CHAIN_OK)
		memcpy(&entry, acc->stage, sizeof(entry));
	if (ret == CHAIN_OK && !is_short && entry.flags & ENTRY_STRIPED)
		ret = heap_read_entry(acc, heap_found_at(found), key,
				      chain_entry_bytes(entry.key_len, entry.len), true);
	if (ret < 0)
		return ret;
	return ret == CHAIN_OK ? get_from_stage(acc, key, found, out)
			       : heap_torn(acc, found->bucket);
}

static int look_once(struct heap_access *acc, const struct chain_key *key, struct heap_value *out)
{
	const struct heap_cursor *cursor = heap_cursor_of(acc, key);
	struct heap_found found = { 0 };
	int ret;

	if (!acc->in_place && heap_cursor_is_of(cursor, key) && cursor->bytes &&
	    cursor->bytes <= LOOK_WHOLE)
		return heap_get_once(acc, key, out);
	ret = heap_find(acc, key, &found);
	if (ret)
		return ret == -ENOSPC ? error_set(-ENOENT, "no such key") : ret;
	if (!found.word)
		return error_set(-ENOENT, "no such key");
	out->version = found.version;
	if (found.word & HEAD_DELETED)
		return heap_value_found(out, found.word);
	if (!found.has_cell || found.cell.len > HEAP_INLINE_MAX)
		return look_entry(acc, key, &found, out);
	out->len = found.cell.len;
	return 0;
}

int heap_look(struct heap_access *acc, const struct chain_key *key, struct heap_value *out)
{
	int ret = -EAGAIN;

	*out = (struct heap_value){ 0 };
	for (uint32_t i = 0; ret == -EAGAIN && i < HEAP_MOST_READS; i++) {
		if (i == 2 && acc->owner)
			heap_access_pin(acc);
		ret = look_once(acc, key, out);
	}
	ret = heap_access_unpin(acc, ret);
	if (!out->striped)
		out->ptr = NULL; /* perhaps not all of it is there */
	return ret;
}

/* -------- all keys -------- */

static int next_once(struct heap_access *acc, uint32_t *bucket_inout, struct heap_key *out)
{
	uint32_t end = acc->heap->desc.buckets + HEAP_PROBES, bucket = *bucket_inout;
	struct heap_head heads[HEAP_RECORDS_AT_ONCE] = { 0 };
	struct heap_entry entry;
	struct chain_at at;

	for (uint32_t i = 0; bucket < end; bucket++, i++) {
		uint32_t n = (uint32_t)min_u64(end - bucket, HEAP_RECORDS_AT_ONCE);
		int ret = i % HEAP_RECORDS_AT_ONCE == 0
				  ? heap_access_read(acc, heap_head_off(acc->heap, bucket), heads,
						     n * (uint32_t)sizeof(heads[0]))
				  : 0;

		at = (struct chain_at){ heads[i % HEAP_RECORDS_AT_ONCE].word.raw, bucket };
		if (ret == 0 && at.word == HEAD_MOVED)
			ret = heap_away(acc);
		else if (ret == 0 && at.word && !(at.word & HEAD_DELETED))
			ret = heap_read_entry(acc, at, NULL, 0, false);
		else if (ret == 0)
			continue;
		if (ret)
			return ret < 0 ? ret : heap_torn(acc, bucket);
		memcpy(&entry, acc->stage, sizeof(entry));
		*out = (struct heap_key){ .ptr = acc->stage + sizeof(entry),
					  .len = entry.key_len,
					  .value_len =
						  entry.flags & (ENTRY_MANIFEST | ENTRY_STRIPED)
							  ? entry.epoch
							  : entry.len,
					  .version = entry.version,
					  .striped = (entry.flags & ENTRY_STRIPED) != 0 };
		*bucket_inout = bucket + 1;
		return 0;
	}
	*bucket_inout = bucket;
	return error_set(-ENODATA, "no more keys");
}

int heap_next(struct heap_access *acc, uint32_t *bucket_inout, struct heap_key *out)
{
	int ret = -EAGAIN;

	if (acc->plane)
		return acc->plane->next(acc, bucket_inout, out);
	for (uint32_t i = 0; ret == -EAGAIN && i < HEAP_MOST_READS; i++) {
		if (i == 2 && acc->owner)
			heap_access_pin(acc);
		ret = next_once(acc, bucket_inout, out);
	}
	return heap_access_unpin(acc, ret);
}
