#include "client/sampler/async_sample.h"

#include "client/sampler/sampler.h"

#include "base/mem/alloc.h"
#include "base/bits.h"
#include "base/mem/chunk.h"
#include "base/crc32c.h"
#include "base/log.h"

#include <errno.h>
#include <string.h>

enum {
	COPY_LOT = 32,         /* items that are copied and verified together */
	RUN_MOST = 1 << 20,    /* bytes of a READ of several windows */
	PHASE_MOST = 32 << 20, /* bytes of rows that are posted together, */
	LOT_BYTES = 1 << 20    /* in lots of these */
};

/* -------- memory -------- */

int async_sample_init(struct async_sample *async)
{
	return sumtree_steps_open(&async->steps);
}

void async_sample_fini(struct async_sample *async)
{
	sumtree_steps_close(&async->steps);
	scratch_fini(&async->own);
	mem_free(async->forest.epochs);
	mem_free(async->sizes);
	mem_free(async->io);
	chunk_drop(&async->rows);
	*async = (struct async_sample){ 0 };
}

int async_sample_room(struct async_sample *async, size_t n)
{
	return mem_make_room(&async->io, &async->room_io, n, sizeof(*async->io))
		       ? 0
		       : error_set(-ENOMEM, "sample: cannot allocate memory for %zu items", n);
}

/* -------- rows -------- */

/* True if item i is in the slot behind item i - 1: items in order of insertion usually are. */
static bool async_item_follows(const struct async_sample *async, uint32_t i)
{
	const struct draw_scratch *s = async->s;

	return async->in_order && s->shard[i] == s->shard[i - 1] &&
	       s->slot[i] == s->slot[i - 1] + 1;
}

/* Prepares READs of the windows of n items, from item rows_first on, into async->rows: *n_io_out of them, since
   windows that overlap are one. -ENOMEM. */
static int async_aim_rows(struct rlv_sampler *sp, struct async_sample *async, uint32_t n,
			  size_t *n_io_out)
{
	size_t bytes = sampler_window_bytes(sp), row = sp->plan.row_bytes, n_io = 0;
	uint8_t *dst;

	async->rows_n = n;
	if (!chunk_make_room(&async->rows, n * bytes))
		return error_set(-ENOMEM, "sample: cannot allocate %zu bytes", n * bytes);
	if (async->batch->is_apart)
		return apart_aim_near(sp, async, n_io_out);
	dst = async->rows.ptr;
	for (uint32_t k = 0; k < n; k++) {
		uint32_t i = async->rows_first + k;

		if (k && async_item_follows(async, i) &&
		    async->io[n_io - 1].len + row <= RUN_MOST) {
			async->io[n_io - 1].len += (uint32_t)row;
			async->s->window[i] = async->s->window[i - 1] + row;
			dst += row;
			continue;
		}
		async->io[n_io++] = (struct transport_io){
			.region = handle_shard(&sp->h, async->s->shard[i])->rows,
			.off = sampler_window_off(sp, async->s, i),
			.dst = dst,
			.mem = &async->rows,
			.len = (uint32_t)bytes,
		};
		async->s->window[i] = dst;
		dst += bytes;
	}
	*n_io_out = n_io;
	return 0;
}

/* Items of a lot: all, where an item may share its READ with others; and enough that the set has room for a leg of
   each node in each lot. */
static uint32_t async_lot_items(const struct rlv_sampler *sp, const struct async_sample *async)
{
	uint32_t n = async->rows_n, bytes = sampler_window_bytes(sp);
	uint32_t lots = WAIT_LEGS / (uint32_t)min_u64(max_u64(async->forest.n, 1), WAIT_LEGS);

	if (async->in_order || async->batch->is_apart)
		return n;
	return (uint32_t)max_u64(LOT_BYTES / max_u64(bytes, 1) + 1, (n + lots - 1) / lots);
}

/* Posts the READs of the rows, in lots. */
static int async_post_lots(struct rlv_sampler *sp, struct async_sample *async, size_t n_io)
{
	uint32_t n = async->rows_n;
	int ret = 0;

	async->lot_items = async_lot_items(sp, async);
	async->lots = async->lots_copied = 0;
	wait_set_begin(&async->reads);
	for (uint32_t at = 0; ret == 0 && at < n; at += async->lot_items) {
		size_t of_lot = n <= async->lot_items ? n_io : min_u64(n - at, async->lot_items);

		ret = wait_set_add_reads(&async->reads, async->io + at, of_lot);
		async->lot_reads[async->lots++] = async->reads.n;
	}
	return ret;
}

