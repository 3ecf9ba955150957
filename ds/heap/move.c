/*
 * move.c - the contents of a part go to another one, while clients use it. Of mode clover:
 *
 *   COPY    what heads name goes to the same places there, and the heads
 *   CLOSE   each head word becomes HEAD_MOVED; what changed since it was copied is copied again
 *   end     the extents, as orphans, and the number of keys; then the other part is whole
 *
 * The CAS that closes a head is where its key leaves: a put before it is copied, a later one fails. A closed
 * head keeps its word in the place of the lock, so that the move can begin again after a restart, or to
 * another part when that one is lost; nobody reuses an entry of a part with closed heads.
 *
 * Of mode direct: each bucket is copied, then closed when its lock is free: the lock becomes DIRECT_MOVED, and
 * no put gets it. The second copy gets what counts, then the header of the committed one is spoiled; so a get
 * finds no whole copy there, looks at the lock, and goes to the other part. In a closed bucket the second copy
 * counts, so that the move can begin again. A bucket without a key gets the word HEAD_MOVED.
 */
#include "ds/heap/direct.h"
#include "ds/heap/pair.h"

#include "ds/part/wr_list.h"

#include "base/mem/alloc.h"
#include "base/bits.h"

#include <errno.h>
#include <string.h>

#define HEADS_AT_ONCE 64u
#define EXTENTS_AT_ONCE 64u
#define MOST_TRIES 64u /* to close heads that clients change; the next step goes on */

struct move {
	struct heap *from, *to; /* to NULL: heads are only closed */
	struct heap_move_at *at;
	uint64_t left; /* bytes of this step */
	uint8_t *buf;
	uint32_t n; /* heads of the run */
	struct heap_head heads[HEADS_AT_ONCE], there[HEADS_AT_ONCE];
};

static uint64_t lock_off(const struct heap *heap, uint32_t bucket)
{
	return heap_head_off(heap, bucket) + offsetof(struct heap_head, lock);
}

/* -------- entries -------- */

/* Copies the entry or chunk at that place; *bytes_out: of it in the buffer, 0: there can be none. */
static int move_place(struct move *move, uint64_t off, uint32_t *bytes_out)
{
	int ret = heap_place_read(move->from, off, move->buf, bytes_out);

	if (ret == 0 && *bytes_out)
		ret = transport_store(move->to->rows, off, move->buf, *bytes_out);
	move->left -= min_u64(move->left, *bytes_out);
	return ret;
}

/* Copies the chunks of a manifest, one at least. 1: the bytes of this step are used up. */
static int move_chunks(struct move *move, const struct heap_manifest *manifest)
{
	const struct heap_piece *pieces = (const void *)(manifest + 1);
	uint32_t *piece = &move->at->piece, bytes;
	int ret = 0;

	do {
		ret = move_place(move, (uint64_t)pieces[*piece].place * 64, &bytes);
		*piece += ret == 0;
	} while (ret == 0 && *piece < manifest->n && move->left);
	if (ret == 0 && *piece < manifest->n)
		return 1;
	*piece = 0;
	return ret;
}

/* Copies what a head word names. As move_chunks. H4 pairs with H1: the head word was read before. */
static int move_value(struct move *move, uint64_t word)
{
	const struct heap_entry *entry = (const void *)move->buf;
	struct heap_manifest *manifest;
	const uint8_t *value;
	uint32_t bytes;
	int ret = move_place(move, head_off(word), &bytes);

	if (ret || !bytes || !(entry->flags & ENTRY_MANIFEST))
		return ret;
	value = move->buf + sizeof(*entry) + entry->key_len;
	if (sizeof(*entry) + entry->key_len + entry->len > bytes ||
	    !heap_manifest_check(&move->from->desc, value, entry->len, entry->epoch))
		return 0; /* it was replaced meanwhile, or is damaged */
	manifest = mem_alloc(entry->len);
	if (!manifest)
		return error_set(-ENOMEM, "heap: cannot allocate memory for a manifest");
	memcpy(manifest, value, entry->len);
	if (move->at->word != word || move->at->piece >= manifest->n)
		move->at->piece = 0; /* chunks of another value */
	move->at->word = word;
	ret = move_chunks(move, manifest);
	mem_free(manifest);
	return ret;
}

