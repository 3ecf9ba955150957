#include "ds/heap/copies.h"
#include "ds/heap/large.h"
#include "ds/heap/writers/writers.h"

#include "ds/part/wr_list.h"

#include "transport/barrier.h"

#include "base/mem/alloc.h"
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

/* Makes the entry of the put for what was found, and sets call->word. */
static struct heap_entry put_prepare(const struct heap_access *acc, struct put_call *call)
{
	const struct heap_put *put = call->put;
	const struct heap_found *found = &call->found;
	const struct heap_entry entry = {
		.version = found->version + 1,
		.prev = found->word,
		.len = put->deletes ? 0 : put->len,
		.bucket = found->bucket,
		.flags = put->deletes   ? ENTRY_DELETED
			 : call->large  ? ENTRY_MANIFEST
			 : put->striped ? ENTRY_STRIPED
					: 0,
		.writer = acc->owner,
		.gen = (uint32_t)call->slot.extent->word,
		.epoch = call->large    ? call->large->bytes
			 : put->striped ? put->striped
					: acc->pin,
	};

	call->word = head_make(entry.version, call->slot.off,
			       chain_head_tag(call->key) | (put->deletes ? HEAD_DELETED : 0));
	return entry;
}

/* The head names the entry: it is what was found. */
static void put_won(struct put_call *call)
{
	call->found.version++;
	call->found.word = call->word;
}

/* Swaps the head behind the entry, in all copies if there are some. */
static int put_swap(struct heap_access *acc, const struct copies_put *swap, bool *won_out)
{
	uint64_t old = swap->from;
	int ret;

	if (acc->writers)
		return heap_writers_put(acc, swap, won_out);
	ret = acc->copies ? heap_copies_put(acc->copies, swap)
			  : heap_put_entry(acc->heap, swap, &old);
	*won_out = old == swap->from;
	return ret;
}

/* Writes the entry, then swaps the head. *won_out: false, another put was first. An error: it is not
   known whether, if acc->in_doubt. */
static int put_publish(struct heap_access *acc, struct put_call *call, bool *won_out)
{
	const struct heap_entry entry = put_prepare(acc, call);
	const struct heap_found *found = &call->found;
	struct copies_put swap = {
		.entry = acc->stage,
		.bytes = (uint32_t)chain_entry_bytes(call->key->len, entry.len),
		.bucket = found->bucket,
		.from = found->word,
		.to = call->word,
	};
	int ret = call->large ? heap_large_name(acc, call->large, found->bucket, call->word) : 0;

	if (ret)
		return ret;
	*won_out = true;
	if (acc->in_place && !acc->copies) {
		*won_out = put_swap_in_place(acc, call, &entry, call->word);
	} else {
		chain_entry_write(acc->stage, &entry, call->key, call->put->value);
		acc->in_doubt = true;
		ret = put_swap(acc, &swap, won_out);
		acc->in_doubt &= ret != 0;
	}
	if (ret == 0 && *won_out)
		put_won(call);
	return ret;
}

/* The word that counts a put over the head word `old`; 0 = none. */
static uint64_t put_count_off(const struct heap *heap, uint64_t old)
{
	uint64_t extent = (head_off(old) - HEAP_ROWS_OFF) / heap->desc.extent_bytes;

	if (!old)
		return HEAP_WORDS_OFF + offsetof(struct heap_words, keys);
	return extent < heap->desc.extents ? heap_extent_off(heap, (uint32_t)extent) +
						     offsetof(struct heap_extent, retired)
					   : 0;
}

static uint64_t put_cell_off(const struct heap *heap, const struct put_call *call)
{
	return heap_head_off(heap, call->found.bucket) + HEAP_CELL_OFF;
}

/* Writes the cell of a put that has won; returns its bytes. */
static uint32_t put_cell(const struct heap_access *acc, const struct put_call *call,
			 struct heap_cell *cell)
{
	const struct heap_found *found = &call->found;
	const struct chain_value value = { .version = found->version,
					   .ptr = call->put->value,
					   .len = call->put->deletes ? 0 : call->put->len };

