#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "cli/cli.h"
#include "cli/record.h"
#include "cli/table_save.h"
#include "program/shape.h"
#include "program/units.h"

enum { MAX_SHARDS = 1024 };

/* Arguments of `relive table ...`. */
struct request {
	struct cli_common common;
	const char *name;
	const char *shape;
	const char *shards;
	struct rlv_table_opts opts;
	struct rlv_view view;
	double spi;
	uint64_t min_size;
	struct cli_save save;
	struct json *json;       /* output of --json, or NULL */
	struct text_table *list; /* of `table list` as text: a row per table; else NULL */
};

static const char *const selectors[] = { "prioritized", "uniform", "fifo", "lifo", NULL };
static const char *const roles[] = { "plain", "obs", "reward", "next", NULL };
static const char *const shard_states[] = {
	"?", "active", "draining", "down", "lost", "gone", NULL
};

static const struct field shard_fields[] = {
	FIELD(rlv_shard_info, shard, FIELD_U32, "shard", ">shard"),
	{ "state", "state", FIELD_NAME, offsetof(struct rlv_shard_info, state), shard_states,
	  NULL },
	FIELD(rlv_shard_info, weight, FIELD_PERMILLE, "weight", ">weight"),
	FIELD(rlv_shard_info, node, FIELD_TEXT, "node", "node"),
	FIELD(rlv_shard_info, address, FIELD_TEXT, "address", "address"),
};

static const struct record shard_type = RECORD(rlv_shard_info, shard_fields);

/*
 * Writes a column's name and type: two cells of row, or, if json is not NULL, members of its
 * object.
 */
static void put_column(const void *record, struct json *json, struct text_table *row)
{
	const struct rlv_column *column = record;
	char text[SHAPE_TYPE_BYTES];

	if (!json) {
		text_table_cell(row, "%s", column->name);
		text_table_cell(row, "%s", shape_type_text(column, text));
		return;
	}
	json_put_string(json, "name", column->name);
	json_put_string(json, "dtype", shape_dtype_name(column->dtype));
	json_key(json, "shape");
	json_array_begin(json);
	for (uint32_t d = 0; d < column->ndim; d++)
		json_u64(json, column->shape[d]);
	json_array_end(json);
}

static const struct field column_fields[] = {
	{ "name", "column|type", FIELD_OWN, 0, NULL, put_column },
	{ "role", "role", FIELD_NAME, offsetof(struct rlv_column, role), roles, NULL },
};

static const struct record column_type = RECORD(rlv_column, column_fields);

static const struct field limiter_fields[] = {
	FIELD(rlv_limiter, min_size, FIELD_U64, "min_size", NULL),
	FIELD(rlv_limiter, samples_per_insert, FIELD_DOUBLE, "samples_per_insert", NULL),
	FIELD(rlv_limiter, min_diff, FIELD_DOUBLE, "min_diff", NULL),
	FIELD(rlv_limiter, max_diff, FIELD_DOUBLE, "max_diff", NULL),
};

static const struct record limiter_type = RECORD(rlv_limiter, limiter_fields);

static void put_limiter(const void *record, struct json *json, struct text_table *row)
{
	const struct rlv_view_info *at = record;

	(void)row; /* no column */
	json_key(json, "limiter");
	json_object_begin(json);
	record_members(&limiter_type, &at->view.limiter, json);
	json_object_end(json);
}

static const struct field view_fields[] = {
	{ "selector", NULL, FIELD_NAME, offsetof(struct rlv_view_info, view.selector), selectors,
	  NULL },
	FIELD(rlv_view_info, view.stack, FIELD_U32, "stack", NULL),
	FIELD(rlv_view_info, view.n_step, FIELD_U32, "n_step", NULL),
	FIELD(rlv_view_info, view.period, FIELD_U32, "period", NULL),
	FIELD(rlv_view_info, view.max_times_sampled, FIELD_U32, "max_times_sampled", NULL),
	FIELD(rlv_view_info, view.max_staleness, FIELD_U32, "max_staleness", NULL),
	FIELD(rlv_view_info, view.alpha, FIELD_DOUBLE, "alpha", NULL),
	FIELD(rlv_view_info, view.eps, FIELD_DOUBLE, "eps", NULL),
	{ "limiter", NULL, FIELD_OWN, 0, NULL, put_limiter },
	FIELD(rlv_view_info, items, FIELD_I64, "items", NULL),
	FIELD(rlv_view_info, inserted, FIELD_U64, "inserted", NULL),
	FIELD(rlv_view_info, sampled, FIELD_U64, "sampled", NULL),
	FIELD(rlv_view_info, priority_sum, FIELD_DOUBLE, "priority_sum", NULL),
	FIELD(rlv_view_info, max_priority, FIELD_DOUBLE, "max_priority", NULL),
	FIELD(rlv_view_info, overhead_bytes, FIELD_BYTES, "overhead_bytes", NULL),
};

