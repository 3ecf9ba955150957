#include "ds/heap/copies.h"

#include "ds/chain/chain.h"
#include "ds/part/slot.h"
#include "ds/part/wr_list.h"

#include "base/mem/alloc.h"
#include "base/bits.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define HEADS_AT_ONCE 32u
#define EXTENTS_AT_ONCE 64u
#define MOST_TRIES 16u /* of a CAS on a word that hardly anyone changes */

#define LINE_OFF(field) \
	(HEAP_WORDS_OFF + offsetof(struct heap_words, line) + offsetof(struct heap_line, field))

/* -------- words -------- */

/* Sets a word, whatever it is. */
static int word_set(struct heap *heap, uint64_t off, uint64_t word)
{
	uint64_t old;
	int ret = transport_load(heap->tree, off, &old);

	for (uint32_t i = 0; ret == 0 && old != word && i < MOST_TRIES; i++) {
		uint64_t from = old;

		ret = transport_cas_word(heap->tree, off, from, word, &old);
		if (ret == 0 && old == from)
			return 0;
	}
	if (ret == 0 && old != word)
		ret = error_set(-EIO, "heap %s: a word of a copy changes all the time",
				heap->desc.name);
	return ret;
}

int heap_copies_set(const struct heap_copies *copies, uint64_t off, uint64_t word)
{
	int ret = 0;

	for (uint32_t i = 1; ret == 0 && i < copies->n_all; i++)
		ret = word_set(copies->at[i], off, word);
	return ret;
}

int heap_is_whole(struct heap *heap, bool *whole_out)
{
	uint64_t word = 1;
	int ret = heap->whole ? 0 : transport_load(heap->tree, LINE_OFF(whole), &word);

	if (ret == 0)
		*whole_out = heap->whole = word == 1;
	return ret;
}

/* -------- the owner -------- */

static uint64_t owner_word(const struct copies_owner *self)
{
	return (uint64_t)self->owner << 48 | (self->lease & ((UINT64_C(1) << 48) - 1));
}

/* -EAGAIN if that owner is the server, which is told that a client waits for the part. */
static int owner_ask(struct heap *heap, uint32_t owner)
{
	uint64_t filler, old;
	int ret = transport_load(heap->tree, LINE_OFF(filler), &filler);

	if (ret || (uint32_t)filler != owner)
		return ret;
	if (!(filler & HEAP_FILLER_WANTED))
		ret = transport_cas_word(heap->tree, LINE_OFF(filler), filler,
					 filler | HEAP_FILLER_WANTED, &old);
	return ret ? ret : error_set(-EAGAIN, "heap %s: the server fills a copy", heap->desc.name);
}

/* -EBUSY if the client that the word names is alive; -EAGAIN if it is the server. */
static int owner_check(struct heap *heap, uint64_t word)
{
	uint32_t owner = (uint32_t)(word >> 48);
	struct copies_owner holder = { .owner = owner };
	struct slot_info slot;
	int ret;

	if (owner == 0 || owner > heap->desc.max_clients)
		return 0; /* nobody can be that */
	ret = slot_read(&heap->part, owner - 1, &slot);
	holder.lease = slot.lease;
	if (ret || slot.state == SLOT_FREE || owner_word(&holder) != word)
		return ret;
	ret = owner_ask(heap, owner);
	if (ret)
		return ret;
	return error_set(-EBUSY,
			 "heap %s: client slot %u of pid %u owns the part of the key: with copies, "
			 "one client puts there until it calls rlv_kv_release, closes or ends",
			 heap->desc.name, owner, slot.process.pid);
}

static int claim_one(struct heap *heap, uint64_t mine, bool *settle_out)
{
	uint64_t word, old = 0;
	int ret = transport_load(heap->tree, LINE_OFF(owner), &word);

	for (uint32_t i = 0; ret == 0 && i < MOST_TRIES; i++, word = old) {
		if (word)
			*settle_out = true;
		if (word == mine)
			return 0;
		ret = owner_check(heap, word);
		if (ret == 0)
			ret = transport_cas_word(heap->tree, LINE_OFF(owner), word, mine, &old);
		if (ret == 0 && old == word)
			return 0;
	}
	return ret ? ret
		   : error_set(-EAGAIN, "heap %s: other clients claim the part", heap->desc.name);
}