/* -------- heads -------- */

static int move_read(struct move *move)
{
	uint32_t first = move->at->bucket, bytes;
	int ret;

	move->n = (uint32_t)min_u64(heap_heads(&move->from->desc) - first, HEADS_AT_ONCE);
	bytes = move->n * (uint32_t)sizeof(move->heads[0]);
	ret = transport_fetch(move->from->tree, heap_head_off(move->from, first), move->heads,
			      bytes);
	if (ret == 0 && move->to)
		ret = transport_fetch(move->to->tree, heap_head_off(move->to, first), move->there,
				      bytes);
	move->left -= min_u64(move->left, bytes);
	return ret;
}

/* Tries to close the heads that are open, in one round trip; *left_out: how many are open still. */
static int move_close_once(struct move *move, uint32_t *left_out)
{
	struct transport_wr wrs[2 * HEADS_AT_ONCE];
	uint32_t first = move->at->bucket, n = 0, of[HEADS_AT_ONCE];
	int ret;

	for (uint32_t k = 0; k < move->n; k++) {
		struct heap_head *head = &move->heads[k];

		if (head->word.raw == HEAD_MOVED)
			continue;
		of[n / 2] = k;
		head->lock.raw = head->word.raw;
		wrs[n++] = wr_write(move->from->tree, lock_off(move->from, first + k), &head->lock,
				    sizeof(head->lock));
		wrs[n++] = wr_swap(move->from->tree, heap_head_off(move->from, first + k),
				   head->word.raw, HEAD_MOVED);
	}
	*left_out = n / 2;
	ret = n ? transport_run(move->from->tree->tr, wrs, n) : 0;
	for (uint32_t i = 1; ret == 0 && i < n; i += 2) {
		struct heap_head *head = &move->heads[of[i / 2]];

		if (wrs[i].atomic.status != ATOMIC_DONE)
			return error_set(-EIO, "heap: the answer about a head was lost");
		*left_out -= wrs[i].atomic.old == head->word.raw;
		head->word.raw = wrs[i].atomic.old == head->word.raw ? HEAD_MOVED
								     : wrs[i].atomic.old;
	}
	return ret;
}

static int move_close(struct move *move)
{
	uint32_t left = 1;
	int ret = 0;

	for (uint32_t i = 0; ret == 0 && left && i < MOST_TRIES; i++)
		ret = move_close_once(move, &left);
	return ret == 0 && left ? 1 : ret;
}

/* While heads are open, a value whose chunks are copied goes first: one that is put all the time would hold
   up the move for ever. */
static bool move_skips(const struct move *move, uint64_t word)
{
	return !move->at->closing && move->at->piece && move->at->word != word;
}

/* Takes the heads of a run, with what they name, to the other part. As move_chunks. */
static int move_heads(struct move *move)
{
	int ret = 0;

	for (uint32_t k = 0; ret == 0 && k < move->n; k++) {
		struct heap_head *head = &move->heads[k];

		if (head->word.raw == HEAD_MOVED)
			head->word.raw = head->lock.raw;
		head->lock.raw = 0;
		if (head->word.raw == move->there[k].word.raw || move_skips(move, head->word.raw))
			continue;
		ret = move_value(move, head->word.raw);
		if (ret == 0)
			ret = transport_store(move->to->tree,
					      heap_head_off(move->to, move->at->bucket + k), head,
					      sizeof(*head));
		if (ret == 0 && !move->left)
			return 1;
	}
	return ret;
}

/* -------- the end -------- */

