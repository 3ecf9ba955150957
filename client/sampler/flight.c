#include "client/sampler/flight.h"

#include "client/sampler/sampler.h"

#include "base/mem/alloc.h"
#include "base/bits.h"
#include "base/mem/chunk.h"
#include "base/crc32c.h"
#include "base/log.h"

#include <errno.h>
#include <string.h>

#define ROWS_BYTES ((size_t)32 << 20) /* of one phase, unless a single window is larger */

/* Rows that are worth waiting for their leaves, instead of being copied while those are under way. */
#define BOTH_ITEMS 8u
#define BOTH_BYTES 4096u

/* -------- memory -------- */

int flight_init(struct flight *flight)
{
	return sumtree_steps_open(&flight->steps);
}

void flight_fini(struct flight *flight, size_t batch_size)
{
	sumtree_steps_close(&flight->steps);
	scratch_fini(&flight->own, batch_size);
	mem_free(flight->forest.epochs);
	mem_free(flight->sizes);
	mem_free(flight->io);
	chunk_free(flight->rows, flight->room_rows);
	*flight = (struct flight){ 0 };
}

static int make_trees(struct flight *flight, uint32_t n)
{
	if (n <= flight->room_trees)
		return 0;
	mem_free(flight->forest.epochs);
	mem_free(flight->sizes);
	flight->forest.epochs = mem_array(n, sizeof(struct epoch));
	flight->sizes = mem_array(n, sizeof(*flight->sizes));
	flight->room_trees = flight->forest.epochs && flight->sizes ? n : 0;
	return flight->room_trees ? 0 : error_set(-ENOMEM, "sample: no memory for %u shards", n);
}

static int make_io(struct flight *flight, size_t n)
{
	return mem_make_room(&flight->io, &flight->room_io, n, sizeof(*flight->io))
		       ? 0
		       : error_set(-ENOMEM, "sample: no memory for %zu items", n);
}

static int make_rows(struct flight *flight, size_t bytes)
{
	return chunk_make_room(&flight->rows, &flight->room_rows, bytes)
		       ? 0
		       : error_set(-ENOMEM, "sample: no memory for %zu bytes", bytes);
}

/* -------- rows -------- */

/* READs of the rows of n items from rows_first on. */
static int aim_rows(struct rlv_sampler *sp, struct flight *flight, uint32_t n)
{
	size_t bytes = sampler_window_bytes(sp);
	int ret = make_rows(flight, n * bytes);

	for (uint32_t k = 0; ret == 0 && k < n; k++) {
		uint32_t i = flight->rows_first + k;

		flight->io[k] = (struct transport_io){
			.region = sp->h.nodes.shards[flight->s->shard[i]]->rows,
			.off = sampler_window_off(sp, flight->s, i),
			.dst = flight->rows + k * bytes,
			.len = (uint32_t)bytes,
		};
		flight->s->window[i] = flight->rows + k * bytes;
	}
	flight->rows_n = n;
	return ret;
}

/* Rows of as many items as one phase takes, from rows_first on. */
static int post_rows(struct rlv_sampler *sp, struct flight *flight)
{
	size_t most = max_u64(ROWS_BYTES / max_u64(sampler_window_bytes(sp), 1), 1);
	uint32_t n = (uint32_t)min_u64(flight->found - flight->rows_first, most);
	int ret = make_io(flight, n);

	if (ret == 0)
		ret = aim_rows(sp, flight, n);
	if (ret)
		return ret;
	flight->stage = FLIGHT_ROWS;
	return transport_reads_post(&flight->reads, flight->io, n);
}

/* What its writer sealed the row with says whether it is whole, and of which generation. */
static bool row_is_whole(const struct window_plan *plan, const uint8_t *row, uint32_t gen)
{
	const uint32_t covered = plan->tail_off + (uint32_t)offsetof(struct row_tail, crc);
	struct row_tail tail;

	memcpy(&tail, row + plan->tail_off, sizeof(tail));
	return tail.gen == gen && tail.crc == crc32c(0, row, covered);
}

