/* Claims and closes blocks over a wire; see ds/ring/chain.h. */
#include "ds/ring/chain.h"

#include "ds/replay/change_chain.h"

#include "base/mem/alloc.h"

#include <errno.h>
#include <inttypes.h>

/* Words of a block in all views as read, and the ops on them; block-sized arrays. */
struct claim_buffers {
	struct leaf_op *ops[RING_MAX_VIEWS];
	uint64_t *leaves[RING_MAX_VIEWS];
	uint64_t *counts[RING_MAX_VIEWS]; /* NULL = the view has none */
	struct word_op *words;            /* of all counts */
	uint32_t n_counted;               /* views with counts */
};

/* One allocation, parts in order of alignment: all are multiples of 8. */
static int make_buffers(struct access *acc)
{
	const struct table_desc *desc = &acc->shard->desc;
	size_t block = desc->block, counted = 0, views = desc->n_views, bytes;
	struct claim_buffers *buf;
	struct leaf_op *ops;
	uint64_t *words;

	static_assert(sizeof(struct claim_buffers) % 8 == 0 && sizeof(struct leaf_op) % 8 == 0 &&
			      sizeof(struct word_op) % 8 == 0,
		      "parts follow each other");
	if (acc->claim)
		return 0;
	for (uint32_t v = 0; v < views; v++)
		counted += desc->views[v].counts_off != 0;
	bytes = sizeof(struct claim_buffers) +
		block * (views * (sizeof(struct leaf_op) + sizeof(uint64_t)) +
			 counted * (sizeof(struct word_op) + sizeof(uint64_t)));
	buf = mem_zalloc(bytes);
	if (!buf)
		return error_set(-ENOMEM,
				 "ring: cannot allocate memory to claim blocks of %zu rows", block);
	buf->n_counted = (uint32_t)counted;
	ops = (struct leaf_op *)(void *)(buf + 1);
	buf->words = (struct word_op *)(void *)(ops + views * block);
	words = (uint64_t *)(void *)(buf->words + counted * block);
	for (uint32_t v = 0; v < desc->n_views; v++, ops += block, words += block) {
		buf->ops[v] = ops;
		buf->leaves[v] = words;
	}
	for (uint32_t v = 0; v < desc->n_views; v++)
		if (desc->views[v].counts_off) {
			buf->counts[v] = words;
			words += block;
		}
	acc->claim = buf;
	return 0;
}

static struct transport_wr read_words(const struct block *blk, uint64_t off, uint64_t *dst)
{
	const struct shard *shard = blk->acc->shard;

	return (struct transport_wr){
		.verb = VERB_READ,
		.io = { .region = shard->tree,
			.off = off + (uint64_t)blk->first * 8,
			.dst = dst,
			.len = shard->desc.block * 8 },
	};
}

/* True if a queue has an item in the block, as read. Rows before the first window hold none. */
static bool holds_items(const struct block *blk)
{
	const struct table_desc *desc = &blk->acc->shard->desc;

	for (uint32_t v = 0; v < desc->n_views; v++) {
		const struct view_desc *view = &desc->views[v];

		for (uint32_t i = view->window - 1; ring_view_is_queue(view) && i < desc->block;
		     i++)
			if (leaf_priority(blk->acc->claim->leaves[v][i]))
				return true;
	}
	return false;
}

/*
 * The leaves of a queue are read before the CAS of the header: no leaf of a closed block becomes
 * non-zero, and if the block is claimed in between the CAS fails.
 */
int ring_open_chained(struct block *blk, uint64_t seen, uint64_t *old_out)
{
	struct access *acc = blk->acc;
	const struct table_desc *desc = &acc->shard->desc;
	struct transport_wr wrs[2 * RING_MAX_VIEWS + 1];
	struct transport *tr = acc->shard->tree->tr;
	struct transport_atomic *cas;
	bool has_queue = false;
	size_t n = 0;
	int rc = make_buffers(acc);

	if (rc)
		return rc;
	for (uint32_t v = 0; v < desc->n_views; v++) {
		const struct view_desc *view = &desc->views[v];

		wrs[n++] = read_words(blk, view->leaves_off, acc->claim->leaves[v]);
		if (acc->claim->counts[v])
			wrs[n++] = read_words(blk, view->counts_off, acc->claim->counts[v]);
		has_queue |= ring_view_is_queue(view);
	}
	if (has_queue) {
		rc = transport_run(tr, wrs, n);
		if (rc || holds_items(blk))
			return rc ? rc : -EAGAIN;
		n = 0;
	}
	cas = &wrs[n].atomic;
	wrs[n++] = (struct transport_wr){
		.verb = VERB_CAS,
		.atomic = { .region = acc->shard->tree,
			    .off = shard_header_off(acc->shard, blk->index),
			    .expected = seen,
			    .value = block_make(true, acc->owner, blk->seq),
			    .status = ATOMIC_UNKNOWN },
	};
	rc = transport_run(tr, wrs, n);
	if (rc)
		return rc;
	if (cas->status != ATOMIC_DONE)
		return error_set(-EIO, "ring: the answer of header %u was lost", blk->index);
	*old_out = cas->old;
	return 0;
}

/* The ops are made of the leaves and counts as read. */
int ring_claim_chained(struct block *blk)
{
	struct claim_buffers *buf = blk->acc->claim;
	struct shard_change change = { .acc = blk->acc };
	struct chain_change cc = { .change = &change, .words = buf->words };
	const struct table_desc *desc = &blk->acc->shard->desc;

	for (uint32_t v = 0; v < desc->n_views; v++) {
		change.ops[v] = buf->ops[v];
		change.n[v] = desc->block;
		for (uint32_t i = 0; i < desc->block; i++)
			buf->ops[v][i] = (struct leaf_op){ .slot = blk->first + i,
							   .gen = blk->gen,
							   .word = buf->leaves[v][i],
							   .result = LEAF_UNKNOWN };
		for (uint32_t i = 0; buf->counts[v] && i < desc->block; i++)
			buf->words[cc.n_words++] = (struct word_op){
				.off = desc->views[v].counts_off + ((uint64_t)blk->first + i) * 8,
				.seen = buf->counts[v][i],
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

int ring_close_chained(struct block *blk)
{
	struct access *acc = blk->acc;
	bool in_call = acc->unwaited.open;
	struct wr_list *list;
	int rc = unwaited_next(&acc->unwaited, &list);

	if (!rc)
		rc = wr_list_reserve(list, list->n + 1);
	if (rc)
		return rc;
	*wr_list_add(list, NOTE_CLOSE) = (struct transport_wr){
		.verb = VERB_CAS,
		.fence = true,
		.atomic = { .region = acc->shard->tree,
			    .off = shard_header_off(acc->shard, blk->index),
			    .expected = block_make(true, acc->owner, blk->seq),
			    .value = block_make(false, acc->owner, blk->seq) },
	};
	rc = in_call ? 0 : unwaited_send(&acc->unwaited);
	if (rc)
		return rc;
	blk->acc = NULL;
	return 0;
}
