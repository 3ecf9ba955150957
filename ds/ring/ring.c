#include "ds/ring/ring.h"

#include "ds/replay/change_chain.h"
#include "ds/replay/priority.h"

#include "transport/barrier.h"

#include "base/mem/alloc.h"
#include "base/bits.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define HEADERS_AHEAD 8 /* read with the ticket: one line covers a few concurrent writers */

/* Block headers read with the ticket. */
struct glimpse {
	uint32_t first, n;
	uint64_t words[HEADERS_AHEAD];
};

/* Address of the word at off of the tree region, which is addressable. */
static struct rword64 *word_at(const struct shard *shard, uint64_t off)
{
	return (struct rword64 *)(void *)(shard->tree->base + off);
}

/* -------- ticket -------- */

/*
 * *seq_out: draws a ticket, by an FAA of head. The same phase reads the headers near its expected
 * block into *near, so that the CAS of the claim usually knows the word that it replaces. A chained
 * claim sends its pin ahead, and reads the running maxima for its items. -EIO: the ticket's answer
 * was lost.
 */
static int draw_ticket(struct access *acc, uint64_t *seq_out, struct glimpse *near)
{
	const struct shard *shard = acc->shard;
	struct transport_wr wrs[3 + RING_MAX_VIEWS], *faa;
	size_t n = acc->chained && epoch_pin(&acc->epoch, wrs);
	int rc;

	for (uint32_t v = 0; acc->chained && v < shard->desc.n_views; v++)
		wrs[n++] = wr_read(shard->tree, priority_max_off(shard, v), &acc->max_seen[v],
				   sizeof(acc->max_seen[v]));
	near->first = (uint32_t)(acc->next_ticket % shard->desc.blocks);
	near->n = (uint32_t)min_u64(HEADERS_AHEAD, shard->desc.blocks - near->first);
	faa = &wrs[n++];
	*faa = wr_add(shard->tree, shard_word_off(shard, offsetof(struct shard_words, head)), 1);
	wrs[n++] = wr_read(shard->tree, shard_header_off(shard, near->first), near->words,
			   near->n * (uint32_t)sizeof(near->words[0]));
	rc = transport_run(shard->tree->tr, wrs, n);
	if (rc)
		return rc;
	if (faa->atomic.status != ATOMIC_DONE)
		return error_set(-EIO, "ring: the answer to a ticket was lost");
	*seq_out = faa->atomic.old & BLOCK_SEQ_MASK;
	acc->next_ticket = *seq_out + 1;
	return 0;
}

/* -------- claims over a wire -------- */

/* Words of a block as read, and the ops on them: of each view desc.block entries. */
struct claim_buffers {
	struct leaf_op *ops;
	struct word_op *words; /* of the counts */
	uint64_t *leaves;
	uint64_t *counts;
};

static struct transport_wr read_words(const struct block *blk, uint64_t off, uint64_t *dst)
{
	const struct shard *shard = blk->acc->shard;

	return wr_read(shard->tree, off + (uint64_t)blk->first * 8, dst, shard->desc.block * 8);
}

/* -------- claim -------- */

/*
 * Closes the header of the block by CAS, up to 4 times if its answer is lost: tickets are never
 * reused, so it may be repeated. *old_out: the closed word if the header holds it now, else the other
 * word found.
 */
static int close_header(const struct block *blk, uint64_t *old_out)
{
	const struct access *acc = blk->acc;
	uint64_t off = shard_header_off(acc->shard, blk->index);
	uint64_t open = block_make(true, acc->owner, blk->seq);
	uint64_t closed = block_make(false, acc->owner, blk->seq);
	const int tries = 4;
	int rc = -EIO;

	for (int i = 0; rc == -EIO && i < tries; i++)
		rc = transport_cas_word(acc->shard->tree, off, open, closed, old_out);
	if (!rc && *old_out == open)
		*old_out = closed;
	return rc;
}

/* True if the view is a queue: its items are never overwritten before they are consumed. */
static bool view_is_queue(const struct view_desc *view)
{
	return view->max_times_sampled == 1 && view->limit.max_diff != INT64_MAX;
}

/*
 * True if a queue has an item in the block. Its leaves are read before the CAS of the header: no
 * leaf of a closed block becomes non-zero, and if the block is claimed in between the CAS fails.
 * The rows at the head of the block, where no window ends, hold none.
 */