static const struct record view_type = RECORD(rlv_view_info, view_fields);

static const struct field table_fields[] = {
	FIELD(rlv_table_info, name, FIELD_TEXT, "table", "table"),
	FIELD(rlv_table_info, views[0].items, FIELD_I64, NULL, ">items"),
	FIELD(rlv_table_info, capacity, FIELD_U64, "capacity", ">capacity"),
	FIELD(rlv_table_info, slots, FIELD_U64, "slots", NULL),
	FIELD(rlv_table_info, shards, FIELD_U32, "shards", ">shards"),
	FIELD(rlv_table_info, block, FIELD_U32, "block", NULL),
	FIELD(rlv_table_info, window, FIELD_U32, "window", NULL),
	FIELD(rlv_table_info, row_bytes, FIELD_U32, "row_bytes", ">row bytes"),
	FIELD(rlv_table_info, row_header_bytes, FIELD_U32, "row_header_bytes", NULL),
	FIELD(rlv_table_info, rows_bytes, FIELD_BYTES, "rows_bytes", ">rows"),
	FIELD(rlv_table_info, tree_bytes, FIELD_BYTES, "tree_bytes", ">trees"),
	FIELD(rlv_table_info, views[0].inserted, FIELD_U64, NULL, ">inserted"),
	FIELD(rlv_table_info, views[0].sampled, FIELD_U64, NULL, ">sampled"),
	FIELD(rlv_table_info, max_writers, FIELD_U32, "max_writers", NULL),
	FIELD(rlv_table_info, max_clients, FIELD_U32, "max_clients", NULL),
};

static const struct record table_type = RECORD(rlv_table_info, table_fields);

/*
 * Prints a table with its columns and views, or adds a row to the list of ctx, the request. 0, or
 * the code of a failure that was printed.
 */
static int table_describe(struct rlv_store *store, const char *name, void *ctx)
{
	const struct request *request = ctx;
	struct rlv_table_info info = { .size = sizeof(info) };
	struct json *json = request->json;
	struct rlv_table *table;
	int ret = rlv_table_open(store, name, &table);

	if (ret)
		return cli_fail(ret, "open table %s", name), ret;
	ret = rlv_table_info(table, &info);
	if (ret) {
		cli_fail(ret, "read table %s", name);
	} else if (request->list) {
		record_row(&table_type, &info, request->list);
	} else if (json) {
		json_object_begin(json);
		record_members(&table_type, &info, json);
		json_key(json, "columns");
		record_list(&column_type, info.columns, info.n_columns, json);
		json_key(json, "views");
		record_list(&view_type, info.views, info.n_views, json);
		json_object_end(json);
	} else {
		record_lines(&table_type, &info);
		for (uint32_t v = 0; v < info.n_views; v++) {
			printf("\nview %u\n", v);
			record_lines(&view_type, &info.views[v]);
			record_lines(&limiter_type, &info.views[v].view.limiter);
		}
		printf("\n");
		ret = record_list(&column_type, info.columns, info.n_columns, NULL) ? -EIO : 0;
	}
	cli_closed(rlv_table_close(&table), "table"); /* the names of columns are its */
	return ret;
}

static int table_list(struct rlv_store *store, struct request *request)
{
	static struct text_table list;
	int code;

	if (request->json)
		return cli_each_table(store, request->json, table_describe, request);
	request->list = &list;
	record_table(&table_type, &list);
	code = cli_each_table(store, NULL, table_describe, request);
	/* The heading alone is no answer if the names could not be read. */
	if ((code == CLI_OK || list.n_cells > list.n_columns) && text_table_print(&list, stdout))
		code = CLI_FAILURE;
	text_table_fini(&list);
	return code;
}

static int table_info(struct rlv_store *store, struct request *request)
{
	return table_describe(store, request->name, request) ? CLI_FAILURE : CLI_OK;
}

static int table_shards(struct rlv_store *store, struct request *request)
{
	static struct rlv_shard_info shards[MAX_SHARDS];
	struct rlv_table *table;
	size_t n = MAX_SHARDS;
	int ret = rlv_table_open(store, request->name, &table);

	if (ret == 0) {
		ret = rlv_table_shards(table, shards, sizeof(*shards), &n);
		cli_closed(rlv_table_close(&table), "table");
	}
	if (ret)
		return cli_fail(ret, "list the shards of table %s", request->name);
	return record_list(&shard_type, shards, n < MAX_SHARDS ? n : MAX_SHARDS, request->json);
}

