#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/mem/alloc.h"
#include "base/bits.h"
#include "base/json.h"
#include "cli/cli.h"
#include "program/shape.h"
#include "cli/table_print.h"
#include "program/units.h"

enum { MAX_SHARDS = 1024 };

/* Arguments of `relive table ...`. */
struct request {
	struct cli_common common;
	const char *uri;
	const char *name;
	const char *shape;
	const char *shards;
	struct rlv_table_opts opts;
	struct rlv_view view;
	double spi;
	uint64_t min_size;
	struct json *json;       /* output of --json */
	struct text_table *list; /* of `table list`: a row per table; else NULL */
};

/* ctx: the request. 0, or the code of a failure that was printed. */
static int table_describe(struct rlv_store *store, const char *name, void *ctx)
{
	const struct request *request = ctx;
	struct rlv_table_info info = { .size = sizeof(info) };
	struct rlv_table *table;
	int ret = rlv_table_open(store, name, &table);

	if (ret)
		return cli_fail(ret, "open table %s", name), ret;
	ret = rlv_table_info(table, &info);
	if (ret)
		cli_fail(ret, "read table %s", name);
	else if (request->common.json)
		table_put_json(&info, request->json);
	else if (request->list)
		table_print_row(&info, request->list);
	else
		ret = table_print_text(&info, stdout);
	cli_table_close(&table);
	return ret;
}

static int table_list(struct rlv_store *store, struct request *request)
{
	struct text_table list;
	struct request each = *request;
	int code;

	each.list = &list;
	table_print_heading(&list);
	code = cli_each_table(store, request->common.json ? request->json : NULL, table_describe,
			      &each);
	/* The heading alone is no answer if the names could not be read. */
	if (!request->common.json && (code == CLI_OK || list.n_cells > list.n_columns) &&
	    text_table_print(&list, stdout))
		code = CLI_FAILURE;
	text_table_fini(&list);
	return code;
}

static int table_info(struct rlv_store *store, struct request *request)
{
	return table_describe(store, request->name, request) ? CLI_FAILURE : CLI_OK;
}

static const char *shard_state_name(uint32_t state)
{
	static const char *const names[] = { "?", "active", "draining", "down", "lost", "gone" };

	return state < ARRAY_LEN(names) ? names[state] : names[0];
}

static int print_shards(const struct rlv_shard_info *shards, size_t n)
{
	struct text_table list;
	int ret;

	text_table_init(&list, ">shard|state|>weight|node|address");
	for (size_t i = 0; i < n; i++) {
		const struct rlv_shard_info *shard = &shards[i];

		text_table_cell(&list, "%u", shard->shard);
		text_table_cell(&list, "%s", shard_state_name(shard->state));
		text_table_cell(&list, "%.1f%%", shard->weight / 10.0);
		text_table_cell(&list, "%s", shard->node);
		text_table_cell(&list, "%s", shard->address);
		text_table_row(&list);
	}
	ret = text_table_print(&list, stdout);
	text_table_fini(&list);
	return ret ? CLI_FAILURE : CLI_OK;
}

static void put_shards(const struct rlv_shard_info *shards, size_t n, struct json *json)
{
	json_array_begin(json);
	for (size_t i = 0; i < n; i++) {
		const struct rlv_shard_info *shard = &shards[i];

		json_object_begin(json);
		json_put_u64(json, "shard", shard->shard);
		json_put_string(json, "state", shard_state_name(shard->state));
		json_put_u64(json, "weight", shard->weight);
		json_put_string(json, "node", shard->node);
		json_put_string(json, "address", shard->address);
		json_object_end(json);
	}
	json_array_end(json);
}

static int table_shards(struct rlv_store *store, struct request *request)
{
	struct rlv_shard_info *shards = mem_array(MAX_SHARDS, sizeof(*shards));
	struct rlv_table *table;
	size_t n = MAX_SHARDS;
	int ret, code = CLI_OK;

	if (!shards)
		return cli_fail_local(-ENOMEM, "shards");
	ret = rlv_table_open(store, request->name, &table);
	if (ret == 0) {
		ret = rlv_table_shards(table, shards, sizeof(*shards), &n);
		cli_table_close(&table);
	}
	if (ret)
		code = cli_fail(ret, "list the shards of table %s", request->name);
	else if (request->common.json)
		put_shards(shards, n, request->json);
	else
		code = print_shards(shards, n);
	mem_free(shards);
	return code;
}

