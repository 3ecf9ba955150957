#include "ds/heap/keys.h"

#include "ds/part/wr_list.h"

#include "transport/barrier.h"

#include "base/mem/alloc.h"
#include "base/bits.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define RECORDS_AT_ONCE 8u
#define GUESS_BYTES 1024u /* of an entry whose length is not known */
#define MOST_TRIES 64u    /* of a put against others */
#define MOST_READS 4u

#define EPOCH_OFF (HEAP_WORDS_OFF + offsetof(struct heap_words, epoch))

/* A key's bucket, as a look found it. */
struct found {
	uint32_t bucket;
	uint64_t word;    /* 0: the key is nowhere, and the bucket is free */
	uint64_t version; /* 0: not known yet */
	bool has_cell;    /* the cell is the head word's and the key's */
	struct heap_cell cell;
};

/* -------- pins and tails -------- */

/* The next read pins. */
static void access_pin(struct heap_access *acc)
{
	acc->pin_due = !acc->pinned;
}

/*
 * Reads one range, behind the pin if it is due. Over a wire the pin is of the epoch that the last one
 * read; so the epoch is read again, or else a busy client would hold back the others.
 */
static int access_read(struct heap_access *acc, uint64_t off, void *dst, uint32_t len)
{
	struct region *tree = acc->heap->tree;
	uint64_t pin_off;
	int ret;

	if (!acc->pin_due)
		return transport_fetch(tree, off, dst, len);
	pin_off = heap_pin_off(acc->owner);
	acc->pin = space_epoch(acc->epoch_word);
	acc->pin_due = false;
	acc->pinned = true;
	if (!transport_changes_in_place(tree)) {
		struct transport_wr wrs[] = {
			wr_write(tree, pin_off, &acc->pin, sizeof(acc->pin)),
			wr_read(tree, EPOCH_OFF, &acc->epoch_word, sizeof(acc->epoch_word)),
			wr_read(tree, off, dst, len),
		};

		return transport_run(tree->tr, wrs, 3);
	}
	if (transport_is_forked(tree->tr))
		return error_set(-ECHILD, "heap: opened before a fork");
	acc->epoch_word = rword64_load_relaxed(
		(const struct rword64 *)(const void *)(tree->base + EPOCH_OFF));
	acc->pin = space_epoch(acc->epoch_word);
	/* H2 pairs with H3: the pin, then heads are read. */
	rword64_announce((const struct rword64 *)(const void *)(tree->base + pin_off), acc->pin);
	ret = transport_order(tree->tr);
	return ret ? ret : transport_fetch(tree, off, dst, len);
}

/* The next tail, which no request uses any more. */
static int access_tail(struct heap_access *acc, struct heap_tail **tail_out)
{
	struct heap_tail *tail = &acc->tails[acc->next_tail++ % HEAP_TAILS];
	uint64_t ticket = tail->ticket;

	tail->ticket = 0;
	*tail_out = tail;
	return ticket ? transport_poll(acc->heap->tree->tr, ticket, DEADLINE_NEVER) : 0;
}

/* Sends n requests and the end of the pin. They are hints: what is lost costs reads later. */
static int access_send(struct heap_access *acc, struct heap_tail *tail, uint32_t n)
{
	struct region *tree = acc->heap->tree;
	struct transport_span span = { 0 };
	int ret;

	if (acc->pinned) {
		tail->idle = 0;
		tail->wrs[n++] = wr_write(tree, heap_pin_off(acc->owner), &tail->idle, 8);
	}
	acc->pinned = acc->pin_due = false;
	ret = transport_submit_chain(tree->tr, tail->wrs, n, &span);
	tail->ticket = span.last;
	return ret;
}

/* Ends the pin of a call that changes nothing. Returns the call's result, or else an error of ours. */
static int access_unpin(struct heap_access *acc, int result)
{
	struct heap_tail *tail;
	struct error_kept kept;
	int ret;

	acc->pin_due = false;
	if (!acc->pinned)
		return result;
	error_keep(&kept);
	ret = access_tail(acc, &tail);
	if (ret == 0)
		ret = access_send(acc, tail, 0);
	if (result)
		error_restore(&kept);
	return result ? result : ret;
}