/* Posts READs of the windows of the next items, from item rows_first on: as many as fit into 32
   MiB, at least one. */
static int async_post_rows(struct rlv_sampler *sp, struct async_sample *async)
{
	size_t most = max_u64(PHASE_MOST / max_u64(sampler_window_bytes(sp), 1), 1);
	uint32_t n = (uint32_t)min_u64(async->found - async->rows_first, most);
	size_t n_io = 0;
	int ret = async_sample_room(async, n);

	if (ret == 0)
		ret = async_aim_rows(sp, async, n, &n_io);
	if (ret)
		return ret;
	async->stage = async->batch->is_apart ? ASYNC_NEAR : ASYNC_ROWS;
	return async_post_lots(sp, async, n_io);
}

/* True if all rows of item i's window are complete: each has the generation of its leaf, and its
   crc is right. */
static bool window_is_whole(const struct rlv_sampler *sp, const struct draw_scratch *s, uint32_t i)
{
	const uint32_t covered = sp->plan.tail_off + (uint32_t)offsetof(struct row_tail, crc);
	const uint8_t *row = s->window[i];
	uint32_t gen = leaf_gen(s->word[i]);
	struct row_tail tail;
	bool whole = true;

	for (uint32_t r = 0; whole && r < sp->plan.stack + sp->plan.future; r++) {
		memcpy(&tail, row + sp->plan.tail_off, sizeof(tail));
		whole = tail.gen == gen && tail.crc == crc32c(0, row, covered);
		row += sp->plan.row_bytes;
	}
	return whole;
}

/* -------- leaves again -------- */

/* Prepares READs of the leaves of all items; returns how many. */
static size_t async_aim_look(struct rlv_sampler *sp, struct async_sample *async,
			     struct transport_io *io)
{
	struct draw_scratch *s = async->s;
	size_t n_io = 0;

	for (uint32_t i = 0; i < async->found; i++) {
		if (i && async_item_follows(async, i)) {
			io[n_io - 1].len += 8;
			continue;
		}
		io[n_io++] = (struct transport_io){
			.region = handle_shard(&sp->h, s->shard[i])->tree,
			.off = sampler_leaf_off(sp, s, i),
			.dst = &s->again[i],
			.mem = &s->mem,
			.len = 8,
		};
	}
	return n_io;
}

/* Posts READs of the leaves of all items. V2 pairs with C1: the rows have come, then this second
   look at their leaves is posted. */
static int async_post_look(struct rlv_sampler *sp, struct async_sample *async)
{
	int ret = async_sample_room(async, async->found);
	size_t n_io;

	if (ret)
		return ret;
	n_io = async_aim_look(sp, async, async->io);
	async->stage = ASYNC_LOOK;
	return wait_set_read(&async->reads, async->io, n_io);
}

static bool sampler_looks_at_leaves(const struct rlv_sampler *sp)
{
	return sp->opts.verify != RLV_VERIFY_CRC;
}

/*
 * True if rows are posted together with their leaves, rather than copied while the leaves are read:
 * few (8), small (4 KiB in all), and over one wire: no fence orders reads in place, or of two wires.
 */
static bool async_posts_together(const struct rlv_sampler *sp, const struct async_sample *async)
{
	const struct transport *tr = NULL;
	uint32_t n = async->found;
	bool together = sampler_looks_at_leaves(sp) && !async->batch->is_apart && n > 0 && n <= 8 &&
			n * sampler_window_bytes(sp) <= 4096;

	for (uint32_t i = 0; together && i < n; i++) {
		const struct region *tree = handle_shard(&sp->h, async->s->shard[i])->tree;

		tr = tr ? tr : tree->tr;
		together = !tree->base && tree->tr == tr;
	}
	return together;
}

/* -------- from phase to phase -------- */

