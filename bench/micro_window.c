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

struct small {
	struct micro *b;
	struct pool pool;
	struct window_output outputs[7];
	struct window_plan plan;
	uint8_t *out;
	const uint8_t *windows[SMALL_BATCHES][BATCH];
	uint32_t at[BATCH];
	struct series gather, prefetch, line;
};

static void plan_small(struct small *s)
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
	uint8_t *out = s->out;

	for (size_t c = 0; c < ARRAY_LEN(columns); c++) {
		s->outputs[c] = columns[c];
		s->outputs[c].out = out;
		out += columns[c].item_bytes * BATCH;
	}
	s->plan = (struct window_plan){ .row_bytes = s->pool.row_bytes,
					.tail_off = SMALL_TAIL,
					.stack = 1,
					.future = 1,
					.n_step = 1,
					.has_obs = true,
					.gamma = 0.99,
					.n_outputs = ARRAY_LEN(columns),
					.outputs = s->outputs };
	number_items(s->at);
}

/* us per batch; the batches rotate, so that each finds its rows cold. */
static double time_small(struct small *s, bool gather)
{
	uint64_t start = time_wall_ns();

	for (uint32_t r = 0; r < SMALL_ROUNDS; r++)
		for (uint32_t i = 0; i < SMALL_BATCHES; i++) {
			if (gather)
				window_gather(&s->plan, s->windows[i], s->at, BATCH);
			else
				window_prefetch(&s->plan, s->windows[i], BATCH);
		}
	yardstick_use(s->out);
	return (double)(time_wall_ns() - start) / (SMALL_ROUNDS * SMALL_BATCHES) / 1000;
}

static void print_small(struct small *s)
{
	const struct param params[] = {
		{ .key = "shape", .text = "cartpole" },
		{ .key = "batch", .number = BATCH },
		{ .key = "capacity", .number = SMALL_SLOTS },
		{ .key = "pages", .text = page_kind_name(s->pool.pages.kind) },
		{ .key = "seed", .number = s->b->seed },
	};
	const struct result gather = { "gather_us", "us", false, params, ARRAY_LEN(params) };
	const struct result load = { "load_us", "us", false, params, ARRAY_LEN(params) };
	const struct result line = { "calib_line_ns", "ns", false, params, ARRAY_LEN(params) };

	micro_print(s->b, &line, &s->line);
	micro_print(s->b, &load, &s->prefetch);
	micro_print(s->b, &gather, &s->gather);
}

static int small_window(void *ctx, uint32_t index)
{
	struct small *s = ctx;
	struct rng rng;

	(void)index;
	rng_seed(&rng, s->b->seed, s->line.n);
	for (uint32_t i = 0; i < SMALL_BATCHES; i++)
		choose_windows(&s->pool, &rng, 2, s->windows[i]);
	series_add(&s->line, yardstick_line_ns(s->pool.pages.ptr, s->pool.pages.bytes,
					       s->b->seed + s->line.n));
	series_add(&s->prefetch, time_small(s, false));
	series_add(&s->gather, time_small(s, true));
	return 0;
}

static bool measure_small(struct micro *b, enum page_kind kind)
{
	static struct small s;
	const struct micro_cases cases = { "cartpole rows", 1, small_window, &s };
	bool ok;

	memset(&s, 0, sizeof(s));
	s.b = b;
	s.pool = (struct pool){ .slots = SMALL_SLOTS,
				.row_bytes = SMALL_TAIL + sizeof(struct row_tail),
				.tail_off = SMALL_TAIL };
	s.out = mem_aligned(64, 64 * BATCH);
	if (!s.out || !open_pool(&s.pool, kind))
		return false;
	plan_small(&s);
	ok = micro_run(b, &cases) == 0;
	if (ok)
		print_small(&s);
	pages_free(&s.pool.pages);
	mem_free(s.out);
	return ok;
}

/* -------- frames -------- */

enum copy { BY_MEMCPY, BY_COPY, BY_STREAM, COPIES };

struct frames {
	struct micro *b;
	struct pool pool;
	struct pages buffers[BUFFERS_MAX];
	uint32_t n_buffers;
	bool dense;
	struct rng rng;
	struct series gbps[COPIES], share[COPIES];
};

static uint64_t frames_bytes(const struct frames *f)
{
	uint64_t rows = f->dense ? 2 * STACK : window_all_rows(STACK, 1);

	return rows * FRAME * BATCH;
}

