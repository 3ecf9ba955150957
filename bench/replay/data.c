#include "bench/replay/data.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/mem/alloc.h"
#include "base/bits.h"
#include "base/rng.h"
#include "bench/trace/trace.h"

#define EPISODE_STEPS 200

/* Allocates all arrays of the data at once; those of the columns only if `columns`: a recording
   has its own. -ENOMEM. */
static int make_arrays(struct replay_data *data, uint64_t n_starts, bool columns)
{
	size_t per_row = sizeof(double) + sizeof(uint32_t) + sizeof(uint16_t);
	size_t bytes = data->rows * per_row + n_starts * sizeof(uint64_t) + 256;
	uint64_t at;

	if (columns)
		bytes += data->rows * data->shape.row_bytes + 8 * data->shape.n_columns;
	data->memory = mem_zalloc(bytes);
	if (!data->memory)
		return error_set(-ENOMEM, "cannot allocate %llu rows of experience",
				 (unsigned long long)data->rows);
	data->td_error = (double *)(void *)data->memory;
	data->starts = (uint64_t *)(void *)(data->td_error + data->rows);
	data->policy_version = (uint32_t *)(void *)(data->starts + n_starts);
	data->flags = (uint16_t *)(void *)(data->policy_version + data->rows);
	data->n_starts = n_starts;
	at = (uint64_t)((uint8_t *)(data->flags + data->rows) - data->memory);
	for (uint32_t c = 0; columns && c < data->shape.n_columns; c++) {
		at = align_up(at, 8);
		data->column[c] = data->memory + at;
		at += data->rows * data->shape.bytes[c];
	}
	return 0;
}

static int from_trace(const char *path, struct replay_data *data)
{
	const struct trace *trace;
	int ret = trace_open(path, &data->trace);

	if (ret)
		return ret;
	trace = data->trace;
	for (uint32_t c = 0; c < trace->n_columns && ret == 0; c++) {
		const struct trace_column *column = &trace->columns[c];

		if (column->role != TRACE_ROLE_COLUMN)
			continue;
		ret = shape_add(&data->shape, column->name, shape_numpy_dtype(column->dtype),
				column->ndim, column->shape);
		if (ret == 0)
			data->column[data->shape.n_columns - 1] = column->data;
	}
	data->rows = trace->rows;
	if (ret == 0)
		ret = make_arrays(data, trace->episodes, false);
	for (uint64_t i = 0; i < data->rows && ret == 0; i++) {
		uint16_t flags = trace->flags[i];

		data->flags[i] = (uint16_t)((flags & TRACE_TERMINATED ? RLV_TERMINATED : 0) |
					    (flags & TRACE_TRUNCATED ? RLV_TRUNCATED : 0) |
					    (flags & TRACE_FINAL ? RLV_FINAL : 0));
		data->td_error[i] = (double)trace->priority[i];
		data->policy_version[i] = trace->policy_version[i];
	}
	if (ret == 0)
		memcpy(data->starts, trace->episode_row, trace->episodes * sizeof(*data->starts));
	return ret;
}

/* Random values: floats in [-1, 1), u8 any byte, all other dtypes 0 or 1. */
static void fill_column(const struct rlv_column *column, uint8_t *out, size_t bytes,
			struct rng *rng)
{
	size_t item = shape_dtype_bytes(column->dtype), n = bytes / item;

	if (column->dtype == RLV_U8) {
		rng_fill_u64(rng, (uint64_t *)(void *)out, bytes / 8);
		return;
	}
	for (size_t i = 0; i < n; i++) {
		double value = rng_uniform_double(rng) * 2 - 1;
		float single = (float)value;

		if (column->dtype == RLV_F32)
			memcpy(out + i * item, &single, item);
		else if (column->dtype == RLV_F64)
			memcpy(out + i * item, &value, item);
		else
			out[i * item] = (uint8_t)(value > 0);
	}
}

