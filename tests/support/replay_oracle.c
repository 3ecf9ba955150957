#include "tests/support/replay_oracle.h"

#include "tests/support/test.h"

#include <string.h>

/* -------- contents -------- */

static uint64_t mix(uint64_t x)
{
	x = (x ^ (x >> 31)) * 0x9e3779b97f4a7c15ull;
	return x ^ (x >> 29);
}

uint64_t replay_id(uint32_t stream, size_t row)
{
	return (uint64_t)stream << 32 | (uint64_t)row;
}

static uint32_t stream_of(uint64_t id)
{
	return (uint32_t)(id >> 32);
}

static size_t row_of(uint64_t id)
{
	return (size_t)(id & UINT32_MAX);
}

void replay_obs(uint64_t id, float obs[REPLAY_OBS])
{
	for (uint32_t i = 0; i < REPLAY_OBS; i++)
		obs[i] = (float)(mix(id * 8 + i) >> 40) / 256.0f;
}

void replay_frame(uint64_t id, uint8_t frame[REPLAY_FRAME])
{
	for (uint32_t i = 0; i < REPLAY_FRAME; i++)
		frame[i] = (uint8_t)(mix(id + 77) >> (8 * i));
}

int32_t replay_action(uint64_t id)
{
	return (int32_t)(mix(id + 5) & 0xffff) - 1000;
}

/* Multiples of 1/64: sums of a few are exact, so that rounding hides no wrong step. */
float replay_reward(uint64_t id)
{
	return (float)((int)(mix(id + 9) & 1023) - 512) / 64.0f;
}

double replay_bonus(uint64_t id)
{
	return (double)(mix(id + 11) & 0xffffff) / 1024.0;
}

/* -------- rows -------- */

void replay_oracle_init(struct replay_oracle *oracle, bool has_obs)
{
	memset(oracle, 0, sizeof(*oracle));
	oracle->has_obs = has_obs;
}

void replay_oracle_fini(struct replay_oracle *oracle)
{
	for (uint32_t s = 0; s < REPLAY_STREAMS; s++)
		free(oracle->streams[s].rows);
	memset(oracle, 0, sizeof(*oracle));
}

void replay_oracle_add(struct replay_oracle *oracle, uint32_t stream, struct replay_row row)
{
	struct replay_stream *st = &oracle->streams[stream];

	if (st->n == st->room) {
		st->room = st->room ? 2 * st->room : 256;
		st->rows = realloc(st->rows, st->room * sizeof(*st->rows));
		assert_non_null(st->rows);
	}
	row.ends = false;
	st->rows[st->n++] = row;
}

void replay_oracle_end(struct replay_oracle *oracle, uint32_t stream)
{
	struct replay_stream *st = &oracle->streams[stream];

	if (st->n)
		st->rows[st->n - 1].ends = true;
}

static bool ends_episode(const struct replay_row *row)
{
	return row->ends || row->flags & (RLV_TERMINATED | RLV_TRUNCATED | RLV_FINAL);
}

/* First row of the episode that the row belongs to. A final row belongs to the one before it. */
static size_t episode_start(const struct replay_stream *st, size_t row)
{
	if (st->rows[row].flags & RLV_FINAL && row > 0 && !st->rows[row - 1].ends)
		row--;
	while (row > 0 && !ends_episode(&st->rows[row - 1]))
		row--;
	return row;
}

/* -------- items -------- */

static bool has_final(const struct replay_stream *st, size_t row)
{
	return row + 1 < st->n && !st->rows[row].ends && st->rows[row + 1].flags & RLV_FINAL;
}

/* True if the row's episode goes on with the next row. */
static bool goes_on(const struct replay_stream *st, size_t row)
{
	return row + 1 < st->n && !ends_episode(&st->rows[row]);
}

static uint32_t period_of(const struct rlv_view *view)
{
	return view->period ? view->period : 1;
}

