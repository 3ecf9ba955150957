#include "ds/heap/space.h"

#include "ds/heap/space/pins.h"
#include "ds/heap/writers/writers.h"

#include "transport/barrier.h"

#include "base/mem/alloc.h"
#include "base/bits.h"
#include "base/os/cpu.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define NONE UINT32_MAX
#define AT_ONCE 128u /* words or headers of one read */
#define LINES_AT_ONCE 64u
#define PIN_LOOKS 16u   /* at the pins of calls in progress, before the caller waits */
#define SLOTS_AHEAD 16u /* claimed together, of large classes */
#define EXTENTS_AHEAD 8u
#define SHARE_LEAST 8u /* extents */
#define SPACE_PREFETCH_BYTES 2048u
#define SWEEP_LATE_BYTES 2048u /* of a slot */

static uint64_t slot_off(const struct space *space, const struct space_extent *extent, uint32_t i)
{
	return heap_slot_off(space->heap, extent->index, i * heap_class_bytes(extent->cls));
}

/* -------- lists -------- */

static void free_slot(struct space_extent *extent, uint32_t i)
{
	extent->is_live[i] = 0;
	extent->slots[i] = extent->free;
	extent->free = i;
	extent->n_free++;
}

static int live_slot(struct space_extent *extent, uint32_t i, uint32_t bucket, uint64_t word)
{
	if (word && !extent->words) {
		extent->words = mem_zalloc(extent->n_slots * sizeof(extent->words[0]));
		if (!extent->words)
			return error_set(-ENOMEM, "heap: cannot allocate memory for an extent");
	}
	if (extent->words)
		extent->words[i] = word;
	extent->slots[i] = bucket;
	extent->is_live[i] = 1;
	extent->n_live++;
	return 0;
}

static void limbo_slot(struct space_extent *extent, uint32_t i)
{
	extent->is_live[i] = 0;
	extent->slots[i] = extent->limbo;
	extent->limbo = i;
	extent->n_limbo++;
}

/* True if a client holds what was in the slot. */
static bool slot_is_held(const struct space *space, const struct space_extent *extent, uint32_t i)
{
	uint64_t word = extent->words ? extent->words[i] : 0;
	uint64_t first = space_hold_key(word ? word : head_make(0, slot_off(space, extent, i), 0));

	return space_any_hold(space, first, word ? first : first | UINT32_MAX);
}

/* Frees the slots of the limbo list that nobody holds. */
static void free_limbo(const struct space *space, struct space_extent *extent)
{
	uint32_t next, first = extent->limbo;

	extent->limbo = NONE;
	extent->n_limbo = 0;
	for (uint32_t i = first; i != NONE; i = next) {
		next = extent->slots[i];
		if (space->n_holds && slot_is_held(space, extent, i))
			limbo_slot(extent, i);
		else
			free_slot(extent, i);
	}
	extent->n_held = extent->n_limbo;
}

static void extent_free(struct space_extent *extent)
{
	if (extent) {
		mem_free(extent->slots);
		mem_free(extent->words);
		mem_free(extent->is_live);
	}
	mem_free(extent);
}

/* With no slot in any list. NULL: no memory. */
static struct space_extent *extent_new(const struct space *space, uint32_t index, uint32_t cls)
{
	uint64_t n = space->heap->desc.extent_bytes / heap_class_bytes(cls);
	struct space_extent *extent = mem_zalloc(sizeof(*extent));

	if (!extent)
		return NULL;
	*extent = (struct space_extent){ .index = index,
					 .cls = cls,
					 .n_slots = (uint32_t)n,
					 .free = NONE,
					 .limbo = NONE,
					 .slots = mem_array(n, sizeof(uint32_t)),
					 .is_live = mem_zalloc(n) };
	if (extent->slots && extent->is_live)
		return extent;
	extent_free(extent);
	return NULL;
}

static void extent_forget(struct space *space, size_t i)
{
	struct space_extent *extent = space->extents[i];

	if (space->current[extent->cls] == extent)
		space->current[extent->cls] = NULL;
	space->extents[i] = space->extents[--space->n];
	extent_free(extent);
}

/* -------- sweeps and pins -------- */

