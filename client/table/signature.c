#include "client/table/signature.h"

#include "ds/limiter/limiter.h"
#include "ds/replay/shard.h"

#include "base/bits.h"
#include "base/column_name.h"

#include <errno.h>
#include <math.h>
#include <string.h>

static int encode_column(const struct rlv_table_opts *opts, uint32_t c, struct table_desc *desc)
{
	const struct rlv_column *in = &opts->columns[c];
	struct column_desc *out = &desc->columns[c];
	const uint64_t most = (uint64_t)1 << 26;
	uint64_t bytes = dtype_bytes(in->dtype);

	if (!column_name_is_valid(in->name, RLV_NAME_BYTES))
		return error_set(-EINVAL,
				 "columns[%u].name \"%.70s\": want " COLUMN_NAME_RULE
				 ", at most %u long",
				 c, in->name ? in->name : "(null)", RLV_NAME_BYTES - 1);
	for (uint32_t i = 0; i < c; i++)
		if (strcmp(desc->columns[i].name, in->name) == 0)
			return error_set(-EINVAL,
					 "columns[%u].name \"%s\": columns[%u] has it already", c,
					 in->name, i);
	if (bytes == 0)
		return error_set(-EINVAL, "columns[%u].dtype %u: not an rlv_dtype", c, in->dtype);
	if (in->role > RLV_NEXT)
		return error_set(-EINVAL, "columns[%u].role %u: not an rlv_role", c, in->role);
	if (in->role == RLV_REWARD &&
	    (in->ndim != 0 || (in->dtype != RLV_F32 && in->dtype != RLV_F64)))
		return error_set(-EINVAL, "columns[%u] %s: a reward is a scalar of f32 or f64", c,
				 in->name);
	if (in->ndim > RLV_MAX_DIMS)
		return error_set(-EINVAL, "columns[%u].ndim %u: at most %u", c, in->ndim,
				 RLV_MAX_DIMS);
	for (uint32_t d = 0; d < in->ndim; d++) {
		if (in->shape[d] == 0)
			return error_set(-EINVAL, "columns[%u].shape[%u] is 0", c, d);
		bytes *= in->shape[d];
		if (bytes > most)
			return error_set(-EINVAL, "columns[%u] %s: a step of more than %llu bytes",
					 c, in->name, (unsigned long long)most);
		out->shape[d] = in->shape[d];
	}
	memcpy(out->name, in->name, strlen(in->name) + 1);
	out->dtype = (uint16_t)in->dtype;
	out->role = (uint16_t)in->role;
	out->ndim = in->ndim;
	out->bytes = (uint32_t)bytes;
	return 0;
}

static int encode_view(const struct rlv_view *in, uint32_t v, struct view_desc *out)
{
	const struct rlv_limiter *limiter = &in->limiter;
	bool prioritized = in->selector == RLV_PRIORITIZED;
	double alpha = in->alpha == 0 ? 0.6 : in->alpha;
	double eps = in->eps == 0 ? 1e-6 : in->eps;
	int ret;

	if (!bits_all_zero(in->reserved, sizeof(in->reserved)))
		return error_set(-EINVAL, "views[%u].reserved: want 0, or a newer library", v);
	if (in->selector > RLV_LIFO)
		return error_set(-EINVAL, "views[%u].selector %u: not an rlv_selector", v,
				 in->selector);
	if (in->stack > UINT16_MAX || in->n_step > UINT16_MAX)
		return error_set(-EINVAL, "views[%u]: stack %u and n_step %u are at most %u", v,
				 in->stack, in->n_step, UINT16_MAX);
	if (!(alpha > 0 && alpha <= 8))
		return error_set(-EINVAL, "views[%u].alpha %g: want 0 < alpha <= 8", v, in->alpha);
	if (!(eps > 0 && isfinite(eps)))
		return error_set(-EINVAL, "views[%u].eps %g: want a positive number", v, in->eps);
	out->selector = (uint16_t)in->selector;
	out->stack = (uint16_t)in->stack; /* 0 is the default of table_plan, for these three */
	out->n_step = (uint16_t)in->n_step;
	out->period = in->period;
	out->max_times_sampled = in->max_times_sampled;
	out->max_staleness = in->max_staleness;
	out->alpha = prioritized ? alpha : 1;
	out->eps = eps;
	ret = limit_desc_init(&out->limit, limiter->min_size, limiter->samples_per_insert,
			      limiter->min_diff, limiter->max_diff);
	return ret ? error_prefix(ret, "views[%u].limiter: ", v) : 0;
}

int signature_encode(const char *name, const struct rlv_table_opts *opts, bool file,
		     struct table_desc *desc)
{
	static const struct rlv_view default_view = { 0 };
	uint32_t n_views;
	int ret;

