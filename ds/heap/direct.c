#include "ds/heap/direct.h"

#include "ds/heap/find.h"
#include "ds/heap/pair.h"
#include "ds/part/wr_list.h"

#include "base/bits.h"
#include "base/crc32c.h"
#include "base/mem/alloc.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define GUESS_BYTES 1024u /* of an entry whose length is not known */
#define MOST_TRIES 64u
#define RECORDS_AT_ONCE 8u
#define HEAD_BYTES (sizeof(struct heap_entry) + HEAP_KEY_MAX)

#define LOCK_OFF offsetof(struct heap_head, lock)

static struct pair_at copy_of(uint32_t bucket, uint32_t which)
{
	return (struct pair_at){ bucket, which };
}

static uint64_t lock_off(const struct heap *heap, uint32_t bucket)
{
	return heap_head_off(heap, bucket) + LOCK_OFF;
}

/* -------- finding a key -------- */

static struct heap_cursor *direct_cursor(const struct heap_access *acc, const struct chain_key *key)
{
	return &acc->cursors[key->hash % HEAP_CURSORS];
}

static void direct_remember(const struct heap_access *acc, const struct chain_key *key,
			    uint32_t bucket, uint64_t bytes)
{
	*direct_cursor(acc, key) = (struct heap_cursor){
		.hash = key->hash, .word = 1, .bucket = bucket, .bytes = (uint32_t)bytes
	};
}

/*
 * The key's bucket, at or behind *bucket. *free_out: nobody's yet. -ENOSPC: all that may be the key's are
 * other keys'.
 */
static int direct_probe(struct heap_access *acc, const struct chain_key *key, uint32_t *bucket,
			bool *free_out)
{
	uint32_t first = chain_place(key->hash, acc->heap->desc.buckets);
	uint32_t at_once = transport_changes_in_place(acc->heap->tree) ? 1 : RECORDS_AT_ONCE;
	struct heap_head heads[RECORDS_AT_ONCE] = { 0 };

	for (uint32_t i = 0; i < HEAP_PROBES; i++) {
		const struct heap_head *head = &heads[i % at_once];
		int ret = i % at_once == 0
				  ? transport_fetch(acc->heap->tree,
						    heap_head_off(acc->heap, first + i), heads,
						    at_once * (uint32_t)sizeof(heads[0]))
				  : 0;

		if (ret)
			return ret;
		if (head->word.raw == HEAD_MOVED)
			return heap_away(acc);
		*bucket = first + i;
		*free_out = !head->word.raw;
		if (*free_out || head->word.raw == pair_hash(key->hash))
			return 0;
	}
	return error_set(-ENOSPC,
			 "heap %s: no bucket is free near that of the key: it has too many keys, "
			 "deleted ones included; create it with a larger keys",
			 acc->heap->desc.name);
}

/* Finds the key's bucket, by its cursor or by probing. -ENOENT: it has none. */
static int direct_find(struct heap_access *acc, const struct chain_key *key, uint32_t *bucket)
{
	const struct heap_cursor *cursor = direct_cursor(acc, key);
	bool is_free = false;
	int ret = 0;

	if (cursor->word && cursor->hash == key->hash)
		*bucket = cursor->bucket;
	else
		ret = direct_probe(acc, key, bucket, &is_free);
	return is_free || ret == -ENOSPC ? error_set(-ENOENT, "no such key") : ret;
}

/* The same; takes the first free one for a key that has none. */
static int direct_claim(struct heap_access *acc, const struct chain_key *key, uint32_t *bucket)
{
	const struct heap_cursor *cursor = direct_cursor(acc, key);
	const uint64_t keys_off = HEAP_WORDS_OFF + offsetof(struct heap_words, keys);
	uint64_t mark = pair_hash(key->hash), old, keys;
	bool is_free = false;
	int ret;

	if (cursor->word && cursor->hash == key->hash) {
		*bucket = cursor->bucket;
		return 0;
	}
	for (;;) {
		ret = direct_probe(acc, key, bucket, &is_free);
		if (ret || !is_free)
			return ret;
		ret = transport_cas_word(acc->heap->tree, heap_head_off(acc->heap, *bucket), 0,
					 mark, &old);
		if (ret == 0 && !old)
			return transport_faa_word(acc->heap->tree, keys_off, 1, &keys);
		if (ret || old == mark)
			return ret;
	}
}

