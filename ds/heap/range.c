/*
 * range.c - ranges of values in chunks, for large.c. A chunk has one checksum, so it is read whole. Those that were read last stay
 * here, so that a reader of short ranges reads each chunk once; and where its chunks follow a trend, the next ones are read together with
 * those that it waits for, as many as may be under way: first one, then twice as many each time. A value is looked up by each
 * call, so chunks of a version that was replaced are never given.
 *
 * Chunk c has slot c % n, of n that have the bytes of a window. In place a chunk is read ahead by nobody, and there is one slot.
 */
#include "ds/heap/large.h"

#include "transport/barrier.h"

#include "base/mem/alloc.h"
#include "base/bits.h"
#include "base/trend.h"

#include <errno.h>
#include <string.h>

struct heap_ahead {
	uint64_t hash, version; /* of the value that the chunks are of */
	uint32_t n, depth;      /* slots; chunks to be read ahead */
	uint64_t room;          /* bytes of all slots */
	uint8_t *bytes;
	struct trend trend;
	int64_t last, step;              /* chunk of the last range; trend */
	uint32_t held[HEAP_WINDOW_MOST]; /* by slot: the chunk, from 1 on */
	uint32_t crcs[HEAP_WINDOW_MOST]; /* that it has */
	uint64_t fresh;                  /* slots whose bytes were not compared yet */
};

void heap_ahead_free(struct heap_access *acc)
{
	if (acc->ahead)
		mem_free(acc->ahead->bytes);
	mem_free(acc->ahead);
	acc->ahead = NULL;
}

/* -------- slots -------- */

static uint64_t slot_bytes(const struct heap_wanted *want)
{
	return align_up(want->manifest->share, 8);
}

static uint8_t *slot_of(const struct heap_ahead *ahead, const struct heap_wanted *want, uint32_t c)
{
	return ahead->bytes + c % ahead->n * slot_bytes(want);
}

static bool slot_has(const struct heap_ahead *ahead, const struct heap_wanted *want, uint32_t c)
{
	uint32_t slot = c % ahead->n;

	return ahead->held[slot] == c + 1 &&
	       ahead->crcs[slot] == heap_pieces(want->manifest)[c].crc;
}

static void slot_set(struct heap_ahead *ahead, const struct heap_wanted *want, uint32_t c)
{
	ahead->held[c % ahead->n] = c + 1;
	ahead->crcs[c % ahead->n] = heap_pieces(want->manifest)[c].crc;
}

/* Slots for that value; those of another one, or another version, are forgotten. */
static int ahead_begin(struct heap_access *acc, const struct heap_wanted *want)
{
	uint32_t n = acc->in_place ? 1 : heap_window(acc, want->manifest->share);
	struct heap_ahead *ahead = acc->ahead;
	uint64_t room;

	n = (uint32_t)min_u64(n, want->manifest->n);
	room = n * slot_bytes(want);
	if (!ahead)
		ahead = acc->ahead = mem_zalloc(sizeof(*ahead));
	if (!ahead)
		return error_set(-ENOMEM, "get: cannot allocate memory");
	if (ahead->n == n && ahead->hash == want->hash && ahead->version == want->version)
		return 0;
	*ahead = (struct heap_ahead){ .hash = want->hash,
				      .version = want->version,
				      .room = ahead->room,
				      .bytes = ahead->bytes,
				      .last = -1 };
	if (ahead->room < room) {
		mem_free(ahead->bytes);
		ahead->bytes = mem_alloc(room);
		ahead->room = ahead->bytes ? room : 0;
	}
	if (!ahead->bytes)
		return error_set(-ENOMEM, "get: cannot allocate memory for chunks");
	ahead->n = n;
	return 0;
}

/* -------- the next chunks -------- */

/* A range goes from chunk `first` to `last`. The chunk with which the one before ended says nothing new. */
static void ahead_follow(struct heap_ahead *ahead, int64_t first, int64_t last)
{
	if (ahead->last >= 0 && last != ahead->last)
		trend_add(&ahead->trend, first == ahead->last ? 1 : first - ahead->last);
	ahead->last = last;
}

/* How many chunks to read ahead of a range that has to wait: *step_out leads from one to the next. */
static uint32_t ahead_depth(struct heap_ahead *ahead, int64_t *step_out)
{
	bool same = trend_find(&ahead->trend, step_out);

	if (!same)
		ahead->depth = 0;
	else if (ahead->depth == 0 || ahead->step != *step_out)
		ahead->depth = 1;
	else if (ahead->depth < HEAP_WINDOW_MOST)
		ahead->depth *= 2;
	ahead->step = *step_out;
	return ahead->depth;
}

/* -------- over a wire -------- */

/* Chunks on their way, those that are waited for first. */
struct bringing {
	struct transport_io ios[HEAP_WINDOW_MOST];
	uint32_t chunks[HEAP_WINDOW_MOST];
	uint32_t n;
	uint64_t slots; /* that are taken */
};

static void bring_add(struct heap_access *acc, const struct heap_wanted *want, struct bringing *of,
		      uint32_t c)
{
	struct heap_ahead *ahead = acc->ahead;

	of->slots |= UINT64_C(1) << c % ahead->n;
	if (slot_has(ahead, want, c))
		return;
	ahead->held[c % ahead->n] = 0;
	of->chunks[of->n] = c;
	of->ios[of->n++] = (struct transport_io){
		.region = acc->heap->rows,
		.off = heap_share_off(want->manifest, c),
		.dst = slot_of(ahead, want, c),
		.len = (uint32_t)align_up(heap_share(want->bytes, want->manifest->share, c), 8),
	};
}

