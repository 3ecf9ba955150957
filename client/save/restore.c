#include "client/save/restore.h"

#include "client/writer/append.h"

#include "ds/limiter/limiter.h"
#include "ds/replay/change.h"
#include "ds/replay/priority.h"

#include "base/bits.h"
#include "base/mem/alloc.h"

#include <errno.h>
#include <string.h>

/* -------- open -------- */

static void restore_leave(struct handle *h, uint32_t shard)
{
	struct restore *r = (struct restore *)h;

	(void)shard;
	r->blk.acc = NULL;
	r->lost = true;
}

static int restore_moved(struct handle *h)
{
	(void)h;
	return 0;
}

static const struct handle_user restore_user = { .leave = restore_leave, .moved = restore_moved };

static_assert(offsetof(struct restore, h) == 0, "a restore's handle is the restore");

int restore_open(struct restore *r, struct rlv_table *table, const struct save_table *saved)
{
	const struct handle_opts how = {
		.view_mask = (1u << table->desc.n_views) - 1,
		.streams = 1,
		.user = &restore_user,
	};
	const struct table_desc *desc = &table->desc;
	int ret;

	*r = (struct restore){ .table = saved };
	r->stage = mem_array(desc->block, desc->row_bytes);
	r->ops = mem_array((size_t)desc->n_views * TRANSPORT_VECTOR, sizeof(*r->ops));
	ret = r->stage && r->ops ? handle_open(&r->h, table, &how)
				 : error_set(-ENOMEM, "load: cannot allocate a block");
	if (ret) {
		mem_free(r->stage);
		mem_free(r->ops);
	}
	return ret;
}

/* -------- blocks -------- */

static int restore_close_block(struct restore *r)
{
	return r->blk.acc ? ring_close(&r->blk) : 0;
}

/* Shards take turns, without those that take no new blocks. */
static struct access *next_shard(struct restore *r)
{
	uint64_t now_ns = clock_now_ns(r->h.clock);

	for (uint32_t i = 0; i < r->h.set.n_parts; i++) {
		r->shard = (r->shard + 1) % r->h.set.n_parts;
		if (part_set_weight(&r->h.set, r->shard, now_ns) && handle_access(&r->h, r->shard))
			return handle_access(&r->h, r->shard);
	}
	return NULL;
}

static int restore_claim(struct restore *r)
{
	struct block next = { 0 };
	struct access *acc;
	int ret = restore_close_block(r), left;

	acc = next_shard(r);
	if (ret == 0 && !acc)
		ret = error_set(-EHOSTDOWN, "load: no shard takes new blocks");
	if (ret == 0)
		ret = access_enter(acc);
	if (ret)
		return ret;
	ret = ring_claim(acc, &next, &r->ring);
	left = access_leave(acc);
	if (ret == -EAGAIN)
		return error_set(-ENOSPC, "load: no block is free: the table holds fewer items "
					  "than the file, and its views keep them");
	if (ret || left)
		return handle_failed(acc, ret ? ret : left);
	r->blk = next;
	return 0;
}

/* -------- pieces -------- */

/* Rows [first, first + n) of a run, to the place behind the rows that the block has. */
static int put_rows(struct restore *r, const struct restore_run *run, uint32_t first, uint32_t n)
{
	const struct table_desc *desc = r->h.desc;
	uint32_t head = desc->window_max - 1;

	memcpy(r->stage, run->rows + (size_t)first * desc->row_bytes, (size_t)n * desc->row_bytes);
	for (uint32_t i = 0; i < n; i++) {
		uint8_t *row = r->stage + (size_t)i * desc->row_bytes;
		struct row_tail tail;

		memcpy(&tail, row + desc->tail_off, sizeof(tail));
		tail.flags |= i < head ? ROW_REPEATED : 0;
		tail.gen = r->blk.gen;
		memcpy(row + desc->tail_off, &tail, sizeof(tail));
		if (desc->flags & TABLE_ROW_CRC)
			writer_seal_row(desc, row);
	}
	return ring_write(&r->blk, r->blk.used, r->stage, n);
}

static uint64_t run_quanta(const struct restore *r, const struct restore_run *run, uint32_t v,
			   uint32_t i)
{
	const struct view_desc *view = &r->h.desc->views[v];
	uint64_t quanta;

	memcpy(&quanta, run->quanta + ((size_t)v * run->n + i) * sizeof(quanta), sizeof(quanta));
	if (quanta == 0)
		return 0;
	if (view->scale != r->table->views[v].scale)
		quanta = (uint64_t)((unsigned __int128)quanta * view->scale /
				    r->table->views[v].scale);
	return max_u64(1, min_u64(quanta, view->max_prio));
}

/* Adds what items were sampled to the counts of a view, whose ops are those of rows first.. */
static int put_samples(struct restore *r, const struct shard_change *ch, uint32_t v,
		       const uint8_t *samples, uint32_t slot)
{
	struct transport_atomic adds[TRANSPORT_VECTOR];
	uint32_t n = 0;

	for (uint32_t k = 0; k < ch->n[v]; k++) {
		uint32_t times, most = r->h.desc->views[v].max_times_sampled;

		memcpy(&times, samples + (size_t)(ch->ops[v][k].slot - slot) * sizeof(times),
		       sizeof(times));
		adds[n] = (struct transport_atomic){
			.region = r->blk.acc->shard->tree,
			.off = r->h.desc->views[v].counts_off + (uint64_t)ch->ops[v][k].slot * 8,
			.value = times < most ? times : most - 1,
		};
		n += times > 0;
	}
	return n ? transport_faa(adds[0].region->tr, adds, n) : 0;
}

