/*
 * One block of a table that others use: its leaves, its rows, its leaves again. What counts is the second
 * look, as in a sample: items that are there, with rows of their generation.
 */
#include "client/save/save.h"

#include "transport/barrier.h"

#include "base/bits.h"

#include <errno.h>
#include <string.h>

/* Rows of a block: those of its items, with windows. */
struct run {
	struct shard *shard;
	const struct save_block *block;
	uint32_t gen;
	uint32_t first, end; /* in the block; equal: no items */
};

/* Sets the leaves of all views, and what the items were sampled, as they are now. */
static int collect_leaves(struct saver *s, const struct run *run)
{
	const struct table_desc *desc = &run->shard->desc;
	struct transport_view views[2 * RING_MAX_VIEWS];
	uint32_t n = 0;
	int ret;

	for (uint32_t v = 0; v < desc->n_views; v++) {
		uint32_t slot = run->block->index * desc->block;
		struct transport_view leaves = {
			.region = run->shard->tree,
			.off = shard_leaf_off(run->shard, v, slot),
			.len = desc->block * 8,
		};

		views[v] = leaves;
		leaves.off = desc->views[v].counts_off + (uint64_t)slot * 8;
		if (desc->views[v].counts_off)
			views[desc->n_views + n++] = leaves;
	}
	ret = transport_view(run->shard->tree->tr, views, desc->n_views + n);
	if (ret)
		return ret;
	n = 0;
	for (uint32_t v = 0; v < desc->n_views; v++) {
		const struct rword64 *leaves = views[v].ptr, *counts = NULL;
		uint64_t *quanta = s->leaves + (size_t)v * desc->block;
		uint32_t *samples = s->samples + (size_t)v * desc->block;

		if (desc->views[v].counts_off)
			counts = views[desc->n_views + n++].ptr;
		for (uint32_t i = 0; i < desc->block; i++) {
			/* V1 pairs with P1: the leaf, then its rows. V2 pairs with C1: rows, then the leaf
			   again. */
			uint64_t word = rword64_load_acquire(&leaves[i]);
			uint64_t count = counts ? rword64_load_relaxed(&counts[i]) : 0;

			quanta[i] = leaf_gen(word) == run->gen ? leaf_priority(word) : 0;
			samples[i] = count >> 32 == run->gen ? (uint32_t)count : 0;
		}
	}
	transport_view_end(run->shard->tree->tr);
	return 0;
}

/* Where the first item and the last are, with the rows before the first one that a block's head has. */
static void run_bounds(const struct saver *s, struct run *run)
{
	const struct table_desc *desc = &run->shard->desc;
	uint32_t head = desc->window_max - 1, first = desc->block, end = 0;

	for (uint32_t v = 0; v < desc->n_views; v++)
		for (uint32_t i = head; i < desc->block; i++)
			if (s->leaves[(size_t)v * desc->block + i]) {
				first = i < first ? i : first;
				end = i >= end ? i + 1 : end;
			}
	run->first = end ? first - head : 0;
	run->end = end;
}

/* Takes rows apart into columns: s->body. */
static void take_apart(struct saver *s, const struct table_desc *desc, const uint8_t *rows,
		       uint32_t n)
{
	uint8_t *to = s->body;

	for (uint32_t i = 0; i < n; i++, to += sizeof(struct save_row)) {
		struct row_tail tail;
		struct save_row row;

		transport_copy_racy_bytes(
			&tail, rows + (size_t)i * desc->row_bytes + desc->tail_off, sizeof(tail));
		row = (struct save_row){ tail.policy_version, tail.step, tail.stream,
					 (uint16_t)(tail.flags & ~(unsigned int)ROW_REPEATED) };
		memcpy(to, &row, sizeof(row));
	}
	for (uint32_t c = 0; c < desc->n_columns; c++) {
		const uint8_t *from = rows + desc->columns[c].offset;
		uint32_t bytes = desc->columns[c].bytes;

		for (uint32_t i = 0; i < n; i++, to += bytes, from += desc->row_bytes)
			transport_copy_racy_bytes(to, from, bytes);
	}
	transport_read_done();
}

static int collect_rows(struct saver *s, const struct run *run, struct save_chunk *head)
{
	const struct table_desc *desc = &run->shard->desc;
	const void *stored = NULL;
	struct transport_view view = {
		.region = run->shard->rows,
		.off = shard_row_off(run->shard, run->block->index * desc->block + head->first),
		.len = head->rows * desc->row_bytes,
	};
	int ret;

	if (s->base)
		save_base_find(s->base, head, &stored);
	if (stored) {
		s->reused += head->stored;
		return save_output_copy(s->out, head, stored);
	}
	ret = transport_view(view.region->tr, &view, 1);
	if (ret)
		return ret;
	take_apart(s, desc, view.ptr, head->rows);
	transport_view_end(view.region->tr);
	return save_output_put(s->out, head, s->body);
}

/* Puts the leaves of the run's rows, and counts its items. */
static int put_leaves(struct saver *s, const struct run *run, struct save_chunk *head)
{
	const struct table_desc *desc = &run->shard->desc;
	uint8_t *to = s->body;
	size_t n = run->end - run->first;

	for (uint32_t v = 0; v < desc->n_views; v++) {
		const uint64_t *quanta = s->leaves + (size_t)v * desc->block + run->first;

		for (size_t i = 0; i < n; i++)
			s->counts[v].items += quanta[i] != 0;
		memcpy(to, quanta, n * sizeof(*quanta));
		to += n * sizeof(*quanta);
	}
	for (uint32_t v = 0; v < desc->n_views; v++) {
		const uint32_t *samples = s->samples + (size_t)v * desc->block + run->first;

		if (s->table.views[v].max_times_sampled <= 1)
			continue;
		memcpy(to, samples, n * sizeof(*samples));
		to += n * sizeof(*samples);
	}
	head->kind = SAVE_LEAVES;
	head->first = run->first;
	head->rows = (uint32_t)n;
	head->bytes = n * s->table.leaf_bytes;
	return save_output_put(s->out, head, s->body);
}

int save_collect(struct saver *s, const struct save_block *block)
{
	struct run run = { .block = block };
	struct save_chunk head = { .seq = block->seq, .shard = block->shard };
	uint32_t most;
	int ret;

	if (!s->h.set.parts[block->shard])
		return error_set(-EHOSTDOWN, "save: shard %u cannot be reached", block->shard);
	run.shard = handle_shard(&s->h, block->shard);
	run.gen = block_gen(block->seq, run.shard->desc.blocks);
	ret = collect_leaves(s, &run);
	if (ret)
		return ret;
	run_bounds(s, &run);
	if (run.end == 0)
		return 0;
	most = (uint32_t)max_u64(1, SAVE_CHUNK_BYTES / run.shard->desc.row_bytes);
	for (uint32_t i = run.first; ret == 0 && i < run.end; i += most) {
		struct save_chunk rows = head;

		rows.kind = SAVE_ROWS;
		rows.first = i;
		rows.rows = (uint32_t)min_u64(most, run.end - i);
		rows.bytes = rows.rows * s->table.row_bytes;
		ret = collect_rows(s, &run, &rows);
	}
	if (ret == 0)
		ret = collect_leaves(s, &run);
	s->rows += run.end - run.first;
	return ret ? ret : put_leaves(s, &run, &head);
}
