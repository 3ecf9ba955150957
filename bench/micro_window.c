/*
 * Gathering windows of CartPole-shaped rows, in us per batch, and the loads alone. Frames are measured by
 * relive bench replay --shape atari.
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
#define SLOTS (1u << 20)
#define BATCHES 512u /* their rows are 16 MiB: never in the L2 cache */
#define ROUNDS 2u
#define TAIL 32u /* float obs[4], int64 action, float reward, tail */
#define ROW_BYTES (TAIL + (uint32_t)sizeof(struct row_tail))

static struct pages rows;
static struct window_output outputs[] = {
	{ WINDOW_STACK, 0, 16, DTYPE_F32, NULL, 16 },  { WINDOW_NEXT, 0, 16, DTYPE_F32, NULL, 16 },
	{ WINDOW_ANCHOR, 16, 8, DTYPE_I64, NULL, 8 },  { WINDOW_RETURN, 24, 4, DTYPE_F32, NULL, 4 },
	{ WINDOW_DISCOUNT, 0, 4, DTYPE_F32, NULL, 4 }, { WINDOW_STEPS, 0, 4, DTYPE_U32, NULL, 4 },
	{ WINDOW_VERSION, 0, 4, DTYPE_U32, NULL, 4 },
};
static const struct window_plan plan = {
	.row_bytes = ROW_BYTES,
	.tail_off = TAIL,
	.stack = 1,
	.future = 1,
	.n_step = 1,
	.has_obs = true,
	.gamma = 0.99,
	.n_outputs = ARRAY_LEN(outputs),
	.outputs = outputs,
};
static uint8_t *out;
static const uint8_t *windows[BATCHES][BATCH];
static uint32_t at[BATCH];

/* Measures one window: us to gather a batch, or only to load its rows; the batches rotate, so
   that each finds its rows cold. */
static int run_window(struct micro_case *c)
{
	bool gather = strcmp(c->result.metric, "gather_us") == 0;
	uint64_t start;
	struct rng rng;

	rng_seed(&rng, c->micro->seed, c->result.series.n);
	for (uint32_t i = 0; i < BATCHES * BATCH; i++)
		windows[i / BATCH][i % BATCH] =
			(const uint8_t *)rows.ptr + rng_uniform_u64(&rng, SLOTS - 2) * ROW_BYTES;
	start = time_wall_ns();
	for (uint32_t i = 0; i < ROUNDS * BATCHES; i++) {
		if (gather)
			window_gather(&plan, windows[i % BATCHES], at, BATCH);
		else
			window_prefetch(&plan, windows[i % BATCHES], BATCH);
	}
	yardstick_use(out);
	series_add(&c->result.series, (double)(time_wall_ns() - start) / (ROUNDS * BATCHES) / 1000);
	return 0;
}

static bool measure(struct micro *b, enum page_kind kind)
{
	struct micro_case c = {
		.run = run_window,
		.result = { .metric = "load_us",
			    .unit = "us",
			    .higher = false,
			    .params = { { .key = "shape", .text = "cartpole" },
					{ .key = "batch", .number = BATCH },
					{ .key = "capacity", .number = SLOTS },
					{ .key = "pages", .text = page_kind_name(kind) },
					{ .key = "seed", .number = b->seed } } },
	};
	uint8_t *row, *to;
	bool ok;

	out = mem_aligned(64, 64 * BATCH);
	if (!out || pages_alloc((size_t)SLOTS * ROW_BYTES, kind, &rows))
		return false;
	to = out;
	for (size_t i = 0; i < ARRAY_LEN(outputs); i++) {
		outputs[i].out = to;
		to += outputs[i].item_bytes * BATCH;
	}
	for (uint32_t i = 0; i < BATCH; i++)
		at[i] = i;
	row = rows.ptr;
	for (uint32_t i = 0; i < SLOTS; i++, row += ROW_BYTES) {
		struct row_tail tail = { .step = 1000 + i % 50,
					 .flags = i % 50 == 49 ? ROW_TERMINATED : 0 };

		memset(row, (int)i, TAIL);
		memcpy(row + TAIL, &tail, sizeof(tail));
	}
	micro_add_yardsticks(b, rows.ptr, rows.bytes, c.result.params);
	micro_add(b, &c);
	c.result.metric = "gather_us";
	micro_add(b, &c);
	ok = micro_run(b, "rows") == 0;
	pages_free(&rows);
	mem_free(out);
	return ok;
}

int main(int argc, char **argv)
{
	static struct micro b = {
		.name = "micro_window",
		.help = "Gathers batches of windows from rows of CartPole, in us.",
	};
	int status;

	if (!micro_init(&b, argc, argv, &status))
		return status;
	return micro_finish(&b, measure(&b, PAGE_SMALL) && measure(&b, PAGE_THP));
}
