#include "ds/heap/heap_check.h"

#include "ds/chain/chain.h"
#include "ds/heap/pair.h"
#include "ds/heap/stripe/manifest.h"
#include "ds/part/slot.h"

#include "base/mem/alloc.h"
#include "base/bits.h"
#include "base/crc32c.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct check {
	struct heap *heap;
	struct heap_check_report *report;
	struct heap_extent *extents;
	struct heap_head *heads;
	uint64_t *named; /* places that heads and manifests name */
	uint32_t n_heads;
	uint64_t n_named;
	size_t room;
	uint8_t *entry; /* of the most bytes */
	uint8_t *chunk; /* the same */
};

static void problem(struct check *check, const char *fmt, ...) RLV_PRINTF(2, 3);

static void problem(struct check *check, const char *fmt, ...)
{
	struct heap_check_report *report = check->report;
	va_list args;

	report->problems++;
	if (report->n_texts == HEAP_CHECK_TEXTS)
		return;
	va_start(args, fmt);
	(void)vsnprintf(report->text[report->n_texts++], HEAP_CHECK_TEXT_BYTES, fmt, args);
	va_end(args);
}

static int fetch(struct region *region, uint64_t off, void *dst, uint64_t bytes)
{
	const uint64_t most = (uint64_t)1 << 20;
	int ret = 0;

	for (uint64_t done = 0; ret == 0 && done < bytes; done += most)
		ret = transport_fetch(region, off + done, (uint8_t *)dst + done,
				      (uint32_t)min_u64(most, bytes - done));
	return ret;
}

static int check_extents(struct check *check)
{
	const struct heap_desc *desc = &check->heap->desc;
	struct heap_use *use = &check->report->extents;

	for (uint32_t i = 0; i < desc->extents; i++) {
		uint64_t word = check->extents[i].word.raw;
		uint32_t owner = extent_owner(word), cls = extent_class(word);
		struct slot_info slot = { .state = SLOT_FREE };
		int ret = 0;

		use->owned += owner != 0;
		use->orphans += owner == 0 && cls != 0;
		use->free += owner == 0 && cls == 0;
		if (owner > desc->max_clients || (owner && !cls) ||
		    (cls && heap_class_bytes(cls) > desc->extent_bytes)) {
			problem(check, "extent %u: owner %u class %u", i, owner, cls);
			continue;
		}
		if (owner)
			ret = slot_read(&check->heap->part, owner - 1, &slot);
		if (ret)
			return ret;
		if (owner && slot.state != SLOT_LIVE)
			problem(check, "extent %u: its owner %u has no client slot", i, owner);
	}
	return 0;
}

/* Checks a place that a head word or a manifest names. False: what is there cannot be read. */
static bool check_place(struct check *check, uint32_t bucket, uint64_t off)
{
	const struct heap_desc *desc = &check->heap->desc;
	uint64_t at = off - HEAP_ROWS_OFF;
	uint32_t cls;

	if (!heap_holds(desc, off, sizeof(struct heap_entry))) {
		problem(check, "bucket %u: its head names offset %" PRIu64, bucket, off);
		return false;
	}
	cls = extent_class(check->extents[at / desc->extent_bytes].word.raw);
	if (!cls || at % desc->extent_bytes % heap_class_bytes(cls) ||
	    heap_class_bytes(cls) > desc->extent_bytes - at % desc->extent_bytes) {
		problem(check, "bucket %u: offset %" PRIu64 " is no slot of class %u", bucket, off,
			cls);
		return false;
	}
	check->report->live_bytes += heap_class_bytes(cls);
	if (check->n_named == check->room) {
		if (!mem_grow(&check->named, check->room, 2 * check->room, sizeof(off)))
			return false;
		check->room *= 2;
	}
	check->named[check->n_named++] = off;
	return true;
}