static int table_rebalance(struct rlv_store *store, struct request *request)
{
	uint32_t added = 0, draining = 0;
	int ret = rlv_table_rebalance(store, request->name, &added, &draining);

	if (ret)
		return cli_fail(ret, "rebalance table %s", request->name);
	return cli_result(request->common.json,
			  (const struct param[]){ { .key = "added", .number = added },
						  { .key = "draining", .number = draining } },
			  2, "table %s: %u new shards, %u drain\n", request->name, added, draining);
}

/* Parses --shards; 0 without it. */
static int request_shards(const struct request *request, uint32_t *shards_out)
{
	uint64_t shards = 0;
	int ret = 0;

	if (request->shards && strcmp(request->shards, "auto") == 0)
		shards = RLV_SHARDS_AUTO;
	else if (request->shards)
		ret = units_parse_count(request->shards, &shards);
	if (ret == 0 && shards > RLV_SHARDS_AUTO)
		ret = error_set(-EINVAL, "%s: too many shards", request->shards);
	*shards_out = (uint32_t)shards;
	return ret;
}

static int table_create(struct rlv_store *store, struct request *request)
{
	struct rlv_table_opts opts = request->opts;
	struct rlv_view view = request->view;
	struct rlv_table *table;
	struct shape shape;
	int ret = shape_parse(request->shape, &shape);

	if (ret)
		return cli_fail_local(ret, "--columns");
	ret = request_shards(request, &opts.shards);
	if (ret)
		return cli_fail_local(ret, "--shards");
	if (request->spi > 0)
		view.limiter = rlv_limiter_sample_to_insert(
			request->spi, request->min_size ? request->min_size : 1,
			request->spi * (double)(request->min_size + 1024));
	else if (request->min_size)
		view.limiter = rlv_limiter_min_size(request->min_size);
	opts.columns = shape.columns;
	opts.n_columns = shape.n_columns;
	opts.views = &view;
	opts.n_views = 1;
	ret = rlv_table_create(store, request->name, &opts, &table);
	if (ret)
		return cli_fail(ret, "create table %s", request->name);
	cli_closed(rlv_table_close(&table), "table");
	return table_info(store, request);
}

static int table_drop(struct rlv_store *store, struct request *request)
{
	int ret = rlv_table_drop(store, request->name);

	if (ret)
		return cli_fail(ret, "drop table %s", request->name);
	return cli_result(
		request->common.json,
		(const struct param[]){ { .key = "table", .text = request->name },
					{ .key = "dropped", .number = 1, .kind = PARAM_FLAG } },
		2, "table %s is dropped\n", request->name);
}

static int table_save(struct rlv_store *store, struct request *request)
{
	request->save.json = request->common.json;
	return cli_table_save(store, request->name, &request->save);
}

static int table_load(struct rlv_store *store, struct request *request)
{
	int ret = request_shards(request, &request->save.shards);

	if (ret)
		return cli_fail_local(ret, "--shards");
	request->save.json = request->common.json;
	return cli_table_load(store, &request->save);
}

static const struct {
	const char *verb;
	int (*run)(struct rlv_store *store, struct request *request);
	bool named;
	bool writes;
} verbs[] = {
	{ "list", table_list, false, false },    { "info", table_info, true, false },
	{ "create", table_create, true, true },  { "drop", table_drop, true, true },
	{ "shards", table_shards, true, false }, { "rebalance", table_rebalance, true, true },
	{ "save", table_save, true, false },     { "load", table_load, false, true },
};

/*
 * Runs relive table VERB [URI] [NAME] and returns the exit code: a single word after the verb is
 * the name if the verb needs one.
 */
static int run_verb(struct request *request, const char **words)
{
	struct rlv_store *store;
	struct json json;
	size_t v = 0;
	int code;

	while (v < ARRAY_LEN(verbs) && strcmp(words[0], verbs[v].verb) != 0)
		v++;
	if (v == ARRAY_LEN(verbs)) {
		cli_error(
			"table %.40s: use list, info, create, drop, shards, rebalance, save or load",
			words[0]);
		return CLI_USAGE;
	}
	code = cli_take_uri(&request->common, words + 1, 2, verbs[v].named);
	if (code != CLI_CONTINUE)
		return code;
	request->name = words[1];
	if (verbs[v].named != (request->name != NULL)) {
		cli_error(verbs[v].named ? "table %s: give the NAME of a table"
					 : "table %s takes no name",
			  words[0]);
		return CLI_USAGE;
	}
	if (cli_store_open(request->common.uri, request->common.timeout_ns, !verbs[v].writes,
			   &store))
		return CLI_FAILURE;
	json_init(&json, stdout);
	request->json = request->common.json ? &json : NULL;
	code = verbs[v].run(store, request);
	cli_closed(rlv_store_close(&store), "store");
	return json_end(&json) ? CLI_FAILURE : code;
}

