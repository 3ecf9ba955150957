/*
 * Windows of random trajectories against a reference that knows episodes, not rows.
 */
#include "ds/window/values.h"
#include "ds/window/window.h"

#include "tests/support/test.h"

#include "base/mem/alloc.h"
#include "base/bits.h"
#include "base/os/cpu.h"
#include "base/rng.h"

#include <string.h>

#define ROWS 600
#define FRAME 520
#define BATCH 100

enum end { ENDS_TERMINATED, ENDS_FINAL, ENDS_BARE, ENDS_SILENT };

/* One row as stored: a step, a final observation or a filler. */
struct row {
	float obs[4];
	float next[4];
	double reward64;
	int64_t action;
	uint16_t two;
	uint8_t one;
	uint8_t odd[3];
	uint8_t wide[32];
	uint8_t long_[45];
	uint8_t frame[FRAME];
	float reward32;
	_Alignas(8) struct row_tail tail;
};

/* A row as the reference implementation keeps it. */
struct place {
	uint32_t episode_row; /* row of step 0 of its episode */
	uint32_t step;
	uint32_t length; /* steps of the episode */
	enum end end;
	bool is_step;
};

struct world {
	struct row rows[ROWS];
	struct place places[ROWS];
	uint16_t flags[ROWS];
	uint32_t steps[ROWS];
	struct view_desc view;
	struct window_plan plan;
	struct rng rng;
	bool has_obs;
};

static struct world *w;

/* -------- trajectories -------- */

static void fill_row(uint32_t i)
{
	struct row *row = &w->rows[i];

	for (int k = 0; k < 4; k++) {
		row->obs[k] = (float)(i * 10 + (uint32_t)k);
		row->next[k] = (float)(i * 10 + (uint32_t)k) + 0.5f;
	}
	row->action = -(int64_t)i;
	row->two = (uint16_t)(i * 3);
	row->one = (uint8_t)i;
	memset(row->odd, (int)i, sizeof(row->odd));
	memset(row->wide, (int)i + 1, sizeof(row->wide));
	for (uint32_t k = 0; k < sizeof(row->long_); k++)
		row->long_[k] = (uint8_t)(i * 5 + k);
	for (int k = 0; k < FRAME; k++)
		row->frame[k] = (uint8_t)(i * 7 + (uint32_t)k);
	row->reward64 = (double)rng_uniform_u64(&w->rng, 100) - 50;
	row->reward32 = (float)row->reward64 / 4;
	row->tail.policy_version = i + 1000;
}

static void set_flags(uint32_t i, uint16_t flags, uint32_t step)
{
	w->rows[i].tail.flags = w->flags[i] = flags;
	w->rows[i].tail.step = w->steps[i] = step;
}

static uint16_t step_flags(const struct place *at)
{
	uint16_t flags = at->step ? 0 : ROW_FIRST;

	if (at->step + 1 == at->length && at->end == ENDS_TERMINATED)
		flags |= ROW_TERMINATED;
	if (at->step + 1 == at->length && (at->end == ENDS_FINAL || at->end == ENDS_BARE))
		flags |= ROW_TRUNCATED;
	return flags;
}

/* An episode from row i on; returns the row behind it. */
static uint32_t add_episode(uint32_t i)
{
	struct place at = {
		.episode_row = i,
		.length = 1 + (uint32_t)rng_uniform_u64(&w->rng, 12),
		.end = (enum end)rng_uniform_u64(&w->rng, 4),
		.is_step = true,
	};
	uint32_t behind = i + at.length;

	if (behind + 4 > ROWS)
		return ROWS;
	for (; at.step < at.length; at.step++, i++) {
		set_flags(i, step_flags(&at), at.step);
		w->places[i] = at;
	}
	if (at.end == ENDS_FINAL)
		set_flags(behind++, ROW_FINAL, at.length);
	if (at.end == ENDS_SILENT && rng_next_u64(&w->rng) % 2)
		set_flags(behind++, ROW_FILLER, 0);
	return behind;
}

static void make_world(uint64_t seed)
{
	uint32_t head = w->view.window - 1;

	memset(w->places, 0, sizeof(w->places));
	rng_seed(&w->rng, seed, 1);
	for (uint32_t i = 0; i < ROWS; i++) {
		fill_row(i);
		set_flags(i, ROW_FILLER, 0);
	}
	for (uint32_t i = head; i < ROWS;)
		i = add_episode(i);
}