int heap_copies_claim(const struct heap_copies *copies, const struct copies_owner *self,
		      bool *settle_out, uint64_t *newest_out)
{
	bool whole = false;
	int ret = 0;

	*settle_out = false;
	for (uint32_t i = 0; ret == 0 && i < copies->n_all; i++)
		ret = claim_one(copies->at[i], owner_word(self), settle_out);
	if (ret == 0 && copies->n < copies->n_all)
		ret = heap_is_whole(copies->at[copies->n], &whole);
	if (ret == 0 && whole) /* another owner filled it since our last look */
		ret = error_set(-EAGAIN, "heap %s: a copy has become whole",
				copies->at[0]->desc.name);
	return ret ? ret : transport_load(copies->at[0]->tree, LINE_OFF(newest), newest_out);
}

int heap_copies_release(const struct heap_copies *copies, const struct copies_owner *self)
{
	uint64_t old;
	int ret = 0;

	for (uint32_t i = 0; ret == 0 && i < copies->n_all; i++)
		ret = heap_settle_extents(copies->at[i], self->owner);
	for (uint32_t i = copies->n_all; ret == 0 && i-- > 0;)
		ret = transport_cas_word(copies->at[i]->tree, LINE_OFF(owner), owner_word(self), 0,
					 &old);
	return ret;
}

/* -------- puts -------- */

/* H1 pairs with H4: the entry, then the head names it. */
int heap_put_entry(struct heap *heap, const struct copies_put *put, uint64_t *old_out)
{
	struct transport_wr wrs[] = {
		wr_write(heap->rows, head_off(put->to), put->entry, put->bytes),
		wr_swap(heap->tree, heap_head_off(heap, put->bucket), put->from, put->to),
	};
	uint32_t first = put->bytes == 0;
	int ret = transport_run(heap->tree->tr, wrs + first, 2 - first);

	if (ret == 0 && wrs[1].atomic.status != ATOMIC_DONE)
		ret = error_set(-EIO, "put: the answer was lost: whether it was done is not known");
	*old_out = wrs[1].atomic.old;
	return ret;
}

/* Of a copy, which only the owner changes; but the server closes the heads of one that leaves its node. */
static int put_one(struct heap *heap, const struct copies_put *put)
{
	uint64_t old = 0;
	int ret = heap_put_entry(heap, put, &old);

	if (ret == 0 && old != put->from && old != HEAD_MOVED)
		ret = error_set(-EIO, "heap %s: copy %u of bucket %u has another head",
				heap->desc.name, heap->part.number, put->bucket);
	return ret;
}

int heap_copies_put(const struct heap_copies *copies, const struct copies_put *put)
{
	int ret = 0;

	for (uint32_t i = copies->n_all; ret == 0 && i-- > 0;)
		if (i < copies->n || put->bucket < copies->filled)
			ret = put_one(copies->at[i], put);
	return ret;
}

/* -------- heads of all copies -------- */

/* A run of buckets, and buffers for an entry and a chunk. */
struct heads {
	const struct heap_copies *copies;
	uint32_t first, n;
	uint64_t words[HEAP_LINE_MAX][HEADS_AT_ONCE];
	uint8_t *entry, *chunk;
	uint64_t bytes,
		most;    /* copied: entries, chunks and records; and when to stop inside a value */
	uint32_t chunks; /* copied; one at least, whatever puts do meanwhile */
	struct heap_fill_at at;
};

static int heads_begin(struct heads *heads, const struct heap_copies *copies)
{
	*heads = (struct heads){ .copies = copies, .most = UINT64_MAX, .at = copies->fill_at };
	heads->entry = mem_alloc(copies->at[0]->desc.extent_bytes);
	heads->chunk = mem_alloc(copies->at[0]->desc.extent_bytes);
	if (heads->entry && heads->chunk)
		return 0;
	return error_set(-ENOMEM, "heap: cannot allocate memory for an entry");
}

static void heads_end(struct heads *heads)
{
	mem_free(heads->entry);
	mem_free(heads->chunk);
}