static bool is_complete(const struct replay_oracle *oracle, const struct replay_stream *st,
			size_t row, const struct rlv_view *view)
{
	size_t next = oracle->has_obs ? 1 : 0;
	size_t future = (view->n_step ? view->n_step : 1) - 1 + next;
	size_t least = period_of(view) > 1 ? 1 + next : 0;

	if (st->n - 1 - row >= (future > least ? future : least))
		return true;
	for (size_t i = row; i < st->n; i++)
		if (st->rows[i].ends)
			return true;
	return false;
}

static bool has_return(const struct replay_oracle *oracle, const struct replay_stream *st,
		       size_t row)
{
	if (st->rows[row].flags & RLV_FINAL)
		return false;
	if (!oracle->has_obs || st->rows[row].flags & RLV_TERMINATED)
		return true;
	return has_final(st, row) || goes_on(st, row);
}

/* With a period: a window that begins at a multiple of it, or the last one of its episode. */
static bool is_of_period(const struct replay_oracle *oracle, const struct replay_stream *st,
			 size_t row, const struct rlv_view *view)
{
	size_t steps = row - episode_start(st, row) + 1;
	uint32_t stack = view->stack ? view->stack : 1;

	if (period_of(view) == 1 || (steps >= stack && (steps - stack) % period_of(view) == 0))
		return true;
	return !goes_on(st, row) || !has_return(oracle, st, row + 1);
}

bool replay_is_item(const struct replay_oracle *oracle, uint32_t stream, size_t row,
		    const struct rlv_view *view)
{
	const struct replay_stream *st = &oracle->streams[stream];

	return row < st->n && has_return(oracle, st, row) && is_complete(oracle, st, row, view) &&
	       is_of_period(oracle, st, row, view);
}

size_t replay_count_items(const struct replay_oracle *oracle, uint32_t stream, size_t from,
			  const struct rlv_view *view)
{
	size_t n = 0;

	for (size_t row = from; row < oracle->streams[stream].n; row++)
		n += replay_is_item(oracle, stream, row, view);
	return n;
}

/* Steps of the return that begins at row; *terminated: it ends in a terminated step. */
static uint32_t return_steps(const struct replay_oracle *oracle, const struct replay_stream *st,
			     size_t row, uint32_t n_step, bool *terminated)
{
	*terminated = false;
	for (uint32_t k = 0; k < n_step; k++) {
		size_t at = row + k;

		if (st->rows[at].flags & RLV_TERMINATED) {
			*terminated = true;
			return k + 1;
		}
		if (has_final(st, at))
			return k + 1;
		if (!goes_on(st, at)) {
			if (!oracle->has_obs || at + 1 >= st->n)
				return oracle->has_obs ? k : k + 1;
			return k;
		}
	}
	return n_step;
}

static void fill_stack(size_t start, size_t row, uint32_t stack, size_t *rows_out)
{
	for (uint32_t p = 0; p < stack; p++) {
		size_t back = stack - 1 - p;

		rows_out[p] = row >= start + back ? row - back : start;
	}
}

void replay_item_get(const struct replay_oracle *oracle, uint64_t id,
		     const struct replay_look *look, struct replay_item *out)
{
	uint32_t stream = stream_of(id);
	const struct replay_stream *st = &oracle->streams[stream];
	size_t row = row_of(id);
	size_t start = episode_start(st, row);
	double factor = 1;
	bool terminated;

	memset(out, 0, sizeof(*out));
	out->steps = return_steps(oracle, st, row, look->n_step, &terminated);
	for (uint32_t k = 0; k < out->steps; k++) {
		out->reward += factor * (double)replay_reward(id + k);
		out->bonus += factor * replay_bonus(id + k);
		factor *= look->gamma;
	}
	out->discount = terminated ? 0 : (float)factor;
	out->last = out->steps ? row + out->steps - 1 : row;
	out->version = st->rows[row].version;
	fill_stack(start, row, look->stack, out->obs);
	fill_stack(start, row + out->steps, look->stack, out->next_obs);
}

/* -------- batches -------- */

const struct rlv_array *replay_array(const struct rlv_batch *batch, const char *name)
{
	for (uint32_t a = 0; a < batch->n_arrays; a++)
		if (strcmp(batch->arrays[a].name, name) == 0)
			return &batch->arrays[a];
	fail_msg("no array %s in the batch", name);
	return NULL;
}

