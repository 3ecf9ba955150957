#include "cli/table_print.h"

#include <errno.h>

#include "base/bits.h"
#include "program/shape.h"
#include "program/units.h"

static const char *const selectors[] = { "prioritized", "uniform", "fifo", "lifo" };
static const char *const roles[] = { "plain", "obs", "reward", "next" };

const char *table_selector_name(uint32_t selector)
{
	return selector < ARRAY_LEN(selectors) ? selectors[selector] : "?";
}

static const char *role_name(uint32_t role)
{
	return role < ARRAY_LEN(roles) ? roles[role] : "?";
}

void table_print_heading(struct text_table *list)
{
	text_table_init(list,
			"table|>items|>capacity|>shards|>row|>rows|>trees|>inserted|>sampled");
}

void table_print_row(const struct rlv_table_info *info, struct text_table *list)
{
	char text[UNITS_TEXT_BYTES];
	const struct rlv_view_info *view = &info->views[0];

	text_table_cell(list, "%s", info->name);
	text_table_cell(list, "%lld", (long long)view->items);
	text_table_cell(list, "%llu", (unsigned long long)info->capacity);
	text_table_cell(list, "%u", info->shards);
	text_table_cell(list, "%u B", info->row_bytes);
	text_table_cell(list, "%s", units_format_bytes(info->rows_bytes, text));
	text_table_cell(list, "%s", units_format_bytes(info->tree_bytes, text));
	text_table_cell(list, "%llu", (unsigned long long)view->inserted);
	text_table_cell(list, "%llu", (unsigned long long)view->sampled);
	text_table_row(list);
}

static void print_views(const struct rlv_table_info *info, FILE *file)
{
	char bytes[UNITS_TEXT_BYTES];

	for (uint32_t v = 0; v < info->n_views; v++) {
		const struct rlv_view_info *at = &info->views[v];

		fprintf(file,
			"view %u    %s, stack %u, n-step %u, alpha %g, eps %g\n"
			"          items %lld, inserted %llu, sampled %llu\n"
			"          priority sum %.6g, largest %.6g; overhead %s\n",
			v, table_selector_name(at->view.selector), at->view.stack, at->view.n_step,
			at->view.alpha, at->view.eps, (long long)at->items,
			(unsigned long long)at->inserted, (unsigned long long)at->sampled,
			at->priority_sum, at->max_priority,
			units_format_bytes(at->overhead_bytes, bytes));
		if (at->view.limiter.samples_per_insert > 0 || at->view.limiter.min_size > 1)
			fprintf(file,
				"          limiter: min size %llu, samples per insert %g, "
				"difference %g to %g\n",
				(unsigned long long)at->view.limiter.min_size,
				at->view.limiter.samples_per_insert, at->view.limiter.min_diff,
				at->view.limiter.max_diff);
	}
}

int table_print_text(const struct rlv_table_info *info, FILE *file)
{
	char rows[UNITS_TEXT_BYTES], trees[UNITS_TEXT_BYTES], type[SHAPE_TYPE_BYTES];
	struct text_table columns;
	int ret;

	fprintf(file,
		"table     %s\n"
		"capacity  %llu steps in %llu rows, %u shard%s, blocks of %u, window %u\n"
		"row       %u B, of which header %u B\n"
		"memory    rows %s, trees %s\n"
		"clients   at most %u, writers at most %u\n",
		info->name, (unsigned long long)info->capacity, (unsigned long long)info->slots,
		info->shards, info->shards == 1 ? "" : "s", info->block, info->window,
		info->row_bytes, info->row_header_bytes, units_format_bytes(info->rows_bytes, rows),
		units_format_bytes(info->tree_bytes, trees), info->max_clients, info->max_writers);
	print_views(info, file);
	text_table_init(&columns, "column|type|role");
	for (uint32_t c = 0; c < info->n_columns; c++) {
		text_table_cell(&columns, "%s", info->columns[c].name);
		text_table_cell(&columns, "%s", shape_type_text(&info->columns[c], type));
		text_table_cell(&columns, "%s", role_name(info->columns[c].role));
		text_table_row(&columns);
	}
	ret = text_table_print(&columns, file);
	text_table_fini(&columns);
	return ret;
}

static void json_view(struct json *json, const struct rlv_view_info *at)
{
	json_object_begin(json);
	json_put_string(json, "selector", table_selector_name(at->view.selector));
	json_put_u64(json, "stack", at->view.stack);
	json_put_u64(json, "n_step", at->view.n_step);
	json_put_u64(json, "period", at->view.period);
	json_put_u64(json, "max_times_sampled", at->view.max_times_sampled);
	json_put_u64(json, "max_staleness", at->view.max_staleness);
	json_put_double(json, "alpha", at->view.alpha);
	json_put_double(json, "eps", at->view.eps);
	json_key(json, "limiter");
	json_object_begin(json);
	json_put_u64(json, "min_size", at->view.limiter.min_size);
	json_put_double(json, "samples_per_insert", at->view.limiter.samples_per_insert);
	json_put_double(json, "min_diff", at->view.limiter.min_diff);
	json_put_double(json, "max_diff", at->view.limiter.max_diff);
	json_object_end(json);
	json_put_i64(json, "items", at->items);
	json_put_u64(json, "inserted", at->inserted);
	json_put_u64(json, "sampled", at->sampled);
	json_put_double(json, "priority_sum", at->priority_sum);
	json_put_double(json, "max_priority", at->max_priority);
	json_put_u64(json, "overhead_bytes", at->overhead_bytes);
	json_object_end(json);
}

static void json_columns(struct json *json, const struct rlv_table_info *info)
{
	json_key(json, "columns");
	json_array_begin(json);
	for (uint32_t c = 0; c < info->n_columns; c++) {
		json_object_begin(json);
		json_put_string(json, "name", info->columns[c].name);
		json_put_string(json, "dtype", shape_dtype_name(info->columns[c].dtype));
		json_put_string(json, "role", role_name(info->columns[c].role));
		json_key(json, "shape");
		json_array_begin(json);
		for (uint32_t d = 0; d < info->columns[c].ndim; d++)
			json_u64(json, info->columns[c].shape[d]);
		json_array_end(json);
		json_object_end(json);
	}
	json_array_end(json);
}

void table_put_json(const struct rlv_table_info *info, struct json *json)
{
	json_object_begin(json);
	json_put_string(json, "table", info->name);
	json_put_u64(json, "capacity", info->capacity);
	json_put_u64(json, "slots", info->slots);
	json_put_u64(json, "shards", info->shards);
	json_put_u64(json, "block", info->block);
	json_put_u64(json, "window", info->window);
	json_put_u64(json, "row_bytes", info->row_bytes);
	json_put_u64(json, "row_header_bytes", info->row_header_bytes);
	json_put_u64(json, "rows_bytes", info->rows_bytes);
	json_put_u64(json, "tree_bytes", info->tree_bytes);
	json_put_u64(json, "max_writers", info->max_writers);
	json_put_u64(json, "max_clients", info->max_clients);
	json_columns(json, info);
	json_key(json, "views");
	json_array_begin(json);
	for (uint32_t v = 0; v < info->n_views; v++)
		json_view(json, &info->views[v]);
	json_array_end(json);
	json_object_end(json);
}
