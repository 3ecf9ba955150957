/* The top levels of a forest; see ds/sumtree/tops.h. */
#include "ds/sumtree/tops.h"

#include "ds/sumtree/sumtree.h"
#include "ds/sumtree/deferred.h"
#include "ds/sumtree/nodes.h"

#include "transport/barrier.h"
#include "transport/transport.h"

#include "wire/ring_layout.h"
#include "wire/sumtree_layout.h"

#include "base/mem/alloc.h"
#include "base/bits.h"

#include <errno.h>
#include <string.h>

static_assert(WIRE_LINE % 8 == 0, "the top lies a line behind the size word");

static const struct rword64 *words_at(const uint8_t *base, uint64_t off)
{
	return (const struct rword64 *)(const void *)(base + off);
}

/* E6 pairs with E5. Stores the epoch word in ep; true = it is the same as before. */
static bool see_epoch(struct epoch *ep, uint64_t word)
{
	uint32_t number = ep->number;

	ep->number = epoch_number(word);
	ep->mode = epoch_mode_of(word);
	return ep->number == number;
}

static uint32_t top_nodes(const struct sumtree *tree)
{
	return tree->nodes[tree->geo.levels];
}

/*
 * Offset of the head of the inner array that ep names; the head is its size word, the rest of that
 * line, and the top level.
 */
static uint64_t head_off(const struct sumtree *tree, const struct epoch *ep)
{
	return node_size_off(tree, ep->number & 1);
}

static uint32_t head_bytes(const struct sumtree *tree)
{
	return (uint32_t)tree->level_off[tree->geo.levels] + top_nodes(tree) * 8;
}

/* -------- layout -------- */

/* Sets trees, in_place and flat_log2. -ENOMEM. */
static int lay_flat(struct sumtree_tops *tops, const struct forest *from)
{
	const struct tree_geometry *geo = &from->trees[0].geo;
	uint32_t log2 = tops->stride_log2,
		 most = 28; /* numbers times a reciprocal fit in 64 bits */
	bool flat = from->n > 1;

	if (from->n > tops->room_trees) {
		if (!mem_grow(&tops->trees, tops->room_trees, from->n, sizeof(*tops->trees)))
			return error_set(-ENOMEM, "draw: cannot allocate memory for %u trees",
					 from->n);
		tops->room_trees = from->n;
	}
	tops->in_place = true;
	for (uint32_t t = 0; t < from->n; t++) {
		const struct sumtree *tree = &from->trees[t];
		const uint8_t *base = tree->region->base;

		flat &= transport_changes_in_place(tree->region);
		tops->in_place &= base != NULL;
		if (!base)
			continue;
		tops->trees[t] = (struct tops_tree){
			.epoch = words_at(from->epochs[t].region->base, from->epochs[t].word_off),
			.inner = { base + tree->inner_off[0], base + tree->inner_off[1] },
			.leaves = base + tree->leaves_off,
		};
	}
	for (uint32_t l = 1; l < geo->levels; l++) {
		flat &= (geo->fanout[l] & (geo->fanout[l] - 1)) == 0;
		log2 += bits_log2_floor(geo->fanout[l]);
	}
	flat &= (uint64_t)from->n << log2 < (uint64_t)1 << most;
	tops->flat_log2 = flat ? log2 : 0;
	return 0;
}

int sumtree_tops_fit(struct sumtree_tops *tops, const struct forest *from)
{
	uint32_t log2 = bits_log2_floor(SUMS_FANOUT);
	uint64_t n, words = WIRE_LINE / 8, *at;

	if (from->n == 0 || from->n > TABLE_MAX_SHARDS)
		return error_set(-EINVAL, "draw from %u trees: must be 1..%u", from->n,
				 TABLE_MAX_SHARDS);
	for (uint32_t t = 0; t < from->n; t++)
		if (memcmp(&from->trees[t].geo, &from->trees[0].geo, sizeof(from->trees[0].geo)) !=
		    0)
			return error_set(-EINVAL, "draw: tree %u differs from tree 0 in its shape",
					 t);
	while ((uint32_t)1 << log2 < top_nodes(&from->trees[0]))
		log2++;
	tops->from = NULL;
	tops->n_trees = from->n;
	tops->stride_log2 = log2;
	tops->top = 0;
	for (n = (uint64_t)from->n << log2;; n = div_up(n, SUMS_FANOUT)) {
		tops->nodes[tops->top] = (uint32_t)n;
		words += round_up(n, SUMS_FANOUT);
		if (n <= TOPS_MOST)
			break;
		tops->top++;
	}
	if (!mem_make_room(&tops->words, &tops->room_words, words, sizeof(*tops->words)))
		return error_set(-ENOMEM, "draw: cannot allocate memory for %u sums",
				 (uint32_t)words);
	memset(tops->words, 0, words * sizeof(*tops->words));
	/* A vector load then touches one line. */
	at = tops->words + -((uintptr_t)tops->words / 8) % (WIRE_LINE / 8);
	for (uint32_t l = 0; l <= tops->top; l++) {
		tops->level[l] = at;
		at += round_up(tops->nodes[l], SUMS_FANOUT);
	}
	if (lay_flat(tops, from))
		return -ENOMEM;
	tops->due = true;
	tops->from = from;
	return 0;
}