/* What clients left in their extents, others take over. */
static int move_extents(struct move *move)
{
	uint32_t extents = move->from->desc.extents;
	struct heap_extent lines[EXTENTS_AT_ONCE];
	int ret = 0;

	for (uint32_t first = 0, n; ret == 0 && first < extents; first += n) {
		n = (uint32_t)min_u64(extents - first, EXTENTS_AT_ONCE);
		ret = transport_fetch(move->from->tree, heap_extent_off(move->from, first), lines,
				      n * (uint32_t)sizeof(lines[0]));
		for (uint32_t i = 0; i < n; i++)
			lines[i].word.raw = extent_make(0, extent_class(lines[i].word.raw),
							lines[i].word.raw + 1);
		if (ret == 0)
			ret = transport_store(move->to->tree, heap_extent_off(move->to, first),
					      lines, n * (uint32_t)sizeof(lines[0]));
	}
	return ret;
}

int heap_move_end(struct heap *from, struct heap *to)
{
	const uint64_t keys_off = HEAP_WORDS_OFF + offsetof(struct heap_words, keys),
		       whole_off = HEAP_WORDS_OFF + offsetof(struct heap_words, line.whole),
		       whole = 1;
	uint64_t keys;
	int ret = heap_keys(from, &keys);

	if (ret == 0)
		ret = transport_store(to->tree, keys_off, &keys, sizeof(keys));
	if (ret == 0)
		ret = transport_store(to->tree, whole_off, &whole, sizeof(whole));
	return ret;
}

/* One run of heads. 1: the bytes of this step are used up. */
static int move_run(struct move *move)
{
	int ret = move_read(move);

	if (ret == 0 && move->at->closing)
		ret = move_close(move);
	if (ret == 0 && move->to)
		ret = move_heads(move);
	if (ret)
		return ret;
	move->at->bucket += move->n;
	move->at->piece = 0;
	if (move->at->bucket < heap_heads(&move->from->desc) || move->at->closing)
		return 0;
	move->at->bucket = 0;
	move->at->closing = true;
	return 0;
}

int heap_move_chains(struct heap *from, struct heap *to, struct heap_move_at *at, uint64_t bytes,
		     bool *done_out)
{
	struct move move = { .from = from, .to = to, .at = at, .left = bytes };
	uint32_t end = heap_heads(&from->desc);
	int ret = 0;

	*done_out = false;
	at->closing |= !to;
	move.buf = mem_alloc(from->desc.extent_bytes);
	if (!move.buf)
		return error_set(-ENOMEM, "heap: cannot allocate memory for an entry");
	while (ret == 0 && move.left && at->bucket < end)
		ret = move_run(&move);
	if (ret == 0 && at->bucket == end) {
		ret = to ? move_extents(&move) : 0;
		if (ret == 0 && to)
			ret = heap_move_end(from, to);
		*done_out = ret == 0;
	}
	mem_free(move.buf);
	return ret < 0 ? ret : 0;
}

/* -------- direct -------- */

struct direct_move {
	struct heap *from, *to;
	uint32_t bucket;
	uint64_t word; /* of the bucket */
	uint64_t left; /* bytes of this step */
	uint8_t *buf;  /* an entry */
	struct heap_entry entry;
};

/* Reads a copy of the bucket. */
static int copy_read(struct direct_move *move, uint32_t which)
{
	return pair_read(move->from, (struct pair_at){ move->bucket, which }, 0, move->buf,
			 &move->entry);
}

/* Writes what was read; without a whole entry the header alone. */
static int copy_write(struct direct_move *move, struct heap *heap, uint32_t which, bool has_entry)
{
	const struct pair_at at = { move->bucket, which };
	uint64_t bytes = has_entry ? chain_entry_bytes(move->entry.key_len, move->entry.len)
				   : sizeof(move->entry);

	move->left -= min_u64(move->left, bytes);
	return transport_store(heap->rows, pair_off(heap, at), move->buf, (uint32_t)bytes);
}

