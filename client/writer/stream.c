/*
 * A stream's blocks: claiming the next one, its repeated head rows, and the state kept of a block
 * that is lost. Shards take turns, by their weights: one that is new takes less at first, one that
 * is drained takes nothing. Writers begin at different ones.
 */
#include "client/writer/append.h"

#include "transport/barrier.h"

#include "base/mem/alloc.h"
#include "base/crc32c.h"
#include "base/log.h"

#include <errno.h>
#include <string.h>

/* -------- memory -------- */

int stream_init(const struct rlv_writer *w, struct stream *st)
{
	uint32_t head = head_rows(w);
	size_t metas = head + STREAM_META;
	struct row_meta *meta = &st->meta;

	meta->flags = mem_array(metas, sizeof(*meta->flags));
	meta->steps = mem_array(metas, sizeof(*meta->steps));
	meta->td = mem_array(metas, sizeof(*meta->td));
	if (head)
		st->head = mem_array(head, w->h.desc->row_bytes);
	if (!meta->flags || !meta->steps || !meta->td || (head && !st->head))
		return error_set(-ENOMEM, "stream: cannot allocate memory for %zu rows", metas);
	for (uint32_t i = 0; i < head; i++) {
		meta->flags[i] = ROW_FILLER;
		meta->td[i] = -1;
	}
	return 0;
}

void stream_fini(struct stream *st)
{
	mem_free(st->meta.flags);
	mem_free(st->meta.steps);
	mem_free(st->meta.td);
	mem_free(st->head);
}

void stream_rewind_meta(const struct rlv_writer *w, struct stream *st)
{
	const struct row_meta *to = &st->meta, from = stream_meta(st);
	size_t head = head_rows(w);

	memmove(to->flags, from.flags, head * sizeof(*to->flags));
	memmove(to->steps, from.steps, head * sizeof(*to->steps));
	memmove(to->td, from.td, head * sizeof(*to->td));
	st->past = 0;
}

/* -------- head rows of a block -------- */

void writer_seal_row(const struct table_desc *desc, uint8_t *row)
{
	uint32_t covered = desc->row_bytes - (uint32_t)sizeof(uint32_t);
	uint32_t crc = crc32c(0, row, covered);

	memcpy(row + covered, &crc, sizeof(crc));
}

void writer_keep_head(const struct rlv_writer *w, struct stream *st, uint32_t n)
{
	size_t row = w->h.desc->row_bytes;
	size_t head = head_rows(w);
	size_t fresh = n < head ? n : head;
	const uint8_t *end = w->stage.ptr + (st->staged + n) * row;

	if (!head)
		return;
	memmove(st->head, st->head + fresh * row, (head - fresh) * row);
	memcpy(st->head + (head - fresh) * row, end - fresh * row, fresh * row);
}

/* The stream's last window_max-1 rows, or NULL if it has none yet. */
static const uint8_t *stream_last_rows(const struct rlv_writer *w, const struct stream *st)
{
	if (st->blk.acc && st->next)
		return st->next - (size_t)head_rows(w) * w->h.desc->row_bytes;
	return st->has_past ? st->head : NULL;
}

/* Copies the stream's last window_max-1 rows to st->head, for a next block whose rows are staged,
   or none. A stream without rows saves filler rows. */
static void stream_save_head(const struct rlv_writer *w, struct stream *st)
{
	const uint8_t *from = stream_last_rows(w, st);

	if (!from)
		from = w->stage.ptr;
	if (st->head && from && from != st->head)
		memcpy(st->head, from, (size_t)head_rows(w) * w->h.desc->row_bytes);
}

void writer_drop_blocks(struct rlv_writer *w, const struct access *acc)
{
	for (uint32_t i = 0; w->streams && i < w->n_streams; i++) {
		struct stream *st = &w->streams[i];

		if (st->blk.acc != acc)
			continue;
		stream_save_head(w, st);
		st->blk.acc = NULL;
	}
}