void sumtree_tops_fini(struct sumtree_tops *tops)
{
	mem_free(tops->words);
	mem_free(tops->trees);
	*tops = (struct sumtree_tops){ 0 };
}

int sumtree_tops_open(struct sumtree_tops **tops_out)
{
	*tops_out = mem_zalloc(sizeof(**tops_out));
	return *tops_out ? 0 : error_set(-ENOMEM, "sum tree: cannot allocate memory");
}

void sumtree_tops_close(struct sumtree_tops **tops)
{
	if (*tops)
		sumtree_tops_fini(*tops);
	mem_free(*tops);
	*tops = NULL;
}

void sumtree_tops_forget(struct sumtree_tops *tops)
{
	if (tops)
		tops->from = NULL;
}

/* -------- one tree -------- */

/*
 * Copies the top level of tree t from the head of an inner array, and adds its live leaves to
 * tops->size.
 */
static void take_head(struct sumtree_tops *tops, uint32_t t, const void *head)
{
	const struct sumtree *tree = &tops->from->trees[t];
	const struct rword64 *sums = words_at(head, tree->level_off[tree->geo.levels]);
	uint32_t n = top_nodes(tree), families = tops->top ? n / SUMS_FANOUT : 0;
	size_t at = (size_t)t << tops->stride_log2;
	int64_t live = node_size(tree, rword64_load_relaxed(head));
	uint64_t rest = 0;

	tops->size += live;
	if (tops->sizes)
		tops->sizes[t] = live;
	if (families)
		sumtree_kernel_get()->copy((const void *)sums, families, tops->level[0] + at,
					   tops->level[1] + at / SUMS_FANOUT);
	for (uint32_t i = families * SUMS_FANOUT; i < n; i++) {
		uint64_t word = rword64_load_relaxed(&sums[i]);

		tops->level[0][at + i] = (int64_t)word > 0 ? word : 0;
		rest += tops->level[0][at + i];
	}
	if (tops->top && n % SUMS_FANOUT)
		tops->level[1][at / SUMS_FANOUT + families] = rest;
}

/* -------- sums above -------- */

/*
 * Computes the private sums. If their total is 2^62 or more all words are halved until it is below:
 * rule 6 mends the rest.
 */
void sumtree_tops_end(struct sumtree_tops *tops)
{
	uint32_t l = tops->top > 0;
	unsigned __int128 total = 0;

	tops->shift = 0;
	for (uint32_t i = 0; i < tops->nodes[l]; i++)
		total += tops->level[l][i];
	while (total >> tops->shift >> TREE_SUM_HEADROOM_BITS)
		tops->shift++;
	for (uint32_t i = 0; tops->shift && i < tops->nodes[0]; i++)
		tops->level[0][i] >>= tops->shift;
	for (l = tops->shift ? 1 : 2; l <= tops->top; l++) {
		const uint64_t *from = tops->level[l - 1];

		for (uint32_t i = 0; i < tops->nodes[l]; i++, from += SUMS_FANOUT) {
			uint64_t sum = 0;

			for (uint32_t k = 0; k < SUMS_FANOUT; k++)
				sum += from[k];
			tops->level[l][i] = sum;
		}
	}
	tops->due = false;
	tops->draws = 0;
}

bool sumtree_tops_begin_draw(struct sumtree_tops *tops)
{
	const uint64_t *sums = tops->level[tops->top];
	uint32_t n = tops->nodes[tops->top];
	uint64_t total = 0;

	for (uint32_t k = 0; k <= TOPS_MOST; k++) {
		tops->prefix[k] = k < n ? total : UINT64_MAX;
		total += k < n ? sums[k] : 0;
	}
	tops->total = total;
	return total > 0;
}

/* Adds the run to the copies, whose node 0 is `base` in level 0. */
static void add_run(struct sumtree_tops *tops, uint32_t base, const struct delta_run *run)
{
	for (uint32_t i = 0; i < run->n; i++) {
		uint32_t at = base + run->node[i];
		uint64_t old = tops->level[0][at], new = old + (uint64_t)run->sum[i];

		new = (int64_t) new > 0 ? new : 0;
		tops->level[0][at] = new;
		for (uint32_t l = 1; l <= tops->top; l++) {
			at /= SUMS_FANOUT;
			tops->level[l][at] += new - old;
		}
	}
}