/* -------- get -------- */

/* The entry in the stage is another key's of the same 64 bits of hash, or it was changed by nobody of us. */
static int direct_check_key(const struct heap_access *acc, const struct chain_key *key,
			    const struct heap_entry *entry)
{
	if (entry->hash == key->hash && entry->key_len == key->len &&
	    memcmp(pair_key(acc->stage), key->ptr, key->len) == 0)
		return 0;
	return error_set(-EBADMSG, "heap %s: the key's bucket has an entry of another key",
			 acc->heap->desc.name);
}

/*
 * Reads the committed copy until its checksum holds: a put was under way then. It is damaged if it reads
 * the same again after nobody held the lock. Returns PAIR_OK or PAIR_NONE; -EAGAIN: its writer does not
 * finish; -EBADMSG.
 */
static int direct_read(struct heap_access *acc, uint32_t bucket, uint64_t guess,
		       struct heap_entry *entry)
{
	struct heap *heap = acc->heap;
	uint32_t crc = 0, old_crc;
	uint64_t lock = 1;
	int ret;

	for (uint32_t i = 0; i < MOST_TRIES; i++) {
		ret = pair_read(heap, copy_of(bucket, DIRECT_COMMITTED), guess, acc->stage, entry);
		if (ret != PAIR_TORN)
			return ret;
		acc->stats.rereads++;
		old_crc = crc;
		guess = heap->desc.extent_bytes;
		crc = crc32c(0, acc->stage, i ? guess : 0);
		if (i > 1 && lock == 0 && crc == old_crc)
			return error_set(-EBADMSG, "heap %s: the entry of bucket %u is damaged",
					 heap->desc.name, bucket);
		ret = transport_load(heap->tree, lock_off(heap, bucket), &lock);
		if (ret == 0 && lock == DIRECT_MOVED)
			ret = heap_away(acc);
		if (ret)
			return ret;
	}
	return error_set(-EAGAIN, "heap %s: a put into bucket %u is under way", heap->desc.name,
			 bucket);
}

static int direct_get(struct heap_access *acc, const struct chain_key *key, struct heap_value *out)
{
	const struct heap_cursor *cursor = direct_cursor(acc, key);
	uint64_t guess = cursor->word && cursor->hash == key->hash ? cursor->bytes : GUESS_BYTES;
	struct heap_entry entry;
	uint32_t bucket = 0;
	int ret = direct_find(acc, key, &bucket);

	if (ret == 0)
		ret = direct_read(acc, bucket, guess, &entry);
	if (ret == PAIR_NONE)
		return error_set(-ENOENT, "no such key");
	if (ret == 0)
		ret = direct_check_key(acc, key, &entry);
	if (ret)
		return ret;
	direct_remember(acc, key, bucket, chain_entry_bytes(entry.key_len, entry.len));
	*out = (struct heap_value){ .ptr = pair_key(acc->stage) + entry.key_len,
				    .len = entry.len,
				    .version = entry.version,
				    .deleted = (entry.flags & ENTRY_DELETED) != 0 };
	return out->deleted ? error_set(-ENOENT, "the key was deleted") : 0;
}

static int direct_version(struct heap_access *acc, const struct chain_key *key,
			  uint64_t *version_out)
{
	struct heap_value value = { 0 };
	int ret = direct_get(acc, key, &value);

	if (ret == 0 || ret == -ENOENT)
		*version_out = value.version;
	return ret == -ENOENT ? 0 : ret;
}

/* -------- put -------- */