static const void *element(const struct rlv_array *array, uint32_t i)
{
	return (const uint8_t *)array->data + (int64_t)i * array->strides[0];
}

uint64_t replay_batch_id(const struct rlv_batch *batch, uint32_t i)
{
	uint64_t id;

	memcpy(&id, element(replay_array(batch, "id"), i), sizeof(id));
	return id;
}

/* Row p of a stacked array against the row of the oracle. */
static void check_stacked(const struct rlv_array *array, uint32_t i, uint32_t stack,
			  uint32_t stream, const size_t *rows)
{
	bool frames = array->dtype == RLV_U8;

	for (uint32_t p = 0; p < stack; p++) {
		const uint8_t *at = element(array, i);
		uint64_t id = replay_id(stream, rows[p]);
		float obs[REPLAY_OBS];
		uint8_t frame[REPLAY_FRAME];

		at += stack > 1 ? (int64_t)p * array->strides[1] : 0;
		replay_obs(id, obs);
		replay_frame(id, frame);
		if (memcmp(at, frames ? (const void *)frame : obs,
			   frames ? sizeof(frame) : sizeof(obs)) != 0)
			fail_msg("item %u, %s[%u]: not that of stream %u row %zu", i, array->name,
				 p, stream, rows[p]);
	}
}

static void check_scalars(const struct rlv_batch *batch, uint32_t i, uint64_t id,
			  const struct replay_item *want)
{
	int32_t action;
	float reward, discount;
	double bonus;
	uint32_t steps;

	memcpy(&action, element(replay_array(batch, "action"), i), sizeof(action));
	memcpy(&reward, element(replay_array(batch, "reward"), i), sizeof(reward));
	memcpy(&bonus, element(replay_array(batch, "bonus"), i), sizeof(bonus));
	memcpy(&discount, element(replay_array(batch, "discount"), i), sizeof(discount));
	memcpy(&steps, element(replay_array(batch, "steps"), i), sizeof(steps));
	assert_int_equal(action, replay_action(id));
	assert_int_equal(steps, want->steps);
	assert_true(fabs((double)reward - want->reward) <= 1e-5 * (1 + fabs(want->reward)));
	assert_true(fabs(bonus - want->bonus) <= 1e-9 * (1 + fabs(want->bonus)));
	assert_true(fabsf(discount - want->discount) <= 1e-6f);
	assert_int_equal(batch->policy_version[i], want->version);
}

static void check_observations(const struct replay_oracle *oracle, const struct rlv_batch *batch,
			       uint32_t i, uint64_t id, const struct replay_look *look)
{
	struct replay_item want;
	uint32_t stream = stream_of(id);

	replay_item_get(oracle, id, look, &want);
	if (!oracle->has_obs) {
		size_t row = row_of(id);

		check_stacked(replay_array(batch, "obs"), i, 1, stream, &row);
		check_stacked(replay_array(batch, "after"), i, 1, stream, &want.last);
		return;
	}
	check_stacked(replay_array(batch, "obs"), i, look->stack, stream, want.obs);
	check_stacked(replay_array(batch, "frame"), i, look->stack, stream, want.obs);
	if (want.discount == 0)
		return; /* no bootstrap: any next row is accepted */
	check_stacked(replay_array(batch, "next_obs"), i, look->stack, stream, want.next_obs);
	check_stacked(replay_array(batch, "next_frame"), i, look->stack, stream, want.next_obs);
}

void replay_check_batch(const struct replay_oracle *oracle, const struct rlv_view *view,
			const struct replay_look *look, const struct rlv_batch *batch)
{
	for (uint32_t i = 0; i < batch->n; i++) {
		uint64_t id = replay_batch_id(batch, i);
		struct replay_item want;

		if (stream_of(id) >= REPLAY_STREAMS ||
		    !replay_is_item(oracle, stream_of(id), row_of(id), view))
			fail_msg("item %u: stream %u row %zu is no item", i, stream_of(id),
				 row_of(id));
		replay_item_get(oracle, id, look, &want);
		check_scalars(batch, i, id, &want);
		check_observations(oracle, batch, i, id, look);
	}
}