/* True if the slot is in use while its bucket has that head word. */
static bool slot_is_named(const struct space *space, const struct space_extent *extent, uint32_t i,
			  uint64_t word)
{
	if (word == HEAD_MOVED)
		return true; /* it names what its copy does */
	if (extent->words && extent->words[i])
		return word == extent->words[i];
	return word && head_off(word) == slot_off(space, extent, i);
}

/* Reads the head words of n buckets in a copy. A copy that is lost is only noticed by requests. */
static int buckets_look(const struct space *space, uint32_t c, const uint32_t *buckets, uint32_t n,
			uint64_t *words)
{
	struct transport_io ios[AT_ONCE];
	const struct heap *copy = space_copy(space, c);
	struct region *tree = copy->tree;

	if (!space->copies && transport_changes_in_place(tree) && !transport_is_forked(tree->tr)) {
		for (uint32_t k = 0; k < n; k++) {
			uint64_t off = heap_head_off(copy, buckets[k]);

			words[k] = rword64_load_acquire((const void *)(tree->base + off));
		}
		return 0;
	}
	for (uint32_t k = 0; k < n; k++)
		ios[k] = (struct transport_io){
			.region = tree,
			.off = heap_head_off(copy, buckets[k]),
			.dst = &words[k],
			.len = sizeof(words[0]),
		};
	return transport_read(tree->tr, ios, n);
}

/* Moves those of n live slots that no head names to the limbo list. */
static int slots_sweep(struct space *space, struct space_extent *extent, const uint32_t *slots,
		       uint32_t n)
{
	uint64_t words[AT_ONCE] = { 0 };
	bool named[AT_ONCE] = { false };
	uint32_t buckets[AT_ONCE];

	for (uint32_t k = 0; k < n; k++)
		buckets[k] = extent->slots[slots[k]];
	for (uint32_t c = space_copies(space); n && c-- > 0;) {
		int ret = buckets_look(space, c, buckets, n, words);

		if (ret)
			return ret;
		for (uint32_t k = 0; k < n; k++)
			named[k] |= slot_is_named(space, extent, slots[k], words[k]);
	}
	for (uint32_t k = 0; k < n; k++) {
		if (named[k])
			continue;
		extent->n_live--;
		limbo_slot(extent, slots[k]);
	}
	return 0;
}

/* Moves entries that no head names to the limbo list; the caller sets its tag. */
static int extent_sweep(struct space *space, struct space_extent *extent)
{
	const uint8_t *base = space->heap->tree->base;
	uint32_t slots[AT_ONCE], n = 0;
	int ret = 0;

	for (uint32_t i = 0; ret == 0 && i < extent->n_slots; i++) {
		if (extent->is_live[i] && base)
			__builtin_prefetch(base + heap_head_off(space->heap, extent->slots[i]), 0,
					   3);
		if (extent->is_live[i])
			slots[n++] = i;
		if (n < AT_ONCE)
			continue;
		ret = slots_sweep(space, extent, slots, n);
		n = 0;
	}
	return ret ? ret : slots_sweep(space, extent, slots, n);
}

/* Frees limbo slots that no client can read; *left_out: others are left, beside held ones. */
static int space_ripen(struct space *space, bool *left_out)
{
	struct space_epochs newest = { { 0 } }, now, least;
	bool left = false;
	int ret;

	for (size_t i = 0; i < space->n; i++)
		for (uint32_t c = 0; c < HEAP_COPIES_MAX && space->extents[i]->n_limbo; c++)
			newest.at[c] = max_u64(newest.at[c], space->extents[i]->tag.at[c]);
	*left_out = newest.at[0] != 0;
	if (!*left_out)
		return 0;
	ret = space_advance(space, &newest, &now);
	for (uint32_t looks = 0; ret == 0 && looks < PIN_LOOKS && *left_out; looks++) {
		ret = space_look(space, &now, &least);
		if (ret)
			return ret;
		left = false;
		for (size_t i = 0; i < space->n; i++) {
			struct space_extent *extent = space->extents[i];

			if (extent->n_limbo && space_is_past(space, &extent->tag, &least))
				free_limbo(space, extent);
			left |= extent->n_limbo > extent->n_held;
		}
		*left_out = left;
	}
	return ret;
}