static int table_rebalance(struct rlv_store *store, struct request *request)
{
	uint32_t added = 0, draining = 0;
	int ret = rlv_table_rebalance(store, request->name, &added, &draining);

	if (ret)
		return cli_fail(ret, "rebalance table %s", request->name);
	if (!request->common.json) {
		printf("table %s: %u new shards, %u drain\n", request->name, added, draining);
		return CLI_OK;
	}
	json_object_begin(request->json);
	json_put_u64(request->json, "added", added);
	json_put_u64(request->json, "draining", draining);
	json_object_end(request->json);
	return CLI_OK;
}

/* "auto", a number, or empty. */
static int take_shards(const struct request *request, uint32_t *shards_out)
{
	uint64_t n = 0;
	int ret = 0;

	if (request->shards && strcmp(request->shards, "auto") == 0)
		n = RLV_SHARDS_AUTO;
	else if (request->shards)
		ret = units_parse_count(request->shards, &n);
	if (ret == 0 && n > RLV_SHARDS_AUTO)
		ret = error_set(-EINVAL, "%s: too many shards", request->shards);
	*shards_out = (uint32_t)n;
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
	ret = take_shards(request, &opts.shards);
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
	cli_table_close(&table);
	return table_describe(store, request->name, request) ? CLI_FAILURE : CLI_OK;
}

static int table_drop(struct rlv_store *store, struct request *request)
{
	int ret = rlv_table_drop(store, request->name);

	if (ret)
		return cli_fail(ret, "drop table %s", request->name);
	if (!request->common.json) {
		printf("table %s is dropped\n", request->name);
		return CLI_OK;
	}
	json_object_begin(request->json);
	json_put_string(request->json, "table", request->name);
	json_put_bool(request->json, "dropped", true);
	json_object_end(request->json);
	return CLI_OK;
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
};

/*
 * relive table VERB [URI] [NAME]: a single word after the verb is the name if the verb needs one.
 */
static int run_verb(struct request *request, const char *const *words)
{
	struct rlv_store *store;
	size_t v = 0;
	int code;

	while (v < ARRAY_LEN(verbs) && strcmp(words[0], verbs[v].verb) != 0)
		v++;
	if (v == ARRAY_LEN(verbs)) {
		cli_error("table %.40s: use list, info, create, drop, shards or rebalance",
			  words[0]);
		return CLI_USAGE;
	}
	request->uri = words[1];
	request->name = words[2];
	if (verbs[v].named && !words[2]) {
		request->uri = NULL;
		request->name = words[1];
	}
	if (verbs[v].named != (request->name != NULL)) {
		cli_error(verbs[v].named ? "table %s: give the NAME of a table"
					 : "table %s takes no name",
			  words[0]);
		return CLI_USAGE;
	}
	if (!request->uri)
		request->uri = CLI_DEFAULT_URI;
	if (cli_store_open(request->uri, request->common.timeout_ns, !verbs[v].writes, &store))
		return CLI_FAILURE;
	json_init(request->json, stdout);
	code = verbs[v].run(store, request);
	cli_store_close(&store);
	return request->common.json && json_end(request->json) ? CLI_FAILURE : code;
}

int cmd_table(int argc, char **argv)
{
	struct json json;
	struct request request = { .common = CLI_COMMON_INIT,
				   .json = &json,
				   .shape = "cartpole",
				   .opts = RLV_TABLE_OPTS_INIT };
	const char *words[3] = { NULL, NULL, NULL };
	const struct arg_option options[] = {
		CLI_OPTION_STORE(request.common),
		CLI_OPTION_JSON(request.common),
		CLI_OPTION_TIMEOUT(request.common),
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
	};
	const struct args args = {
		.usage = "table list|info|create|drop|shards|rebalance [URI] [NAME] [OPTIONS]",
		.summary =
			"Lists, describes, creates, drops and rebalances tables (default store "
			"" CLI_DEFAULT_URI
			").\nshards lists the shards of a table with their nodes; rebalance gives new nodes "
			"their share.",
		.options = options,
		.n_options = ARRAY_LEN(options),
		.examples =
			"relive table create --store replay frames --columns atari --stack 4 --n-step 3\n"
			"relive table list --json",
		.positional = words,
		.min_positional = 1,
		.max_positional = 3,
	};
	int code;

	request.opts.capacity = UINT64_C(1) << 20;
	code = cli_parse_store(&args, &request.common, 1, argc, argv);
	return code == CLI_CONTINUE ? run_verb(&request, words) : code;
}