static bool queue_has_items(const struct block *blk)
{
	const struct access *acc = blk->acc;
	const struct shard *shard = acc->shard;

	for (uint32_t v = 0; v < shard->desc.n_views; v++) {
		const struct view_desc *view = &shard->desc.views[v];
		uint64_t off = shard_leaf_off(shard, v, blk->first);

		for (uint32_t i = view->window - 1; view_is_queue(view) && i < shard->desc.block;
		     i++)
			if (leaf_priority(
				    acc->chained
					    ? acc->claim->leaves[v * shard->desc.block + i]
					    : rword64_load_acquire(word_at(shard, off + i * 8ull))))
				return true;
	}
	return false;
}

/*
 * Opens the block's header by CAS from the word `seen`; *old_out: the word found. The same phase
 * reads the leaves and counts of all views into acc->claim. With a queue they are read in a phase
 * before; -EAGAIN: the queue has items in the block. -EIO: the answer was lost; -ENOMEM.
 */
static int open_chained(struct block *blk, uint64_t seen, uint64_t *old_out)
{
	struct access *acc = blk->acc;
	const struct table_desc *desc = &acc->shard->desc;
	struct transport_wr wrs[2 * RING_MAX_VIEWS + 1];
	struct transport *tr = acc->shard->tree->tr;
	struct transport_atomic *cas;
	bool has_queue = false;
	size_t n = 0;
	size_t block = desc->block, words = block * desc->n_views;
	struct claim_buffers *buf = acc->claim;
	int rc;

	if (!buf) { /* one allocation */
		buf = mem_zalloc(sizeof(*buf) + words * (sizeof(*buf->ops) + sizeof(*buf->words) +
							 2 * sizeof(uint64_t)));
		if (!buf)
			return error_set(-ENOMEM,
					 "ring: cannot allocate memory to claim blocks of %zu rows",
					 block);
		buf->leaves = (uint64_t *)(void *)(buf + 1);
		buf->counts = buf->leaves + words;
		buf->ops = (struct leaf_op *)(void *)(buf->counts + words);
		buf->words = (struct word_op *)(void *)(buf->ops + words);
		acc->claim = buf;
	}
	for (uint32_t v = 0; v < desc->n_views; v++) {
		const struct view_desc *view = &desc->views[v];

		wrs[n++] = read_words(blk, view->leaves_off, buf->leaves + v * block);
		if (view->counts_off)
			wrs[n++] = read_words(blk, view->counts_off, buf->counts + v * block);
		has_queue |= view_is_queue(view);
	}
	if (has_queue) {
		rc = transport_run(tr, wrs, n);
		if (rc || queue_has_items(blk))
			return rc ? rc : -EAGAIN;
		n = 0;
	}
	cas = &wrs[n].atomic;
	wrs[n++] = wr_swap(acc->shard->tree, shard_header_off(acc->shard, blk->index), seen,
			   block_make(true, acc->owner, blk->seq));
	rc = transport_run(tr, wrs, n);
	if (rc)
		return rc;
	if (cas->status != ATOMIC_DONE)
		return error_set(-EIO, "ring: the answer of header %u was lost", blk->index);
	*old_out = cas->old;
	return 0;
}

/*
 * Opens the block's header with our owner id and ticket, by CAS from `seen` or the word found then.
 * -EAGAIN: the header is open or of a later ticket, or a queue has items in the block.
 */
static int open_header(struct access *acc, struct block *blk, uint64_t seen)
{
	uint64_t off = shard_header_off(acc->shard, blk->index), old;
	uint64_t open = block_make(true, acc->owner, blk->seq);
	int rc;

	for (;; seen = old) {
		if (block_is_open(seen) || (block_seq(seen) >= blk->seq && seen))
			return -EAGAIN;
		if (acc->chained)
			rc = open_chained(blk, seen, &old);
		else if (queue_has_items(blk))
			rc = -EAGAIN;
		else
			rc = transport_cas_word(acc->shard->tree, off, seen, open, &old);
		if (rc && rc != -EAGAIN)
			close_header(blk, &old); /* it may be open */
		if (rc || old == seen)
			return rc;
	}
}