/* -------- the reference -------- */

/* Steps of the episode that have a return: for the others the next step is unknown. */
static uint32_t expected_steps(const struct place *at)
{
	bool is_bare = at->end == ENDS_BARE || at->end == ENDS_SILENT;

	return at->length - (w->has_obs && is_bare ? 1 : 0);
}

/* Steps of the return from step t of its episode; 0 = it is no item. */
static uint32_t expected_k(const struct place *at)
{
	return (uint32_t)min_u64(w->plan.n_step, expected_steps(at) - at->step);
}

static bool expected_item(uint32_t anchor)
{
	const struct place *at = &w->places[anchor];
	uint32_t steps = at->step + 1;

	if (!at->is_step || expected_k(at) == 0)
		return false;
	return w->view.period == 1 || steps == expected_steps(at) ||
	       (steps >= w->view.stack && (steps - w->view.stack) % w->view.period == 0);
}

static bool expected_end(const struct place *at)
{
	return at->end == ENDS_TERMINATED && at->step + expected_k(at) == at->length;
}

/* Row that holds the observation `back` steps before step t + k. */
static uint32_t obs_row(const struct place *at, uint32_t later, uint32_t back)
{
	uint32_t t = at->step + later;

	return at->episode_row + (t < back ? 0 : t - back);
}

/* -------- gathering -------- */

enum {
	OUT_OBS,
	OUT_NEXT_OBS,
	OUT_FRAME,
	OUT_NEXT_FRAME,
	OUT_ALL,
	OUT_ALL_FRAMES,
	OUT_ALL_ONES,
	OUT_ALL_LONG,
	OUT_ACTION,
	OUT_TWO,
	OUT_ONE,
	OUT_ODD,
	OUT_WIDE,
	OUT_ONE_FRAME,
	OUT_RETURN32,
	OUT_RETURN64,
	OUT_LAST,
	OUT_LAST_FRAME,
	OUT_DISCOUNT,
	OUT_STEPS,
	OUT_VERSION,
	OUTPUTS
};

#define COLUMN(kind, column, dtype) \
	{ \
		kind, offsetof(struct row, column), sizeof(((struct row *)0)->column), dtype, \
			NULL, 0 \
	}

static struct window_output outputs[OUTPUTS];
static const struct window_output columns[OUTPUTS] = {
	[OUT_OBS] = COLUMN(WINDOW_STACK, obs, DTYPE_F32),
	[OUT_NEXT_OBS] = COLUMN(WINDOW_NEXT, obs, DTYPE_F32),
	[OUT_FRAME] = COLUMN(WINDOW_STACK, frame, DTYPE_U8),
	[OUT_NEXT_FRAME] = COLUMN(WINDOW_NEXT, frame, DTYPE_U8),
	[OUT_ALL] = COLUMN(WINDOW_ALL, obs, DTYPE_F32),
	[OUT_ALL_FRAMES] = COLUMN(WINDOW_ALL, frame, DTYPE_U8),
	[OUT_ALL_ONES] = COLUMN(WINDOW_ALL, one, DTYPE_U8),
	[OUT_ALL_LONG] = COLUMN(WINDOW_ALL, long_, DTYPE_U8),
	[OUT_ACTION] = COLUMN(WINDOW_ANCHOR, action, DTYPE_I64),
	[OUT_TWO] = COLUMN(WINDOW_ANCHOR, two, DTYPE_U16),
	[OUT_ONE] = COLUMN(WINDOW_ANCHOR, one, DTYPE_U8),
	[OUT_ODD] = COLUMN(WINDOW_ANCHOR, odd, DTYPE_U8),
	[OUT_WIDE] = COLUMN(WINDOW_ANCHOR, wide, DTYPE_U8),
	[OUT_ONE_FRAME] = COLUMN(WINDOW_ANCHOR, frame, DTYPE_U8),
	[OUT_RETURN32] = COLUMN(WINDOW_RETURN, reward32, DTYPE_F32),
	[OUT_RETURN64] = COLUMN(WINDOW_RETURN, reward64, DTYPE_F64),
	[OUT_LAST] = COLUMN(WINDOW_LAST, next, DTYPE_F32),
	[OUT_LAST_FRAME] = COLUMN(WINDOW_LAST, frame, DTYPE_U8),
	[OUT_DISCOUNT] = { WINDOW_DISCOUNT, 0, 4, DTYPE_F32, NULL, 0 },
	[OUT_STEPS] = { WINDOW_STEPS, 0, 4, DTYPE_U32, NULL, 0 },
	[OUT_VERSION] = { WINDOW_VERSION, 0, 4, DTYPE_U32, NULL, 0 },
};