/* Adds the chunks that the trend leads to, into slots that the range does not need. */
static void bring_next(struct heap_access *acc, const struct heap_wanted *want, struct bringing *of)
{
	struct heap_ahead *ahead = acc->ahead;
	int64_t step, c = ahead->last;

	for (uint32_t depth = ahead_depth(ahead, &step); depth > 0; depth--) {
		c += step;
		if (c < 0 || c >= (int64_t)want->manifest->n ||
		    of->slots & UINT64_C(1) << (uint64_t)c % ahead->n)
			return;
		bring_add(acc, want, of, (uint32_t)c);
	}
}

/* Reads n chunks from `first` on, unless they are there. */
static int chunks_bring(struct heap_access *acc, const struct heap_wanted *want, uint32_t first,
			uint32_t n)
{
	struct heap_ahead *ahead = acc->ahead;
	struct bringing of;
	uint32_t waited;
	int ret;

	of.n = 0;
	of.slots = 0;
	for (uint32_t c = first; c < first + n; c++)
		bring_add(acc, want, &of, c);
	waited = of.n;
	if (waited == 0)
		return 0;
	bring_next(acc, want, &of);
	ret = heap_window_run(acc, of.ios, of.n, false);
	for (uint32_t i = 0; ret == 0 && i < of.n; i++) {
		uint32_t c = of.chunks[i];

		if (i < waited)
			ahead->fresh |= UINT64_C(1) << c % ahead->n;
		else if (crc32c(0, slot_of(ahead, want, c),
				heap_share(want->bytes, want->manifest->share, c)) !=
			 heap_pieces(want->manifest)[c].crc)
			continue; /* whoever wants it reads it again */
		slot_set(ahead, want, c);
	}
	return ret;
}

/* -------- what the reader gets -------- */

/* Bytes of a chunk that are wanted. */
struct cut {
	uint64_t from, bytes; /* in the chunk */
	uint8_t *to;
	bool whole;
};

static struct cut chunk_cut(const struct heap_wanted *want, uint32_t c)
{
	uint64_t begin = c * want->manifest->share;
	uint64_t bytes = heap_share(want->bytes, want->manifest->share, c);
	uint64_t first = max_u64(begin, want->range.offset);
	uint64_t end = min_u64(begin + bytes, want->range.offset + want->range.len);

	return (struct cut){ first - begin, end - first, want->to + (first - want->range.offset),
			     end - first == bytes };
}

/* Copies a whole chunk, or else brings it to the slot; returns its checksum. */
static uint32_t chunk_in_place(struct heap_access *acc, const struct heap_wanted *want, uint32_t c,
			       const struct cut *cut)
{
	uint64_t bytes = heap_share(want->bytes, want->manifest->share, c);
	const uint8_t *from = acc->heap->rows->base + heap_share_off(want->manifest, c);

	if (!cut->whole)
		return transport_copy_racy_crc(0, slot_of(acc->ahead, want, c), from, bytes);
	return want->range.len >= HEAP_PAST_BYTES
		       ? transport_copy_racy_crc_past(cut->to, from, bytes)
		       : transport_copy_racy_crc(0, cut->to, from, bytes);
}

/* Checks what was read into the slot, and gives it. */
static uint32_t chunk_fresh(const struct heap_wanted *want, uint32_t c, const struct cut *cut,
			    const uint8_t *slot)
{
	uint32_t crc;

	if (cut->whole)
		return transport_copy_racy_crc(0, cut->to, slot, cut->bytes);
	crc = crc32c(0, slot, heap_share(want->bytes, want->manifest->share, c));
	memcpy(cut->to, slot + cut->from, cut->bytes);
	return crc;
}

/* Gives what is wanted of chunk c. */
static int chunk_give(struct heap_access *acc, const struct heap_wanted *want, uint32_t c)
{
	struct heap_ahead *ahead = acc->ahead;
	const uint64_t bit = UINT64_C(1) << c % ahead->n;
	const uint8_t *slot = slot_of(ahead, want, c);
	struct cut cut = chunk_cut(want, c);
	uint32_t crc = heap_pieces(want->manifest)[c].crc;

	if (acc->in_place && !slot_has(ahead, want, c)) {
		crc ^= chunk_in_place(acc, want, c, &cut);
		if (!cut.whole) {
			memcpy(cut.to, slot + cut.from, cut.bytes);
			slot_set(ahead, want, c);
		}
	} else if (ahead->fresh & bit) {
		crc ^= chunk_fresh(want, c, &cut, slot);
		ahead->fresh &= ~bit;
	} else {
		memcpy(cut.to, slot + cut.from, cut.bytes);
		return 0;
	}
	if (crc == 0)
		return 0;
	ahead->held[c % ahead->n] = 0;
	return heap_chunk_damaged(acc, c);
}

int heap_range_read(struct heap_access *acc, const struct heap_wanted *want)
{
	uint64_t share = want->manifest->share;
	uint32_t first = (uint32_t)(want->range.offset / share);
	uint32_t end = (uint32_t)div_up(want->range.offset + want->range.len, share);
	int ret = ahead_begin(acc, want);

	if (ret)
		return ret;
	ahead_follow(acc->ahead, first, end - 1);
	while (ret == 0 && first < end) {
		uint32_t n = (uint32_t)min_u64(end - first, acc->ahead->n);

		if (!acc->in_place)
			ret = chunks_bring(acc, want, first, n);
		for (; ret == 0 && n > 0; n--)
			ret = chunk_give(acc, want, first++);
	}
	return ret;
}
