/*
 * Heap: values under keys in one part (wire/heap_layout.h), and what the server does with it. How a
 * client reads and changes keys is in keys.h, where its entries lie in space.h.
 *
 *   heap_plan     sizes of a new heap, from a capacity in keys and bytes
 *   heap_format   fresh regions of a part
 *   heap_settle   the extents of a client that died or returns its slot become orphans
 */
#ifndef RLV_DS_HEAP_HEAP_H
#define RLV_DS_HEAP_HEAP_H

#include "ds/part/part.h"

#include "wire/heap_layout.h"

#define HEAP_EXTENT_DEFAULT ((uint64_t)2 << 20)
#define HEAP_EXTENT_LEAST ((uint64_t)64 << 10)
#define HEAP_EXTENT_MOST ((uint64_t)1 << 30)
#define HEAP_MAX_CLIENTS 1024u
#define HEAP_MAX_PARTS 64u
#define HEAP_PAGE 4096u
#define HEAP_STRIPE_MOST 36u /* log2 of its bytes */

struct central;

struct heap {
	struct part part;
	struct region *tree, *rows;
	struct heap_desc desc;
	bool whole;   /* seen to be; copies.h */
	bool mending; /* by heap_copies_mend, up to bucket `mended` */
	uint32_t mended;
	/* Of a heap with stripes, for the server: owners that may have left an intent; a bit for each, owner 1 the lowest. */
	uint64_t gone[HEAP_MAX_CLIENTS / 64];
	struct central *central; /* the coordinator's map; NULL: there is none */
};

static inline struct heap *heap_of(struct part *part)
{
	return (struct heap *)(void *)part;
}

/* Capacity of a heap over all of its parts. */
struct heap_wish {
	const char *name;
	uint64_t keys;         /* different keys ever used */
	uint64_t bytes;        /* of extents */
	uint64_t extent_bytes; /* 0 = HEAP_EXTENT_DEFAULT; a power of two */
	uint32_t n_parts, max_clients;
	uint32_t copies;  /* of each part; 0 = 1 */
	uint32_t writers; /* enum heap_writers_kind */
	uint32_t mode;    /* enum heap_mode; with copies: extent_bytes of each, 0 = bytes / keys */
	uint64_t stripe_bytes; /* of extents; a power of two; 0 = values stay in their part */
};

/*
 * Plans the descriptor of a new heap, without uuid, id and seed. -EINVAL: the message names the
 * number that is out of range.
 */
RLV_MUST_CHECK int heap_plan(const struct heap_wish *wish, struct heap_desc *desc_out);

/* Sets the crc of a descriptor, and checks all of it. -EPROTO: another layout; -EBADMSG. */
void heap_desc_seal(struct heap_desc *desc);
RLV_MUST_CHECK int heap_desc_check(const struct heap_desc *desc);

/* Describes the regions of part s. desc is borrowed. */
struct part_spec heap_spec(const struct heap_desc *desc, uint32_t s);

/* Formats part s in fresh zeroed regions, and makes it live. Errors: part_format, part_publish. */
RLV_MUST_CHECK int heap_format(const struct part_regions *regions, const struct heap_desc *desc,
			       uint32_t s, const struct part_origin *origin);

/* As struct part_kind: desc is a struct heap_desc. */
RLV_MUST_CHECK int heap_open_part(const void *desc, uint32_t s, const struct part_regions *regions,
				  struct part **part_out);
void heap_close_part(struct part *part);

/*
 * Makes orphans of the owner's extents and withdraws its pin and holds. The owner makes no change any more. An
 * entry that no head names was never put; one that a head names is complete. May be repeated. Cost:
 * reads the extent words, and one phase for each extent of the owner.
 */
RLV_MUST_CHECK int heap_settle(struct heap *heap, uint32_t owner);
/* The same by the owner itself, which goes on: its holds stay. */
RLV_MUST_CHECK int heap_settle_self(struct heap *heap, uint32_t owner);
/* The same where it is known that the heap is a clover one. */
RLV_MUST_CHECK int heap_settle_extents(struct heap *heap, uint32_t owner);

/* True if a client holds a value of the part (heap_hold). Cost: reads the lines of all clients. */
RLV_MUST_CHECK int heap_is_held(struct heap *heap, bool *held_out);

/* Number of keys, deleted ones included. Cost: 1 phase. */
RLV_MUST_CHECK int heap_keys(struct heap *heap, uint64_t *keys_out);

/* Where a move is. Begins as zeros. */
struct heap_move_at {
	uint64_t word; /* of the value whose chunks are copied */
	uint32_t bucket, piece;
	bool closing; /* heads are being closed */
};

/*
 * Copies about that many bytes of a part to a new part of the same descriptor, which nobody uses, while
 * clients go on; at the end it closes the part, key by key: calls on closed keys are -EAGAIN, until clients
 * know the other part. Of mode central: only the coordinator may call it, and the part has to end before it serves another call. *done_out: all are closed and copied, and the other part is whole. to NULL: only closes.
 * After an error, call again. A head that went round all its 2^24 versions since it was copied, to the same
 * place, is not seen to have changed. Cost: 3 RT for 64 heads, 2 for each entry and chunk.
 */
RLV_MUST_CHECK int heap_move(struct heap *from, struct heap *to, struct heap_move_at *at,
			     uint64_t bytes, bool *done_out);

/* heap_move of mode clover. */
RLV_MUST_CHECK int heap_move_chains(struct heap *from, struct heap *to, struct heap_move_at *at,
				    uint64_t bytes, bool *done_out);