static uint64_t rows_of(uint32_t c)
{
	uint32_t stack = w->plan.stack;

	switch (columns[c].kind) {
	case WINDOW_STACK:
	case WINDOW_NEXT:
		return stack;
	case WINDOW_ALL:
		return window_all_rows(stack, w->plan.n_step);
	default:
		return 1;
	}
}

/* Without later rows there is nothing that next and whole windows could come from. */
static bool is_used(uint32_t c)
{
	return w->has_obs || (columns[c].kind != WINDOW_NEXT && columns[c].kind != WINDOW_ALL);
}

static void open_outputs(struct window_output *used)
{
	w->plan.n_outputs = 0;
	w->plan.outputs = used;
	for (uint32_t c = 0; c < OUTPUTS; c++) {
		outputs[c] = columns[c];
		outputs[c].item_bytes = rows_of(c) * columns[c].bytes;
		outputs[c].out = mem_aligned(64, align_up(outputs[c].item_bytes * BATCH, 64));
		memset(outputs[c].out, 0xee, outputs[c].item_bytes * BATCH);
		if (is_used(c))
			used[w->plan.n_outputs++] = outputs[c];
	}
}

static void close_outputs(void)
{
	for (uint32_t c = 0; c < OUTPUTS; c++)
		mem_free(outputs[c].out);
}

static const void *item(uint32_t c, uint32_t i, uint64_t row)
{
	return outputs[c].out + i * outputs[c].item_bytes + row * outputs[c].bytes;
}

/* -------- comparing -------- */

static void assert_stacks(uint32_t i, const struct place *at)
{
	uint32_t stack = w->plan.stack, k = expected_k(at);
	uint32_t next_at = window_next_at(stack, w->plan.n_step);
	bool has_next = w->has_obs && !expected_end(at);

	for (uint32_t s = 0; s < stack; s++) {
		const struct row *now = &w->rows[obs_row(at, 0, stack - 1 - s)];
		const struct row *next = &w->rows[obs_row(at, k, stack - 1 - s)];

		assert_memory_equal(item(OUT_OBS, i, s), now->obs, sizeof(now->obs));
		assert_memory_equal(item(OUT_FRAME, i, s), now->frame, FRAME);
		if (!w->has_obs)
			continue;
		assert_memory_equal(item(OUT_ALL, i, s), now->obs, sizeof(now->obs));
		assert_memory_equal(item(OUT_ALL_FRAMES, i, s), now->frame, FRAME);
		assert_memory_equal(item(OUT_ALL_ONES, i, s), &now->one, 1);
		assert_memory_equal(item(OUT_ALL_LONG, i, s), now->long_, sizeof(now->long_));
		if (!has_next)
			continue;
		assert_memory_equal(item(OUT_NEXT_OBS, i, s), next->obs, sizeof(next->obs));
		assert_memory_equal(item(OUT_NEXT_FRAME, i, s), next->frame, FRAME);
		assert_memory_equal(item(OUT_ALL, i, next_at + s), next->obs, sizeof(next->obs));
		assert_memory_equal(item(OUT_ALL_FRAMES, i, next_at + s), next->frame, FRAME);
		assert_memory_equal(item(OUT_ALL_ONES, i, next_at + s), &next->one, 1);
		assert_memory_equal(item(OUT_ALL_LONG, i, next_at + s), next->long_,
				    sizeof(next->long_));
	}
}