/* After a loss: waits for the calls that may not know of it. They help what a lost copy alone has. */
static int space_calm_down(struct space *space)
{
	struct space_epochs now, least;
	int ret = 0;

	if (!space->calm.at[0])
		ret = space_advance(space, NULL, &space->calm);
	if (ret == 0)
		ret = space_advance(space, &space->calm, &now);
	for (uint32_t looks = 0; ret == 0 && looks < PIN_LOOKS && space->restless; looks++) {
		ret = space_look(space, &now, &least);
		space->restless = ret || !space_is_past(space, &space->calm, &least);
	}
	return ret;
}

/* Sets the tag of swept extents: the epoch, read after the heads. */
static int space_tag(struct space *space)
{
	struct space_epochs now = { { 0 } };
	int ret = 0;

	for (size_t i = 0; ret == 0 && i < space->n; i++) {
		struct space_extent *extent = space->extents[i];

		if (!extent->n_limbo || extent->tag.at[0])
			continue;
		if (!now.at[0])
			ret = space_advance(space, NULL, &now);
		if (ret == 0)
			extent->tag = now;
	}
	return ret;
}

/* Entries to collect that make a sweep worth its looks at the heads of all slots. What waits for it is out of the
   cache when it is written again: more than a look, where slots are long. */
static uint64_t sweep_least(const struct space_extent *extent)
{
	uint64_t share = heap_class_bytes(extent->cls) <= SWEEP_LATE_BYTES ? 2 : 4;

	return max_u64(extent->n_slots / share, 1);
}

static bool sweep_wanted(const struct space_extent *extent, uint32_t cls)
{
	return (!cls || extent->cls == cls) && extent->n_limbo == extent->n_held && extent->n_live;
}

/*
 * Sweeps the extents of a class (0 = of all) that have sweep_least() or more to collect, or, if `all`,
 * whatever the counts say.
 */
static int space_sweep(struct space *space, uint32_t cls, bool all)
{
	struct transport_io ios[AT_ONCE];
	struct space_extent *wanted[AT_ONCE];
	uint64_t retired[AT_ONCE] = { 0 };
	int ret = 0;

	for (size_t i = 0; ret == 0 && i < space->n;) {
		uint32_t n = 0;

		for (; i < space->n && n < AT_ONCE; i++) {
			if (!sweep_wanted(space->extents[i], cls))
				continue;
			wanted[n] = space->extents[i];
			ios[n] = (struct transport_io){
				.region = space->heap->tree,
				.off = heap_extent_off(space->heap, wanted[n]->index) +
				       offsetof(struct heap_extent, retired),
				.dst = &retired[n],
				.len = sizeof(retired[0]),
			};
			n++;
		}
		ret = transport_read(space->heap->tree->tr, ios, n);
		for (uint32_t k = 0; ret == 0 && k < n; k++) {
			struct space_extent *extent = wanted[k];

			/* Nobody counts chunks that were replaced, but an extent has few. */
			if (!all && !extent->words &&
			    retired[k] - extent->seen < sweep_least(extent))
				continue;
			extent->tag = (struct space_epochs){ { 0 } };
			ret = extent_sweep(space, extent);
			extent->seen = retired[k];
		}
	}
	return ret ? ret : space_tag(space);
}

/* -------- extents -------- */

static int extent_swap(struct space *space, uint32_t index, uint64_t from, uint64_t to,
		       bool *won_out)
{
	uint64_t old;
	int ret;

	if (space->copies && space->copies->line && extent_owner(to))
		return heap_writers_take(space->copies, index, from, to, won_out);
	if (space->copies && space->copies->line)
		return heap_writers_give(space->copies, index, from, to);
	ret = transport_cas_word(space->heap->tree, heap_extent_off(space->heap, index), from, to,
				 &old);

	*won_out = ret == 0 && old == from;
	if (*won_out && space->copies)
		ret = heap_copies_set(space->copies, heap_extent_off(space->heap, index), to);
	return ret;
}

/* Gives back extents without entries, but for SLOTS_AHEAD free slots in each class, or all. */
static int space_release(struct space *space, bool all)
{
	uint64_t free_slots[SPACE_CLASSES] = { 0 };
	bool won = true;
	int ret = 0;

	for (size_t i = 0; i < space->n; i++)
		free_slots[space->extents[i]->cls] += space->extents[i]->n_free;
	for (size_t i = space->n; ret == 0 && i-- > 0;) {
		struct space_extent *extent = space->extents[i];

		if (extent->n_free < extent->n_slots ||
		    (!all && free_slots[extent->cls] < extent->n_slots + SLOTS_AHEAD))
			continue;
		free_slots[extent->cls] -= extent->n_slots;
		ret = extent_swap(space, extent->index, extent->word,
				  extent_make(0, 0, extent->word + 1), &won);
		space->next = extent->index; /* its pages are there already: take it again first */
		extent_forget(space, i);
	}
	return ret;
}