/* -------- finding a key -------- */

static struct heap_cursor *access_cursor(const struct heap_access *acc, const struct chain_key *key)
{
	return &acc->cursors[key->hash % HEAP_CURSORS];
}

static bool cursor_is_of(const struct heap_cursor *cursor, const struct chain_key *key)
{
	return cursor->word && cursor->hash == key->hash;
}

static bool access_make_room(struct heap_access *acc, uint64_t bytes)
{
	uint8_t *stage;

	if (bytes <= acc->stage_bytes)
		return true;
	bytes = max_u64(bytes, 2 * (uint64_t)acc->stage_bytes);
	stage = mem_aligned(WIRE_LINE, round_up(bytes, WIRE_LINE));
	if (!stage)
		return false;
	mem_free(acc->stage);
	acc->stage = stage;
	acc->stage_bytes = bytes;
	return true;
}

/* Bytes that may be read from the place that a head word names; 0: it cannot be an entry's. */
static uint64_t entry_room(const struct heap_access *acc, uint64_t word, uint64_t wish)
{
	const struct heap_desc *desc = &acc->heap->desc;
	uint64_t off = head_off(word);

	if (!heap_holds(desc, off, sizeof(struct heap_entry)))
		return 0;
	return min_u64(wish, desc->extent_bytes - (off - HEAP_ROWS_OFF) % desc->extent_bytes);
}

/*
 * Reads the entry that the head word names into the stage: all of it if `whole`, else up to its key.
 * Returns an error, or enum chain_found. H4 pairs with H1: the head word was read before.
 */