/* Reads the head words of the buckets from `first` on, of that many copies. */
static int heads_read(struct heads *heads, uint32_t first, uint32_t copies)
{
	const struct heap_desc *desc = &heads->copies->at[0]->desc;
	struct heap_head records[HEADS_AT_ONCE];
	int ret = 0;

	heads->first = first;
	heads->n = (uint32_t)min_u64(desc->buckets + HEAP_PROBES - first, HEADS_AT_ONCE);
	for (uint32_t i = 0; ret == 0 && i < copies; i++) {
		struct heap *heap = heads->copies->at[i];

		ret = transport_fetch(heap->tree, heap_head_off(heap, first), records,
				      heads->n * (uint32_t)sizeof(records[0]));
		for (uint32_t k = 0; ret == 0 && k < heads->n; k++) {
			heads->words[i][k] = records[k].word.raw;
			if (records[k].word.raw == HEAD_MOVED)
				ret = heap_moved(heap);
		}
	}
	return ret;
}

/* The copy whose head is newest, of the whole ones: versions differ by one put. */
static uint32_t heads_newest(const struct heads *heads, uint32_t k)
{
	uint32_t best = 0;

	for (uint32_t i = 1; i < heads->copies->n; i++) {
		uint64_t ahead =
			(head_version(heads->words[i][k]) - head_version(heads->words[best][k])) &
			HEAD_VERSION_MASK;

		if (ahead && ahead <= HEAD_VERSION_MASK / 2)
			best = i;
	}
	return best;
}

/* Copies the chunks of the entry, of which that many bytes were read from copy `from`, to those of the first
   n that have another head. 1: there are more, but heads->most bytes are done. */
static int level_chunks(struct heads *heads, uint32_t k, uint32_t from, uint32_t n, uint32_t bytes)
{
	struct heap *const *at = heads->copies->at;
	const void *manifest = heap_manifest_in(&at[0]->desc, heads->entry, bytes);
	uint64_t word = heads->words[from][k];
	uint32_t chunks = manifest ? heap_manifest_chunks(manifest) : 0;
	int ret = 0;

	if (heads->at.word != word || heads->at.bucket != heads->first + k)
		heads->at = (struct heap_fill_at){ word, heads->first + k, 0 };
	while (ret == 0 && heads->at.chunk < chunks &&
	       (heads->chunks == 0 || heads->bytes < heads->most)) {
		uint64_t off = heap_manifest_place(manifest, heads->at.chunk);

		ret = heap_place_read(at[from], off, heads->chunk, &bytes);
		for (uint32_t i = 0; ret == 0 && i < n; i++) {
			if (heads->words[i][k] == word)
				continue;
			ret = transport_store(at[i]->rows, off, heads->chunk, bytes);
			heads->bytes += bytes;
		}
		heads->at.chunk += ret == 0;
		heads->chunks++;
	}
	return ret ? ret : heads->at.chunk < chunks;
}

/* Brings bucket k of the run to the newest head in the first n copies, the last one first. As
   level_chunks. */
static int heads_level(struct heads *heads, uint32_t k, uint32_t n)
{
	uint32_t from = heads_newest(heads, k);
	struct copies_put put = { .entry = heads->entry,
				  .bucket = heads->first + k,
				  .to = heads->words[from][k] };
	bool differ = false;
	int ret = 0;

	for (uint32_t i = 0; i < n; i++)
		differ |= heads->words[i][k] != put.to;
	if (differ)
		ret = heap_place_read(heads->copies->at[from], head_off(put.to), heads->entry,
				      &put.bytes);
	if (ret == 0 && put.bytes)
		ret = level_chunks(heads, k, from, n, put.bytes);
	for (uint32_t i = n; ret == 0 && differ && i-- > 0;) {
		put.from = heads->words[i][k];
		if (put.from == put.to)
			continue;
		ret = put_one(heads->copies->at[i], &put);
		heads->bytes += put.bytes;
	}
	return ret;
}

/* Corrects the counts of keys, which are hints. */
static int heads_count(const struct heap_copies *copies, uint64_t keys, uint32_t n)
{
	const uint64_t off = HEAP_WORDS_OFF + offsetof(struct heap_words, keys);
	int ret = 0;

	for (uint32_t i = 0; ret == 0 && i < n; i++)
		ret = word_set(copies->at[i], off, keys);
	return ret;
}

/* -------- settle -------- */

