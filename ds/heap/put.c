#include "ds/heap/copies.h"
#include "ds/heap/large.h"

#include "ds/part/wr_list.h"

#include "transport/barrier.h"

#include "base/bits.h"

#include <errno.h>
#include <inttypes.h>

#define MOST_TRIES 64u /* of a put against others */

/* Compares what is there with what the put expects. */
static int put_check(const struct heap_found *found, const struct heap_put *put)
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
	struct heap_large *large; /* whose manifest it puts; NULL = none */
	struct space_slot slot;
	struct heap_found found;
	uint64_t word; /* that it tries to set, or has set */
	bool kept;     /* the head names the slot, or may */
};

static const struct rword64 *word_at(const struct region *region, uint64_t off)
{
	return (const void *)(region->base + off);
}

/* Writes the entry into its slot, then swaps the head; both in place. */
static bool put_swap_in_place(struct heap_access *acc, const struct put_call *call,
			      const struct heap_entry *entry, uint64_t word)
{
	const struct heap *heap = acc->heap;
	uint8_t *slot = heap->rows->base + call->slot.off;
	uint64_t old = call->found.word;
	/* TSan sees the copies of readers as atomics only. */
	uint8_t *to = BARRIER_TSAN ? acc->stage : slot;

	chain_entry_write(to, entry, call->key, call->put->value);
	if (BARRIER_TSAN)
		transport_copy_racy(slot, to, chain_entry_bytes(call->key->len, entry->len));
	/* H1 pairs with H4: the entry, then the head names it. */
	return rword64_cas(word_at(heap->tree, heap_head_off(heap, call->found.bucket)), &old,
			   word);
}

/* Writes the entry, then swaps the head. *won_out: false, another put was first. An error: it is not
   known whether. */
static int put_publish(struct heap_access *acc, struct put_call *call, bool *won_out)
{
	const struct heap_put *put = call->put;
	struct heap_found *found = &call->found;
	const struct heap_entry entry = {
		.version = found->version + 1,
		.prev = found->word,
		.len = put->deletes ? 0 : put->len,
		.bucket = found->bucket,
		.flags = put->deletes  ? ENTRY_DELETED
			 : call->large ? ENTRY_MANIFEST
				       : 0,
		.writer = acc->owner,
		.gen = (uint32_t)call->slot.extent->word,
		.epoch = call->large ? call->large->bytes : acc->pin,
	};
	uint64_t word = head_make(entry.version, call->slot.off,
				  chain_head_tag(call->key) | (put->deletes ? HEAD_DELETED : 0));
	struct copies_put swap = {
		.entry = acc->stage,
		.bytes = (uint32_t)chain_entry_bytes(call->key->len, entry.len),
		.bucket = found->bucket,
		.from = found->word,
		.to = word,
	};
	int ret = call->large ? heap_large_name(acc, call->large, found->bucket, word) : 0;

	call->word = word;
	if (ret)
		return ret;
	*won_out = true;
	if (acc->in_place && !acc->copies) {
		*won_out = put_swap_in_place(acc, call, &entry, word);
	} else {
		chain_entry_write(acc->stage, &entry, call->key, put->value);
		acc->in_doubt = true;
		ret = acc->copies ? heap_copies_put(acc->copies, &swap)
				  : heap_put_entry(acc->heap, &swap, won_out);
		acc->in_doubt = ret != 0;
	}
	if (ret == 0 && *won_out) {
		found->version = entry.version;
		found->word = word;
	}
	return ret;
}

/* Behind a put that won over the head word `old`: the cell of the new version, and the counts. */
static int put_finish(struct heap_access *acc, const struct put_call *call, uint64_t old)
{
	const struct heap *heap = acc->heap;
	const struct heap_found *found = &call->found;
	uint64_t extent = (head_off(old) - HEAP_ROWS_OFF) / heap->desc.extent_bytes;
	uint64_t cell_off = heap_head_off(heap, found->bucket) + HEAP_CELL_OFF, count_off = 0;
	const struct chain_value value = { .version = found->version,
					   .ptr = call->put->value,
					   .len = call->put->deletes ? 0 : call->put->len };
	struct heap_tail *tail;
	uint32_t n = 0, bytes;
	int ret = heap_access_tail(acc, &tail);

	heap_remember(acc, call->key, found, value.len);
	bytes = chain_cell_write(&tail->cell, found->word, call->key, &value);
	if (!old)
		count_off = HEAP_WORDS_OFF + offsetof(struct heap_words, keys);
	else if (extent < heap->desc.extents)
		count_off = heap_extent_off(heap, (uint32_t)extent) +
			    offsetof(struct heap_extent, retired);
	if (acc->in_place) {
		transport_copy_racy(heap->tree->base + cell_off, &tail->cell, bytes);
		if (count_off)
			rword64_add(word_at(heap->tree, count_off), 1);
		heap_access_withdraw(acc);
		return 0;
	}
	tail->wrs[n++] = wr_write(heap->tree, cell_off, &tail->cell, bytes);
	if (count_off)
		tail->wrs[n++] = wr_add(heap->tree, count_off, 1);
	return ret ? ret : heap_access_send(acc, tail, n);
}

