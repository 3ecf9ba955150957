#include "tests/support/attack/crash_rows.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const struct rlv_column crash_columns[CRASH_COLUMNS] = {
	{ .name = "obs", .dtype = RLV_U32, .role = RLV_OBS, .ndim = 1, .shape = { CRASH_OBS } },
	{ .name = "id", .dtype = RLV_U64 },
	{ .name = "reward", .dtype = RLV_F32, .role = RLV_REWARD },
	{ .name = "action", .dtype = RLV_U16, .ndim = 1, .shape = { 3 } },
	{ .name = "check", .dtype = RLV_U32 },
};

const struct rlv_view crash_views[CRASH_VIEWS] = {
	{ .stack = CRASH_STACK, .n_step = CRASH_STEPS, .alpha = 1.0 },
	{ .selector = RLV_UNIFORM },
};

struct rlv_table_opts crash_table_opts(uint64_t capacity)
{
	struct rlv_table_opts opts = RLV_TABLE_OPTS_INIT;

	opts.columns = crash_columns;
	opts.n_columns = CRASH_COLUMNS;
	opts.views = crash_views;
	opts.n_views = CRASH_VIEWS;
	opts.capacity = capacity;
	return opts;
}

/* -------- the pattern -------- */

static uint32_t mix(uint32_t a, uint32_t b)
{
	uint64_t x = ((uint64_t)a << 32 | b) * 0x9e3779b97f4a7c15u;

	x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9u;
	return (uint32_t)(x >> 32);
}

/*
 * No crc32c: a row's own one is the same for all bytes that end with their crc32c, so that it would not
 * tell a row that is torn between two observations.
 */
static uint32_t sum_of(uint32_t sum, const void *bytes, size_t n)
{
	const uint8_t *at = bytes;

	for (size_t i = 0; i < n; i++)
		sum = mix(sum, at[i]);
	return sum;
}

static void make_obs(uint32_t obs[CRASH_OBS], uint32_t writer, uint32_t n)
{
	obs[0] = writer;
	obs[1] = n;
	for (uint32_t i = 2; i < CRASH_OBS - 1; i++)
		obs[i] = mix(writer + i, n);
	obs[CRASH_OBS - 1] = sum_of(0, obs, 4 * (CRASH_OBS - 1));
}

static float reward_of(uint32_t n)
{
	return (float)(n % 64);
}

static void make_action(uint16_t action[3], uint32_t writer, uint32_t n)
{
	for (uint32_t i = 0; i < 3; i++)
		action[i] = (uint16_t)mix(writer, n * 3 + i);
}

static uint32_t make_check(uint32_t writer, uint32_t n)
{
	uint64_t id = (uint64_t)writer << 32 | n;
	float reward = reward_of(n);
	uint32_t obs[CRASH_OBS];
	uint16_t action[3];
	uint32_t sum;

	make_obs(obs, writer, n);
	make_action(action, writer, n);
	sum = sum_of(0, obs, sizeof(obs));
	sum = sum_of(sum, &id, sizeof(id));
	sum = sum_of(sum, &reward, sizeof(reward));
	return sum_of(sum, action, sizeof(action));
}

float crash_priority(uint32_t n, uint32_t salt)
{
	return 1.0f + (float)(mix(n, salt) % 64) / 64.0f;
}

void crash_rows_fill(struct crash_rows *rows, uint32_t writer, uint32_t first, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		uint32_t step = first + i;

		make_obs(rows->obs[i], writer, step);
		rows->id[i] = (uint64_t)writer << 32 | step;
		rows->reward[i] = reward_of(step);
		make_action(rows->action[i], writer, step);
		rows->check[i] = make_check(writer, step);
		rows->flags[i] = step % CRASH_EPISODE == CRASH_EPISODE - 1 ? RLV_TERMINATED : 0;
		rows->td[i] = crash_priority(step, 0);
	}
	rows->columns[0] = rows->obs;
	rows->columns[1] = rows->id;
	rows->columns[2] = rows->reward;
	rows->columns[3] = rows->action;
	rows->columns[4] = rows->check;
	rows->steps = (struct rlv_steps)RLV_STEPS_INIT;
	rows->steps.n = n;
	rows->steps.columns = rows->columns;
	rows->steps.flags = rows->flags;
	rows->steps.td_error = rows->td;
}

/* -------- checks -------- */