/* Takes the lock; then the stage has the head of the committed copy. -EAGAIN: others have it. */
static int direct_lock(struct heap_access *acc, uint32_t bucket)
{
	struct heap *heap = acc->heap;
	const uint64_t intent = bucket + UINT64_C(1);
	const uint32_t head_bytes = (uint32_t)min_u64(HEAD_BYTES, heap->desc.extent_bytes);

	for (uint32_t i = 0; i < MOST_TRIES; i++) {
		struct transport_wr wrs[] = {
			wr_write(heap->tree, heap_pin_off(acc->owner), &intent, sizeof(intent)),
			wr_swap(heap->tree, lock_off(heap, bucket), 0, acc->owner),
			wr_read(heap->rows, pair_off(heap, copy_of(bucket, DIRECT_COMMITTED)),
				acc->stage, head_bytes),
		};
		int ret;

		acc->pinned = true; /* unless we hear that it is not ours, or unlock it */
		ret = transport_run(heap->tree->tr, wrs, 3);
		if (ret == 0 && wrs[1].atomic.status != ATOMIC_DONE)
			ret = error_set(-EIO, "lock: the answer was lost");
		if (ret || wrs[1].atomic.old == 0)
			return ret;
		acc->pinned = false;
		if (wrs[1].atomic.old == DIRECT_MOVED)
			return heap_away(acc);
		acc->stats.conflicts++;
	}
	return error_set(-EAGAIN, "heap %s: another client puts into bucket %u", heap->desc.name,
			 bucket);
}

static int direct_unlock(struct heap_access *acc, uint32_t bucket)
{
	uint64_t old;
	int ret = transport_cas_word(acc->heap->tree, lock_off(acc->heap, bucket), acc->owner, 0,
				     &old);

	acc->pinned = ret != 0;
	return ret;
}

/* Compares what is there with what the put expects; *old_out: the version to be replaced. */
static int direct_check(const struct heap_access *acc, const struct chain_key *key,
			const struct heap_put *put, uint64_t *old_out)
{
	struct heap_entry entry;
	bool exists;

	memcpy(&entry, acc->stage, sizeof(entry));
	*old_out = entry.version;
	if (entry.version) {
		int ret = direct_check_key(acc, key, &entry);

		if (ret)
			return ret;
	}
	exists = entry.version && !(entry.flags & ENTRY_DELETED);
	if (put->deletes && !exists)
		return error_set(-ENOENT, "no such key");
	if (put->expected != HEAP_ANY_VERSION && put->expected != (exists ? entry.version : 0))
		return error_set(-ESTALE, "the key has version %" PRIu64 ", not %" PRIu64,
				 exists ? entry.version : 0, put->expected);
	return 0;
}

/* Both copies, one after the other: one of them is whole at any time. */
static int direct_write(struct heap_access *acc, uint32_t bucket, const struct chain_key *key,
			const struct heap_put *put, uint64_t version)
{
	const struct heap_entry entry = {
		.version = version,
		.len = put->deletes ? 0 : put->len,
		.bucket = bucket,
		.flags = put->deletes ? ENTRY_DELETED : 0,
		.writer = acc->owner,
	};
	uint64_t bytes = chain_entry_bytes(key->len, entry.len);
	int ret;

	chain_entry_write(acc->stage, &entry, key, put->value);
	acc->in_doubt = true;
	ret = transport_store(acc->heap->rows, pair_off(acc->heap, copy_of(bucket, DIRECT_SECOND)),
			      acc->stage, (uint32_t)bytes);
	if (ret == 0)
		ret = transport_store(acc->heap->rows,
				      pair_off(acc->heap, copy_of(bucket, DIRECT_COMMITTED)),
				      acc->stage, (uint32_t)bytes);
	direct_remember(acc, key, bucket, bytes);
	return ret;
}

static int direct_put(struct heap_access *acc, const struct chain_key *key,
		      const struct heap_put *put, uint64_t *version_out)
{
	struct error_kept kept;
	uint64_t old = 0;
	uint32_t bucket = 0;
	int ret = acc->pinned ? direct_settle(acc->heap, acc->owner) : 0;

	if (ret)
		return ret;
	acc->pinned = false;
	ret = direct_claim(acc, key, &bucket);
	if (ret == 0)
		ret = direct_lock(acc, bucket);
	if (ret)
		return ret;
	ret = direct_check(acc, key, put, &old);
	if (ret) {
		error_keep(&kept);
		if (direct_unlock(acc, bucket) == 0)
			error_restore(&kept);
		return ret;
	}
	ret = direct_write(acc, bucket, key, put, old + 1);
	if (ret == 0)
		ret = direct_unlock(acc, bucket);
	if (ret)
		return ret;
	acc->in_doubt = false;
	*version_out = old + 1;
	return 0;
}