static int from_shape(const char *text, uint64_t seed, struct replay_data *data)
{
	const uint64_t episode_rows = EPISODE_STEPS + 1;
	struct rng rng;
	int ret = shape_parse(text, &data->shape);

	if (ret)
		return ret;
	/* At most 64 MiB, and few: cache-warm, as rows just made by an actor. */
	data->rows = min_u64(8192, (UINT64_C(64) << 20) / data->shape.row_bytes + 1);
	data->rows = max_u64(data->rows, 1024);
	ret = make_arrays(data, div_up(data->rows, episode_rows), true);
	if (ret)
		return ret;
	rng_seed(&rng, seed, 0xda7a);
	for (uint64_t i = 0; i < data->rows; i++) {
		uint64_t at = i % episode_rows;

		if (at == EPISODE_STEPS)
			data->flags[i] = RLV_FINAL;
		else if (at + 1 == EPISODE_STEPS || i + 1 == data->rows)
			data->flags[i] = RLV_TERMINATED;
		data->td_error[i] = -log(1 - rng_uniform_double(&rng));
		if (at == 0)
			data->starts[i / episode_rows] = i;
	}
	for (uint32_t c = 0; c < data->shape.n_columns; c++)
		fill_column(&data->shape.columns[c], data->column[c],
			    data->shape.bytes[c] * data->rows, &rng);
	return 0;
}

int replay_data_open(const char *trace, const char *shape, uint64_t seed,
		     struct replay_data *data_out)
{
	int ret;

	memset(data_out, 0, sizeof(*data_out));
	ret = trace ? from_trace(trace, data_out) : from_shape(shape, seed, data_out);
	if (ret)
		replay_data_close(data_out);
	return ret;
}

void replay_data_close(struct replay_data *data)
{
	trace_close(&data->trace);
	mem_free(data->memory);
	data->memory = NULL;
}

int replay_data_vector(const struct replay_data *from, uint32_t envs, struct replay_data *data_out)
{
	uint64_t steps = max_u64(from->rows / envs, 16);
	int ret;

	*data_out = (struct replay_data){ .shape = from->shape, .rows = steps * envs };
	ret = make_arrays(data_out, 1, true);
	if (ret)
		return ret;
	for (uint64_t row = 0; row < data_out->rows; row++) {
		uint64_t start = from->starts[row % envs * from->n_starts / envs];
		uint64_t at = (start + row / envs) % from->rows;

		for (uint32_t c = 0; c < data_out->shape.n_columns; c++) {
			size_t bytes = data_out->shape.bytes[c];

			memcpy(data_out->column[c] + row * bytes, from->column[c] + at * bytes,
			       bytes);
		}
		data_out->flags[row] = from->flags[at];
		data_out->td_error[row] = from->td_error[at];
		data_out->policy_version[row] = from->policy_version[at];
		/* End of the round: an episode must not continue at its beginning. */
		if (row / envs == steps - 1 && !(data_out->flags[row] & RLV_FINAL))
			data_out->flags[row] |= RLV_TRUNCATED;
	}
	return 0;
}

void replay_feed_next(struct replay_feed *feed, uint32_t n, struct rlv_steps *steps)
{
	const struct replay_data *data = feed->data;

	n = (uint32_t)min_u64(n, data->rows - feed->at);
	if (feed->patterned) {
		pattern_rows_fill(&feed->made, &data->shape, feed->number, n, steps);
		return;
	}
	for (uint32_t c = 0; c < data->shape.n_columns; c++)
		feed->columns[c] = data->column[c] + feed->at * data->shape.bytes[c];
	steps->n = n;
	steps->columns = feed->columns;
	steps->flags = data->flags + feed->at;
	steps->td_error = data->td_error + feed->at;
	steps->policy_version = data->policy_version[feed->at];
}

void replay_feed_advance(struct replay_feed *feed, uint32_t n)
{
	feed->number += n;
	feed->at = (feed->at + n) % feed->data->rows;
}