/* Puts each slot of an orphan that was taken over in the list that its header and head say. */
static int extent_adopt(struct space *space, struct space_extent *extent)
{
	struct heap_entry headers[LINES_AT_ONCE] = { 0 };
	struct region *rows = space_last(space)->rows;
	struct transport_io ios[LINES_AT_ONCE];
	int ret = 0;

	for (uint32_t first = 0; ret == 0 && first < extent->n_slots; first += LINES_AT_ONCE) {
		uint32_t n = (uint32_t)min_u64(extent->n_slots - first, LINES_AT_ONCE);

		for (uint32_t i = 0; i < n; i++)
			ios[i] = (struct transport_io){
				.region = rows,
				.off = slot_off(space, extent, first + i),
				.dst = &headers[i],
				.len = sizeof(headers[0]),
			};
		ret = transport_read(rows->tr, ios, n);
		for (uint32_t i = 0; ret == 0 && i < n; i++) {
			if (headers[i].magic != ENTRY_MAGIC ||
			    headers[i].bucket >= space->heap->desc.buckets + HEAP_PROBES) {
				limbo_slot(extent, first + i);
				continue;
			}
			ret = live_slot(extent, first + i, headers[i].bucket,
					headers[i].flags & ENTRY_CHUNK ? headers[i].prev : 0);
		}
	}
	return ret ? ret : extent_sweep(space, extent);
}

static bool space_make_room(struct space *space)
{
	size_t to = space->room ? 2 * space->room : 16;

	if (space->n < space->room)
		return true;
	if (!mem_grow(&space->extents, space->room, to, sizeof(void *)))
		return false;
	space->room = to;
	return true;
}

/*
 * Takes the extent of that word, which is free or an orphan, for the class, or the orphan's own one.
 * *got_out: false: another client was faster.
 */
static int space_claim_one(struct space *space, uint32_t index, uint64_t word, uint32_t cls,
			   bool *got_out)
{
	bool orphan = extent_class(word) != 0;
	struct space_extent *extent = extent_new(space, index, orphan ? extent_class(word) : cls);
	int ret = 0;

	*got_out = false;
	if (!extent || !space_make_room(space))
		ret = error_set(-ENOMEM, "heap: cannot allocate memory for an extent");
	if (ret == 0) {
		extent->word = extent_make(space->owner, extent->cls, word + 1);
		ret = extent_swap(space, index, word, extent->word, got_out);
	}
	if (ret || !*got_out) {
		extent_free(extent);
		return ret;
	}
	space->extents[space->n++] = extent;
	if (orphan)
		return extent_adopt(space, extent);
	for (uint32_t i = extent->n_slots; i-- > 0;)
		free_slot(extent, i);
	return 0;
}

struct claim_wish {
	enum { CLAIM_FREE, CLAIM_ORPHAN_OF_CLASS, CLAIM_ORPHAN } what;
	uint32_t cls;
	uint32_t skip; /* extents to leave to others */
};

static bool claim_matches(const struct space *space, const struct claim_wish *wish, uint64_t word)
{
	uint32_t has = extent_class(word);

	if (extent_owner(word) || has >= SPACE_CLASSES || (has && space->restless) ||
	    (has && heap_class_bytes(has) > space->heap->desc.extent_bytes))
		return false;
	if (wish->what == CLAIM_FREE)
		return has == 0;
	return wish->what == CLAIM_ORPHAN ? has != 0 : has == wish->cls;
}