static void assert_return(uint32_t i, uint32_t anchor, const struct place *at)
{
	uint32_t k = expected_k(at), steps;
	double want32 = 0, want64 = 0, got64;
	float got32, discount;

	for (uint32_t j = k; j-- > 0;) {
		want64 = w->rows[anchor + j].reward64 + w->plan.gamma * want64;
		want32 = (double)w->rows[anchor + j].reward32 + w->plan.gamma * want32;
	}
	memcpy(&got32, item(OUT_RETURN32, i, 0), 4);
	memcpy(&got64, item(OUT_RETURN64, i, 0), 8);
	memcpy(&steps, item(OUT_STEPS, i, 0), 4);
	memcpy(&discount, item(OUT_DISCOUNT, i, 0), 4);
	assert_true(fabs((double)got32 - want32) < 1e-4);
	assert_true(fabs(got64 - want64) < 1e-11);
	assert_int_equal(steps, k);
	assert_true(fabs((double)discount - (expected_end(at) ? 0 : pow(w->plan.gamma, k))) < 1e-6);
}

static void assert_item(uint32_t i, uint32_t anchor)
{
	const struct place *at = &w->places[anchor];
	const struct row *row = &w->rows[anchor];
	uint32_t last = anchor + expected_k(at) - 1;

	assert_stacks(i, at);
	assert_return(i, anchor, at);
	assert_memory_equal(item(OUT_ACTION, i, 0), &row->action, 8);
	assert_memory_equal(item(OUT_TWO, i, 0), &row->two, 2);
	assert_memory_equal(item(OUT_ONE, i, 0), &row->one, 1);
	assert_memory_equal(item(OUT_ODD, i, 0), row->odd, 3);
	assert_memory_equal(item(OUT_WIDE, i, 0), row->wide, 32);
	assert_memory_equal(item(OUT_ONE_FRAME, i, 0), row->frame, FRAME);
	assert_memory_equal(item(OUT_VERSION, i, 0), &row->tail.policy_version, 4);
	assert_memory_equal(item(OUT_LAST, i, 0), w->rows[last].next, sizeof(row->next));
	assert_memory_equal(item(OUT_LAST_FRAME, i, 0), w->rows[last].frame, FRAME);
}

/* Fills the large outputs again, by their lists. */
static void copy_by_lists(const uint8_t *const *windows, const uint32_t *at, uint32_t n)
{
	struct window_plan plan = w->plan;
	struct window_output listed[OUTPUTS];
	struct window_value *lists[OUTPUTS];

	plan.n_outputs = 0;
	plan.outputs = listed;
	for (uint32_t c = 0; c < w->plan.n_outputs; c++) {
		const struct window_output *o = &w->plan.outputs[c];

		if (!window_is_listed(o))
			continue;
		assert_int_equal(o->bytes, FRAME);
		memset(o->out, 0xee, o->item_bytes * BATCH);
		lists[plan.n_outputs] = mem_array((size_t)n * window_values_of(&plan, o),
						  sizeof(struct window_value));
		listed[plan.n_outputs++] = *o;
	}
	assert_int_equal(plan.n_outputs, w->has_obs ? 5 : 3);
	window_list_values(&plan, windows, at, n, lists);
	for (uint32_t c = 0; c < plan.n_outputs; c++) {
		for (uint32_t v = 0; v < n * window_values_of(&plan, &listed[c]); v++)
			memcpy((void *)(uintptr_t)lists[c][v].to,
			       (const void *)(uintptr_t)lists[c][v].from, FRAME);
		mem_free(lists[c]);
	}
}

/* Gathers a batch of random anchors of the list and compares each. */
static void gather_and_compare(const uint32_t *anchors, uint32_t n_anchors, bool in_order)
{
	const uint8_t *windows[BATCH];
	uint32_t at[BATCH], chosen[BATCH], n = 1 + (uint32_t)rng_uniform_u64(&w->rng, BATCH);
	struct window_output used[OUTPUTS];

	open_outputs(used);
	for (uint32_t i = 0; i < n; i++) {
		chosen[i] = anchors[rng_uniform_u64(&w->rng, n_anchors)];
		windows[i] = (const uint8_t *)&w->rows[chosen[i] - (w->plan.stack - 1)];
		at[i] = in_order ? i : n - 1 - i;
	}
	window_prefetch(&w->plan, windows, n);
	window_gather(&w->plan, windows, at, n);
	for (uint32_t i = 0; i < n; i++)
		assert_item(at[i], chosen[i]);
	copy_by_lists(windows, at, n);
	for (uint32_t i = 0; i < n; i++)
		assert_item(at[i], chosen[i]);
	close_outputs();
}

