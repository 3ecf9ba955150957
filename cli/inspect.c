#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "base/json.h"
#include "cli/cli.h"

static void put_json(const char *name, const struct rlv_verify_report *report, struct json *json)
{
	json_object_begin(json);
	json_put_string(json, "table", name);
	json_put_u64(json, "problems", report->problems);
	json_put_u64(json, "items", report->items);
	json_put_u64(json, "open_blocks", report->open_blocks);
	json_put_u64(json, "wrong_sums", report->wrong_sums);
	json_put_u64(json, "wrong_leaves", report->wrong_leaves);
	json_put_u64(json, "wrong_blocks", report->wrong_blocks);
	json_put_u64(json, "wrong_rows", report->wrong_rows);
	json_put_u64(json, "wrong_words", report->wrong_words);
	json_put_string(json, "first_problem", report->first_problem);
	json_object_end(json);
}

static void print_text(const char *name, const struct rlv_verify_report *report)
{
	printf("%s: %llu items, %llu open blocks: ", name, (unsigned long long)report->items,
	       (unsigned long long)report->open_blocks);
	if (report->problems == 0) {
		printf("every invariant holds\n");
		return;
	}
	printf("%u PROBLEMS\n  wrong sums %llu, leaves %llu, blocks %llu, rows %llu, words %llu\n"
	       "  first: %s\n",
	       report->problems, (unsigned long long)report->wrong_sums,
	       (unsigned long long)report->wrong_leaves, (unsigned long long)report->wrong_blocks,
	       (unsigned long long)report->wrong_rows, (unsigned long long)report->wrong_words,
	       report->first_problem);
}

struct inspection {
	struct json *json; /* NULL = print text */
	size_t tables;     /* number of tables that it has tried */
};

/* ctx: struct inspection. -EBADMSG: the table is damaged. The failure was printed. */
static int inspect(struct rlv_store *store, const char *name, void *ctx)
{
	struct inspection *inspection = ctx;
	struct rlv_verify_report report = { .size = sizeof(report) };
	struct rlv_table *table;
	int ret = rlv_table_open(store, name, &table);

	inspection->tables++;
	if (ret)
		return cli_fail(ret, "open table %s", name), ret;
	ret = rlv_table_verify(table, &report);
	cli_table_close(&table);
	if (ret)
		return cli_fail(ret, "verify table %s", name), ret;
	if (inspection->json)
		put_json(name, &report, inspection->json);
	else
		print_text(name, &report);
	return report.problems ? -EBADMSG : 0;
}

int cmd_inspect(int argc, char **argv)
{
	struct cli_common common = CLI_COMMON_INIT;
	const char *what[2] = { NULL, NULL };
	struct rlv_store *store;
	const struct arg_option options[] = { CLI_OPTION_STORE(common), CLI_OPTION_JSON(common),
					      CLI_OPTION_TIMEOUT(common) };
	const struct args args = {
		.usage = "inspect [URI [TABLE]] [OPTIONS]",
		.summary =
			"Walks one table, or all tables, and checks every invariant of sums, leaves, "
			"blocks, rows and\ncounters. Exit code 1 if one is broken.",
		.options = options,
		.n_options = ARRAY_LEN(options),
		.examples = "relive inspect --store replay frames",
		.notes =
			"Stop writers and learners for an exact answer: a change in progress looks broken.",
		.positional = what,
		.max_positional = 2,
	};
	int code = cli_parse_store(&args, &common, 0, argc, argv);
	struct inspection inspection = { NULL, 0 };
	struct json json;

	if (code != CLI_CONTINUE)
		return code;
	if (cli_store_open(what[0] ? what[0] : CLI_DEFAULT_URI, common.timeout_ns, true, &store))
		return CLI_FAILURE;
	json_init(&json, stdout);
	if (common.json)
		inspection.json = &json;
	if (what[1])
		code = inspect(store, what[1], &inspection) ? CLI_FAILURE : CLI_OK;
	else
		code = cli_each_table(store, inspection.json, inspect, &inspection);
	if (!common.json && inspection.tables == 0 && code == CLI_OK)
		printf("no tables\n");
	cli_store_close(&store);
	return json_end(&json) ? CLI_FAILURE : code;
}
