#include "ds/heap/heap.h"

#include "ds/heap/pair.h"

#include "base/mem/alloc.h"
#include "base/bits.h"
#include "base/crc32c.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define EXTENTS_AT_ONCE 64u

/* -------- descriptor -------- */

static bool desc_extents_fit(const struct heap_desc *desc)
{
	return desc->extents >= 1 && desc->extents <= HEAP_EXTENTS_MAX &&
	       bits_is_pow2(desc->extent_bytes) && desc->extent_bytes >= HEAP_EXTENT_LEAST &&
	       desc->extent_bytes <= HEAP_EXTENT_MOST &&
	       HEAP_ROWS_OFF + desc->extents * desc->extent_bytes <= (uint64_t)64 << 32;
}

/* A part with one owner refuses the stripes of others. */
static bool desc_stripe_fits(const struct heap_desc *desc)
{
	return (desc->stripe != 0) == (desc->magic == HEAP_DESC_MAGIC_STRIPED) &&
	       (!desc->stripe || (desc->mode == HEAP_CLOVER && desc->stripe <= HEAP_STRIPE_MOST &&
				  UINT64_C(1) << desc->stripe >= desc->extent_bytes &&
				  (desc->copies == 1 || desc->writers == HEAP_WRITERS_MANY)));
}

static bool desc_sizes_fit(const struct heap_desc *desc)
{
	return desc_stripe_fits(desc) && desc->copies >= 1 && desc->copies <= HEAP_COPIES_MAX &&
	       desc->writers < HEAP_WRITERS_KINDS && desc->n_parts >= 1 &&
	       desc->n_parts <= HEAP_MAX_PARTS && desc->max_clients >= 1 &&
	       desc->max_clients <= HEAP_MAX_CLIENTS && desc->buckets >= 1 &&
	       desc->buckets <= HEAP_BUCKETS_MAX && desc->mode < HEAP_MODES &&
	       (desc->mode != HEAP_CLOVER ? pair_sizes_fit(desc) : desc_extents_fit(desc));
}

/* Sets the extents of a clover heap. */
static int plan_extents(const struct heap_wish *wish, struct heap_desc *desc)
{
	uint64_t extent = wish->extent_bytes ? wish->extent_bytes : HEAP_EXTENT_DEFAULT, extents;

	if (!bits_is_pow2(extent) || extent < HEAP_EXTENT_LEAST || extent > HEAP_EXTENT_MOST)
		return error_set(-EINVAL,
				 "extent_bytes %" PRIu64 ": a power of two from 64 KiB to 1 GiB",
				 extent);
	extents = div_up(div_up(wish->bytes, wish->n_parts), extent);
	if (!wish->bytes || extents >= HEAP_EXTENTS_MAX || extents * extent >= (uint64_t)256 << 30)
		return error_set(-EINVAL,
				 "%" PRIu64
				 " bytes in %u parts: 1 to 256 GiB and %u extents in each",
				 wish->bytes, wish->n_parts, HEAP_EXTENTS_MAX);
	desc->extents = (uint32_t)extents + 1; /* one is kept for deletes */
	desc->extent_bytes = extent;
	return 0;
}

/* Sets the stripe of a heap that has it. */
static int plan_stripe(const struct heap_wish *wish, struct heap_desc *desc)
{
	const uint64_t stripe = wish->stripe_bytes;

	if (!stripe)
		return 0;
	if (wish->mode != HEAP_CLOVER)
		return error_set(-EINVAL,
				 "stripe_bytes %" PRIu64 ": only a heap of mode clover has stripes",
				 stripe);
	if (desc->copies > 1 && desc->writers != HEAP_WRITERS_MANY)
		return error_set(-EINVAL,
				 "stripe_bytes %" PRIu64
				 ": with copies %u and one writer of each part no "
				 "client puts into all parts: create it with several writers",
				 stripe, desc->copies);
	if (!bits_is_pow2(stripe) || stripe < desc->extent_bytes || stripe >> HEAP_STRIPE_MOST > 1)
		return error_set(-EINVAL,
				 "stripe_bytes %" PRIu64
				 ": a power of two from extent_bytes, %" PRIu64 ", to 64 GiB",
				 stripe, desc->extent_bytes);
	desc->stripe = (uint8_t)bits_log2_floor(stripe);
	desc->magic = HEAP_DESC_MAGIC_STRIPED;
	return 0;
}