static void gather_frames(const struct frames *f, uint8_t *out, const uint8_t *const *windows,
			  bool stream)
{
	uint64_t stack_bytes = (uint64_t)STACK * FRAME;
	uint64_t all_bytes = (uint64_t)window_all_rows(STACK, 1) * FRAME;
	const struct window_output dense[] = {
		{ WINDOW_STACK, 0, FRAME, DTYPE_U8, out, stack_bytes },
		{ WINDOW_NEXT, 0, FRAME, DTYPE_U8, out + stack_bytes * BATCH, stack_bytes },
	};
	const struct window_output all = { WINDOW_ALL, 0, FRAME, DTYPE_U8, out, all_bytes };
	const struct window_plan plan = { .row_bytes = f->pool.row_bytes,
					  .tail_off = FRAME_TAIL,
					  .stack = STACK,
					  .future = 1,
					  .n_step = 1,
					  .has_obs = true,
					  .stream_stores = stream,
					  .gamma = 0.99,
					  .n_outputs = f->dense ? 2 : 1,
					  .outputs = f->dense ? dense : &all };
	uint32_t at[BATCH];

	number_items(at);
	window_gather(&plan, windows, at, BATCH);
}

/* GB/s over a few batches, each into the next buffer. */
static double time_frames(const struct frames *f, enum copy by, struct rng *rng)
{
	uint64_t bytes = frames_bytes(f), ns = 0;

	for (uint32_t r = 0; r < FRAME_ROUNDS; r++) {
		uint8_t *out = f->buffers[r % f->n_buffers].ptr;
		const uint8_t *windows[BATCH], *rows = f->pool.pages.ptr;
		uint64_t from = rng_uniform_u64(rng, f->pool.pages.bytes - bytes), start;

		choose_windows(&f->pool, rng, STACK + 1, windows);
		start = time_wall_ns();
		if (by == BY_MEMCPY)
			memcpy(out, rows + align_down(from, 64), bytes);
		else
			gather_frames(f, out, windows, by == BY_STREAM);
		ns += time_wall_ns() - start;
		yardstick_use(out);
	}
	return (double)(bytes * FRAME_ROUNDS) / (double)ns;
}

static void print_frames(struct frames *f)
{
	static const char *const names[COPIES] = { "memcpy", "copy", "stream" };

	for (uint32_t by = 0; by < COPIES; by++) {
		const struct param params[] = {
			{ .key = "shape", .text = "atari" },
			{ .key = "layout", .text = f->dense ? "dense" : "window" },
			{ .key = "by", .text = names[by] },
			{ .key = "batch", .number = BATCH },
			{ .key = "buffers", .number = f->n_buffers },
			{ .key = "vector", .text = cpu_level_name(cpu_level()) },
			{ .key = "seed", .number = f->b->seed },
		};
		const struct result gbps = { "copy_gbps", "GB/s", true, params, ARRAY_LEN(params) };
		const struct result share = { "of_memcpy", "", true, params, ARRAY_LEN(params) };

		micro_print(f->b, &gbps, &f->gbps[by]);
		if (by != BY_MEMCPY)
			micro_print(f->b, &share, &f->share[by]);
	}
}

static int frames_window(void *ctx, uint32_t index)
{
	struct frames *f = ctx;
	double memcpy_gbps = time_frames(f, BY_MEMCPY, &f->rng);

	(void)index;
	series_add(&f->gbps[BY_MEMCPY], memcpy_gbps);
	for (uint32_t by = BY_COPY; by < COPIES; by++) {
		double gbps = time_frames(f, (enum copy)by, &f->rng);

		series_add(&f->gbps[by], gbps);
		series_add(&f->share[by], gbps / memcpy_gbps);
	}
	return 0;
}

static bool measure_frames(struct micro *b, bool dense, uint32_t n_buffers)
{
	static struct frames f;
	const struct micro_cases cases = { dense ? "dense frames" : "windows of frames", 1,
					   frames_window, &f };
	bool ok;

	memset(&f, 0, sizeof(f));
	f.b = b;
	f.dense = dense;
	f.n_buffers = n_buffers;
	f.pool = (struct pool){ .slots = 1u << 14,
				.row_bytes = FRAME_TAIL + sizeof(struct row_tail),
				.tail_off = FRAME_TAIL };
	if (!open_pool(&f.pool, PAGE_SMALL))
		return false;
	for (uint32_t i = 0; i < n_buffers; i++) {
		if (pages_alloc(frames_bytes(&f), PAGE_THP, &f.buffers[i]))
			return false;
		memset(f.buffers[i].ptr, 1, frames_bytes(&f));
	}
	rng_seed(&f.rng, b->seed, 7);
	ok = micro_run(b, &cases) == 0;
	if (ok)
		print_frames(&f);
	for (uint32_t i = 0; i < n_buffers; i++)
		pages_free(&f.buffers[i]);
	pages_free(&f.pool.pages);
	return ok;
}

int main(int argc, char **argv)
{
	/* static: the cases, which are static, point to it */
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