	memset(desc, 0, sizeof(*desc));
	ret = table_name_check(name);
	if (ret)
		return ret;
	if (opts->n_columns == 0 || opts->n_columns > RLV_MAX_COLUMNS || !opts->columns)
		return error_set(-EINVAL, "opts.n_columns %u: want 1..%u and columns",
				 opts->n_columns, RLV_MAX_COLUMNS);
	if (opts->n_views > RLV_MAX_VIEWS || (opts->n_views && !opts->views))
		return error_set(-EINVAL, "opts.n_views %u: at most %u, with views", opts->n_views,
				 RLV_MAX_VIEWS);
	if (opts->capacity == 0)
		return error_set(-EINVAL, "opts.capacity is 0 steps");
	if (opts->shards > TABLE_MAX_SHARDS && opts->shards != RLV_SHARDS_AUTO)
		return error_set(-EINVAL, "opts.shards %u: at most %u", opts->shards,
				 TABLE_MAX_SHARDS);
	if (opts->row_crc > 2)
		return error_set(-EINVAL, "opts.row_crc %u: want 0, 1 or 2", opts->row_crc);
	memcpy(desc->name, name, strlen(name) + 1);
	desc->capacity = opts->capacity;
	desc->n_shards = opts->shards && opts->shards != RLV_SHARDS_AUTO ? opts->shards : 1;
	desc->max_writers = opts->max_writers ? opts->max_writers : 4;
	desc->max_clients = opts->max_clients ? opts->max_clients : 64;
	desc->n_columns = opts->n_columns;
	if (opts->row_crc == 1 || (opts->row_crc == 0 && file))
		desc->flags |= TABLE_ROW_CRC;
	for (uint32_t c = 0; c < opts->n_columns; c++) {
		ret = encode_column(opts, c, desc);
		if (ret)
			return ret;
	}
	n_views = opts->n_views ? opts->n_views : 1;
	for (uint32_t v = 0; v < opts->n_views; v++)
		if (opts->views[v].selector >= RLV_FIFO && opts->shards > 1)
			return error_set(-EINVAL,
					 "opts.shards %u: views[%u] is fifo or lifo, whose order "
					 "is that of one shard",
					 opts->shards, v);
	for (uint32_t v = 0; v < n_views; v++) {
		ret = encode_view(opts->n_views ? &opts->views[v] : &default_view, v,
				  &desc->views[v]);
		if (ret)
			return ret;
	}
	desc->n_views = n_views;
	return 0;
}

void signature_decode(const struct table_desc *desc, struct rlv_table_info *info)
{
	info->n_columns = desc->n_columns;
	info->n_views = desc->n_views;
	for (uint32_t c = 0; c < desc->n_columns; c++) {
		const struct column_desc *in = &desc->columns[c];
		struct rlv_column *out = &info->columns[c];

		*out = (struct rlv_column){
			.name = in->name, .dtype = in->dtype, .role = in->role, .ndim = in->ndim
		};
		memcpy(out->shape, in->shape, sizeof(out->shape));
	}
	for (uint32_t v = 0; v < desc->n_views; v++) {
		const struct view_desc *in = &desc->views[v];
		const struct limit_desc *limit = &in->limit;
		double min_diff = limit_unscale(limit->min_diff);
		double max_diff = limit_unscale(limit->max_diff);

		info->views[v].view = (struct rlv_view){
			.stack = in->stack,
			.n_step = in->n_step,
			.selector = in->selector,
			.period = in->period,
			.max_times_sampled = in->max_times_sampled,
			.max_staleness = in->max_staleness,
			.alpha = in->alpha,
			.eps = in->eps,
			.limiter = {
				.min_size = limit->min_size,
				.samples_per_insert = limit_unscale((int64_t)limit->spi),
				.min_diff = limit->min_diff == INT64_MIN ? -INFINITY : min_diff,
				.max_diff = limit->max_diff == INT64_MAX ? INFINITY : max_diff,
			},
		};
	}
}

/* -------- limiter presets: Reverb's, in its own parameters -------- */

struct rlv_limiter rlv_limiter_min_size(uint64_t min_size)
{
	return (struct rlv_limiter){ .min_size = min_size };
}

struct rlv_limiter rlv_limiter_sample_to_insert(double spi, uint64_t min_size, double error_buffer)
{
	double middle = (double)min_size * spi;

	return (struct rlv_limiter){
		.min_size = min_size,
		.samples_per_insert = spi,
		.min_diff = middle - error_buffer,
		.max_diff = middle + error_buffer,
	};
}

struct rlv_limiter rlv_limiter_queue(uint64_t queue_size)
{
	return (struct rlv_limiter){
		.min_size = 1,
		.samples_per_insert = 1,
		.max_diff = (double)queue_size,
	};
}

struct rlv_limiter rlv_limiter_stack(uint64_t stack_size)
{
	return rlv_limiter_queue(stack_size);
}