const struct rlv_array *crash_array(const struct rlv_batch *batch, const char *name)
{
	for (uint32_t i = 0; i < batch->n_arrays; i++)
		if (strcmp(batch->arrays[i].name, name) == 0)
			return &batch->arrays[i];
	return NULL;
}

const uint64_t *crash_ids(const struct rlv_batch *batch)
{
	return crash_array(batch, "id")->data;
}

static const void *at(const struct rlv_array *array, uint32_t item)
{
	return (const uint8_t *)array->data + (int64_t)item * array->strides[0];
}

struct judge {
	const struct rlv_batch *batch;
	char *why;
	uint32_t item, writer, n;
};

static bool __attribute__((format(printf, 2, 3)))
wrong(struct judge *judge, const char *format, ...)
{
	char text[CRASH_WHY / 2];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (!judge->why[0])
		snprintf(judge->why, CRASH_WHY, "item %u (writer %u step %u): %s", judge->item,
			 judge->writer, judge->n, text);
	return false;
}

/*
 * A stack that ends at step last: each observation whole, one after the other, and what lies before
 * the episode's first replaced by that.
 */
static bool check_stack(struct judge *judge, const char *name, uint32_t last)
{
	const struct rlv_array *array = crash_array(judge->batch, name);
	const uint32_t *obs = at(array, judge->item);
	uint32_t depth = (uint32_t)(array->ndim == 3 ? array->shape[1] : 1);
	uint32_t first = last - last % CRASH_EPISODE;

	for (uint32_t k = 0; k < depth; k++, obs += CRASH_OBS) {
		uint32_t back = depth - 1 - k, want[CRASH_OBS];
		uint32_t n = last - first >= back ? last - back : first;

		make_obs(want, judge->writer, n);
		if (memcmp(obs, want, sizeof(want)) != 0)
			return wrong(judge, "%s[%u] is of writer %u step %u, want step %u", name, k,
				     obs[0], obs[1], n);
	}
	return true;
}

static bool check_return(struct judge *judge, uint32_t *steps_out)
{
	const float *reward = at(crash_array(judge->batch, "reward"), judge->item);
	const float *discount = at(crash_array(judge->batch, "discount"), judge->item);
	const uint32_t *steps = at(crash_array(judge->batch, "steps"), judge->item);
	uint32_t left = CRASH_EPISODE - judge->n % CRASH_EPISODE;
	float want = 0;

	*steps_out = *steps;
	if (*steps < 1 || *steps > CRASH_STEPS || *steps > left)
		return wrong(judge, "%u steps, %u are left of the episode", *steps, left);
	for (uint32_t i = 0; i < *steps; i++)
		want += reward_of(judge->n + i);
	if (fabsf(*reward - want) > 0)
		return wrong(judge, "return of %u steps is %g, want %g", *steps, (double)*reward,
			     (double)want);
	if (fabsf(*discount - (*steps == left ? 0.0f : 1.0f)) > 0)
		return wrong(judge, "discount %g with %u of %u steps", (double)*discount, *steps,
			     left);
	return true;
}

static bool check_item(struct judge *judge)
{
	const uint32_t *check = at(crash_array(judge->batch, "check"), judge->item);
	const uint16_t *action = at(crash_array(judge->batch, "action"), judge->item);
	uint16_t want[3];
	uint32_t steps;

	make_action(want, judge->writer, judge->n);
	if (*check != make_check(judge->writer, judge->n))
		return wrong(judge, "checksum of another row");
	if (memcmp(action, want, sizeof(want)) != 0)
		return wrong(judge, "action of another row");
	if (!check_stack(judge, "obs", judge->n) || !check_return(judge, &steps))
		return false;
	/* Nothing is bootstrapped from the observation after a terminated step. */
	if (judge->n % CRASH_EPISODE + steps == CRASH_EPISODE)
		return true;
	return check_stack(judge, "next_obs", judge->n + steps);
}

uint32_t crash_batch_check(const struct rlv_batch *batch, char why[CRASH_WHY])
{
	const uint64_t *ids = crash_ids(batch);
	uint32_t bad = 0;

	why[0] = '\0';
	for (uint32_t i = 0; i < batch->n; i++) {
		struct judge judge = { .batch = batch,
				       .why = why,
				       .item = i,
				       .writer = (uint32_t)(ids[i] >> 32),
				       .n = crash_step_of(ids[i]) };

		bad += !check_item(&judge);
	}
	return bad;
}
