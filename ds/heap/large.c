#include "ds/heap/large.h"

#include "ds/heap/copies.h"

#include "transport/barrier.h"

#include "base/mem/alloc.h"
#include "base/bits.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define HEADERS_AT_ONCE 64u

/* -------- manifests -------- */

static uint64_t window_bytes(const struct heap_access *acc)
{
	return acc->window_bytes ? acc->window_bytes : HEAP_WINDOW_BYTES;
}

uint32_t heap_window(const struct heap_access *acc, uint64_t share)
{
	return (uint32_t)min_u64(max_u64(window_bytes(acc) / share, 1), HEAP_WINDOW_MOST);
}

int heap_window_run(const struct heap_access *acc, const struct transport_io *ios, uint32_t n,
		    bool writes)
{
	int (*const run)(struct transport * tr, const struct transport_io *io, size_t count) =
		writes ? transport_write : transport_read;
	uint64_t most = window_bytes(acc);
	int ret = 0;

	if (n != 1 || ios[0].len <= most)
		return run(ios[0].region->tr, ios, n);
	for (uint64_t at = 0; ret == 0 && at < ios[0].len; at += most) {
		struct transport_io part = ios[0];

		part.off += at;
		part.len = (uint32_t)min_u64(most, ios[0].len - at);
		if (writes)
			part.src = (const uint8_t *)part.src + at;
		else
			part.dst = (uint8_t *)part.dst + at;
		ret = run(part.region->tr, &part, 1);
	}
	return ret;
}

/* -------- put -------- */

static int large_alloc(const struct heap_access *acc, const struct heap_put *put,
		       struct heap_large *large)
{
	const struct heap_desc *desc = &acc->heap->desc;
	uint32_t lead = heap_lead(desc, put->paged);
	uint64_t most = heap_entry_most(desc), bytes = put->len;
	uint64_t share = heap_share_most(desc, lead), n = div_up(bytes, share);
	uint64_t manifest = sizeof(struct heap_manifest) + n * sizeof(struct heap_piece);

	*large = (struct heap_large){ .bytes = bytes, .share = share, .n = (uint32_t)n };
	large->manifest_bytes = manifest;
	if (n > UINT32_MAX || sizeof(struct heap_entry) + HEAP_KEY_MAX + manifest > most)
		return error_set(-ERANGE,
				 "a value of %" PRIu64 " bytes needs %" PRIu64
				 " chunks: create the heap with a larger extent_bytes",
				 bytes, n);
	large->manifest = mem_zalloc(manifest);
	large->slots = mem_array(n, sizeof(large->slots[0]));
	if (!large->manifest || !large->slots)
		return error_set(-ENOMEM, "put: cannot allocate a manifest of %" PRIu64 " bytes",
				 manifest);
	large->manifest->n = large->n;
	large->manifest->lead = lead;
	large->manifest->share = share;
	return 0;
}

/* Where a value goes on. */
struct runs_at {
	const struct heap_run *run;
	uint32_t n;    /* runs from there on */
	uint64_t done; /* bytes of the first */
};

/* Copies the next bytes; returns their checksum. */
static uint32_t runs_copy(struct runs_at *at, uint8_t *to, uint64_t bytes, bool past)
{
	uint32_t (*const copy)(uint32_t crc, void *dst, const void *src, size_t len) =
		past ? crc32c_copy_past : crc32c_copy;
	uint32_t crc = 0;

	while (bytes && at->n) {
		uint64_t n = min_u64(bytes, at->run->len - at->done);

		crc = copy(crc, to, (const uint8_t *)at->run->ptr + at->done, n);
		to += n;
		bytes -= n;
		at->done += n;
		if (at->done == at->run->len)
			*at = (struct runs_at){ at->run + 1, at->n - 1, 0 };
	}
	return crc;
}

/* Where share i goes. */
static uint64_t large_off(const struct heap_large *large, uint32_t i)
{
	return large->slots[i].off + sizeof(struct heap_entry) + large->manifest->lead;
}

/* Writes share i, in place, or into the stage for a request. Returns where it is. */
static const uint8_t *large_copy(struct heap_access *acc, struct heap_large *large,
				 struct runs_at *at, uint32_t i, uint8_t *stage)
{
	uint64_t bytes = heap_share(large->bytes, large->share, i);
	struct heap_piece *piece = &heap_pieces(large->manifest)[i];
	uint64_t off = large_off(large, i);
	uint8_t *to = acc->in_place && !BARRIER_TSAN ? acc->heap->rows->base + off : stage;