static int async_begin_rows(struct rlv_sampler *sp, struct async_sample *async)
{
	uint32_t n = async->found;
	size_t n_rows = 0, n_looks;
	int ret;

	async->rows_first = async->rows_n = 0;
	if (!sp->reads_rows) {
		sampler_trust_leaves(async->s, n);
		async->stage = ASYNC_DONE;
		return 0;
	}
	if (!async_posts_together(sp, async))
		return async_post_rows(sp, async);
	ret = async_sample_room(async, 2 * (size_t)n);
	if (ret == 0)
		ret = async_aim_rows(sp, async, n, &n_rows);
	if (ret)
		return ret;
	n_looks = async_aim_look(sp, async, async->io + n_rows);
	async->stage = ASYNC_BOTH;
	/* V2 pairs with C1: the queue pair starts the second look when the rows have come. */
	return wait_set_read_fenced(&async->reads, async->io, n_rows + n_looks, n_rows);
}

static int async_next_of_draw(struct rlv_sampler *sp, struct async_sample *async)
{
	const struct transport_io *io;
	size_t n;
	int ret = sumtree_steps_next(async->steps, &io, &n);

	if (ret)
		return ret;
	if (n)
		return wait_set_read(&async->reads, io, n);
	memcpy(sp->trees.sizes, async->sizes, async->forest.n * sizeof(*async->sizes));
	sampler_name_draws(sp, async->s, async->found);
	return async_begin_rows(sp, async);
}

/*
 * Copies rows of n items into the batch. With RLV_VERIFY_CRC verifies them, while they are in the
 * cache: rows that came over a wire lie in a buffer of our own, so that their seals hold for what was
 * copied; rows read in place may have changed since, so their leaves are read again.
 */
static void async_copy_lot(struct rlv_sampler *sp, struct async_sample *async, uint32_t first,
			   uint32_t n)
{
	struct draw_scratch *s = async->s;

	sampler_copy_rows(sp, s, async->batch, first, n);
	for (uint32_t i = first; !sampler_looks_at_leaves(sp) && i < first + n; i++) {
		if (handle_shard(&sp->h, s->shard[i])->tree->base)
			sampler_look_in_place(sp, s, i, 1);
		else
			s->again[i] = window_is_whole(sp, s, i) ? s->word[i] : 0;
	}
}

/* Copies what is small of the rows that have come, while their large values do. */
static int async_next_of_near(struct rlv_sampler *sp, struct async_sample *async)
{
	size_t n_io;
	int ret = apart_aim_far(sp, async, &n_io);

	if (ret)
		return ret;
	async->stage = ASYNC_FAR;
	ret = wait_set_read(&async->reads, async->io, n_io);
	sampler_copy_rows(sp, async->s, async->batch, async->rows_first, async->rows_n);
	return ret;
}

/* Copies and verifies those of the rows being read that are [done, end). */
static void async_copy_rows(struct rlv_sampler *sp, struct async_sample *async, uint32_t done,
			    uint32_t end)
{
	for (; done < end; done += COPY_LOT)
		async_copy_lot(sp, async, async->rows_first + done,
			       (uint32_t)min_u64(end - done, COPY_LOT));
}

/*
 * Copies and verifies the lots of rows that have come, but for the last one. come: whether a lot has, at once
 * or after a wait. An error of it, or 0: the last one is next.
 */
static int async_take_lots(struct rlv_sampler *sp, struct async_sample *async,
			   int (*come)(struct wait_set *set, uint32_t n))
{
	while (async->stage == ASYNC_ROWS && async->lots_copied + 1 < async->lots) {
		uint32_t done = async->lots_copied * async->lot_items;
		int ret = come(&async->reads, async->lot_reads[async->lots_copied]);

		if (ret)
			return ret;
		async_copy_rows(sp, async, done, done + async->lot_items);
		async->lots_copied++;
	}
	return 0;
}

/* Copies and verifies the rows that have come last while the next phase is in progress; after large values only
   the leaves are left. */
static int async_next_of_rows(struct rlv_sampler *sp, struct async_sample *async)
{
	uint32_t first = async->rows_first, n = async->rows_n;
	bool by_leaf = sampler_looks_at_leaves(sp), copied = async->stage == ASYNC_FAR;
	bool last = first + n == async->found;
	int ret = by_leaf && last ? async_post_look(sp, async) : 0;

	async_copy_rows(sp, async, copied ? n : async->lots_copied * async->lot_items, n);
	if (ret || (last && by_leaf))
		return ret;
	async->rows_first += n;
	if (!last)
		return async_post_rows(sp, async);
	async->stage = ASYNC_DONE;
	return 0;
}

