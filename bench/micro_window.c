/*
 * Gathering windows: CartPole-shaped rows in us per batch; frames in GB/s written, and relative to
 * memcpy of the same number of bytes in the same window.
 */
#include "bench/harness/micro.h"

#include "ds/window/window.h"

#include "base/mem/alloc.h"
#include "base/bits.h"
#include "base/os/cpu.h"
#include "base/rng.h"

#include <stdio.h>
#include <string.h>

#define BATCH 256u
#define SMALL_SLOTS (1u << 20)
#define SMALL_BATCHES 512u /* their rows are 16 MiB: never in the L2 cache */
#define SMALL_ROUNDS 2u
#define FRAME_ROUNDS 8u
#define FRAME (84u * 84u)
#define STACK 4u
#define BUFFERS_MAX 8u

/* float obs[4], int64 action, float reward, tail */
#define SMALL_TAIL 32u
/* frame, int64 action, float reward, bool done, tail */
#define FRAME_TAIL (FRAME + 16u)

struct pool {
	struct pages pages;
	uint32_t slots, row_bytes, tail_off;
};

static bool open_pool(struct pool *pool, enum page_kind kind)
{
	uint8_t *rows;

	if (pages_alloc((size_t)pool->slots * pool->row_bytes, kind, &pool->pages))
		return false;
	rows = pool->pages.ptr;
	for (uint32_t i = 0; i < pool->slots; i++, rows += pool->row_bytes) {
		struct row_tail tail = { .step = 1000 + i % 50,
					 .flags = i % 50 == 49 ? ROW_TERMINATED : 0 };

		memset(rows, (int)i, pool->tail_off);
		memcpy(rows + pool->tail_off, &tail, sizeof(tail));
	}
	return true;
}

static void choose_windows(const struct pool *pool, struct rng *rng, uint32_t window,
			   const uint8_t **windows)
{
	const uint8_t *rows = pool->pages.ptr;

	for (uint32_t i = 0; i < BATCH; i++)
		windows[i] = rows + rng_uniform_u64(rng, pool->slots - window) * pool->row_bytes;
}

static void number_items(uint32_t *at)
{
	for (uint32_t i = 0; i < BATCH; i++)
		at[i] = i;
}

/* -------- CartPole -------- */

static struct {
	struct pool pool;
	struct window_output outputs[7];
	struct window_plan plan;
	uint8_t *out;
	const uint8_t *windows[SMALL_BATCHES][BATCH];
	uint32_t at[BATCH];
} small;

static void plan_small(void)
{
	static const struct window_output columns[] = {
		{ WINDOW_STACK, 0, 16, DTYPE_F32, NULL, 16 },
		{ WINDOW_NEXT, 0, 16, DTYPE_F32, NULL, 16 },
		{ WINDOW_ANCHOR, 16, 8, DTYPE_I64, NULL, 8 },
		{ WINDOW_RETURN, 24, 4, DTYPE_F32, NULL, 4 },
		{ WINDOW_DISCOUNT, 0, 4, DTYPE_F32, NULL, 4 },
		{ WINDOW_STEPS, 0, 4, DTYPE_U32, NULL, 4 },
		{ WINDOW_VERSION, 0, 4, DTYPE_U32, NULL, 4 },
	};
	uint8_t *out = small.out;

	for (size_t c = 0; c < ARRAY_LEN(columns); c++) {
		small.outputs[c] = columns[c];
		small.outputs[c].out = out;
		out += columns[c].item_bytes * BATCH;
	}
	small.plan = (struct window_plan){ .row_bytes = small.pool.row_bytes,
					   .tail_off = SMALL_TAIL,
					   .stack = 1,
					   .future = 1,
					   .n_step = 1,
					   .has_obs = true,
					   .gamma = 0.99,
					   .n_outputs = ARRAY_LEN(columns),
					   .outputs = small.outputs };
	number_items(small.at);
}