	piece->place = (uint32_t)(large->slots[i].off / 64);
	piece->crc = runs_copy(at, to, bytes, large->bytes >= HEAP_PAST_BYTES && to != stage);
	if (acc->in_place && to == stage)
		transport_copy_racy(acc->heap->rows->base + off, stage, align_up(bytes, 8));
	return to;
}

/* Writes to the same places of all copies, but for the primary if it is in place and `rest`. */
static int large_send(struct heap_access *acc, struct transport_io *ios, uint32_t n, bool rest)
{
	const struct heap_copies *copies = acc->copies;
	uint32_t targets = copies ? copies->n_all : 1;
	int ret = 0;

	for (uint32_t k = rest && acc->in_place; ret == 0 && k < targets; k++) {
		struct region *rows = copies ? copies->at[k]->rows : acc->heap->rows;

		for (uint32_t i = 0; i < n; i++)
			ios[i].region = rows;
		ret = heap_window_run(acc, ios, n, true);
	}
	return ret;
}

/* Writes all shares, a window in each round trip. */
static int large_write(struct heap_access *acc, struct heap_large *large,
		       const struct heap_put *put)
{
	const struct heap_run whole = { put->value, put->len };
	struct runs_at at = put->runs ? (struct runs_at){ put->runs, put->n_runs, 0 }
				      : (struct runs_at){ &whole, 1, 0 };
	uint32_t window = heap_window(acc, large->share);
	uint64_t room = align_up(large->share, 8);
	struct transport_io ios[HEAP_WINDOW_MOST];
	int ret = 0;

	if (!heap_access_make_room(acc, min_u64(window, large->n) * room))
		return error_set(-ENOMEM, "put: cannot allocate memory for chunks");
	for (uint32_t first = 0; ret == 0 && first < large->n; first += window) {
		uint32_t n = (uint32_t)min_u64(window, large->n - first);

		for (uint32_t i = 0; i < n; i++) {
			ios[i] = (struct transport_io){
				.off = large_off(large, first + i),
				.src = large_copy(acc, large, &at, first + i,
						  acc->stage + i * room),
				.len = (uint32_t)align_up(
					heap_share(large->bytes, large->share, first + i), 8),
			};
		}
		ret = large_send(acc, ios, n, true);
	}
	return ret;
}

/* A share that begins a page has an extent: slots of other classes begin anywhere. */
static uint64_t large_slot_bytes(const struct heap_access *acc, const struct heap_large *large,
				 uint32_t i)
{
	return large->manifest->lead
		       ? heap_entry_most(&acc->heap->desc)
		       : sizeof(struct heap_entry) + heap_share(large->bytes, large->share, i);
}

int heap_large_begin(struct heap_access *acc, const struct heap_put *put, struct heap_large *large)
{
	int ret = large_alloc(acc, put, large);

	for (; ret == 0 && large->taken < large->n; large->taken += ret == 0)
		ret = space_take(&acc->space, large_slot_bytes(acc, large, large->taken), false,
				 &large->slots[large->taken]);
	if (ret == 0)
		ret = large_write(acc, large, put);
	if (ret)
		heap_large_end(acc, large, 0, 0);
	else
		acc->chunk_bytes += put->len;
	return ret;
}

int heap_large_name(struct heap_access *acc, const struct heap_large *large, uint32_t bucket,
		    uint64_t word)
{
	struct heap_entry headers[HEADERS_AT_ONCE];
	struct transport_io ios[HEADERS_AT_ONCE];
	int ret = 0;

	for (uint32_t first = 0; ret == 0 && first < large->n; first += HEADERS_AT_ONCE) {
		uint32_t n = (uint32_t)min_u64(HEADERS_AT_ONCE, large->n - first);

		for (uint32_t i = 0; i < n; i++) {
			headers[i] = (struct heap_entry){
				.magic = ENTRY_MAGIC,
				.prev = word,
				.len = large->manifest->lead +
				       heap_share(large->bytes, large->share, first + i),
				.bucket = bucket,
				.flags = ENTRY_CHUNK,
				.writer = acc->owner,
				.gen = (uint32_t)large->slots[first + i].extent->word,
			};
			ios[i] = (struct transport_io){ .off = large->slots[first + i].off,
							.src = &headers[i],
							.len = sizeof(headers[i]) };
		}
		ret = large_send(acc, ios, n, false);
	}
	return ret;
}

