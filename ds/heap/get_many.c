#include "ds/heap/fetch.h"

#include "base/bits.h"

#include <errno.h>
#include <string.h>

/* Where a request of the batch reads to. */
struct batch {
	struct heap_head heads[HEAP_MANY];
	struct heap_cursor cursors[HEAP_MANY]; /* bytes 0: its entry is not read */
	uint64_t at[HEAP_MANY];                /* of its entry in the stage */
};

/* Copies the value to where it was asked for. */
static int ask_fill(struct heap_ask *ask, const struct heap_value *got)
{
	ask->value = *got;
	ask->value.ptr = ask->room.ptr;
	if (got->len > ask->room.bytes)
		return error_set(-ERANGE, "the value has more bytes than there is room");
	if (got->len && got->ptr != ask->room.ptr)
		memcpy(ask->room.ptr, got->ptr, got->len);
	return 0;
}

static int ask_alone(struct heap_access *acc, struct heap_ask *ask)
{
	struct heap_value got;
	int ret = heap_get(acc, &ask->key, &ask->room, &got);

	return ret ? ret : ask_fill(ask, &got);
}

/* Reads the heads of all keys, and the entries of those with a warm cursor. 1 RT. */
static int batch_read(struct heap_access *acc, const struct heap_ask *asks, uint32_t n,
		      struct batch *batch)
{
	struct transport_io ios[2 * HEAP_MANY];
	uint64_t bytes = 0;
	uint32_t k = 0;

	for (uint32_t i = 0; i < n; i++) {
		struct heap_cursor *cursor = &batch->cursors[i];

		*cursor = *heap_cursor_of(acc, &asks[i].key);
		if (!heap_cursor_is_of(cursor, &asks[i].key))
			*cursor = (struct heap_cursor){
				.bucket = chain_place(asks[i].key.hash, acc->heap->desc.buckets)
			};
		cursor->bytes = (uint32_t)heap_entry_room(acc, cursor->word, cursor->bytes);
		batch->at[i] = bytes;
		bytes += align_up(cursor->bytes, 8);
	}
	if (!heap_access_make_room(acc, bytes))
		return error_set(-ENOMEM, "heap: cannot allocate memory for %u values", n);
	for (uint32_t i = 0; i < n; i++) {
		const struct heap_cursor *cursor = &batch->cursors[i];

		if (cursor->bytes)
			ios[k++] = (struct transport_io){ .region = acc->heap->rows,
							  .off = head_off(cursor->word),
							  .dst = acc->stage + batch->at[i],
							  .len = cursor->bytes };
		ios[k++] = (struct transport_io){ .region = acc->heap->tree,
						  .off = heap_head_off(acc->heap, cursor->bucket),
						  .dst = &batch->heads[i],
						  .len = sizeof(batch->heads[i]) };
	}
	return transport_read(acc->heap->tree->tr, ios, k);
}

/* True if what was read answers the ask. */
static bool batch_take(struct heap_access *acc, struct batch *batch, uint32_t i,
		       struct heap_ask *ask)
{
	const struct heap_cursor *cursor = &batch->cursors[i];
	const uint8_t *from = acc->stage + batch->at[i];
	struct heap_value got;
	struct heap_found found;
	struct heap_entry entry;

	heap_found_set(&found, cursor->bucket, &batch->heads[i], &ask->key);
	if (found.word & HEAD_DELETED)
		return false;
	if (found.has_cell && found.cell.len <= HEAP_INLINE_MAX) {
		got = (struct heap_value){ .ptr = found.cell.value,
					   .len = found.cell.len,
					   .version = found.cell.version };
		heap_remember(acc, &ask->key, &found, got.len);
		ask->status = ask_fill(ask, &got);
		return true;
	}
	if (found.has_cell && found.word != cursor->word) /* the entry is read alone, in 1 RT */
		heap_remember(acc, &ask->key, &found, chain_cell_value_len(&found.cell));
	if (!cursor->bytes || found.word != cursor->word ||
	    chain_entry_check(from, cursor->bytes, heap_found_at(&found), &ask->key, true) !=
		    CHAIN_OK)
		return false;
	memcpy(&entry, from, sizeof(entry));
	if (entry.flags & ENTRY_MANIFEST)
		return false;
	got = (struct heap_value){ .ptr = from + sizeof(entry) + entry.key_len,
				   .len = entry.len,
				   .version = entry.version,
				   .striped = (entry.flags & ENTRY_STRIPED) != 0 };
	ask->status = ask_fill(ask, &got);
	return true;
}

/* Errors that concern one key. */
static bool is_of_key(int error)
{
	return error == -ENOENT || error == -ERANGE || error == -EBADMSG;
}

static int many_chained(struct heap_access *acc, struct heap_ask *asks, uint32_t n)
{
	bool done[HEAP_MANY];
	struct batch batch;
	int ret = batch_read(acc, asks, n, &batch);

	for (uint32_t i = 0; ret == 0 && i < n; i++)
		done[i] = batch_take(acc, &batch, i, &asks[i]);
	for (uint32_t i = 0; ret == 0 && i < n; i++) {
		if (done[i])
			continue;
		asks[i].status = ask_alone(acc, &asks[i]);
		ret = is_of_key(asks[i].status) ? 0 : asks[i].status;
	}
	return ret;
}

/* As ask_alone; the first attempt without what most gets do not need. */
static int ask_in_place(struct heap_access *acc, struct heap_ask *ask)
{
	struct heap_value got;
	int ret = heap_get_in_place(acc, &ask->key, &ask->room, &got);

	if (ret == -EAGAIN || (ret == 0 && got.large))
		return ask_alone(acc, ask);
	return ret ? ret : ask_fill(ask, &got);
}

/* Gets one after the other, and the entries of later keys are fetched meanwhile. */
static int many_in_place(struct heap_access *acc, struct heap_ask *asks, uint32_t n)
{
	struct heap_fetch fetch; /* not cleared: it has 2 KiB */
	int ret = 0;

	fetch.n = n;
	for (uint32_t i = 0; i < n; i++)
		fetch.keys[i] = &asks[i].key;
	heap_fetch_begin(acc, &fetch);
	for (uint32_t i = 0; i + 1 < HEAP_FETCH_AHEAD; i++)
		heap_fetch_ahead(&fetch, i);
	acc->fetched = true;
	for (uint32_t i = 0; ret == 0 && i < n; i++) {
		heap_fetch_ahead(&fetch, i + HEAP_FETCH_AHEAD - 1);
		asks[i].status = ask_in_place(acc, &asks[i]);
		ret = is_of_key(asks[i].status) ? 0 : asks[i].status;
	}
	acc->fetched = false;
	return ret;
}

int heap_get_many(struct heap_access *acc, struct heap_ask *asks, uint32_t n)
{
	int ret = 0;

	if (acc->in_place)
		return many_in_place(acc, asks, n);
	if (!acc->plane)
		return many_chained(acc, asks, n);
	for (uint32_t i = 0; ret == 0 && i < n; i++) {
		asks[i].status = ask_alone(acc, &asks[i]);
		ret = is_of_key(asks[i].status) ? 0 : asks[i].status;
	}
	return ret;
}