int heap_plan(const struct heap_wish *wish, struct heap_desc *desc_out)
{
	struct heap_desc desc = { .magic = HEAP_DESC_MAGIC,
				  .mode = (uint8_t)wish->mode,
				  .copies = (uint8_t)(wish->copies ? wish->copies : 1),
				  .writers = wish->copies > 1 ? (uint8_t)wish->writers : 0 };
	uint64_t buckets;
	int ret;

	if (wish->mode >= HEAP_MODES)
		return error_set(-EINVAL, "mode %u: 0 to %u", wish->mode, HEAP_MODES - 1);
	if (!wish->n_parts || wish->n_parts > HEAP_MAX_PARTS)
		return error_set(-EINVAL, "%u parts: 1 to %u", wish->n_parts, HEAP_MAX_PARTS);
	if (wish->copies > HEAP_COPIES_MAX)
		return error_set(-EINVAL, "copies %u: 1 to %u", wish->copies, HEAP_COPIES_MAX);
	if (wish->writers >= HEAP_WRITERS_KINDS)
		return error_set(-EINVAL, "writers %u: 0 (one) or 1 (many)", wish->writers);
	if (wish->copies > 1 && wish->mode != HEAP_CLOVER)
		return error_set(-EINVAL, "copies %u: only a heap of mode clover has more than 1",
				 wish->copies);
	if (!wish->max_clients || wish->max_clients > HEAP_MAX_CLIENTS)
		return error_set(-EINVAL, "max_clients %u: 1 to %u", wish->max_clients,
				 HEAP_MAX_CLIENTS);
	/* Half of the buckets stay empty, so that searches are short. */
	buckets = div_up(wish->keys, wish->n_parts);
	if (!wish->keys || buckets > HEAP_BUCKETS_MAX / 2)
		return error_set(-EINVAL, "%" PRIu64 " keys in %u parts: 1 to %u in each",
				 wish->keys, wish->n_parts, HEAP_BUCKETS_MAX / 2);
	memcpy(desc.name, wish->name, strnlen(wish->name, sizeof(desc.name) - 1));
	desc.n_parts = wish->n_parts;
	desc.max_clients = wish->max_clients;
	desc.buckets = (uint32_t)max_u64(2 * buckets, HEAP_PROBES);
	ret = wish->mode == HEAP_CLOVER ? plan_extents(wish, &desc) : pair_plan(wish, &desc);
	if (ret == 0)
		ret = plan_stripe(wish, &desc);
	if (ret)
		return ret;
	heap_desc_seal(&desc);
	*desc_out = desc;
	return heap_desc_check(desc_out);
}

static uint32_t desc_crc(const struct heap_desc *desc)
{
	return crc32c(0, desc, offsetof(struct heap_desc, crc));
}

void heap_desc_seal(struct heap_desc *desc)
{
	desc->crc = desc_crc(desc);
}

int heap_desc_check(const struct heap_desc *desc)
{
	if (desc->magic != HEAP_DESC_MAGIC && desc->magic != HEAP_DESC_MAGIC_STRIPED)
		return error_set(-EPROTO, "heap: the descriptor is of another layout");
	if (desc->crc != desc_crc(desc) || desc->name[sizeof(desc->name) - 1])
		return error_set(-EBADMSG, "heap: the descriptor is damaged");
	if (!desc_sizes_fit(desc))
		return error_set(-EBADMSG, "heap %s: sizes of the descriptor are out of range",
				 desc->name);
	return 0;
}

/* -------- part -------- */

struct part_spec heap_spec(const struct heap_desc *desc, uint32_t s)
{
	struct part_spec spec = {
		.kind = OBJECT_HEAP,
		.object = desc->id,
		.part = s,
		.bytes = { [REGION_TREE] =
				   heap_heads_off(desc) + ((uint64_t)desc->buckets + HEAP_PROBES) *
								  sizeof(struct heap_head),
			   [REGION_ROWS] =
				   HEAP_ROWS_OFF + (desc->mode == HEAP_CLOVER
							    ? desc->extents * desc->extent_bytes
							    : pair_bytes(desc)),
			   [REGION_SLOTS] = DESC_OFF + (uint64_t)desc->max_clients *
							       sizeof(struct client_slot),
			   [REGION_PAGES] =
				   PAGES_OFF + (uint64_t)desc->max_clients * CLIENT_PAGE_BYTES },
		.words_off = HEAP_WORDS_OFF,
		.slots_off = DESC_OFF,
		.max_clients = desc->max_clients,
		.name = desc->name,
		.desc = desc,
		.desc_bytes = sizeof(*desc),
		.told = { [PART_TOLD_USED] = part_told_at(
				  REGION_TREE,
				  HEAP_WORDS_OFF + offsetof(struct heap_words, keys)) },
	};