void heap_large_end(struct heap_access *acc, struct heap_large *large, uint32_t bucket,
		    uint64_t word)
{
	for (uint32_t i = 0; i < large->taken; i++) {
		if (!word)
			space_give(&acc->space, &large->slots[i]);
		else if (space_keep_chunk(&large->slots[i], bucket, word))
			error_clear(); /* who takes over the extent finds it */
	}
	mem_free(large->manifest);
	mem_free(large->slots);
	*large = (struct heap_large){ 0 };
}

/* -------- get -------- */

int heap_chunk_damaged(const struct heap_access *acc, uint32_t i)
{
	return error_set(acc->pinned ? -EBADMSG : -EAGAIN,
			 "heap %s: chunk %u of a value is damaged", acc->heap->desc.name, i);
}

/* Reads n shares from `first` on. -EAGAIN: one is not what the manifest says. */
static int shares_read(struct heap_access *acc, const struct heap_wanted *want, uint32_t first,
		       uint32_t n)
{
	const struct heap_piece *pieces = &heap_pieces(want->manifest)[first];
	uint64_t share = want->manifest->share, room = align_up(share, 8);
	struct transport_io ios[HEAP_WINDOW_MOST];
	int ret = 0;

	for (uint32_t i = 0; i < n && !acc->in_place; i++)
		ios[i] = (struct transport_io){
			.region = acc->heap->rows,
			.off = heap_share_off(want->manifest, first + i),
			.dst = acc->stage + i * room,
			.len = (uint32_t)align_up(heap_share(want->bytes, share, first + i), 8),
		};
	if (!acc->in_place)
		ret = heap_window_run(acc, ios, n, false);
	for (uint32_t i = 0; ret == 0 && i < n; i++) {
		const uint8_t *from =
			acc->in_place
				? acc->heap->rows->base + heap_share_off(want->manifest, first + i)
				: acc->stage + i * room;
		uint64_t bytes = heap_share(want->bytes, share, first + i);
		uint8_t *to = want->to + (first + i) * share;
		uint32_t crc = want->bytes >= HEAP_PAST_BYTES
				       ? transport_copy_racy_crc_past(to, from, bytes)
				       : transport_copy_racy_crc(0, to, from, bytes);

		if (crc != pieces[i].crc)
			ret = heap_chunk_damaged(acc, first + i);
	}
	return ret;
}

/* Reads all shares. Over a wire they pass through the stage. */
static int large_read(struct heap_access *acc, const struct heap_wanted *want)
{
	uint64_t share = want->manifest->share;
	uint32_t window = heap_window(acc, share), n = want->manifest->n;
	int ret = 0;

	if (!acc->in_place && !heap_access_make_room(acc, min_u64(window, n) * align_up(share, 8)))
		ret = error_set(-ENOMEM, "get: cannot allocate memory for chunks");
	for (uint32_t first = 0; ret == 0 && first < n; first += window)
		ret = shares_read(acc, want, first, (uint32_t)min_u64(window, n - first));
	return ret;
}

/* Memory for that many bytes: the caller's, if it has any, or else that of the access. */
static int large_room(struct heap_access *acc, const struct heap_room *room, uint64_t bytes,
		      uint8_t **to_out)
{
	*to_out = room->ptr;
	if (room->ptr)
		return 0;
	mem_free(acc->large);
	acc->large = mem_alloc(bytes);
	*to_out = acc->large;
	return acc->large ? 0 : error_set(-ENOMEM, "get: cannot allocate %" PRIu64 " bytes", bytes);
}

int heap_large_get(struct heap_access *acc, const struct chain_key *key,
		   const struct heap_range *range, const struct heap_room *room,
		   struct heap_value *out)
{
	struct heap_wanted want = { .hash = key->hash };
	struct heap_manifest *manifest;
	int ret = 0;