/* Claims up to n extents, beside the first `skip` that would do; *n_out: how many. */
static int space_claim(struct space *space, const struct claim_wish *wish, uint32_t n,
		       uint32_t *n_out)
{
	uint32_t extents = space->heap->desc.extents, from = space->next;
	struct region *tree = space_last(space)->tree;
	struct heap_extent lines[LINES_AT_ONCE];
	uint32_t skip = wish->skip;
	int ret = 0;

	*n_out = 0;
	for (uint32_t done = 0, k; done < extents && *n_out < n && ret == 0; done += k) {
		uint32_t first = (from + done) % extents;

		k = (uint32_t)min_u64(min_u64(extents - first, extents - done), LINES_AT_ONCE);
		ret = transport_fetch(tree, heap_extent_off(space->heap, first), lines,
				      k * (uint32_t)sizeof(lines[0]));
		for (uint32_t i = 0; ret == 0 && i < k && *n_out < n; i++) {
			bool got;

			if (!claim_matches(space, wish, lines[i].word.raw))
				continue;
			if (skip) {
				skip--;
				continue;
			}
			ret = space_claim_one(space, first + i, lines[i].word.raw, wish->cls, &got);
			*n_out += ret == 0 && got;
			space->next = (first + i + 1) % extents;
		}
	}
	return ret;
}

/* -------- slots -------- */

static struct space_extent *space_with_room(struct space *space, uint32_t cls)
{
	struct space_extent *found = space->current[cls];

	for (size_t i = 0; (!found || !found->n_free) && i < space->n; i++)
		if (space->extents[i]->cls == cls)
			found = space->extents[i];
	if (!found || !found->n_free)
		return NULL;
	space->current[cls] = found;
	return found;
}

/* Sweeps, frees what can be freed, and gives empty extents back. */
static int space_collect(struct space *space, uint32_t cls, bool all, bool *left_out)
{
	int ret = space->restless ? space_calm_down(space) : 0;

	*left_out = space->restless;
	if (ret || space->restless)
		return ret;
	ret = space_sweep(space, cls, all);
	if (ret == 0)
		ret = space_ripen(space, left_out);
	if (ret == 0)
		ret = space_release(space, false);
	return ret;
}

/* *held_out: a client is inside a call since before the epoch, and others may wait for it, too. */
static int space_is_held(struct space *space, bool *held_out)
{
	struct space_epochs now, least = { { 0 } };
	int ret = space_advance(space, NULL, &now);

	if (ret == 0)
		ret = space_least_pin(space, &now, &least);
	*held_out = ret == 0 && memcmp(&now, &least, sizeof(now)) != 0;
	return ret;
}

static int space_held(const struct space *space)
{
	return error_set(-EAGAIN,
			 "heap %s: replaced entries may still be read by a client that is inside a "
			 "call",
			 space->heap->desc.name);
}

/* Nothing is free: collects everything of ours, then takes over orphans, one after the other. */
static int space_press(struct space *space, uint32_t cls, bool last)
{
	const struct claim_wish of_free = { CLAIM_FREE, cls, !last };
	const struct claim_wish of_orphans = { CLAIM_ORPHAN, cls, 0 };
	uint32_t n;
	bool left;
	int ret;

	do {
		ret = space_collect(space, 0, true, &left);
		if (ret || space_with_room(space, cls))
			return ret;
		ret = space_release(space, true);
		if (ret == 0)
			ret = space_claim(space, &of_free, 1, &n);
		if (ret == 0 && n == 0)
			ret = space_claim(space, &of_orphans, 1, &n);
	} while (ret == 0 && n > 0 && !space_with_room(space, cls));
	if (ret || space_with_room(space, cls))
		return ret;
	if (!left)
		ret = space_is_held(space, &left);
	/* Words in a lost copy are old. */
	for (uint32_t c = 0; ret == 0 && space_copies(space) > 1 && c < space_copies(space); c++)
		ret = heap_writers_check(space->copies, space_copy(space, c));
	if (ret)
		return ret;
	if (left)
		return space_held(space);
	return error_set(-ENOSPC,
			 "heap %s is full: no slot of %" PRIu64 " bytes is free, and no extent; "
			 "delete keys, %sor create a larger heap",
			 space->heap->desc.name, heap_class_bytes(cls),
			 space->n_holds ? "release mapped generations, " : "");
}