void sumtree_tops_add(struct sumtree_tops *tops, uint32_t tree, uint32_t parity,
		      const struct delta_run *run)
{
	if (!tops->from || tops->due)
		return;
	tops->due = tops->shift || (tops->from->epochs[tree].number & 1) != parity;
	if (!tops->due)
		add_run(tops, tree << tops->stride_log2, run);
}

void sumtree_tops_add_flat(struct sumtree_tops *tops, uint32_t parity, const struct delta_run *run)
{
	uint32_t other = tops->shift; /* not 0: a tree whose copies are of the other array */

	if (tops->due)
		return;
	for (uint32_t i = 0; i < run->n; i++)
		other |= tops_parity(&tops->trees[run->node[i] >> tops->stride_log2]) ^ parity;
	tops->due = other != 0;
	if (!tops->due)
		add_run(tops, 0, run);
}

/* -------- by reads of the caller -------- */

uint32_t sumtree_tops_bytes(const struct forest *from)
{
	return WIRE_LINE + head_bytes(&from->trees[0]);
}

/*
 * Sets the reads of one tree into buffer: the epoch word, and size word and top level of the array
 * that the epoch named last.
 */
void sumtree_tops_aim(const struct forest *from, uint32_t tree, const struct mem *mem,
		      uint8_t *buffer, struct transport_io io[TOPS_READS])
{
	const struct sumtree *of = &from->trees[tree];
	const struct epoch *ep = &from->epochs[tree];

	io[0] = (struct transport_io){
		.region = ep->region, .off = ep->word_off, .dst = buffer, .mem = mem, .len = 8
	};
	io[1] = (struct transport_io){ .region = of->region,
				       .off = head_off(of, ep),
				       .dst = buffer + WIRE_LINE,
				       .mem = mem,
				       .len = head_bytes(of) };
}

bool sumtree_tops_take(struct sumtree_tops *tops, uint32_t tree, const uint8_t *buffer, bool last)
{
	struct epoch *ep = &tops->from->epochs[tree];
	uint32_t parity = ep->number & 1;

	(void)see_epoch(ep, rword64_load_acquire(words_at(buffer, 0)));
	if ((ep->number & 1) != parity && !last)
		return false;
	take_head(tops, tree, buffer + WIRE_LINE);
	return true;
}

/* -------- in place -------- */

/* Live leaves of tree t by its size word. */
static int64_t live_in_place(const struct sumtree_tops *tops, uint32_t t)
{
	const struct tops_tree *at = &tops->trees[t];

	return node_size(&tops->from->trees[0],
			 rword64_load_relaxed(words_at(at->inner[tops_parity(at)], 0)));
}

int sumtree_tops_read(struct sumtree_tops *tops)
{
	const struct forest *from = tops->from;

	tops->size = 0;
	for (uint32_t t = 0; t < from->n; t++) {
		struct tops_tree *at = &tops->trees[t];

		if (transport_is_forked(from->trees[t].region->tr))
			return error_set(
				-ECHILD,
				"sum tree: opened before fork(): open it again in the child");
		at->seen = rword64_load_acquire(at->epoch);
		(void)see_epoch(&from->epochs[t], at->seen);
		take_head(tops, t, at->inner[tops_parity(at)]);
	}
	sumtree_tops_end(tops);
	return 0;
}

int sumtree_tops_refresh(struct sumtree_tops *tops, uint64_t now_ns)
{
	const struct forest *from = tops->from;
	/* The copies may still be used. */
	bool fresh = !tops->due && tops->draws < TOPS_DRAWS && now_ns &&
		     now_ns - tops->read_ns < TOPS_AGE_NS &&
		     !transport_is_forked(from->trees[0].region->tr);
	int64_t size = 0;

	for (uint32_t t = 0; fresh && t < from->n; t++) {
		struct tops_tree *at = &tops->trees[t];
		uint64_t word = rword64_load_acquire(at->epoch);
		int64_t live;

		if (word != at->seen) {
			at->seen = word;
			fresh = see_epoch(&from->epochs[t], word);
		}
		live = live_in_place(tops, t);
		size += live;
		if (tops->sizes)
			tops->sizes[t] = live;
	}
	if (fresh && size - tops->size <= tops->size / TOPS_GROWTH) {
		tops->draws++;
		return 0;
	}
	tops->read_ns = now_ns;
	return sumtree_tops_read(tops);
}