static bool window_is_whole(const struct rlv_sampler *sp, const struct draw_scratch *s, uint32_t i)
{
	const uint8_t *row = s->window[i];
	uint32_t gen = leaf_gen(s->word[i]);
	bool whole = true;

	for (uint32_t r = 0; whole && r < sp->plan.stack + sp->plan.future; r++)
		whole = row_is_whole(&sp->plan, row + (size_t)r * sp->plan.row_bytes, gen);
	return whole;
}

/*
 * Rows that came over a wire lie in a buffer of our own, so that their seals hold for what was
 * copied. Others may have changed since: there the leaf tells.
 */
static void check_seals(struct rlv_sampler *sp, struct draw_scratch *s, uint32_t first, uint32_t n)
{
	for (uint32_t i = first; i < first + n; i++) {
		if (sp->h.nodes.shards[s->shard[i]]->tree->base)
			sampler_look_in_place(sp, s, i, 1);
		else
			s->again[i] = window_is_whole(sp, s, i) ? s->word[i] : 0;
	}
}

/* -------- leaves again -------- */

static void aim_look(struct rlv_sampler *sp, struct flight *flight, struct transport_io *io)
{
	struct draw_scratch *s = flight->s;

	for (uint32_t i = 0; i < flight->found; i++)
		io[i] = (struct transport_io){
			.region = sp->h.nodes.shards[s->shard[i]]->tree,
			.off = sampler_leaf_off(sp, s, i),
			.dst = &s->again[i],
			.len = 8,
		};
}

/* V2 pairs with C1: the rows have come, then this second look at their leaves is posted. */
static int post_look(struct rlv_sampler *sp, struct flight *flight)
{
	int ret = make_io(flight, flight->found);

	if (ret)
		return ret;
	aim_look(sp, flight, flight->io);
	flight->stage = FLIGHT_LOOK;
	return transport_reads_post(&flight->reads, flight->io, flight->found);
}

/* -------- both -------- */

static bool looks_at_leaves(const struct rlv_sampler *sp)
{
	return sp->opts.verify != RLV_VERIFY_CRC;
}

/* Few, small, and over one wire: where there is none, or another, no fence orders them. */
static bool are_posted_together(const struct rlv_sampler *sp, const struct flight *flight)
{
	struct shard *const *shards = sp->h.nodes.shards;
	uint32_t n = flight->found;
	bool together = looks_at_leaves(sp) && n > 0 && n <= BOTH_ITEMS &&
			n * sampler_window_bytes(sp) <= BOTH_BYTES;

	for (uint32_t i = 0; together && i < n; i++) {
		const struct region *tree = shards[flight->s->shard[i]]->tree;

		together = !tree->base && tree->tr == shards[flight->s->shard[0]]->tree->tr;
	}
	return together;
}

/* V2 pairs with C1: the queue pair starts the second look when the rows have come. */
static int post_both(struct rlv_sampler *sp, struct flight *flight)
{
	uint32_t n = flight->found;
	int ret = make_io(flight, 2 * (size_t)n);

	if (ret == 0)
		ret = aim_rows(sp, flight, n);
	if (ret)
		return ret;
	aim_look(sp, flight, flight->io + n);
	flight->io[n].fence = 1;
	flight->stage = FLIGHT_BOTH;
	return transport_reads_post(&flight->reads, flight->io, 2 * (size_t)n);
}

/* -------- from phase to phase -------- */

static int begin_rows(struct rlv_sampler *sp, struct flight *flight)
{
	flight->rows_first = flight->rows_n = 0;
	if (!sampler_reads_rows(sp)) {
		sampler_trust_leaves(flight->s, flight->found);
		flight->stage = FLIGHT_DONE;
		return 0;
	}
	return are_posted_together(sp, flight) ? post_both(sp, flight) : post_rows(sp, flight);
}

static int next_of_draw(struct rlv_sampler *sp, struct flight *flight)
{
	const struct transport_io *io;
	size_t n;
	int ret = sumtree_steps_next(flight->steps, &io, &n);

	if (ret)
		return ret;
	if (n)
		return transport_reads_post(&flight->reads, io, n);
	memcpy(sp->grove.sizes, flight->sizes, flight->forest.n * sizeof(*flight->sizes));
	sampler_name_draws(sp, flight->s, flight->found);
	return begin_rows(sp, flight);
}