	heap_remember(acc, call->key, found, value.len);
	return chain_cell_write(cell, found->word, call->key, &value);
}

/* Behind a put that won over the head word `old`: the cell of the new version, and the counts. */
static int put_finish(struct heap_access *acc, const struct put_call *call, uint64_t old)
{
	const struct heap *heap = acc->heap;
	uint64_t cell_off = put_cell_off(heap, call), count_off = put_count_off(heap, old);
	struct heap_tail *tail;
	uint32_t n = 0, bytes;
	int ret = heap_access_tail(acc, &tail);

	if (acc->writers)
		heap_writers_unpin(acc, old == 0);
	bytes = put_cell(acc, call, &tail->cell);
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

static int put_find(struct heap_access *acc, struct put_call *call)
{
	if (acc->writers)
		return heap_writers_find(acc, call->key, &call->found);
	if (heap_find_known(acc, call->key, &call->found))
		return 0;
	heap_access_pin(acc);
	return heap_find(acc, call->key, &call->found);
}

/* Ends the pins of a put that was not done, or may not be. */
static int put_end(struct heap_access *acc, int result)
{
	if (acc->writers)
		heap_writers_unpin(acc, false);
	return heap_access_unpin(acc, result);
}

/* Puts into the call's slot, and keeps it or gives it back. */
static int put_into(struct heap_access *acc, struct put_call *call, uint64_t *version_out)
{
	uint64_t old = 0;
	bool won = false;
	int ret = 0;

	for (uint32_t i = 0; ret == 0 && !won && i < MOST_TRIES; i++) {
		acc->stats.conflicts += i > 0;
		ret = put_find(acc, call);
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
			return acc->writers ? put_end(acc, ret) : ret;
	}
	if (!won) {
		space_give(&acc->space, &call->slot);
		if (ret == 0)
			ret = error_set(-EAGAIN, "put: other clients changed the key %u times",
					MOST_TRIES);
		return put_end(acc, ret);
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
	if (acc->holds_pin &&
	    !space_has(&acc->space, bytes)) { /* others wait for it, as we would */
		acc->holds_pin = false;
		heap_access_withdraw(acc);
		acc->holds_pin = true;
	}
	ret = space_take(&acc->space, bytes, put->deletes || put->urgent, &call->slot);
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

/* True if the value does not fit into an entry, or is to be mapped. */
static bool put_is_large(const struct heap_access *acc, const struct chain_key *key,
			 const struct heap_put *put)
{
	uint64_t most = heap_entry_most(&acc->heap->desc);

	return !put->deletes && (put->len > most || chain_entry_bytes(key->len, put->len) > most ||
				 heap_put_pages(&acc->heap->desc, put));
}

int heap_put(struct heap_access *acc, const struct chain_key *key, const struct heap_put *put,
	     uint64_t *version_out)
{
	struct put_call call; /* not cleared: found is set before it is read */
	bool is_large = put_is_large(acc, key, put);

	if (!acc->owner)
		return error_set(-EACCES, "the handle was opened read-only");
	if (is_large && acc->plane)
		return error_set(
			-ERANGE,
			"a value of %" PRIu64 " bytes: an entry holds %" PRIu64
			" with its key and header in a heap of another mode than clover; create "
			"the heap with a larger extent_bytes",
			put->len, heap_entry_most(&acc->heap->desc));
	if (acc->plane)
		return acc->plane->put(acc, key, put, version_out);
	if (is_large)
		return put_large(acc, key, put, version_out);
	call.key = key;
	call.put = put;
	call.large = NULL;
	call.kept = false;
	return put_entry(acc, &call, version_out);
}

/* -------- many keys -------- */

#define BATCH_ENTRY_MOST ((uint64_t)64 << 10) /* a longer one takes longer than its round trips */

/* Puts over a wire that share their round trips. */
struct heap_batch {
	struct put_call calls[HEAP_MANY];
	struct heap_put_ask *asks[HEAP_MANY];
	uint64_t at[HEAP_MANY]; /* of the entry in the stage */
	struct heap_head heads[HEAP_MANY];
	struct transport_wr wrs[2 * HEAP_MANY + 2];
	uint32_t n;
	/* What follows them and is not waited for. */
	struct heap_cell cells[HEAP_MANY];
	struct transport_wr tail[2 * HEAP_MANY + 1];
	uint64_t idle;
};

/* Without slots for those from i on. */
static void batch_cut(struct heap_access *acc, uint32_t i)
{
	struct heap_batch *batch = acc->batch;

	for (; batch->n > i; batch->n--)
		space_give(&acc->space, &batch->calls[batch->n - 1].slot);
}

/* Takes slots for the open asks, as long as there are some. */
static int batch_fill(struct heap_access *acc, struct heap_put_ask *asks, uint32_t n)
{
	struct heap_batch *batch = acc->batch;
	uint64_t total = 0;

	batch->n = 0;
	for (uint32_t i = 0; i < n; i++) {
		struct heap_put_ask *ask = &asks[i];
		uint64_t bytes = chain_entry_bytes(ask->key.len, ask->put.len);
		struct put_call *call = &batch->calls[batch->n];

		if (ask->state != HEAP_PUT_OPEN || put_is_large(acc, &ask->key, &ask->put) ||
		    bytes > BATCH_ENTRY_MOST)
			continue;
		*call = (struct put_call){ .key = &ask->key, .put = &ask->put };
		if (space_take(&acc->space, bytes, false, &call->slot))
			break; /* it is put alone, and has the error */
		batch->asks[batch->n++] = ask;
		total += bytes;
	}
	if (heap_access_make_room(acc, total))
		return 0;
	batch_cut(acc, 0);
	return error_set(-ENOMEM, "put: cannot allocate memory");
}

/* Reads the heads behind a pin. 1 RT. Keeps the puts whose bucket is known, in their order. */
static int batch_look(struct heap_access *acc)
{
	struct heap_batch *batch = acc->batch;
	struct heap *heap = acc->heap;
	uint32_t buckets[HEAP_MANY] = { 0 }, n = 0;
	int ret;

	for (uint32_t i = 0; i < batch->n; i++) {
		const struct chain_key *key = batch->calls[i].key;
		const struct heap_cursor *cursor = heap_cursor_of(acc, key);

		buckets[i] = heap_cursor_is_of(cursor, key)
				     ? cursor->bucket
				     : chain_place(key->hash, heap->desc.buckets);
		batch->wrs[2 + i] = wr_read(heap->tree, heap_head_off(heap, buckets[i]),
					    &batch->heads[i], sizeof(batch->heads[i]));
	}
	ret = heap_access_run_pinned(acc, batch->wrs, 2 + batch->n);
	if (ret) {
		batch_cut(acc, 0);
		return ret;
	}
	for (uint32_t i = 0; i < batch->n; i++) {
		struct put_call *call = &batch->calls[i];

		heap_found_set(&call->found, buckets[i], &batch->heads[i], call->key);
		if (call->found.word && !call->found.has_cell) { /* perhaps another key's */
			space_give(&acc->space, &call->slot);
			continue;
		}
		batch->asks[n] = batch->asks[i];
		batch->calls[n++] = *call;
	}
	batch->n = n;
	return 0;
}

/* Settles put i by the answer to its CAS. */
static void batch_settle(struct heap_access *acc, uint32_t i)
{
	const struct transport_atomic *swap = &acc->batch->wrs[2 * i + 1].atomic;
	struct put_call *call = &acc->batch->calls[i];
	struct heap_put_ask *ask = acc->batch->asks[i];
	bool known = swap->status == ATOMIC_DONE, won = known && swap->old == swap->expected;

	if (won || !known)
		space_keep(&acc->space, &call->slot, call->found.bucket);
	else
		space_give(&acc->space, &call->slot);
	call->kept = won;
	acc->in_doubt |= !known;
	acc->stats.conflicts += known && !won;
	if (won) {
		put_won(call);
		ask->version = call->found.version;
	}
	ask->state = won ? HEAP_PUT_DONE : known ? HEAP_PUT_OPEN : HEAP_PUT_IN_DOUBT;
}

/* Writes all entries and swaps all heads. 1 RT. H1 pairs with H4: the entry, then the head names it. */
static int batch_swap(struct heap_access *acc)
{
	struct heap_batch *batch = acc->batch;
	struct heap *heap = acc->heap;
	uint8_t *to = acc->stage;
	int ret;

	acc->in_doubt = false;
	for (uint32_t i = 0; i < batch->n; i++) {
		struct put_call *call = &batch->calls[i];
		const struct heap_entry entry = put_prepare(acc, call);
		uint64_t bytes = chain_entry_bytes(call->key->len, entry.len);

		chain_entry_write(to, &entry, call->key, call->put->value);
		batch->wrs[2 * i] = wr_write(heap->rows, call->slot.off, to, (uint32_t)bytes);
		batch->wrs[2 * i + 1] = wr_swap(heap->tree, heap_head_off(heap, call->found.bucket),
						call->found.word, call->word);
		to += bytes;
	}
	ret = transport_run(heap->tree->tr, batch->wrs, 2 * batch->n);
	for (uint32_t i = 0; i < batch->n; i++)
		batch_settle(acc, i);
	if (ret == 0 && acc->in_doubt)
		ret = error_set(-EIO, "put: an answer was lost: whether it was done is not known");
	return ret;
}

/* Behind the puts that won: as put_finish. */
static int batch_finish(struct heap_access *acc)
{
	struct heap_batch *batch = acc->batch;
	struct region *tree = acc->heap->tree;
	uint32_t n = 0;
	int ret = heap_batch_end(acc);

	for (uint32_t i = 0; i < batch->n; i++) {
		const struct put_call *call = &batch->calls[i];
		uint64_t count_off =
			put_count_off(acc->heap, batch->wrs[2 * i + 1].atomic.expected);
		uint32_t bytes;

		if (!call->kept)
			continue;
		bytes = put_cell(acc, call, &batch->cells[i]);
		batch->tail[n++] =
			wr_write(tree, put_cell_off(acc->heap, call), &batch->cells[i], bytes);
		if (count_off)
			batch->tail[n++] = wr_add(tree, count_off, 1);
	}
	return ret ? ret : heap_access_post(acc, batch->tail, n, &batch->idle, &acc->batch_ticket);
}

static int many_chained(struct heap_access *acc, struct heap_put_ask *asks, uint32_t n)
{
	int ret = 0;

	if (!acc->batch)
		acc->batch = mem_zalloc(sizeof(*acc->batch));
	if (!acc->batch)
		return error_set(-ENOMEM, "put: cannot allocate memory");
	ret = batch_fill(acc, asks, n);
	if (ret || !acc->batch->n)
		return ret;
	ret = batch_look(acc);
	if (ret)
		return heap_access_unpin(acc, ret);
	ret = batch_swap(acc);
	if (ret == 0 && batch_finish(acc)) /* hints: the puts are done */
		error_clear();
	return ret;
}

/* Puts the open asks one after the other. */
static int many_each(struct heap_access *acc, struct heap_put_ask *asks, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		struct heap_put_ask *ask = &asks[i];
		int ret;

		if (ask->state != HEAP_PUT_OPEN)
			continue;
		ret = heap_put(acc, &ask->key, &ask->put, &ask->version);
		if (ret && ret != -ERANGE && ret != -ENOSPC && ret != -EBADMSG) {
			if (acc->in_doubt)
				ask->state = HEAP_PUT_IN_DOUBT;
			return ret;
		}
		ask->status = ret;
		ask->state = HEAP_PUT_DONE;
	}
	return 0;
}

int heap_put_many(struct heap_access *acc, struct heap_put_ask *asks, uint32_t n)
{
	int ret = 0;

	if (acc->in_place)
		for (uint32_t i = 0; i < n; i++)
			heap_prefetch(acc, &asks[i].key, 0);
	else if (acc->owner && !acc->plane && !acc->copies)
		ret = many_chained(acc, asks, n);
	/* In place one pin serves all of them: an old pin is safe. */
	acc->holds_pin = acc->in_place;
	if (ret == 0)
		ret = many_each(acc, asks, n);
	acc->holds_pin = false;
	return acc->in_place ? heap_access_unpin(acc, ret) : ret;
}