/* True if rows of the shard are built in place. Under TSan they are not: such stores race by
   design. */
static bool access_is_direct(const struct access *acc)
{
	return !BARRIER_TSAN && acc->shard->rows->base;
}

/* Writes the head rows of the stream's next block: repeats its last window_max-1 rows, or writes
   filler rows if it has none (table_layout.h). */
static int stream_write_head(struct rlv_writer *w, const struct stream *st,
			     const struct block *next)
{
	const struct table_desc *desc = w->h.desc;
	uint32_t head = head_rows(w);
	const uint8_t *from = stream_last_rows(w, st);
	bool direct = access_is_direct(next->acc);
	uint8_t *rows = direct ? ring_row(next, 0) : w->stage.ptr;

	for (uint32_t i = 0; i < head; i++) {
		uint8_t *row = rows + (size_t)i * desc->row_bytes;
		struct row_tail tail = { .flags = ROW_FILLER };

		if (from) {
			const uint8_t *old = from + (size_t)i * desc->row_bytes;

			memcpy(row, old, desc->row_bytes);
			memcpy(&tail, old + desc->tail_off, sizeof(tail));
		} else {
			memset(row, 0, desc->row_bytes);
		}
		tail.flags |= ROW_REPEATED;
		tail.gen = next->gen;
		tail.crc = 0;
		memcpy(row + desc->tail_off, &tail, sizeof(tail));
		if (desc->flags & TABLE_ROW_CRC)
			writer_seal_row(desc, row);
	}
	w->stats.repeated_rows += from ? head : 0;
	return direct || head == 0 ? 0 : ring_write(next, 0, rows, head);
}

/* -------- the next block -------- */

int stream_close_block(struct stream *st)
{
	const struct access *acc = st->blk.acc;
	int ret = acc ? ring_close(&st->blk) : 0;

	return ret && access_is_broken(acc) ? 0 : ret;
}

/* Weighted round robin: each shard gains its weight in credit; the one with the most is chosen
   and pays for all. -EAGAIN: no shard takes new blocks now. */
static int writer_pick_shard(struct rlv_writer *w, uint32_t *shard_out)
{
	uint32_t n = w->h.set.n_parts;
	uint64_t now_ns = clock_now_ns(w->h.clock);
	uint32_t best = UINT32_MAX, s = w->h.slot.owner % n;
	int64_t sum = 0;

	for (uint32_t i = 0; i < n; i++, s = s + 1 < n ? s + 1 : 0) {
		uint32_t weight = part_set_weight(&w->h.set, s, now_ns);

		if (!weight || !handle_access(&w->h, s))
			continue;
		w->credit[s] += weight;
		sum += weight;
		if (best == UINT32_MAX || w->credit[s] > w->credit[best])
			best = s;
	}
	if (best == UINT32_MAX)
		return error_set(-EAGAIN, "no shard takes new blocks now");
	w->credit[best] -= sum;
	*shard_out = best;
	return 0;
}

int writer_room(struct rlv_writer *w, struct stream *st)
{
	struct block next = { 0 };
	struct access *acc;
	uint32_t s;
	int claimed;
	int ret = writer_pick_shard(w, &s);

	if (ret)
		return ret;
	acc = handle_access(&w->h, s);
	ret = access_enter(acc);
	if (ret)
		return ret;
	claimed = ring_claim(acc, &next, &w->ring);
	ret = access_leave(acc);
	if (claimed || ret)
		return handle_failed(acc, claimed ? claimed : ret);
	ret = stream_write_head(w, st, &next);
	if (ret) {
		if (ring_close(&next))
			log_debug("close block %u: %s: it stays open until the writer ends",
				  next.index, error_last());
		return ret;
	}
	next.used = head_rows(w);
	if (!access_is_direct(acc))
		stream_save_head(w, st);
	ret = stream_close_block(st);
	st->blk = next;
	st->next = access_is_direct(acc) ? ring_row(&next, next.used) : NULL;
	st->has_past = true;
	return ret;
}