/* Makes a slot of the class free: from what was replaced, from a free extent, or by pressing. */
static int space_refill(struct space *space, uint32_t cls, bool last)
{
	const struct claim_wish of_free = { CLAIM_FREE, cls, !last };
	const struct claim_wish of_orphans = { CLAIM_ORPHAN_OF_CLASS, cls, 0 };
	uint64_t slots = space->heap->desc.extent_bytes / heap_class_bytes(cls);
	uint32_t n, ahead = (uint32_t)min_u64(SLOTS_AHEAD / slots, EXTENTS_AHEAD);
	bool left;
	int ret = space_collect(space, cls, false, &left);

	if (ret || space_with_room(space, cls))
		return ret;
	/* While others hold back what was replaced, a client takes no more than its share. */
	if (left && space->n >= max_u64(SHARE_LEAST, space->heap->desc.extents /
							     (2 * space->heap->desc.max_clients)))
		return space_held(space);
	ret = space_claim(space, &of_free, ahead ? ahead : 1, &n);
	if (ret == 0 && n == 0)
		ret = space_claim(space, &of_orphans, 1, &n);
	if (ret == 0)
		ret = space_tag(space);
	if (ret || space_with_room(space, cls))
		return ret;
	return space_press(space, cls, last);
}

/* An extent of ours with the smallest slots of a larger class. */
static struct space_extent *space_larger(const struct space *space, uint32_t cls)
{
	struct space_extent *found = NULL;

	for (size_t i = 0; i < space->n; i++) {
		struct space_extent *extent = space->extents[i];

		if (extent->n_free && extent->cls > cls && (!found || extent->cls < found->cls))
			found = extent;
	}
	return found;
}

/* Fetches the lines that the next put will write into the cache, in place, and of the one after that the
   first: to find its page takes as long. */
static void space_prefetch(const struct space *space, const struct space_extent *extent,
			   uint64_t bytes)
{
	const uint8_t *base = space->heap->rows->base, *next;
	uint64_t most = min_u64(bytes, SPACE_PREFETCH_BYTES);

	if (!space->prefetchw || extent->free == NONE)
		return;
	next = base + slot_off(space, extent, extent->free);
	if (extent->slots[extent->free] != NONE)
		cpu_prefetch_to_write(base + slot_off(space, extent, extent->slots[extent->free]));
	for (uint64_t at = 0; at < most; at += WIRE_LINE)
		cpu_prefetch_to_write(next + at);
}

bool space_has(struct space *space, uint64_t bytes)
{
	return space_with_room(space, heap_class_of(bytes)) != NULL;
}

int space_take(struct space *space, uint64_t bytes, bool last, struct space_slot *slot_out)
{
	uint32_t cls = heap_class_of(bytes);
	struct space_extent *extent = space_with_room(space, cls);
	int ret = 0;

	if (!extent) {
		ret = space_refill(space, cls, last);
		extent = space_with_room(space, cls);
	}
	if (!extent && (ret == -ENOSPC || ret == -EAGAIN)) /* better than none */
		extent = space_larger(space, cls);
	if (!extent)
		return ret;
	*slot_out = (struct space_slot){ .extent = extent, .number = extent->free };
	slot_out->off = slot_off(space, extent, extent->free);
	extent->free = extent->slots[extent->free];
	extent->n_free--;
	space_prefetch(space, extent, bytes);
	return 0;
}

void space_keep(struct space *space, const struct space_slot *slot, uint32_t bucket)
{
	(void)space;
	(void)!live_slot(slot->extent, slot->number, bucket, 0);
}

int space_keep_chunk(const struct space_slot *slot, uint32_t bucket, uint64_t word)
{
	return live_slot(slot->extent, slot->number, bucket, word);
}

void space_give(struct space *space, const struct space_slot *slot)
{
	(void)space;
	free_slot(slot->extent, slot->number);
}

/* -------- open, close -------- */

void space_init(struct space *space, struct heap *heap, uint32_t owner)
{
	/* Clients begin far from each other. */
	uint64_t first = owner ? (owner - 1) * UINT64_C(0x9e3779b1) : 0;

	*space = (struct space){ .heap = heap, .owner = owner };
	space->next = (uint32_t)(first % heap->desc.extents);
	space->prefetchw = heap->rows->base && cpu_has_prefetchw();
}

void space_fini(struct space *space)
{
	bool left;

	if (space->n && !space->stays && (space_ripen(space, &left) || space_release(space, true)))
		error_clear();
	while (space->n)
		extent_forget(space, space->n - 1);
	mem_free(space->extents);
	mem_free(space->holds);
}