static int settle_heads(const struct heap_copies *copies)
{
	uint32_t end = copies->at[0]->desc.buckets + HEAP_PROBES;
	struct heads heads;
	uint64_t keys = 0;
	int ret = heads_begin(&heads, copies);

	for (uint32_t first = 0; ret == 0 && first < end; first += heads.n) {
		ret = heads_read(&heads, first, copies->n);
		for (uint32_t k = 0; ret == 0 && k < heads.n; k++) {
			keys += heads.words[heads_newest(&heads, k)][k] != 0;
			ret = heads_level(&heads, k, copies->n);
		}
	}
	heads_end(&heads);
	return ret ? ret : heads_count(copies, keys, copies->n);
}

int heap_copies_settle(const struct heap_copies *copies, uint32_t owner)
{
	int ret = 0;

	for (uint32_t i = 0; ret == 0 && i < copies->n_all; i++)
		ret = heap_settle_extents(copies->at[i], owner);
	return ret ? ret : settle_heads(copies);
}

/* -------- repair -------- */

/* The extent words of the primary in all copies. */
static int fill_extents(const struct heap_copies *copies)
{
	struct heap_extent want[EXTENTS_AT_ONCE], have[EXTENTS_AT_ONCE];
	struct heap *primary = copies->at[0];
	int ret = 0;

	for (uint32_t first = 0; ret == 0 && first < primary->desc.extents;
	     first += EXTENTS_AT_ONCE) {
		uint32_t n = (uint32_t)min_u64(primary->desc.extents - first, EXTENTS_AT_ONCE);

		ret = transport_fetch(primary->tree, heap_extent_off(primary, first), want,
				      n * (uint32_t)sizeof(want[0]));
		for (uint32_t i = 1; ret == 0 && i < copies->n_all; i++) {
			struct heap *heap = copies->at[i];

			ret = transport_fetch(heap->tree, heap_extent_off(heap, first), have,
					      n * (uint32_t)sizeof(have[0]));
			for (uint32_t k = 0; ret == 0 && k < n; k++)
				if (have[k].word.raw != want[k].word.raw)
					ret = word_set(heap, heap_extent_off(heap, first + k),
						       want[k].word.raw);
		}
	}
	return ret;
}

/* The copies that were filled are whole from now on. All know the last one's number before. */
static int fill_end(struct heap_copies *copies)
{
	uint64_t keys;
	int ret = heap_keys(copies->at[0], &keys);

	if (ret == 0)
		ret = heads_count(copies, keys, copies->n_all);
	for (uint32_t i = 0; ret == 0 && i < copies->n_all; i++)
		ret = word_set(copies->at[i], LINE_OFF(newest),
			       copies->at[copies->n_all - 1]->part.number);
	for (uint32_t i = copies->n; ret == 0 && i < copies->n_all; i++)
		ret = word_set(copies->at[i], LINE_OFF(whole), 1);
	if (ret == 0)
		copies->n = copies->n_all;
	return ret;
}

int heap_copies_fill(struct heap_copies *copies, uint64_t bytes)
{
	uint32_t end = copies->at[0]->desc.buckets + HEAP_PROBES;
	struct heads heads;
	int ret = heads_begin(&heads, copies);

	heads.most = bytes;
	if (copies->filled == 0 && ret == 0)
		ret = fill_extents(copies);
	while (ret == 0 && copies->filled < end && heads.bytes < bytes) {
		ret = heads_read(&heads, copies->filled, copies->n_all);
		for (uint32_t k = 0; ret == 0 && k < heads.n; k++)
			ret = heads_level(&heads, k, copies->n_all);
		heads.bytes += heads.n * sizeof(struct heap_head);
		if (ret == 0)
			copies->filled += heads.n;
	}
	copies->fill_at = heads.at;
	heads_end(&heads);
	if (ret == 1)
		return 0;
	return ret == 0 && copies->filled >= end && copies->n < copies->n_all ? fill_end(copies)
									      : ret;
}

/* -------- the server -------- */

static int mend_begin(const struct heap_copies *copies, const struct copies_owner *self)
{
	uint64_t newest;
	bool settle = false;
	int ret = word_set(copies->at[0], LINE_OFF(filler), self->owner);

	if (ret == 0)
		ret = heap_copies_claim(copies, self, &settle, &newest);
	return ret == 0 && settle ? heap_copies_settle(copies, self->owner) : ret;
}

static int mend_end(const struct heap_copies *copies, const struct copies_owner *self)
{
	int ret = heap_copies_release(copies, self);

	copies->at[copies->n_all - 1]->mending = false;
	return ret ? ret : word_set(copies->at[0], LINE_OFF(filler), 0);
}