int cmd_table(int argc, char **argv)
{
	struct request request = { .common = CLI_COMMON_INIT,
				   .shape = "cartpole",
				   .opts = RLV_TABLE_OPTS_INIT };
	const char *words[3] = { NULL, NULL, NULL };
	const struct arg_option options[] = {
		CLI_OPTIONS(request.common),
		{ NULL, NULL, "Options of create", NULL, ARG_HEADING },
		{ "columns", "SHAPE", "obs:f32[4],action:i64,... or cartpole, cartpole-next, atari",
		  &request.shape, ARG_TEXT },
		{ "capacity", "N", "steps that it keeps (default 2^20)", &request.opts.capacity,
		  ARG_COUNT },
		{ "shards", "N|auto",
		  "shards, spread over the memory nodes; auto: one for each node (default 1)",
		  &request.shards, ARG_TEXT },
		{ "stack", "N", "observations stacked in an item (default 1)", &request.view.stack,
		  ARG_COUNT32 },
		{ "n-step", "N", "longest n-step return (default 1)", &request.view.n_step,
		  ARG_COUNT32 },
		{ "selector", "prioritized|uniform|fifo|lifo", "how items are drawn",
		  &request.view.selector, ARG_CHOICE },
		{ "alpha", "X", "priority exponent (default 0.6)", &request.view.alpha,
		  ARG_NUMBER },
		{ "max-writers", "N", "environments that can append at once (default 4)",
		  &request.opts.max_writers, ARG_COUNT32 },
		{ "max-clients", "N", "handles that can be open at once (default 64)",
		  &request.opts.max_clients, ARG_COUNT32 },
		{ "block", "N", "rows that a stream claims at once (default: by the row size)",
		  &request.opts.block, ARG_COUNT32 },
		{ "min-size", "N", "do not sample before the table has N items", &request.min_size,
		  ARG_COUNT },
		{ "spi", "X", "samples per insert, kept by the rate limiter", &request.spi,
		  ARG_NUMBER },
		{ NULL, NULL, "Options of save and load", NULL, ARG_HEADING },
		{ "file", "FILE", "the saved table; save writes it whole, or not at all",
		  &request.save.file, ARG_TEXT },
		{ "compress", "LEVEL", "save: level of zstd, 1 to 19 (default: none)",
		  &request.save.compress, ARG_COUNT32 },
		{ "base", "FILE", "save: an earlier file of the table, whose rows are copied",
		  &request.save.base, ARG_TEXT },
		{ "name", "NAME", "load: of the new table (default: that of the saved one)",
		  &request.save.name, ARG_TEXT },
		{ "replace", NULL, "load: replace a table of that name, in use until all is loaded",
		  &request.save.replace, ARG_FLAG },
		{ "progress", NULL, "show progress even without a terminal", &request.save.progress,
		  ARG_FLAG },
	};
	const struct args args = {
		.usage = "table list|info|create|drop|shards|rebalance|save|load [URI] [NAME] "
			 "[OPTIONS]",
		.summary =
			"Lists, describes, creates, drops, rebalances, saves and loads tables (default store "
			"" CLI_DEFAULT_URI
			").\nshards lists the shards of a table with their nodes; rebalance gives new nodes "
			"their share;\nsave writes a table with its items and their priorities to a file "
			"while others use it;\nload makes a table of it, in any store (--shards N).",
		.options = options,
		.n_options = ARRAY_LEN(options),
		.examples =
			"relive table create --store replay frames --columns atari --stack 4 --n-step 3\n"
			"relive table list --json\n"
			"relive table save replay --store run1 --file replay.rlvs --compress 3\n"
			"relive table load --store run2 --file replay.rlvs",
		.positional = words,
		.min_positional = 1,
		.max_positional = 3,
	};
	int code;

	request.opts.capacity = UINT64_C(1) << 20;
	code = cli_parse(&args, argc, argv);
	return code == CLI_CONTINUE ? run_verb(&request, words) : code;
}