/* Puts into the call's slot, and keeps it or gives it back. */
static int put_into(struct heap_access *acc, struct put_call *call, uint64_t *version_out)
{
	uint64_t old = 0;
	bool won = false;
	int ret = 0;

	for (uint32_t i = 0; ret == 0 && !won && i < MOST_TRIES; i++) {
		acc->stats.conflicts += i > 0;
		if (!heap_find_known(acc, call->key, &call->found)) {
			if (i == 0)
				heap_access_pin(acc);
			ret = heap_find(acc, call->key, &call->found);
		}
		if (ret == 0)
			ret = put_check(&call->found, call->put);
		if (ret)
			break;
		old = call->found.word;
		ret = put_publish(acc, call, &won);
		call->kept = ret || won;
		if (call->kept)
			space_keep(&acc->space, &call->slot, call->found.bucket);
		if (ret) /* the connection has ended, or an answer is lost: it may have been done */
			return ret;
	}
	if (!won) {
		space_give(&acc->space, &call->slot);
		if (ret == 0)
			ret = error_set(-EAGAIN, "put: other clients changed the key %u times",
					MOST_TRIES);
		return heap_access_unpin(acc, ret);
	}
	*version_out = call->found.version;
	if (put_finish(acc, call, old)) /* hints: the put itself is done */
		error_clear();
	return 0;
}

/* Puts an entry: a value, or the manifest of one. */
static int put_entry(struct heap_access *acc, struct put_call *call, uint64_t *version_out)
{
	const struct heap_put *put = call->put;
	uint64_t bytes = chain_entry_bytes(call->key->len, put->deletes ? 0 : put->len);
	int ret;

	if (!heap_access_make_room(acc, max_u64(bytes, HEAP_GUESS_BYTES)))
		return error_set(-ENOMEM, "put: cannot allocate memory");
	ret = space_take(&acc->space, bytes, put->deletes, &call->slot);
	return ret ? ret : put_into(acc, call, version_out);
}

static int put_large(struct heap_access *acc, const struct chain_key *key,
		     const struct heap_put *put, uint64_t *version_out)
{
	struct heap_large large;
	struct heap_put manifest = { .expected = put->expected };
	struct put_call call = { .key = key, .put = &manifest, .large = &large };
	int ret = heap_large_begin(acc, put, &large);

	if (ret)
		return ret;
	manifest.value = large.manifest;
	manifest.len = large.manifest_bytes;
	ret = put_entry(acc, &call, version_out);
	heap_large_end(acc, &large, call.found.bucket, call.kept ? call.word : 0);
	return ret;
}

int heap_put(struct heap_access *acc, const struct chain_key *key, const struct heap_put *put,
	     uint64_t *version_out)
{
	uint64_t most = heap_entry_most(&acc->heap->desc);
	struct put_call call = { .key = key, .put = put };
	bool is_large;

	if (!acc->owner)
		return error_set(-EACCES, "the handle was opened read-only");
	is_large = !put->deletes &&
		   (put->len > most || chain_entry_bytes(key->len, put->len) > most);
	if (is_large && (acc->plane || acc->copies))
		return error_set(
			-ERANGE,
			"a value of %" PRIu64 " bytes: an entry holds %" PRIu64
			" with its key and header in a heap with copies or of another mode "
			"than clover; create the heap with a larger extent_bytes",
			put->len, most);
	if (acc->plane)
		return acc->plane->put(acc, key, put, version_out);
	return is_large ? put_large(acc, key, put, version_out)
			: put_entry(acc, &call, version_out);
}
