#include "client/save/describe.h"

#include "client/table/signature.h"

#include "ds/replay/shard.h"

#include "base/mem/alloc.h"

#include <errno.h>
#include <string.h>

static void describe_view(const struct rlv_view *from, struct save_view *to)
{
	to->stack = from->stack;
	to->n_step = from->n_step;
	to->selector = from->selector;
	to->period = from->period;
	to->max_times_sampled = from->max_times_sampled;
	to->max_staleness = from->max_staleness;
	to->alpha = from->alpha;
	to->eps = from->eps;
	to->min_size = from->limiter.min_size;
	to->samples_per_insert = from->limiter.samples_per_insert;
	to->min_diff = from->limiter.min_diff;
	to->max_diff = from->limiter.max_diff;
}

/* The rows of a block, unless they are what a store on one host or over a wire chooses itself. */
static uint32_t block_asked(const struct table_desc *desc)
{
	for (uint32_t remote = 0; remote < 2; remote++) {
		const struct table_plan_opts by_default = { .remote = remote };
		struct table_desc planned = *desc;

		if (table_plan(&planned, &by_default) == 0 && planned.block == desc->block)
			return 0;
	}
	return desc->block;
}

int save_describe(const struct table_desc *desc, struct save_table *table)
{
	struct rlv_table_info *info = mem_zalloc(sizeof(*info));

	if (!info)
		return error_set(-ENOMEM, "save: cannot allocate memory");
	signature_decode(desc, info);
	memset(table, 0, sizeof(*table));
	table->head = (struct save_header){
		.capacity = desc->capacity,
		.shards = desc->n_shards,
		.block = block_asked(desc),
		.max_writers = desc->max_writers,
		.max_clients = desc->max_clients,
		.n_columns = desc->n_columns,
		.n_views = desc->n_views,
		.window = desc->window_max,
	};
	memcpy(table->head.uuid, desc->uuid, sizeof(desc->uuid));
	memcpy(table->head.name, desc->name, sizeof(desc->name));
	for (uint32_t c = 0; c < desc->n_columns; c++) {
		const struct column_desc *from = &desc->columns[c];
		struct save_column *to = &table->columns[c];

		memcpy(to->name, from->name, sizeof(to->name));
		to->dtype = from->dtype;
		to->role = from->role;
		to->ndim = from->ndim;
		memcpy(to->shape, from->shape, sizeof(to->shape));
	}
	for (uint32_t v = 0; v < desc->n_views; v++) {
		describe_view(&info->views[v].view, &table->views[v]);
		table->views[v].scale = desc->views[v].scale;
	}
	mem_free(info);
	return save_table_check(table);
}

void save_tell(const struct save_table *table, const struct save_count *counts,
	       struct rlv_save_info *info)
{
	memcpy(info->table, table->head.name, sizeof(info->table));
	info->n_views = table->head.n_views;
	for (uint32_t v = 0; v < info->n_views; v++)
		info->items[v] = counts[v].items;
}

void save_wish(const struct save_table *table, struct save_wishes *wishes)
{
	const struct save_header *head = &table->head;

	memset(wishes, 0, sizeof(*wishes));
	for (uint32_t c = 0; c < head->n_columns; c++) {
		const struct save_column *from = &table->columns[c];
		struct rlv_column *to = &wishes->columns[c];

		to->name = from->name;
		to->dtype = from->dtype;
		to->role = from->role;
		to->ndim = from->ndim;
		memcpy(to->shape, from->shape, sizeof(to->shape));
	}
	for (uint32_t v = 0; v < head->n_views; v++) {
		const struct save_view *from = &table->views[v];

		wishes->views[v] = (struct rlv_view){
			.stack = from->stack,
			.n_step = from->n_step,
			.selector = from->selector,
			.period = from->period,
			.max_times_sampled = from->max_times_sampled,
			.max_staleness = from->max_staleness,
			.alpha = from->alpha,
			.eps = from->eps,
			.limiter = { from->min_size, from->samples_per_insert, from->min_diff,
				     from->max_diff },
		};
	}
	wishes->opts = (struct rlv_table_opts){
		.size = sizeof(wishes->opts),
		.n_columns = head->n_columns,
		.columns = wishes->columns,
		.capacity = head->capacity,
		.n_views = head->n_views,
		.shards = head->shards,
		.views = wishes->views,
		.max_writers = head->max_writers,
		.max_clients = head->max_clients,
		.block = head->block,
	};
}