/* The rows go into the batch while what comes next is under way. */
static int next_of_rows(struct rlv_sampler *sp, struct flight *flight)
{
	uint32_t first = flight->rows_first, n = flight->rows_n;
	bool by_leaf = looks_at_leaves(sp);
	bool last = first + n == flight->found;
	int ret = by_leaf && last ? post_look(sp, flight) : 0;

	sampler_copy_rows(sp, flight->s, flight->batch, first, n);
	if (!by_leaf)
		check_seals(sp, flight->s, first, n);
	if (ret || (last && by_leaf))
		return ret;
	flight->rows_first += n;
	if (!last)
		return post_rows(sp, flight);
	flight->stage = FLIGHT_DONE;
	return 0;
}

/* What was under way has come. */
static int go_on(struct rlv_sampler *sp, struct flight *flight)
{
	switch (flight->stage) {
	case FLIGHT_DRAW:
		return next_of_draw(sp, flight);
	case FLIGHT_ROWS:
		return next_of_rows(sp, flight);
	case FLIGHT_BOTH:
		sampler_copy_rows(sp, flight->s, flight->batch, 0, flight->found);
		flight->stage = FLIGHT_DONE;
		return 0;
	case FLIGHT_LOOK:
		flight->stage = FLIGHT_DONE;
		return 0;
	case FLIGHT_IDLE:
	case FLIGHT_DONE:
		break;
	}
	return 0;
}

static int end(struct flight *flight, int ret)
{
	if (ret) {
		flight_cancel(flight);
		return ret;
	}
	return flight->stage == FLIGHT_DONE ? 0 : -EAGAIN;
}

void flight_cancel(struct flight *flight)
{
	if (transport_reads_wait(&flight->reads))
		log_debug("sample: %s", error_last());
	flight->stage = FLIGHT_IDLE;
}

int flight_look(struct rlv_sampler *sp, struct flight *flight)
{
	int ret = 0;

	while (ret == 0 && flight->stage != FLIGHT_DONE && flight->stage != FLIGHT_IDLE) {
		ret = transport_reads_look(&flight->reads);
		if (ret == 0)
			ret = go_on(sp, flight);
	}
	return ret == -EAGAIN ? ret : end(flight, ret);
}

int flight_wait(struct rlv_sampler *sp, struct flight *flight)
{
	int ret = transport_reads_wait(&flight->reads);

	return end(flight, ret ? ret : go_on(sp, flight));
}

/* -------- start -------- */

static int begin_draw(struct rlv_sampler *sp, struct flight *flight, bool stratified)
{
	const struct draw_opts opts = {
		.stratified = stratified,
		.rank = sp->opts.rank,
		.world_size = sp->opts.world_size,
		.sizes_out = flight->sizes,
	};
	const struct steps_task task = {
		.from = &flight->forest,
		.opts = &opts,
		.rng = flight->draws,
		.n = flight->n,
		.out = { flight->s->shard, flight->s->slot, flight->s->word,
			 flight->s->probability },
	};
	int ret = sumtree_steps_begin(flight->steps, &task);

	flight->found = flight->n;
	flight->stage = FLIGHT_DRAW;
	return ret ? ret : next_of_draw(sp, flight);
}

static int begin_order(struct rlv_sampler *sp, struct flight *flight, const struct round *round)
{
	struct round part = *round;
	int ret = sampler_draw_in_order(sp, flight->s, &part);

	if (ret)
		return ret;
	flight->found = part.found;
	sampler_name_draws(sp, flight->s, part.found);
	return begin_rows(sp, flight);
}

int flight_start(struct rlv_sampler *sp, struct flight *flight, const struct round *round)
{
	const struct forest *from = &sp->grove.forest;
	int ret = make_trees(flight, from->n);

	if (ret)
		return ret;
	flight->forest.trees = from->trees;
	flight->forest.n = from->n;
	memcpy(flight->forest.epochs, from->epochs, from->n * sizeof(struct epoch));
	flight->batch = round->batch;
	flight->n = round->n;
	flight->began_ns = clock_now_ns(sp->h.clock);
	flight->reads.n = 0;
	ret = sp->ordered ? begin_order(sp, flight, round)
			  : begin_draw(sp, flight, round->stratified);
	if (ret)
		flight_cancel(flight);
	return ret;
}