/* Runs the next stage, after the reads of the last one completed. */
static int async_next_phase(struct rlv_sampler *sp, struct async_sample *async)
{
	switch (async->stage) {
	case ASYNC_DRAW:
		return async_next_of_draw(sp, async);
	case ASYNC_NEAR:
		return async_next_of_near(sp, async);
	case ASYNC_ROWS:
	case ASYNC_FAR:
		return async_next_of_rows(sp, async);
	case ASYNC_BOTH:
		sampler_copy_rows(sp, async->s, async->batch, 0, async->found);
		async->stage = ASYNC_DONE;
		return 0;
	case ASYNC_LOOK:
		async->stage = ASYNC_DONE;
		return 0;
	case ASYNC_IDLE:
	case ASYNC_DONE:
		break;
	}
	return 0;
}

static int async_end(struct async_sample *async, int ret)
{
	if (ret) {
		async_sample_cancel(async);
		return ret;
	}
	return async->stage == ASYNC_DONE ? 0 : -EAGAIN;
}

void async_sample_cancel(struct async_sample *async)
{
	if (wait_set_wait(&async->reads))
		log_debug("sample: %s", error_last());
	async->stage = ASYNC_IDLE;
}

int async_sample_look(struct rlv_sampler *sp, struct async_sample *async)
{
	int ret = 0;

	while (ret == 0 && async->stage != ASYNC_DONE && async->stage != ASYNC_IDLE) {
		ret = async_take_lots(sp, async, wait_set_look_first);
		if (ret == 0)
			ret = wait_set_look(&async->reads);
		if (ret == 0)
			ret = async_next_phase(sp, async);
	}
	return ret == -EAGAIN ? ret : async_end(async, ret);
}

int async_sample_wait(struct rlv_sampler *sp, struct async_sample *async)
{
	int ret = async_take_lots(sp, async, wait_set_wait_first);

	if (ret == 0)
		ret = wait_set_wait(&async->reads);
	return async_end(async, ret ? ret : async_next_phase(sp, async));
}

/* -------- start -------- */

static int async_begin_draw(struct rlv_sampler *sp, struct async_sample *async, bool stratified)
{
	const struct draw_opts opts = sampler_draw_opts(sp, stratified, async->sizes);
	const struct steps_task task = {
		.from = &async->forest,
		.opts = &opts,
		.rng = async->draws,
		.n = async->n,
		.out = { async->s->shard, async->s->slot, async->s->word, async->s->probability },
	};
	int ret = sumtree_steps_begin(async->steps, &task);

	async->found = async->n;
	async->stage = ASYNC_DRAW;
	return ret ? ret : async_next_of_draw(sp, async);
}

static void async_take(struct rlv_sampler *sp, struct async_sample *async,
		       const struct round *round, bool in_order)
{
	async->batch = round->batch;
	async->n = round->n;
	async->found = round->found;
	async->in_order = in_order;
	async->began_ns = clock_now_ns(sp->h.clock);
	async->reads.n = 0;
}

int async_sample_gather(struct rlv_sampler *sp, struct async_sample *async,
			const struct round *round)
{
	int ret;

	async_take(sp, async, round, true);
	ret = async_begin_rows(sp, async);
	if (ret)
		async_sample_cancel(async);
	return ret;
}

int async_sample_start(struct rlv_sampler *sp, struct async_sample *async,
		       const struct round *round)
{
	const struct forest *from = &sp->trees.forest;
	struct round part = *round;
	int ret;

	if (from->n > async->room_trees) {
		mem_free(async->forest.epochs);
		mem_free(async->sizes);
		async->forest.epochs = mem_array(from->n, sizeof(struct epoch));
		async->sizes = mem_array(from->n, sizeof(*async->sizes));
		async->room_trees = async->forest.epochs && async->sizes ? from->n : 0;
		if (!async->room_trees)
			return error_set(-ENOMEM, "sample: cannot allocate memory for %u shards",
					 from->n);
	}
	async->forest.trees = from->trees;
	async->forest.n = from->n;
	memcpy(async->forest.epochs, from->epochs, from->n * sizeof(struct epoch));
	async_take(sp, async, round, sp->ordered);
	if (sp->ordered) {
		ret = sampler_draw_in_order(sp, async->s, &part);
		if (ret == 0) {
			async->found = part.found;
			sampler_name_draws(sp, async->s, part.found);
			ret = async_begin_rows(sp, async);
		}
	} else {
		ret = async_begin_draw(sp, async, round->stratified);
	}
	if (ret)
		async_sample_cancel(async);
	return ret;
}