/* Checks the chunks of a value, whose manifest is in check->entry. */
static int check_chunks(struct check *check, uint32_t bucket, uint64_t word)
{
	const struct heap_desc *desc = &check->heap->desc;
	const uint8_t *at;
	struct heap_manifest manifest;
	struct heap_entry entry, header;
	struct heap_piece piece;
	int ret = 0;

	memcpy(&entry, check->entry, sizeof(entry));
	at = check->entry + sizeof(entry) + entry.key_len;
	if (!heap_manifest_check(desc, at, entry.len, entry.epoch)) {
		problem(check, "bucket %u: its manifest is damaged", bucket);
		return 0;
	}
	memcpy(&manifest, at, sizeof(manifest));
	for (uint32_t i = 0; ret == 0 && i < manifest.n; i++) {
		uint64_t off, share = heap_share(entry.epoch, manifest.share, i);
		uint64_t lead = manifest.lead;

		memcpy(&piece, at + sizeof(manifest) + i * sizeof(piece), sizeof(piece));
		off = (uint64_t)piece.place * 64;
		if (!check_place(check, bucket, off))
			continue;
		ret = fetch(check->heap->rows, off, check->chunk,
			    align_up(sizeof(header) + lead + share, 8));
		memcpy(&header, check->chunk, sizeof(header));
		if (ret == 0 &&
		    (header.magic != ENTRY_MAGIC || header.flags != ENTRY_CHUNK ||
		     header.bucket != bucket || header.prev != word || header.len != lead + share ||
		     crc32c(0, check->chunk + sizeof(header) + lead, share) != piece.crc))
			problem(check, "bucket %u: chunk %u of its value is damaged", bucket, i);
	}
	return ret;
}

/* A key lies in the first bucket that was free for it; those before it are in use, by others. */
static void check_bucket(struct check *check, uint32_t bucket, const struct chain_key *key)
{
	uint32_t first = chain_place(key->hash, check->heap->desc.buckets);

	if (bucket < first || bucket >= first + HEAP_PROBES)
		problem(check, "bucket %u: its key belongs to bucket %u", bucket, first);
	for (uint32_t i = first; i < bucket && i < check->n_heads; i++) {
		const struct heap_head *head = &check->heads[i];

		if (!head->word.raw)
			problem(check, "bucket %u: bucket %u is nearer to its key, and free",
				bucket, i);
		else if (chain_cell_check(&head->cell, head->word.raw, key))
			problem(check, "bucket %u: its key is in bucket %u, too", bucket, i);
	}
}

static int check_head(struct check *check, uint32_t bucket)
{
	const struct heap_desc *desc = &check->heap->desc;
	const struct heap_head *head = &check->heads[bucket];
	uint64_t word = head->word.raw, off = head_off(word), bytes;
	struct heap_entry entry;
	struct chain_key key;
	bool hidden;
	int ret;

	if (word == HEAD_MOVED)
		return heap_moved(check->heap);
	if (!word || !check_place(check, bucket, off))
		return 0;
	bytes = heap_extent_rest(desc, off);
	ret = transport_fetch(check->heap->rows, off, &entry, sizeof(entry));
	bytes = min_u64(bytes, chain_entry_bytes(entry.key_len, min_u64(entry.len, bytes)));
	if (ret == 0)
		ret = fetch(check->heap->rows, off, check->entry, bytes);
	if (ret)
		return ret;
	hidden = desc->stripe && entry.key_len <= HEAP_KEY_MAX &&
		 stripe_key_is_hidden(check->entry + sizeof(entry), entry.key_len);
	check->report->keys += !hidden && !(word & HEAD_DELETED);
	check->report->deleted += !hidden && (word & HEAD_DELETED) != 0;
	if (chain_entry_check(check->entry, bytes, (struct chain_at){ word, bucket }, NULL, true) !=
	    CHAIN_OK) {
		problem(check, "bucket %u: its entry is damaged", bucket);
		return 0;
	}
	if (entry.writer == 0 || entry.writer > desc->max_clients)
		problem(check, "bucket %u: writer %u", bucket, entry.writer);
	key = chain_key(check->entry + sizeof(entry), entry.key_len, desc->seed);
	if (key.hash != entry.hash || head_tag(word) != chain_head_tag(&key))
		problem(check, "bucket %u: hash or tag are not its key's", bucket);
	check->report->stale_cells += !chain_cell_check(&head->cell, word, &key);
	check_bucket(check, bucket, &key);
	return entry.flags & ENTRY_MANIFEST ? check_chunks(check, bucket, word) : 0;
}