/* The other part has all entries: it gets the number of keys, and is whole. */
RLV_MUST_CHECK int heap_move_end(struct heap *from, struct heap *to);

/* -EAGAIN: a head is HEAD_MOVED. */
RLV_MUST_CHECK int heap_moved(const struct heap *heap);

/* Reads the entry or chunk at that place, whatever it is, into extent_bytes at buf; *bytes_out 0: no place
   for one. Cost: 2 RT. */
RLV_MUST_CHECK int heap_place_read(struct heap *heap, uint64_t off, uint8_t *buf,
				   uint32_t *bytes_out);

/* Extents by what their words say. */
struct heap_use {
	uint64_t free, owned, orphans;
};

/* Cost: reads the extent words. */
RLV_MUST_CHECK int heap_use(struct heap *heap, struct heap_use *use_out);

/* Number of parts in the catalog when the heap is new. */
static inline uint32_t heap_cut(const struct heap_desc *desc)
{
	return desc->n_parts * desc->copies;
}

/* -------- size classes -------- */

/* Bytes of a slot of class 1..: 128, 192, 256, then four steps for each doubling. */
uint64_t heap_class_bytes(uint32_t cls);
/* The smallest class whose slots have that many bytes. */
uint32_t heap_class_of(uint64_t bytes);

/* -------- where things are -------- */

static inline uint64_t heap_pin_off(uint32_t owner)
{
	return HEAP_PINS_OFF + (uint64_t)(owner - 1) * WIRE_LINE;
}

static inline uint64_t heap_holds_off(uint32_t owner)
{
	return heap_pin_off(owner) + offsetof(struct heap_pin, holds);
}

static inline uint64_t heap_extent_off(const struct heap *heap, uint32_t extent)
{
	return HEAP_PINS_OFF + ((uint64_t)heap->desc.max_clients + extent) * WIRE_LINE;
}

static inline uint64_t heap_heads_off(const struct heap_desc *desc)
{
	return (HEAP_PINS_OFF + ((uint64_t)desc->max_clients + desc->extents) * WIRE_LINE + 127) &
	       ~UINT64_C(127);
}

/* Head records of a part. */
static inline uint32_t heap_heads(const struct heap_desc *desc)
{
	return desc->buckets + HEAP_PROBES;
}

/* bucket < heap_heads */
static inline uint64_t heap_head_off(const struct heap *heap, uint32_t bucket)
{
	return heap_heads_off(&heap->desc) + (uint64_t)bucket * sizeof(struct heap_head);
}

static inline uint64_t heap_slot_off(const struct heap *heap, uint32_t extent, uint64_t off)
{
	return HEAP_ROWS_OFF + (uint64_t)extent * heap->desc.extent_bytes + off;
}

/* Longest entry. */
static inline uint64_t heap_entry_most(const struct heap_desc *desc)
{
	return desc->extent_bytes;
}

/* Bytes of the extent from that place of the rows region on. extent_bytes is a power of two. */
static inline uint64_t heap_extent_rest(const struct heap_desc *desc, uint64_t off)
{
	return desc->extent_bytes - ((off - HEAP_ROWS_OFF) & (desc->extent_bytes - 1));
}

/* True if an entry of that many bytes can lie at that place of the rows region. */
static inline bool heap_holds(const struct heap_desc *desc, uint64_t off, uint64_t bytes)
{
	uint64_t at = off - HEAP_ROWS_OFF;

	return off >= HEAP_ROWS_OFF && at < desc->extents * desc->extent_bytes &&
	       bytes <= heap_extent_rest(desc, off);
}

/* -------- manifests of large values -------- */

static inline uint64_t heap_piece_off(const struct heap_piece *piece)
{
	return (uint64_t)piece->place * 64;
}

/* Lead of the chunks of a value. Of one that is to be mapped shares are whole pages, which readers map side by side; values with
   copies are not mapped. */
static inline uint32_t heap_lead(const struct heap_desc *desc, bool paged)
{
	return paged && desc->copies == 1 ? HEAP_PAGE - (uint32_t)sizeof(struct heap_entry) : 0;
}

/* Bytes of a chunk's share. */
static inline uint64_t heap_share_most(const struct heap_desc *desc, uint32_t lead)
{
	return desc->extent_bytes - sizeof(struct heap_entry) - lead;
}

/* Bytes of share i, of n that make `bytes`. */
static inline uint64_t heap_share(uint64_t bytes, uint64_t share, uint32_t i)
{
	uint64_t left = bytes - i * share;

	return left < share ? left : share;
}

/* True if the bytes are the manifest of a value of that many bytes, whose chunks can be where it says. */
bool heap_manifest_check(const struct heap_desc *desc, const void *manifest,
			 uint64_t manifest_bytes, uint64_t bytes);

/* The manifest in an entry of which that many bytes were read. NULL: it has none, or a damaged one. */
const void *heap_manifest_in(const struct heap_desc *desc, const uint8_t *entry, uint32_t bytes);
/* Of a manifest that was checked, at any address: its chunks, and the place of one, which begins with its header. */
uint32_t heap_manifest_chunks(const void *manifest);
uint64_t heap_manifest_place(const void *manifest, uint32_t i);

/* Where its share begins, behind that header and the lead. */
static inline uint64_t heap_share_off(const struct heap_manifest *manifest, uint32_t i)
{
	return heap_manifest_place(manifest, i) + sizeof(struct heap_entry) + manifest->lead;
}

#endif