/*
 * Draws tickets until one opens its block: *blk. -EAGAIN: none of as many tickets as there are
 * blocks did; counters->skipped counts those that did not.
 */
static int take_block(struct access *acc, struct block *blk, struct ring_counters *counters)
{
	const struct table_desc *desc = &acc->shard->desc;

	for (uint32_t i = 0; i < desc->blocks; i++) {
		struct glimpse near;
		uint64_t seen;
		int rc = draw_ticket(acc, &blk->seq, &near);

		if (rc)
			return rc;
		blk->index = (uint32_t)(blk->seq % desc->blocks);
		blk->gen = block_gen(blk->seq, desc->blocks);
		blk->first = blk->index * desc->block;
		if (blk->index >= near.first && blk->index - near.first < near.n)
			seen = near.words[blk->index - near.first];
		else
			rc = transport_load(acc->shard->tree,
					    shard_header_off(acc->shard, blk->index), &seen);
		if (!rc)
			rc = open_header(acc, blk, seen);
		if (rc != -EAGAIN)
			return rc;
		counters->skipped++;
	}
	return error_set(-EAGAIN, "ring: none of the %u blocks of shard %u is free", desc->blocks,
			 desc->shard);
}

/*
 * Sets all leaves of the block to its generation, without a priority, and its counts to 0, by CAS
 * from the words that open_chained read: 1 phase unless a word changed. -EIO: an answer was lost.
 */
static int claim_chained(struct block *blk)
{
	struct claim_buffers *buf = blk->acc->claim;
	struct shard_change change = { .acc = blk->acc };
	struct chain_change cc = { .change = &change, .words = buf->words };
	const struct table_desc *desc = &blk->acc->shard->desc;

	for (uint32_t v = 0; v < desc->n_views; v++) {
		uint64_t *leaves = buf->leaves + v * (size_t)desc->block;
		uint64_t *counts = buf->counts + v * (size_t)desc->block;

		change.ops[v] = buf->ops + v * (size_t)desc->block;
		change.n[v] = desc->block;
		for (uint32_t i = 0; i < desc->block; i++)
			change.ops[v][i] = (struct leaf_op){ .slot = blk->first + i,
							     .gen = blk->gen,
							     .word = leaves[i],
							     .result = LEAF_UNKNOWN };
		for (uint32_t i = 0; desc->views[v].counts_off && i < desc->block; i++)
			buf->words[cc.n_words++] = (struct word_op){
				.off = desc->views[v].counts_off + ((uint64_t)blk->first + i) * 8,
				.seen = counts[i],
				.want = count_make(blk->gen, 0),
			};
	}
	change_by_chains(CHANGE_CLAIM, &cc, 1);
	if (change.ret)
		return change.ret;
	for (uint32_t v = 0; v < desc->n_views; v++)
		for (uint32_t i = 0; i < desc->block; i++)
			if (change.ops[v][i].result == LEAF_UNKNOWN)
				return error_set(-EIO, "claim of slot %u: an answer was lost",
						 blk->first + i);
	return 0;
}

int ring_claim(struct access *acc, struct block *blk, struct ring_counters *counters)
{
	const struct table_desc *desc = &acc->shard->desc;
	struct block mine = { .acc = acc };
	struct leaf_run run = { .n = desc->block };
	uint64_t old;
	int rc, marked;

	if (acc->view_mask != bits_mask(desc->n_views))
		return error_set(-EINVAL, "ring: a claim changes every view, the handle %#x only",
				 acc->view_mask);
	rc = take_block(acc, &mine, counters);
	if (rc)
		return rc;
	run.first = mine.first;
	run.gen = mine.gen;
	if (acc->chained)
		rc = claim_chained(&mine);
	for (uint32_t v = 0; !acc->chained && !rc && v < desc->n_views; v++) {
		uint64_t counts_off = desc->views[v].counts_off + (uint64_t)mine.first * 8;
		bool has_counts = desc->views[v].counts_off != 0;

		rc = sumtree_claim(&acc->shard->trees[v], &acc->epoch, &run, acc->deltas[v]);
		/* Samplers may still count on words of the last lap. */
		for (uint32_t i = 0; !rc && has_counts && i < desc->block; i++) {
			struct rword64 *count = word_at(acc->shard, counts_off + i * 8ull);

			old = rword64_load_relaxed(count);
			while (!rword64_cas(count, &old, count_make(mine.gen, 0)))
				;
		}
	}
	if (rc == -EIO) {
		marked = part_mark_dirty(&acc->shard->part);
		rc = marked ? marked : rc;
	}
	if (rc)
		goto err_close_block;
	/* C1 pairs with V2 and T1: all leaves are claimed, then the first row is written. */
	transport_claim_before_rows();
	counters->claimed++;
	*blk = mine;
	return 0;

err_close_block:
	/* No row was written, so older rows in it stay whole. */
	close_header(&mine, &old);
	return rc;
}