/* us per batch; the batches rotate, so that each finds its rows cold. */
static int small_window(struct micro_case *c)
{
	bool gather = strcmp(c->result.metric, "gather_us") == 0;
	uint64_t start;
	struct rng rng;

	rng_seed(&rng, c->micro->seed, c->result.series.n);
	for (uint32_t i = 0; i < SMALL_BATCHES; i++)
		choose_windows(&small.pool, &rng, 2, small.windows[i]);
	start = time_wall_ns();
	for (uint32_t i = 0; i < SMALL_ROUNDS * SMALL_BATCHES; i++) {
		const uint8_t *const *windows = small.windows[i % SMALL_BATCHES];

		if (gather)
			window_gather(&small.plan, windows, small.at, BATCH);
		else
			window_prefetch(&small.plan, windows, BATCH);
	}
	yardstick_use(small.out);
	series_add(&c->result.series,
		   (double)(time_wall_ns() - start) / (SMALL_ROUNDS * SMALL_BATCHES) / 1000);
	return 0;
}

static bool measure_small(struct micro *b, enum page_kind kind)
{
	struct micro_case c = {
		.run = small_window,
		.result = { .metric = "load_us",
			    .unit = "us",
			    .higher = false,
			    .params = { { .key = "shape", .text = "cartpole" },
					{ .key = "batch", .number = BATCH },
					{ .key = "capacity", .number = SMALL_SLOTS },
					{ .key = "pages", .text = page_kind_name(kind) },
					{ .key = "seed", .number = b->seed } } }
	};
	bool ok;

	small.pool = (struct pool){ .slots = SMALL_SLOTS,
				    .row_bytes = SMALL_TAIL + sizeof(struct row_tail),
				    .tail_off = SMALL_TAIL };
	small.out = mem_aligned(64, 64 * BATCH);
	if (!small.out || !open_pool(&small.pool, kind))
		return false;
	plan_small();
	micro_add_line(b, small.pool.pages.ptr, small.pool.pages.bytes, c.result.params);
	micro_add(b, &c);
	c.result.metric = "gather_us";
	micro_add(b, &c);
	ok = micro_run(b, "cartpole rows") == 0;
	pages_free(&small.pool.pages);
	mem_free(small.out);
	return ok;
}

/* -------- frames -------- */

enum copy { BY_MEMCPY, BY_COPY, BY_STREAM, COPIES };

static struct {
	struct pool pool;
	struct pages buffers[BUFFERS_MAX];
	uint32_t n_buffers;
	bool dense;
	struct rng rng;
	double memcpy_gbps;               /* of the newest window */
	struct micro_case *share[COPIES]; /* relative to memcpy in the same round; NULL = not shown */
} frames;

static uint64_t frames_bytes(void)
{
	uint64_t rows = frames.dense ? 2 * STACK : window_all_rows(STACK, 1);

	return rows * FRAME * BATCH;
}

static void gather_frames(uint8_t *out, const uint8_t *const *windows, bool stream)
{
	uint64_t stack_bytes = (uint64_t)STACK * FRAME;
	uint64_t all_bytes = (uint64_t)window_all_rows(STACK, 1) * FRAME;
	const struct window_output dense[] = {
		{ WINDOW_STACK, 0, FRAME, DTYPE_U8, out, stack_bytes },
		{ WINDOW_NEXT, 0, FRAME, DTYPE_U8, out + stack_bytes * BATCH, stack_bytes },
	};
	const struct window_output all = { WINDOW_ALL, 0, FRAME, DTYPE_U8, out, all_bytes };
	const struct window_plan plan = { .row_bytes = frames.pool.row_bytes,
					  .tail_off = FRAME_TAIL,
					  .stack = STACK,
					  .future = 1,
					  .n_step = 1,
					  .has_obs = true,
					  .stream_stores = stream,
					  .gamma = 0.99,
					  .n_outputs = frames.dense ? 2 : 1,
					  .outputs = frames.dense ? dense : &all };
	uint32_t at[BATCH];

	number_items(at);
	window_gather(&plan, windows, at, BATCH);
}