/* -------- tests -------- */

static void set_view(uint32_t stack, uint32_t n_step, bool has_obs, uint32_t period)
{
	uint32_t next = has_obs ? 1 : 0, future = n_step - 1 + next;

	if (period > 1 && future < 1 + next)
		future = 1 + next;
	w->has_obs = has_obs;
	w->view = (struct view_desc){ .stack = (uint16_t)stack,
				      .n_step = (uint16_t)n_step,
				      .period = period,
				      .window = stack + future,
				      .future = future };
	w->plan = (struct window_plan){ .row_bytes = sizeof(struct row),
					.tail_off = offsetof(struct row, tail),
					.stack = stack,
					.future = w->view.future,
					.n_step = n_step,
					.has_obs = has_obs,
					.gamma = 0.9 };
}

/* All items of the world, as the reference sees them; and window_is_item agrees on each row. */
static uint32_t list_anchors(uint32_t *anchors)
{
	uint32_t n = 0, n_step = w->plan.n_step;

	w->plan.n_step = w->view.n_step;
	for (uint32_t leaf = w->view.window - 1; leaf < ROWS; leaf++) {
		uint32_t from = leaf + 1 - w->view.window, anchor = leaf - w->view.future;
		struct window_flags rows = { w->flags + from, w->steps + from };
		bool is_item = window_is_item(&w->view, &rows, w->has_obs);

		assert_int_equal(is_item, expected_item(anchor));
		if (is_item)
			anchors[n++] = anchor;
	}
	w->plan.n_step = n_step;
	return n;
}

static void compare_view(uint64_t seed)
{
	uint32_t anchors[ROWS], n;

	make_world(seed);
	n = list_anchors(anchors);
	assert_true(n > 0);
	for (uint32_t n_step = 1; n_step <= w->view.n_step; n_step++) {
		w->plan.n_step = n_step;
		for (int way = 0; way < 4; way++) {
			w->plan.stream_stores = way & 1;
			gather_and_compare(anchors, n, way & 2);
		}
	}
}

static void compare_all(const char *name, bool has_obs)
{
	uint64_t seed = test_seed(name, 5);

	for (uint32_t stack = 1; stack <= 5; stack++)
		for (uint32_t n_step = 1; n_step <= 5; n_step++) {
			set_view(stack, n_step, has_obs, 1 + (stack + n_step) % 3);
			compare_view(seed++);
		}
}

TEST(window_gather__next_from_later_rows)
{
	compare_all("window_gather__next_from_later_rows", true);
}

TEST(window_gather__next_stored)
{
	compare_all("window_gather__next_stored", false);
}

TEST(window_gather__same_at_every_vector_width)
{
	for (int level = CPU_PLAIN; level <= CPU_AVX512; level++) {
		cpu_level_limit((enum cpu_level)level);
		set_view(4, 1, true, 1);
		compare_view(77);
	}
	cpu_level_limit(CPU_AVX512);
}

TEST(window_gather__nothing)
{
	struct window_output used[OUTPUTS];

	set_view(2, 2, true, 1);
	open_outputs(used);
	window_gather(&w->plan, NULL, NULL, 0);
	assert_int_equal(*(const uint8_t *)item(OUT_ONE, 0, 0), 0xee);
	close_outputs();
}

/* Rows in the middle of being overwritten may say anything: nothing outside the window is read. */
TEST(window_gather__garbage_stays_inside_the_window)
{
	const uint8_t *windows[BATCH];
	struct window_output used[OUTPUTS];
	uint32_t at[BATCH];
	struct row *rows;

	set_view(3, 4, true, 1);
	rng_seed(&w->rng, test_seed("window_gather__garbage_stays_inside_the_window", 9), 0);
	rows = mem_aligned(64, align_up(w->view.window * sizeof(*rows), 64));
	for (int round = 0; round < 200; round++) {
		uint64_t *words = (uint64_t *)(void *)rows;

		for (size_t i = 0; i < w->view.window * sizeof(*rows) / 8; i++)
			words[i] = rng_next_u64(&w->rng);
		for (uint32_t i = 0; i < BATCH; i++) {
			windows[i] = (const uint8_t *)rows;
			at[i] = i;
		}
		open_outputs(used);
		window_gather(&w->plan, windows, at, BATCH);
		copy_by_lists(windows, at, BATCH);
		close_outputs();
	}
	mem_free(rows);
}