	memcpy(spec.uuid, desc->uuid, sizeof(spec.uuid));
	return spec;
}

int heap_format(const struct part_regions *regions, const struct heap_desc *desc, uint32_t s,
		const struct part_origin *origin)
{
	const struct heap_line line = { .whole.raw = s < heap_cut(desc) };
	struct part_spec spec = heap_spec(desc, s);
	int ret = part_format(regions, &spec, origin);

	if (ret == 0)
		ret = transport_store(regions->at[REGION_TREE],
				      HEAP_WORDS_OFF + offsetof(struct heap_words, line), &line,
				      sizeof(line));
	return ret ? ret : part_publish(regions);
}

int heap_open_part(const void *desc, uint32_t s, const struct part_regions *regions,
		   struct part **part_out)
{
	struct heap *heap = mem_zalloc(sizeof(*heap));
	struct heap_desc stored;
	struct part_spec spec;
	int ret = heap ? 0 : error_set(-ENOMEM, "heap: cannot allocate memory");

	if (ret == 0) {
		memcpy(&heap->desc, desc, sizeof(heap->desc));
		ret = heap_desc_check(&heap->desc);
	}
	if (ret == 0)
		ret = part_check_live(regions, OBJECT_HEAP);
	if (ret == 0)
		ret = transport_fetch(regions->at[REGION_TREE], DESC_OFF, &stored, sizeof(stored));
	if (ret == 0 && memcmp(&stored, &heap->desc, sizeof(stored)) != 0)
		ret = error_set(-EBADMSG,
				"heap %s part %u: its descriptor is not the catalog's: it was "
				"changed, or the region is another heap's",
				heap->desc.name, s);
	if (ret == 0) {
		spec = heap_spec(&heap->desc, s);
		ret = part_open(&heap->part, regions, &spec);
	}
	if (ret) {
		mem_free(heap);
		return ret;
	}
	if (heap->desc.stripe) /* nobody knows who died before */
		memset(heap->gone, 0xff, sizeof(heap->gone));
	heap->tree = heap->part.tree;
	heap->rows = heap->part.regions.at[REGION_ROWS];
	*part_out = &heap->part;
	return 0;
}

/* -------- the server's work -------- */

/* Calls fn with each extent word, until it fails. */
static int heap_each_extent(struct heap *heap, int (*fn)(void *ctx, uint32_t extent, uint64_t word),
			    void *ctx)
{
	struct heap_extent lines[EXTENTS_AT_ONCE];
	int ret = 0;

	for (uint32_t first = 0; ret == 0 && first < heap->desc.extents; first += EXTENTS_AT_ONCE) {
		uint32_t n = (uint32_t)min_u64(heap->desc.extents - first, EXTENTS_AT_ONCE);

		ret = transport_fetch(heap->tree, heap_extent_off(heap, first), lines,
				      n * (uint32_t)sizeof(lines[0]));
		for (uint32_t i = 0; ret == 0 && i < n; i++)
			ret = fn(ctx, first + i, lines[i].word.raw);
	}
	return ret;
}

struct settling {
	struct heap *heap;
	uint32_t owner;
};

static int settle_extent(void *ctx, uint32_t extent, uint64_t word)
{
	const struct settling *settling = ctx;
	uint64_t old;

	if (extent_owner(word) != settling->owner)
		return 0;
	return transport_cas_word(settling->heap->tree, heap_extent_off(settling->heap, extent),
				  word, extent_make(0, extent_class(word), word + 1), &old);
}

int heap_settle_extents(struct heap *heap, uint32_t owner)
{
	struct settling settling = { heap, owner };
	const uint64_t idle = 0;
	int ret;

	if (owner == 0 || owner > heap->desc.max_clients)
		return error_set(-EINVAL, "owner %u: the heap has owners 1 to %u", owner,
				 heap->desc.max_clients);
	ret = heap_each_extent(heap, settle_extent, &settling);
	return ret ? ret : transport_store(heap->tree, heap_pin_off(owner), &idle, sizeof(idle));
}

int heap_is_held(struct heap *heap, bool *held_out)
{
	struct heap_pin line;
	int ret = 0;

	*held_out = false;
	for (uint32_t owner = 1; ret == 0 && owner <= heap->desc.max_clients; owner++) {
		ret = transport_fetch(heap->tree, heap_pin_off(owner), &line, sizeof(line));
		for (uint32_t i = 0; ret == 0 && i < HEAP_HOLDS; i++)
			*held_out |= line.holds[i].raw != 0;
	}
	return ret;
}