int heap_copies_mend(struct heap_copies *copies, const struct copies_owner *self, uint64_t bytes,
		     bool *done_out)
{
	struct heap *last = copies->at[copies->n_all - 1], *primary = copies->at[0];
	uint64_t filler = self->owner;
	int ret;

	*done_out = false;
	if (!last->mending) {
		last->mended = 0;
		ret = mend_begin(copies, self);
	} else {
		ret = transport_load(primary->tree, LINE_OFF(filler), &filler);
	}
	last->mending = ret == 0;
	if (ret == 0 && filler != self->owner) {
		ret = mend_end(copies, self);
		return ret ? ret
			   : error_set(-EBUSY, "heap %s: a client wants to put",
				       primary->desc.name);
	}
	copies->filled = last->mended;
	if (ret == 0)
		ret = heap_copies_fill(copies, bytes);
	last->mended = copies->filled;
	last->mending = ret == 0;
	if (ret || copies->n < copies->n_all)
		return ret;
	ret = mend_end(copies, self);
	*done_out = ret == 0;
	return ret;
}

/* -------- check -------- */

/* Of a value whose entry is the same in the primary and copy i. */
static int compare_chunks(struct heads *heads, uint32_t i, uint32_t bytes, uint8_t *other,
			  bool *differ)
{
	struct heap *const *at = heads->copies->at;
	const void *manifest = heap_manifest_in(&at[0]->desc, heads->entry, bytes);
	uint32_t chunks = manifest ? heap_manifest_chunks(manifest) : 0, bytes2;
	int ret = 0;

	for (uint32_t c = 0; ret == 0 && c < chunks && !*differ; c++) {
		uint64_t off = heap_manifest_place(manifest, c);

		ret = heap_place_read(at[0], off, heads->chunk, &bytes);
		if (ret == 0)
			ret = heap_place_read(at[i], off, other, &bytes2);
		*differ = ret == 0 && (bytes != bytes2 || memcmp(heads->chunk, other, bytes) != 0);
	}
	return ret;
}

/* Of several writers a copy may be ahead by a put, which will be brought forward. */
static bool heads_differ(const struct heads *heads, uint32_t k, uint32_t i)
{
	uint64_t word = heads->words[0][k], other = heads->words[i][k];
	bool ahead = ((head_version(other) - head_version(word)) & HEAD_VERSION_MASK) == 1;

	return word != other && !(ahead && heads->copies->line);
}

static int compare_entries(struct heads *heads, uint32_t k, uint8_t *other, uint64_t *differ_out)
{
	uint64_t word = heads->words[0][k];
	uint32_t bytes, bytes2;
	bool differ;
	int ret = word ? heap_place_read(heads->copies->at[0], head_off(word), heads->entry, &bytes)
		       : 0;

	for (uint32_t i = 1; ret == 0 && i < heads->copies->n; i++) {
		differ = heads_differ(heads, k, i);
		if (!differ && word) {
			ret = heap_place_read(heads->copies->at[i], head_off(word), other, &bytes2);
			differ = ret == 0 &&
				 (bytes != bytes2 || memcmp(heads->entry, other, bytes) != 0);
			if (ret == 0 && !differ)
				ret = compare_chunks(heads, i, bytes, other, &differ);
		}
		*differ_out += ret == 0 && differ;
	}
	return ret;
}

int heap_copies_compare(const struct heap_copies *copies, uint64_t *differ_out)
{
	uint32_t end = copies->at[0]->desc.buckets + HEAP_PROBES;
	struct heads heads;
	uint64_t differ = 0;
	uint8_t *other = mem_alloc(copies->at[0]->desc.extent_bytes);
	int ret = heads_begin(&heads, copies);

	if (!other && ret == 0)
		ret = error_set(-ENOMEM, "heap: cannot allocate memory for an entry");
	for (uint32_t first = 0; ret == 0 && first < end; first += heads.n) {
		ret = heads_read(&heads, first, copies->n);
		for (uint32_t k = 0; ret == 0 && k < heads.n; k++)
			ret = compare_entries(&heads, k, other, &differ);
	}
	mem_free(other);
	heads_end(&heads);
	if (ret == 0)
		*differ_out = differ;
	return ret;
}