static int access_read_entry(struct heap_access *acc, struct chain_at at,
			     const struct chain_key *key, uint64_t guess, bool whole)
{
	uint64_t wish = max_u64(guess, sizeof(struct heap_entry) + HEAP_KEY_MAX), room;
	enum chain_found found = CHAIN_SHORT;
	struct heap_entry entry;
	int ret;

	for (uint32_t i = 0; i < 2 && found == CHAIN_SHORT; i++) {
		room = entry_room(acc, at.word, wish);
		if (!room)
			return CHAIN_TORN;
		if (!access_make_room(acc, room))
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

static struct chain_at found_at(const struct found *found)
{
	return (struct chain_at){ found->word, found->bucket };
}

/* The entry is not the head word's: it was reused meanwhile, or with a pin it is damaged. */
static int access_torn(struct heap_access *acc, uint32_t bucket)
{
	acc->stats.rereads++;
	return error_set(acc->pinned ? -EBADMSG : -EAGAIN,
			 "heap %s: the entry of bucket %u is damaged", acc->heap->desc.name,
			 bucket);
}

static void found_set(struct found *found, uint32_t bucket, const struct heap_head *head,
		      const struct chain_key *key)
{
	*found = (struct found){ .bucket = bucket, .word = head->word.raw, .cell = head->cell };
	found->has_cell = found->word && chain_cell_check(&found->cell, found->word, key);
	found->version = found->has_cell ? found->cell.version : 0;
}

/*
 * Sets the version of a bucket without a valid cell from its entry. 1 = the bucket is another key's;
 * -EAGAIN: the entry is torn; with a pin -EBADMSG: it is damaged.
 */
static int access_identify(struct heap_access *acc, struct found *found,
			   const struct chain_key *key)
{
	struct heap_entry entry;
	int ret;

	if (found->version)
		return 0;
	ret = access_read_entry(acc, found_at(found), key, 0, false);
	if (ret < 0 || ret == CHAIN_OTHER)
		return ret < 0 ? ret : 1;
	if (ret != CHAIN_OK)
		return access_torn(acc, found->bucket);
	memcpy(&entry, acc->stage, sizeof(entry));
	found->version = entry.version;
	return 0;
}

/* Looks for the key from its first bucket on. -ENOSPC: all of its buckets are other keys'. */
static int access_probe(struct heap_access *acc, const struct chain_key *key, struct found *found)
{
	uint32_t first = chain_place(key->hash, acc->heap->desc.buckets);
	/* A round trip costs more than records that are not needed; in place it is the other way. */
	uint32_t at_once = transport_changes_in_place(acc->heap->tree) ? 1 : RECORDS_AT_ONCE;
	struct heap_head heads[RECORDS_AT_ONCE] = { 0 };

	for (uint32_t i = 0; i < HEAP_PROBES; i++) {
		const struct heap_head *head = &heads[i % at_once];
		int ret = i % at_once == 0
				  ? access_read(acc, heap_head_off(acc->heap, first + i), heads,
						at_once * (uint32_t)sizeof(heads[0]))
				  : 0;

		if (ret)
			return ret;
		if (head->word.raw && head_tag(head->word.raw) != chain_head_tag(key))
			continue;
		found_set(found, first + i, head, key);
		ret = found->word ? access_identify(acc, found, key) : 0;
		if (ret != 1)
			return ret;
	}
	*found = (struct found){ 0 };
	return error_set(-ENOSPC,
			 "heap %s: no bucket is free near that of the key: it has too many keys, "
			 "deleted ones included; create it with a larger keys",
			 acc->heap->desc.name);
}

/* Finds the key: by its cursor, else by probing. */
static int access_find(struct heap_access *acc, const struct chain_key *key, struct found *found)
{
	struct heap_cursor *cursor = access_cursor(acc, key);
	struct heap_head head;
	int ret;

	if (cursor_is_of(cursor, key)) {
		ret = access_read(acc, heap_head_off(acc->heap, cursor->bucket), &head,
				  sizeof(head));
		if (ret)
			return ret;
		found_set(found, cursor->bucket, &head, key);
		ret = found->word ? access_identify(acc, found, key) : 1;
		if (ret != 1)
			return ret;
		cursor->word = 0; /* another key of that hash */
	}
	return access_probe(acc, key, found);
}

static void access_remember(const struct heap_access *acc, const struct chain_key *key,
			    const struct found *found, uint64_t len)
{
	*access_cursor(acc, key) = (struct heap_cursor){
		.hash = key->hash,
		.word = found->word,
		.bucket = found->bucket,
		.bytes = len <= HEAP_INLINE_MAX ? 0 : (uint32_t)chain_entry_bytes(key->len, len),
	};
}

/* -------- get -------- */

/* The value that is in the stage. */
static int get_from_stage(struct heap_access *acc, const struct chain_key *key,
			  const struct found *found, struct heap_value *out)
{
	struct heap_entry entry;

	memcpy(&entry, acc->stage, sizeof(entry));
	access_remember(acc, key, found, entry.len);
	*out = (struct heap_value){
		.ptr = acc->stage + sizeof(entry) + entry.key_len,
		.len = entry.len,
		.version = entry.version,
		.deleted = (entry.flags & ENTRY_DELETED) != 0,
	};
	return out->deleted ? error_set(-ENOENT, "the key was deleted") : 0;
}

static int get_from_cell(struct heap_access *acc, const struct chain_key *key,
			 const struct found *found, struct heap_value *out)
{
	const struct heap_cell *cell = &found->cell;

	memcpy(acc->stage, cell->value, sizeof(cell->value)); /* it has room for that always */
	access_remember(acc, key, found, cell->len);
	*out = (struct heap_value){
		.ptr = acc->stage,
		.len = cell->len,
		.version = cell->version,
		.deleted = (found->word & HEAD_DELETED) != 0,
	};
	return out->deleted ? error_set(-ENOENT, "the key was deleted") : 0;
}

/*
 * By its cursor: the entry, and the head record behind it, in one read. 1 = the head has moved, or its
 * entry is not this: *found is as the head says.
 */
static int get_warm(struct heap_access *acc, const struct chain_key *key, struct found *found,
		    struct heap_value *out)
{
	const struct heap_cursor cursor = *access_cursor(acc, key);
	uint64_t bytes = entry_room(acc, cursor.word, cursor.bytes);
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
	int ret = access_make_room(acc, bytes) ? 0 : -ENOMEM;

	if (ret || acc->pin_due || !bytes || ios[0].dst != acc->stage)
		return 1;
	ret = transport_read(acc->heap->tree->tr, ios, 2);
	if (ret)
		return ret;
	found_set(found, cursor.bucket, &head, key);
	if (found->word != cursor.word ||
	    chain_entry_check(acc->stage, bytes, found_at(found), key, true) != CHAIN_OK)
		return 1;
	return get_from_stage(acc, key, found, out);
}

static int get_once(struct heap_access *acc, const struct chain_key *key, struct heap_value *out)
{
	struct heap_cursor *cursor = access_cursor(acc, key);
	struct found found = { 0 };
	uint64_t guess = GUESS_BYTES;
	int ret;

	if (cursor_is_of(cursor, key) && cursor->bytes) {
		guess = cursor->bytes;
		ret = get_warm(acc, key, &found, out);
		if (ret != 1)
			return ret;
	}
	if (!found.version) {
		ret = access_find(acc, key, &found);
		if (ret)
			return ret == -ENOSPC ? error_set(-ENOENT, "no such key") : ret;
	}
	if (!found.word)
		return error_set(-ENOENT, "no such key");
	if (found.has_cell && found.cell.len <= HEAP_INLINE_MAX)
		return get_from_cell(acc, key, &found, out);
	if (found.has_cell)
		guess = chain_entry_bytes(key->len, chain_cell_value_len(&found.cell));
	ret = access_read_entry(acc, found_at(&found), key, guess, true);
	if (ret < 0)
		return ret;
	return ret == CHAIN_OK ? get_from_stage(acc, key, &found, out)
			       : access_torn(acc, found.bucket);
}

int heap_get(struct heap_access *acc, const struct chain_key *key, struct heap_value *out)
{
	int ret = -EAGAIN;

	for (uint32_t i = 0; ret == -EAGAIN && i < MOST_READS; i++) {
		if (i == 2 && acc->owner)
			access_pin(acc);
		ret = get_once(acc, key, out);
	}
	return access_unpin(acc, ret);
}

int heap_version(struct heap_access *acc, const struct chain_key *key, uint64_t *version_out)
{
	struct found found = { 0 };
	int ret = -EAGAIN;

	for (uint32_t i = 0; ret == -EAGAIN && i < MOST_READS; i++) {
		if (i == 2 && acc->owner)
			access_pin(acc);
		ret = access_find(acc, key, &found);
	}
	ret = access_unpin(acc, ret == -ENOSPC ? 0 : ret);
	if (ret == 0)
		*version_out = found.word ? found.version : 0;
	return ret;
}

/* -------- put -------- */

/* Compares what is there with what the put expects. */
static int put_check(const struct found *found, const struct heap_put *put)
{
	bool exists = found->word && !(found->word & HEAD_DELETED);

	if (put->deletes && !exists)
		return error_set(-ENOENT, "no such key");
	if (put->expected != HEAP_ANY_VERSION && put->expected != (exists ? found->version : 0))
		return error_set(-ESTALE, "the key has version %" PRIu64 ", not %" PRIu64,
				 exists ? found->version : 0, put->expected);
	return 0;
}

/* A put, with a slot for its entry, and what its last look found. */
struct put_call {
	const struct chain_key *key;
	const struct heap_put *put;
	struct space_slot slot;
	struct found found;
};

/* Writes the entry, then swaps the head. *won_out: false, another put was first. An error: it is not
   known whether. */
static int put_publish(struct heap_access *acc, struct put_call *call, bool *won_out)
{
	const struct heap_put *put = call->put;
	struct found *found = &call->found;
	const struct heap_entry entry = {
		.version = found->version + 1,
		.prev = found->word,
		.len = put->deletes ? 0 : put->len,
		.bucket = found->bucket,
		.flags = put->deletes ? ENTRY_DELETED : 0,
		.writer = acc->owner,
		.gen = (uint32_t)call->slot.extent->word,
		.epoch = acc->pin,
	};
	uint64_t word = head_make(entry.version, call->slot.off,
				  chain_head_tag(call->key) | (put->deletes ? HEAD_DELETED : 0));
	struct transport_wr wrs[2];
	int ret;

	chain_entry_write(acc->stage, &entry, call->key, put->value);
	wrs[0] = wr_write(acc->heap->rows, call->slot.off, acc->stage,
			  (uint32_t)chain_entry_bytes(call->key->len, entry.len));
	/* H1 pairs with H4: the entry, then the head names it. */
	wrs[1] = wr_swap(acc->heap->tree, heap_head_off(acc->heap, found->bucket), found->word,
			 word);
	acc->in_doubt = true;
	ret = transport_run(acc->heap->tree->tr, wrs, 2);
	if (ret == 0 && wrs[1].atomic.status != ATOMIC_DONE)
		ret = error_set(-EIO, "put: the answer was lost: whether it was done is not known");
	*won_out = ret == 0 && wrs[1].atomic.old == found->word;
	if (ret)
		return ret;
	acc->in_doubt = false;
	if (*won_out) {
		found->version = entry.version;
		found->word = word;
	}
	return 0;
}

/* Behind a put that won over the head word `old`: the cell of the new version, and the counts. */
static int put_finish(struct heap_access *acc, const struct put_call *call, uint64_t old)
{
	struct region *tree = acc->heap->tree;
	const struct found *found = &call->found;
	uint64_t extent = (head_off(old) - HEAP_ROWS_OFF) / acc->heap->desc.extent_bytes;
	const struct chain_value value = { .version = found->version,
					   .ptr = call->put->value,
					   .len = call->put->deletes ? 0 : call->put->len };
	struct heap_tail *tail;
	uint32_t n = 0, bytes;
	int ret = access_tail(acc, &tail);

	access_remember(acc, call->key, found, value.len);
	bytes = chain_cell_write(&tail->cell, found->word, call->key, &value);
	tail->wrs[n++] = wr_write(tree, heap_head_off(acc->heap, found->bucket) + HEAP_CELL_OFF,
				  &tail->cell, bytes);
	if (!old)
		tail->wrs[n++] =
			wr_add(tree, HEAP_WORDS_OFF + offsetof(struct heap_words, keys), 1);
	else if (extent < acc->heap->desc.extents)
		tail->wrs[n++] = wr_add(tree,
					heap_extent_off(acc->heap, (uint32_t)extent) +
						offsetof(struct heap_extent, retired),
					1);
	return ret ? ret : access_send(acc, tail, n);
}

/* Puts into the call's slot, and keeps it or gives it back. */
static int put_into(struct heap_access *acc, struct put_call *call, uint64_t *version_out)
{
	uint64_t old = 0;
	bool won = false;
	int ret = 0;

	for (uint32_t i = 0; ret == 0 && !won && i < MOST_TRIES; i++) {
		acc->stats.conflicts += i > 0;
		if (i == 0)
			access_pin(acc);
		ret = access_find(acc, call->key, &call->found);
		if (ret == 0)
			ret = put_check(&call->found, call->put);
		if (ret)
			break;
		old = call->found.word;
		ret = put_publish(acc, call, &won);
		if (ret || won)
			space_keep(&acc->space, &call->slot, call->found.bucket);
		if (ret) /* the connection has ended, or an answer is lost: it may have been done */
			return ret;
	}
	if (!won) {
		space_give(&acc->space, &call->slot);
		if (ret == 0)
			ret = error_set(-EAGAIN, "put: other clients changed the key %u times",
					MOST_TRIES);
		return access_unpin(acc, ret);
	}
	*version_out = call->found.version;
	if (put_finish(acc, call, old)) /* hints: the put itself is done */
		error_clear();
	return 0;
}

int heap_put(struct heap_access *acc, const struct chain_key *key, const struct heap_put *put,
	     uint64_t *version_out)
{
	uint64_t bytes = chain_entry_bytes(key->len, put->deletes ? 0 : put->len);
	struct put_call call = { .key = key, .put = put };
	int ret;

	if (!acc->owner)
		return error_set(-EACCES, "the handle was opened read-only");
	if (put->len > UINT32_MAX || bytes > heap_entry_most(&acc->heap->desc))
		return error_set(-ERANGE,
				 "a value of %" PRIu64 " bytes: an entry holds %" PRIu64
				 " with its key and header, one extent; create the heap with a "
				 "larger extent_bytes",
				 put->len, heap_entry_most(&acc->heap->desc));
	if (!access_make_room(acc, max_u64(bytes, GUESS_BYTES)))
		return error_set(-ENOMEM, "put: cannot allocate memory");
	ret = space_take(&acc->space, bytes, put->deletes, &call.slot);
	return ret ? ret : put_into(acc, &call, version_out);
}

/* -------- walk -------- */

static int next_once(struct heap_access *acc, uint32_t *bucket_inout, struct heap_key *out)
{
	uint32_t end = acc->heap->desc.buckets + HEAP_PROBES, bucket = *bucket_inout;
	struct heap_head heads[RECORDS_AT_ONCE] = { 0 };
	struct heap_entry entry;
	struct chain_at at;

	for (uint32_t i = 0; bucket < end; bucket++, i++) {
		uint32_t n = (uint32_t)min_u64(end - bucket, RECORDS_AT_ONCE);
		int ret = i % RECORDS_AT_ONCE == 0
				  ? access_read(acc, heap_head_off(acc->heap, bucket), heads,
						n * (uint32_t)sizeof(heads[0]))
				  : 0;

		at = (struct chain_at){ heads[i % RECORDS_AT_ONCE].word.raw, bucket };
		if (ret == 0 && at.word && !(at.word & HEAD_DELETED))
			ret = access_read_entry(acc, at, NULL, 0, false);
		else if (ret == 0)
			continue;
		if (ret)
			return ret < 0 ? ret : access_torn(acc, bucket);
		memcpy(&entry, acc->stage, sizeof(entry));
		*out = (struct heap_key){ .ptr = acc->stage + sizeof(entry),
					  .len = entry.key_len,
					  .value_len = entry.len,
					  .version = entry.version };
		*bucket_inout = bucket + 1;
		return 0;
	}
	*bucket_inout = bucket;
	return error_set(-ENODATA, "no more keys");
}

int heap_next(struct heap_access *acc, uint32_t *bucket_inout, struct heap_key *out)
{
	int ret = -EAGAIN;

	for (uint32_t i = 0; ret == -EAGAIN && i < MOST_READS; i++) {
		if (i == 2 && acc->owner)
			access_pin(acc);
		ret = next_once(acc, bucket_inout, out);
	}
	return access_unpin(acc, ret);
}

/* -------- open, close -------- */

int heap_access_open(struct heap_access *acc, struct heap *heap, uint32_t owner)
{
	*acc = (struct heap_access){ .heap = heap, .owner = owner };
	acc->cursors = mem_zalloc(HEAP_CURSORS * sizeof(acc->cursors[0]));
	if (!acc->cursors || !access_make_room(acc, 4 * GUESS_BYTES)) {
		mem_free(acc->cursors);
		return error_set(-ENOMEM, "heap: cannot allocate memory for an access");
	}
	space_init(&acc->space, heap, owner);
	return 0;
}

void heap_access_close(struct heap_access *acc)
{
	struct heap_tail *tail;

	for (uint32_t i = 0; i < HEAP_TAILS; i++)
		if (access_tail(acc, &tail))
			error_clear(); /* they were hints */
	space_fini(&acc->space);
	mem_free(acc->cursors);
	mem_free(acc->stage);
}