int heap_keys(struct heap *heap, uint64_t *keys_out)
{
	return transport_load(heap->tree, HEAP_WORDS_OFF + offsetof(struct heap_words, keys),
			      keys_out);
}

static int count_extent(void *ctx, uint32_t extent, uint64_t word)
{
	struct heap_use *use = ctx;

	(void)extent;
	use->owned += extent_owner(word) != 0;
	use->orphans += extent_owner(word) == 0 && extent_class(word) != 0;
	use->free += extent_owner(word) == 0 && extent_class(word) == 0;
	return 0;
}

int heap_use(struct heap *heap, struct heap_use *use_out)
{
	struct heap_use use = { 0 };
	int ret = heap_each_extent(heap, count_extent, &use);

	if (ret == 0)
		*use_out = use;
	return ret;
}

int heap_place_read(struct heap *heap, uint64_t off, uint8_t *buf, uint32_t *bytes_out)
{
	struct heap_entry entry;
	int ret;

	*bytes_out = 0;
	if (!heap_holds(&heap->desc, off, sizeof(entry)))
		return 0;
	ret = transport_fetch(heap->rows, off, &entry, sizeof(entry));
	if (ret)
		return ret;
	*bytes_out =
		(uint32_t)min_u64(heap_extent_rest(&heap->desc, off),
				  chain_entry_bytes(entry.key_len, min_u64(entry.len, UINT32_MAX)));
	return transport_fetch(heap->rows, off, buf, *bytes_out);
}

int heap_moved(const struct heap *heap)
{
	return error_set(-EAGAIN, "heap %s: the part of the key is moving to another node",
			 heap->desc.name);
}

/* -------- size classes -------- */

uint64_t heap_class_bytes(uint32_t cls)
{
	uint64_t base;

	if (cls <= 3)
		return 64 * ((uint64_t)cls + 1);
	base = UINT64_C(256) << (cls - 4) / 4;
	return base + ((cls - 4) % 4 + 1) * base / 4;
}

uint32_t heap_class_of(uint64_t bytes)
{
	uint32_t log2;
	uint64_t base;

	if (bytes <= 256)
		return bytes <= 128 ? 1 : (uint32_t)div_up(bytes, 64) - 1;
	log2 = bits_log2_floor(bytes - 1);
	base = UINT64_C(1) << log2;
	return 4 * (log2 - 7) + (uint32_t)div_up(bytes - base, base / 4) - 1;
}

/* -------- manifests of large values -------- */

bool heap_manifest_check(const struct heap_desc *desc, const void *manifest,
			 uint64_t manifest_bytes, uint64_t bytes)
{
	struct heap_manifest head;
	struct heap_piece piece;

	if (manifest_bytes < sizeof(head))
		return false;
	memcpy(&head, manifest, sizeof(head));
	if (head.n == 0 || head.share == 0 || head.lead > HEAP_PAGE ||
	    head.share > heap_share_most(desc, head.lead) ||
	    manifest_bytes != sizeof(head) + head.n * sizeof(piece) ||
	    head.n != div_up(bytes, head.share))
		return false;
	for (uint32_t i = 0; i < head.n; i++) {
		memcpy(&piece, (const uint8_t *)manifest + sizeof(head) + i * sizeof(piece),
		       sizeof(piece));
		if (!heap_holds(desc, heap_piece_off(&piece),
				sizeof(struct heap_entry) + head.lead +
					heap_share(bytes, head.share, i)))
			return false;
	}
	return true;
}

const void *heap_manifest_in(const struct heap_desc *desc, const uint8_t *bytes_of, uint32_t bytes)
{
	const uint8_t *manifest;
	struct heap_entry entry;

	if (bytes < sizeof(entry))
		return NULL;
	memcpy(&entry, bytes_of, sizeof(entry));
	manifest = bytes_of + sizeof(entry) + entry.key_len;
	if (!(entry.flags & ENTRY_MANIFEST) || entry.len > bytes ||
	    sizeof(entry) + entry.key_len + entry.len > bytes ||
	    !heap_manifest_check(desc, manifest, entry.len, entry.epoch))
		return NULL;
	return manifest;
}

uint32_t heap_manifest_chunks(const void *manifest)
{
	struct heap_manifest head;

	memcpy(&head, manifest, sizeof(head));
	return head.n;
}

uint64_t heap_manifest_place(const void *manifest, uint32_t i)
{
	struct heap_piece piece;

	memcpy(&piece, (const uint8_t *)manifest + sizeof(struct heap_manifest) + i * sizeof(piece),
	       sizeof(piece));
	return heap_piece_off(&piece);
}
