#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "cli/cli.h"
#include "cli/record.h"

static const struct field report_fields[] = {
	FIELD(rlv_verify_report, problems, FIELD_U32, "problems", NULL),
	FIELD(rlv_verify_report, items, FIELD_U64, "items", NULL),
	FIELD(rlv_verify_report, open_blocks, FIELD_U64, "open_blocks", NULL),
	FIELD(rlv_verify_report, wrong_sums, FIELD_U64, "wrong_sums", NULL),
	FIELD(rlv_verify_report, wrong_leaves, FIELD_U64, "wrong_leaves", NULL),
	FIELD(rlv_verify_report, wrong_blocks, FIELD_U64, "wrong_blocks", NULL),
	FIELD(rlv_verify_report, wrong_rows, FIELD_U64, "wrong_rows", NULL),
	FIELD(rlv_verify_report, wrong_words, FIELD_U64, "wrong_words", NULL),
	FIELD(rlv_verify_report, first_problem, FIELD_TEXT, "first_problem", NULL),
};

static const struct record report_type = RECORD(rlv_verify_report, report_fields);

struct inspection {
	struct json *json; /* NULL = print text */
	size_t tables;     /* number of tables that it has tried */
};

/*
 * Verifies a table and prints the report. ctx: struct inspection. 0, -EBADMSG: the table is
 * damaged, or the code of a failure that was printed.
 */
static int inspect_store(struct rlv_store *store, const char *name, void *ctx)
{
	struct inspection *inspection = ctx;
	struct rlv_verify_report report = { .size = sizeof(report) };
	struct rlv_table *table;
	int ret = rlv_table_open(store, name, &table);

	inspection->tables++;
	if (ret)
		return cli_fail(ret, "open table %s", name), ret;
	ret = rlv_table_verify(table, &report);
	cli_closed(rlv_table_close(&table), "table");
	if (ret)
		return cli_fail(ret, "verify table %s", name), ret;
	if (inspection->json) {
		json_object_begin(inspection->json);
		json_put_string(inspection->json, "table", name);
		record_members(&report_type, &report, inspection->json);
		json_object_end(inspection->json);
		return report.problems ? -EBADMSG : 0;
	}
	printf("%s: %llu items, %llu open blocks: ", name, (unsigned long long)report.items,
	       (unsigned long long)report.open_blocks);
	if (report.problems == 0) {
		printf("every invariant holds\n");
		return 0;
	}
	printf("%u PROBLEMS\n", report.problems);
	record_lines(&report_type, &report);
	return -EBADMSG;
}

int cmd_inspect(int argc, char **argv)
{
	struct cli_common common = CLI_COMMON_INIT;
	const char *what[2] = { NULL, NULL };
	struct rlv_store *store;
	const struct arg_option options[] = { CLI_OPTIONS(common) };
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
	int code = cli_parse_store(&args, &common, argc, argv);
	struct inspection inspection = { NULL, 0 };
	struct json json;

	if (code != CLI_CONTINUE)
		return code;
	if (cli_store_open(common.uri, common.timeout_ns, true, &store))
		return CLI_FAILURE;
	json_init(&json, stdout);
	if (common.json)
		inspection.json = &json;
	if (what[0])
		code = inspect_store(store, what[0], &inspection) ? CLI_FAILURE : CLI_OK;
	else
		code = cli_each_table(store, inspection.json, inspect_store, &inspection);
	if (!common.json && inspection.tables == 0 && code == CLI_OK)
		printf("no tables\n");
	cli_closed(rlv_store_close(&store), "store");
	return json_end(&json) ? CLI_FAILURE : code;
}