	if (acc->owner && !acc->pinned) {
		heap_access_pin(acc);
		ret = heap_get_once(acc, key, out);
	}
	if (ret || !out->large)
		return ret;
	if (!heap_manifest_check(&acc->heap->desc, out->ptr, out->len, out->large))
		return error_set(-EBADMSG, "heap %s: a manifest is damaged", acc->heap->desc.name);
	manifest = mem_alloc(out->len);
	if (!manifest)
		return error_set(-ENOMEM, "get: cannot allocate memory for a manifest");
	want.manifest = memcpy(manifest, out->ptr, out->len);
	want.bytes = out->large;
	want.version = out->version;
	want.range.offset = range ? range->offset : 0;
	want.range.len = range ? heap_range_in(range, out->large) : out->large;
	out->ptr = NULL;
	out->len = want.range.len;
	if (out->len && (!room->ptr || room->bytes >= out->len)) { /* or else the caller says
								       that it is too small */
		ret = large_room(acc, room, out->len, &want.to);
		if (ret == 0)
			ret = want.range.len < want.bytes ? heap_range_read(acc, &want)
							  : large_read(acc, &want);
		out->ptr = want.to;
	}
	mem_free(manifest);
	return ret;
}

/* -------- hold -------- */

/* Copies the manifest that the stage has, if it has one. */
static int hold_manifest(struct heap_access *acc, struct heap_hold *out)
{
	const struct heap_desc *desc = &acc->heap->desc;
	struct heap_entry entry;
	const uint8_t *value;
	void *copy;

	memcpy(&entry, acc->stage, sizeof(entry));
	out->version = entry.version;
	if (!(entry.flags & ENTRY_MANIFEST))
		return 0;
	value = acc->stage + sizeof(entry) + entry.key_len;
	if (!heap_manifest_check(desc, value, entry.len, entry.epoch))
		return error_set(-EBADMSG, "heap %s: a manifest is damaged", desc->name);
	copy = mem_alloc(entry.len);
	if (!copy)
		return error_set(-ENOMEM, "heap: cannot allocate memory for a manifest");
	memcpy(copy, value, entry.len);
	out->manifest = copy;
	out->len = entry.epoch;
	return 0;
}

/* Finds the key and reads its entry into the stage, behind a pin; *word_out is its head word. */
static int hold_find(struct heap_access *acc, const struct chain_key *key, uint64_t *word_out)
{
	struct heap_found found = { 0 };
	int ret = heap_find(acc, key, &found);

	*word_out = found.word;
	if (ret == -ENOSPC || (ret == 0 && (!found.word || found.word & HEAD_DELETED)))
		return error_set(-ENOENT, "no such key");
	if (ret == 0)
		ret = heap_read_entry(acc, heap_found_at(&found), key, HEAP_GUESS_BYTES, true);
	if (ret < 0)
		return ret;
	return ret == CHAIN_OK ? 0 : heap_torn(acc, found.bucket);
}

int heap_hold(struct heap_access *acc, const struct chain_key *key, struct heap_hold *out)
{
	const struct region *tree = acc->heap->tree;
	const struct heap_pin *line;
	uint64_t word, epoch;
	uint32_t i = 0;
	int ret;

	if (!acc->in_place)
		return error_set(-ENOTSUP, "heap %s is not in memory of this host that is mapped",
				 acc->heap->desc.name);
	if (!acc->owner)
		return error_set(-EACCES, "heap %s: a reader without a client slot holds nothing",
				 acc->heap->desc.name);
	line = (const void *)(tree->base + heap_pin_off(acc->owner));
	while (i < HEAP_HOLDS && rword64_load_relaxed(&line->holds[i]))
		i++;
	if (i == HEAP_HOLDS)
		return error_set(-EBUSY,
				 "heap %s: this client holds %u values already: release one",
				 acc->heap->desc.name, HEAP_HOLDS);
	*out = (struct heap_hold){ .place = i };
	ret = transport_load(acc->heap->tree, HEAP_WORDS_OFF + offsetof(struct heap_words, epoch),
			     &epoch);
	if (ret)
		return ret;
	/* H2 pairs with H3: the pin, then heads are read. */
	rword64_announce_early(&line->holds[i], space_epoch(epoch));
	ret = transport_order(tree->tr);
	acc->pinned = true;
	if (ret == 0)
		ret = hold_find(acc, key, &word);
	if (ret == 0)
		ret = hold_manifest(acc, out);
	acc->pinned = false;
	/* By one store: who sees no pin any more sees the hold. */
	out->word = ret == 0 && out->manifest ? hold_make(word) : 0;
	rword64_withdraw(&line->holds[i], out->word);
	return ret;
}

void heap_hold_end(const struct heap_pin *line, const struct heap_hold *hold)
{
	/* After a fence the line may be another client's, after a drop another object's. */
	if (rword64_load_relaxed(&line->holds[hold->place]) == hold->word)
		rword64_withdraw(&line->holds[hold->place], 0);
}