/* GB/s over a few batches, each into the next buffer. */
static int frames_window(struct micro_case *c)
{
	const enum copy by = *(const enum copy *)c->ctx;
	uint64_t bytes = frames_bytes(), ns = 0;
	double gbps;

	for (uint32_t r = 0; r < FRAME_ROUNDS; r++) {
		uint8_t *out = frames.buffers[r % frames.n_buffers].ptr;
		const uint8_t *windows[BATCH], *rows = frames.pool.pages.ptr;
		uint64_t from = rng_uniform_u64(&frames.rng, frames.pool.pages.bytes - bytes),
			 start;

		choose_windows(&frames.pool, &frames.rng, STACK + 1, windows);
		start = time_wall_ns();
		if (by == BY_MEMCPY)
			memcpy(out, rows + align_down(from, 64), bytes);
		else
			gather_frames(out, windows, by == BY_STREAM);
		ns += time_wall_ns() - start;
		yardstick_use(out);
	}
	gbps = (double)(bytes * FRAME_ROUNDS) / (double)ns;
	series_add(&c->result.series, gbps);
	if (by == BY_MEMCPY)
		frames.memcpy_gbps = gbps;
	else if (frames.share[by] && frames.memcpy_gbps > 0)
		series_add(&frames.share[by]->result.series, gbps / frames.memcpy_gbps);
	return 0;
}

static void add_frames(struct micro *b)
{
	static const char *const names[COPIES] = { "memcpy", "copy", "stream" };
	static enum copy copies[COPIES] = { BY_MEMCPY, BY_COPY, BY_STREAM };

	for (uint32_t by = 0; by < COPIES; by++) {
		struct micro_case c = {
			.run = frames_window,
			.ctx = &copies[by],
			.result = { .metric = "copy_gbps",
				    .unit = "GB/s",
				    .higher = true,
				    .params = { { .key = "shape", .text = "atari" },
						{ .key = "layout",
						  .text = frames.dense ? "dense" : "window" },
						{ .key = "by", .text = names[by] },
						{ .key = "batch", .number = BATCH },
						{ .key = "buffers", .number = frames.n_buffers },
						{ .key = "vector",
						  .text = cpu_level_name(cpu_level()) },
						{ .key = "seed", .number = b->seed } } },
		};

		micro_add(b, &c);
		c.run = NULL;
		c.result.metric = "of_memcpy";
		c.result.unit = "";
		frames.share[by] = by == BY_MEMCPY ? NULL : micro_add(b, &c);
	}
}

static bool measure_frames(struct micro *b, bool dense, uint32_t n_buffers)
{
	bool ok;

	memset(&frames, 0, sizeof(frames));
	frames.dense = dense;
	frames.n_buffers = n_buffers;
	frames.pool = (struct pool){ .slots = 1u << 14,
				     .row_bytes = FRAME_TAIL + sizeof(struct row_tail),
				     .tail_off = FRAME_TAIL };
	if (!open_pool(&frames.pool, PAGE_SMALL))
		return false;
	for (uint32_t i = 0; i < n_buffers; i++) {
		if (pages_alloc(frames_bytes(), PAGE_THP, &frames.buffers[i]))
			return false;
		memset(frames.buffers[i].ptr, 1, frames_bytes());
	}
	rng_seed(&frames.rng, b->seed, 7);
	add_frames(b);
	ok = micro_run(b, dense ? "dense frames" : "windows of frames") == 0;
	for (uint32_t i = 0; i < n_buffers; i++)
		pages_free(&frames.buffers[i]);
	pages_free(&frames.pool.pages);
	return ok;
}

int main(int argc, char **argv)
{
	static struct micro b = {
		.name = "micro_window",
		.help = "Gathers batches of windows from rows: CartPole in us, Atari against memcpy.",
	};
	bool ok = true;
	int status;

	if (!micro_init(&b, argc, argv, &status))
		return status;
	ok = measure_small(&b, PAGE_SMALL) && measure_small(&b, PAGE_THP);
	for (int dense = 0; ok && dense < 2; dense++)
		ok = measure_frames(&b, dense, 1) && measure_frames(&b, dense, BUFFERS_MAX);
	return micro_finish(&b, ok);
}