TEST(window_next_at__shares_what_it_can)
{
	assert_int_equal(window_next_at(4, 1), 1);
	assert_int_equal(window_all_rows(4, 1), 5);
	assert_int_equal(window_next_at(1, 3), 3);
	assert_int_equal(window_next_at(4, 4), 4);
	assert_int_equal(window_next_at(4, 3), 4); /* a cut return would need other rows */
	assert_int_equal(window_all_rows(4, 3), 8);
}

static bool judge(uint16_t anchor, uint16_t next, bool has_next)
{
	struct view_desc view = { .stack = 1, .n_step = 1, .period = 1, .window = 2, .future = 1 };
	uint16_t flags[] = { anchor, next };
	uint32_t steps[] = { 5, 6 };
	struct window_flags rows = { flags, steps };

	return window_is_item(&view, &rows, has_next);
}

/* Sequences of 3 steps every 2 steps; the anchor is this step. */
static bool judge_period(uint32_t step, uint16_t anchor, uint16_t next, uint16_t after)
{
	struct view_desc view = { .stack = 3, .n_step = 1, .period = 2, .window = 5, .future = 2 };
	uint16_t flags[] = { 0, 0, anchor, next, after };
	uint32_t steps[] = { step - 2, step - 1, step, step + 1, step + 2 };
	struct window_flags rows = { flags, steps };

	return window_is_item(&view, &rows, true);
}

TEST(window_is_item__by_hand)
{
	assert_true(judge(0, 0, true));
	assert_true(judge(ROW_REPEATED, 0, true));
	assert_false(judge(0, ROW_REPEATED, true));
	assert_false(judge(ROW_FINAL, ROW_FIRST, false));
	assert_false(judge(ROW_FILLER, ROW_FIRST, false));
	assert_true(judge(ROW_TERMINATED, ROW_FIRST, true));
	assert_true(judge(ROW_TRUNCATED, ROW_FINAL, true));
	assert_false(judge(ROW_TRUNCATED, ROW_FIRST, true));
	assert_true(judge(ROW_TRUNCATED, ROW_FIRST, false));
	assert_false(judge(0, ROW_FILLER, true));
	assert_true(judge(0, ROW_FINAL, true));
}

TEST(window_is_item__of_a_period)
{
	/* Sequences begin at 0, 2, 4: they end at 2, 4, 6. */
	assert_false(judge_period(1, ROW_FIRST, 0, 0));
	assert_true(judge_period(2, 0, 0, 0));
	assert_false(judge_period(3, 0, 0, 0));
	assert_true(judge_period(4, 0, 0, 0));
	assert_false(judge_period(UINT32_MAX, 0, 0, ROW_REPEATED));
	/* The last step of an episode, wherever it is. */
	assert_true(judge_period(0, ROW_FIRST | ROW_TERMINATED, ROW_FIRST, 0));
	assert_true(judge_period(3, ROW_TERMINATED, ROW_FIRST, 0));
	assert_true(judge_period(3, ROW_TRUNCATED, ROW_FINAL, 0));
	assert_true(judge_period(3, 0, ROW_FINAL, ROW_FIRST));
	assert_false(judge_period(3, 0, ROW_TERMINATED, ROW_FIRST));
	assert_false(judge_period(3, 0, ROW_TRUNCATED, ROW_FINAL));
	/* The step after it has no known successor: this is the last item. */
	assert_true(judge_period(3, 0, ROW_TRUNCATED, ROW_FIRST));
	assert_true(judge_period(3, 0, 0, ROW_FILLER));
	assert_false(judge_period(3, 0, ROW_FIRST, 0));
}

static int setup(void **state)
{
	(void)state;
	w = mem_aligned(64, align_up(sizeof(*w), 64));
	assert_non_null(w);
	memset(w, 0, sizeof(*w));
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	mem_free(w);
	return 0;
}

int main(void)
{
	return test_run(setup, teardown);
}