/* Takes the bucket to the other part, unless that has the same. While it is open a put may be under way. */
static int bucket_copy(struct direct_move *move, bool closed)
{
	const uint64_t there_off =
		pair_off(move->to, (struct pair_at){ move->bucket, DIRECT_COMMITTED });
	struct heap_entry there;
	bool whole;
	int ret = copy_read(move, DIRECT_COMMITTED);

	if (ret == PAIR_TORN && closed)
		ret = copy_read(move, DIRECT_SECOND);
	if (ret < 0 || ret == PAIR_NONE || (ret == PAIR_TORN && !closed))
		return ret < 0 ? ret : 0;
	whole = ret == PAIR_OK; /* a damaged entry stays one */
	ret = transport_fetch(move->to->rows, there_off, &there, sizeof(there));
	if (ret || memcmp(&move->entry, &there, sizeof(there)) == 0)
		return ret;
	ret = copy_write(move, move->to, DIRECT_COMMITTED, whole);
	return ret ? ret
		   : transport_store(move->to->tree, heap_head_off(move->to, move->bucket),
				     &move->word, sizeof(move->word));
}

/* Makes the second copy the one that counts, and spoils the committed one. */
static int bucket_spoil(struct direct_move *move)
{
	const uint64_t off =
		pair_off(move->from, (struct pair_at){ move->bucket, DIRECT_COMMITTED });
	uint8_t spoiled[sizeof(struct heap_entry)];
	int ret = copy_read(move, DIRECT_COMMITTED);

	if (ret < 0 || ret == PAIR_TORN) /* it was done */
		return ret < 0 ? ret : 0;
	ret = copy_write(move, move->from, DIRECT_SECOND, ret == PAIR_OK);
	memset(spoiled, 0xff, sizeof(spoiled));
	return ret ? ret : transport_store(move->from->rows, off, spoiled, sizeof(spoiled));
}

/* 1: a client holds the lock. */
static int bucket_close(struct direct_move *move)
{
	const uint64_t head_off = heap_head_off(move->from, move->bucket);
	uint64_t old;
	int ret = transport_cas_word(move->from->tree, head_off + offsetof(struct heap_head, lock),
				     0, DIRECT_MOVED, &old);

	if (ret || (old && old != DIRECT_MOVED))
		return ret ? ret : 1;
	ret = transport_cas_word(move->from->tree, head_off, 0, HEAD_MOVED, &move->word);
	if (ret == 0 && move->word && move->word != HEAD_MOVED)
		ret = bucket_spoil(move);
	return ret;
}

static int bucket_move(struct direct_move *move, bool closing)
{
	const uint64_t head_off = heap_head_off(move->from, move->bucket);
	int ret = closing ? bucket_close(move)
			  : transport_load(move->from->tree, head_off, &move->word);

	move->left -= min_u64(move->left, sizeof(struct heap_head));
	if (ret || !move->word || move->word == HEAD_MOVED)
		return ret;
	return bucket_copy(move, closing);
}

int direct_move(struct heap *from, struct heap *to, struct heap_move_at *at, uint64_t bytes,
		bool *done_out)
{
	struct direct_move move = { .from = from, .to = to, .left = bytes };
	uint32_t end = heap_heads(&from->desc);
	int ret = 0;

	*done_out = false;
	move.buf = mem_aligned(WIRE_LINE, from->desc.extent_bytes);
	if (!move.buf)
		return error_set(-ENOMEM, "heap: cannot allocate memory for an entry");
	while (ret == 0 && move.left && at->bucket < end) {
		move.bucket = at->bucket;
		ret = bucket_move(&move, at->closing);
		at->bucket += ret == 0;
	}
	mem_free(move.buf);
	if (ret || at->bucket < end)
		return ret < 0 ? ret : 0;
	if (at->closing)
		ret = heap_move_end(from, to);
	*done_out = at->closing && ret == 0;
	if (!at->closing)
		*at = (struct heap_move_at){ .closing = true };
	return ret;
}