/* Publishes the items of rows [first, first + n), which lie in the block from slot on. */
static int put_items(struct restore *r, const struct restore_run *run, uint32_t first, uint32_t n,
		     uint32_t slot)
{
	const struct table_desc *desc = r->h.desc;
	const uint8_t *samples = run->samples;
	struct shard_change ch;
	uint32_t items = 0;
	int ret = 0;

	change_begin(&ch, r->blk.acc);
	for (uint32_t v = 0; ret == 0 && v < desc->n_views; v++) {
		ch.ops[v] = r->ops + (size_t)v * TRANSPORT_VECTOR;
		for (uint32_t i = 0; i < n; i++) {
			uint64_t quanta = run_quanta(r, run, v, first + i);

			if (quanta)
				ch.ops[v][ch.n[v]++] = (struct leaf_op){ .slot = slot + i,
									 .gen = r->blk.gen,
									 .priority = quanta };
		}
		items += ch.n[v];
		if (desc->views[v].max_times_sampled <= 1)
			continue;
		ret = put_samples(r, &ch, v, samples + (size_t)first * sizeof(uint32_t), slot);
		samples += (size_t)run->n * sizeof(uint32_t);
	}
	if (ret || items == 0)
		return ret;
	ret = change_publish(&ch, 1);
	return ret ? handle_failed(r->blk.acc, ret) : 0;
}

/* Adds items of rows [at, at + n) with the head before them. */
static int put_piece(struct restore *r, const struct restore_run *run, uint32_t at, uint32_t n)
{
	uint32_t head = r->h.desc->window_max - 1;
	uint32_t slot = r->blk.first + r->blk.used + head;
	int ret = put_rows(r, run, at - head, n + head);

	for (uint32_t i = 0; ret == 0 && i < n; i += TRANSPORT_VECTOR)
		ret = put_items(r, run, at + i, (uint32_t)min_u64(TRANSPORT_VECTOR, n - i),
				slot + i);
	r->blk.used += n + head;
	return ret;
}

int restore_put(struct restore *r, const struct restore_run *run)
{
	uint32_t head = r->h.desc->window_max - 1, block = r->h.desc->block;
	int ret = handle_begin(&r->h, r->h.table->store->timeout_ns);

	for (uint32_t at = head; ret == 0 && at < run->n;) {
		uint32_t room = r->blk.acc ? block - r->blk.used : 0;
		uint32_t least = run->n <= block ? run->n : head + 1, n;

		if (room < least) {
			ret = restore_claim(r);
			room = block;
		}
		n = (uint32_t)min_u64(room - head, run->n - at);
		if (ret == 0 && r->lost)
			ret = error_set(-EHOSTDOWN, "load: a shard was lost meanwhile");
		if (ret == 0)
			ret = put_piece(r, run, at, n);
		at += n;
	}
	return ret;
}

/* -------- end -------- */

/*
 * Reservations first, then what they allow: meanwhile the limiter admits less than it should, never
 * more.
 */
static int restore_count(struct restore *r, uint32_t v, const struct save_count *count)
{
	struct shard *control = handle_shard(&r->h, r->h.set.control);
	uint64_t off = shard_limits_off(control, v);
	struct region *limits = control->part.limits;
	struct limiter lim;
	int ret = 0;

	limiter_init(&lim, control, v, 0);
	if (lim.bounded_insert)
		ret = limiter_words_add(limits, off + offsetof(struct view_limits, ins_admitted),
					count->inserted);
	if (ret == 0 && lim.bounded_sample)
		ret = limiter_words_add(limits, off + offsetof(struct view_limits, smp_admitted),
					count->sampled);
	if (ret == 0)
		ret = limiter_words_add(limits, off + offsetof(struct view_limits, smp_committed),
					count->sampled);
	if (ret == 0)
		ret = limiter_words_add(limits, off + offsetof(struct view_limits, ins_committed),
					count->inserted);
	return ret;
}

int restore_finish(struct restore *r, const struct save_count *counts)
{
	const struct table_desc *desc = r->h.desc;
	int ret = handle_begin(&r->h, r->h.table->store->timeout_ns);

	if (ret == 0)
		ret = restore_close_block(r);
	if (ret == 0)
		ret = handle_flush(&r->h);
	if (ret == 0 && (r->lost || !part_set_has_control(&r->h.set)))
		ret = error_set(-EHOSTDOWN, "load: a shard was lost meanwhile");
	for (uint32_t v = 0; ret == 0 && v < desc->n_views; v++) {
		for (uint32_t p = 0; ret == 0 && p < r->h.set.n_parts; p++)
			if (desc->views[v].selector == SELECT_PRIORITIZED && r->h.set.parts[p])
				ret = priority_max_raise(
					handle_shard(&r->h, p), v,
					min_u64(counts[v].max_priority, desc->views[v].max_prio));
		if (ret == 0)
			ret = restore_count(r, v, &counts[v]);
	}
	return ret;
}

int restore_close(struct restore *r, int error)
{
	if (error && restore_close_block(r))
		r->blk.acc = NULL; /* the server closes it */
	mem_free(r->stage);
	mem_free(r->ops);
	return handle_close(&r->h, error);
}