/*
 * B1 pairs with B2: the items of the block, then its close. Over a wire the close is posted, in the
 * chain of the call in progress or in one of its own: its answer is needed only by the next claim.
 */
int ring_close(struct block *blk)
{
	struct access *acc = blk->acc;
	uint64_t closed = block_make(false, acc->owner, blk->seq), old = closed;
	bool in_call = acc->unwaited.open;
	struct wr_list *list;
	int rc = acc->chained ? unwaited_next(&acc->unwaited, &list) : close_header(blk, &old);

	if (!rc && acc->chained)
		rc = wr_list_reserve(list, list->n + 1);
	if (!rc && acc->chained) {
		struct transport_wr *wr = wr_list_add(list, NOTE_CLOSE);

		*wr = wr_swap(acc->shard->tree, shard_header_off(acc->shard, blk->index),
			      block_make(true, acc->owner, blk->seq), closed);
		wr->fence = true;
		rc = in_call ? 0 : unwaited_send(&acc->unwaited);
	}
	if (rc)
		return rc;
	blk->acc = NULL;
	if (old != closed)
		return error_set(
			-EOWNERDEAD,
			"ring: block %u was closed by the metadata server: this client was fenced",
			blk->index);
	return 0;
}

/* -------- rows -------- */

int ring_write(const struct block *blk, uint32_t i, const void *rows, uint32_t n)
{
	const struct shard *shard = blk->acc->shard;
	uint32_t row_bytes = shard->desc.row_bytes, most = ((uint32_t)1 << 30) / row_bytes;
	const uint8_t *src = rows;

	if (n > shard->desc.block || i > shard->desc.block - n)
		return error_set(-EINVAL, "ring: rows %u..%u are outside a block of %u", i, i + n,
				 shard->desc.block);
	while (n) {
		uint32_t part = (uint32_t)min_u64(n, max_u64(most, 1));
		struct transport_io io = { .region = shard->rows,
					   .off = shard_row_off(shard, blk->first + i),
					   .src = src,
					   .len = part * row_bytes };
		int rc = transport_write(shard->rows->tr, &io, 1);

		if (rc)
			return rc;
		src += io.len;
		i += part;
		n -= part;
	}
	return 0;
}

/* -------- diagnosis of an interrupted append -------- */

#define HEADERS_AT_ONCE 512

int ring_trace(const struct shard *shard, uint64_t *trace_inout)
{
	const struct table_desc *desc = &shard->desc;
	uint64_t gen_off = desc->tail_off + offsetof(struct row_tail, gen), tail = 0;
	uint64_t headers[HEADERS_AT_ONCE] = { 0 };
	int rc = 0;

	for (uint32_t b = 0; rc == 0 && b < desc->blocks; b++) {
		uint32_t left = desc->blocks - b, least = 0, most = desc->block, middle;
		uint64_t header;

		if (b % HEADERS_AT_ONCE == 0)
			rc = transport_fetch(shard->tree, shard_header_off(shard, b), headers,
					     (uint32_t)min_u64(left, HEADERS_AT_ONCE) * 8);
		header = headers[b % HEADERS_AT_ONCE];
		if (rc || !block_is_open(header))
			continue;
		/* All rows before a written one are written, too. */
		while (rc == 0 && least < most) {
			middle = least + (most - least) / 2;
			rc = transport_load(shard->rows,
					    shard_row_off(shard, b * desc->block + middle) +
						    gen_off,
					    &tail); /* gen and crc */
			if (rc == 0 && (uint32_t)tail == block_gen(block_seq(header), desc->blocks))
				least = middle + 1;
			else
				most = middle;
		}
		*trace_inout = ring_mix(ring_mix(*trace_inout, header), least);
	}
	return rc;
}