/* -------- walk -------- */

static int direct_next(struct heap_access *acc, uint32_t *bucket_inout, struct heap_key *out)
{
	uint32_t end = acc->heap->desc.buckets + HEAP_PROBES, first = *bucket_inout;
	struct heap_head heads[RECORDS_AT_ONCE] = { 0 };
	struct heap_entry entry = { 0 };
	int ret = 0;

	for (uint32_t i = 0; first + i < end; i++) {
		uint32_t n = (uint32_t)min_u64(end - first - i, RECORDS_AT_ONCE);

		if (i % RECORDS_AT_ONCE == 0)
			ret = transport_fetch(acc->heap->tree, heap_head_off(acc->heap, first + i),
					      heads, n * (uint32_t)sizeof(heads[0]));
		if (ret == 0 && !heads[i % RECORDS_AT_ONCE].word.raw)
			continue;
		if (ret == 0 && heads[i % RECORDS_AT_ONCE].word.raw == HEAD_MOVED)
			ret = heap_away(acc);
		if (ret == 0)
			ret = direct_read(acc, first + i, GUESS_BYTES, &entry);
		if (ret < 0)
			return ret;
		if (ret == PAIR_NONE || (entry.flags & ENTRY_DELETED)) {
			ret = 0;
			continue;
		}
		*out = (struct heap_key){ .ptr = pair_key(acc->stage),
					  .len = entry.key_len,
					  .value_len = entry.len,
					  .version = entry.version };
		*bucket_inout = first + i + 1;
		return 0;
	}
	*bucket_inout = end;
	return error_set(-ENODATA, "no more keys");
}

const struct heap_plane direct_plane = {
	.get = direct_get,
	.version = direct_version,
	.put = direct_put,
	.next = direct_next,
};

/* -------- the end of an owner -------- */

/* Completes the put of the bucket's lock from its second copy, if that is whole and newer. */
static int settle_bucket(struct heap *heap, uint32_t bucket, uint64_t hash, uint8_t *buf)
{
	struct heap_entry committed, second;
	int first = pair_read(heap, copy_of(bucket, DIRECT_COMMITTED), 0, buf, &committed), ret;

	if (first < 0)
		return first;
	ret = pair_read(heap, copy_of(bucket, DIRECT_SECOND), 0, buf, &second);
	if (ret != PAIR_OK)
		return ret < 0 ? ret : 0;
	if (pair_hash(second.hash) != hash ||
	    (first == PAIR_OK && second.version <= committed.version))
		return 0;
	return transport_store(heap->rows, pair_off(heap, copy_of(bucket, DIRECT_COMMITTED)), buf,
			       (uint32_t)chain_entry_bytes(second.key_len, second.len));
}

int direct_settle(struct heap *heap, uint32_t owner)
{
	const uint64_t idle = 0;
	struct heap_head head;
	uint64_t intent, old;
	uint32_t bucket;
	uint8_t *buf;
	int ret = transport_load(heap->tree, heap_pin_off(owner), &intent);

	if (ret || intent == 0)
		return ret;
	bucket = (uint32_t)(intent - 1);
	if (intent > (uint64_t)heap->desc.buckets + HEAP_PROBES) /* nothing that we have written */
		return transport_store(heap->tree, heap_pin_off(owner), &idle, sizeof(idle));
	ret = transport_fetch(heap->tree, heap_head_off(heap, bucket), &head, sizeof(head));
	if (ret == 0 && head.lock.raw == owner) {
		buf = mem_aligned(WIRE_LINE, heap->desc.extent_bytes);
		if (!buf)
			return error_set(-ENOMEM,
					 "heap %s: cannot allocate memory to settle owner "
					 "%u",
					 heap->desc.name, owner);
		ret = settle_bucket(heap, bucket, head.word.raw, buf);
		mem_free(buf);
		if (ret == 0)
			ret = transport_cas_word(heap->tree, lock_off(heap, bucket), owner, 0,
						 &old);
	}
	return ret ? ret : transport_store(heap->tree, heap_pin_off(owner), &idle, sizeof(idle));
}