static int compare(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

/* -------- modes with copies -------- */

/* Reads the current copy of the bucket: enum pair_found, or an error. */
static int check_read_pair(struct check *check, uint32_t bucket, struct heap_entry *entry)
{
	struct heap *heap = check->heap;
	struct heap_entry other;
	int ret = pair_read(heap, (struct pair_at){ bucket, 0 }, 0, check->entry, entry), second;

	if (ret < 0 || heap->desc.mode == HEAP_DIRECT)
		return ret;
	second = pair_read(heap, (struct pair_at){ bucket, 1 }, 0, check->entry, &other);
	if (second < 0)
		return second;
	if (second == PAIR_OK && (ret != PAIR_OK || other.version > entry->version))
		*entry = other;
	/* One that is torn belongs to a put that was not answered. */
	return ret == PAIR_OK || second == PAIR_OK ? PAIR_OK : ret < second ? ret : second;
}

static int check_pair(struct check *check, uint32_t bucket)
{
	const struct heap_head *head = &check->heads[bucket];
	bool direct = check->heap->desc.mode == HEAP_DIRECT;
	struct heap_entry entry;
	int ret = check_read_pair(check, bucket, &entry);
	uint32_t first;

	if (ret < 0)
		return ret;
	if (head->lock.raw)
		problem(check, "bucket %u: owner %" PRIu64 " has its lock", bucket, head->lock.raw);
	if (ret == PAIR_TORN)
		problem(check, "bucket %u: its entry is damaged", bucket);
	if (ret != PAIR_OK)
		return 0;
	first = chain_place(entry.hash, check->heap->desc.buckets);
	if (bucket < first || bucket >= first + HEAP_PROBES)
		problem(check, "bucket %u: its key belongs to bucket %u", bucket, first);
	if (direct && head->word.raw != pair_hash(entry.hash))
		problem(check, "bucket %u: its hash is not its key's", bucket);
	check->report->keys += !(entry.flags & ENTRY_DELETED);
	check->report->deleted += (entry.flags & ENTRY_DELETED) != 0;
	check->report->live_bytes += check->heap->desc.extent_bytes;
	return 0;
}

int heap_check(struct heap *heap, struct heap_check_report *report_out)
{
	const struct heap_desc *desc = &heap->desc;
	struct check check = { .heap = heap, .report = report_out };
	int ret = -ENOMEM;

	memset(report_out, 0, sizeof(*report_out));
	check.n_heads = desc->buckets + HEAP_PROBES;
	check.extents = mem_array(desc->extents, sizeof(check.extents[0]));
	check.heads = mem_array(check.n_heads, sizeof(check.heads[0]));
	check.room = check.n_heads;
	check.named = mem_array(check.room, sizeof(check.named[0]));
	check.entry = mem_alloc(desc->extent_bytes);
	check.chunk = mem_alloc(desc->extent_bytes);
	if (!check.extents || !check.heads || !check.named || !check.entry || !check.chunk) {
		(void)error_set(-ENOMEM, "heap %s: cannot allocate memory to check it", desc->name);
		goto out;
	}
	ret = fetch(heap->tree, heap_extent_off(heap, 0), check.extents,
		    desc->extents * sizeof(check.extents[0]));
	if (ret == 0)
		ret = fetch(heap->tree, heap_head_off(heap, 0), check.heads,
			    check.n_heads * sizeof(check.heads[0]));
	if (ret == 0)
		ret = check_extents(&check);
	for (uint32_t i = 0; ret == 0 && i < check.n_heads; i++)
		ret = desc->mode == HEAP_CLOVER ? check_head(&check, i) : check_pair(&check, i);
	qsort(check.named, check.n_named, sizeof(check.named[0]), compare);
	for (uint64_t i = 1; i < check.n_named; i++)
		if (check.named[i] == check.named[i - 1])
			problem(&check, "offset %" PRIu64 " is named by two heads", check.named[i]);
out:
	mem_free(check.extents);
	mem_free(check.heads);
	mem_free(check.named);
	mem_free(check.entry);
	mem_free(check.chunk);
	return ret;
}
