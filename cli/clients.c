#include <errno.h>
#include <stdio.h>

#include "relive/admin.h"

#include "base/mem/alloc.h"
#include "base/bits.h"
#include "cli/cli.h"
#include "cli/record.h"

static void put_process(const void *record, struct json *json, struct text_table *row)
{
	const struct rlv_client_info *client = record;

	if (json) {
		json_put_u64(json, "pid", client->pid);
		json_put_bool(json, "same_host", client->pid != 0);
	} else if (client->pid) {
		text_table_cell(row, "%u", client->pid);
	} else {
		text_table_cell(row, "another host");
	}
}

static void put_tables(const void *record, struct json *json, struct text_table *row)
{
	static const struct field fields[] = {
		FIELD(rlv_client_table, name, FIELD_TEXT, "table", NULL),
		FIELD(rlv_client_table, slots, FIELD_U32, "slots", NULL),
		FIELD(rlv_client_table, streams, FIELD_U32, "streams", NULL),
	};
	static const struct record type = RECORD(rlv_client_table, fields);
	const struct rlv_client_info *client = record;
	uint32_t shown = (uint32_t)min_u64(client->n_tables, json ? ARRAY_LEN(client->tables) : 3);
	char text[256] = "", more[32] = "";
	size_t used = 0;

	if (json) {
		json_key(json, "tables");
		record_list(&type, client->tables, shown, json);
		json_put_u64(json, "tables_left_out", client->n_tables - shown);
		return;
	}
	for (uint32_t i = 0; i < shown; i++)
		used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s %u", i ? ", " : "",
					 client->tables[i].name, client->tables[i].slots);
	if (client->n_tables > shown)
		snprintf(more, sizeof(more), " and %u more", client->n_tables - shown);
	text_table_cell(row, "%s%s", text, more);
}

static const struct field client_fields[] = {
	FIELD(rlv_client_info, id, FIELD_U64, "client", "client"),
	{ "pid", ">pid", FIELD_OWN, 0, NULL, put_process },
	FIELD(rlv_client_info, role, FIELD_TEXT, "role", "role"),
	FIELD(rlv_client_info, address, FIELD_TEXT, "address", "address"),
	FIELD(rlv_client_info, fenced, FIELD_BOOL, "fenced", "fenced"),
	FIELD(rlv_client_info, age_ns, FIELD_NS, "age_ns", ">since"),
	FIELD(rlv_client_info, lease_ns, FIELD_NS, "lease_ns", ">lease"),
	FIELD(rlv_client_info, slots, FIELD_U32, "slots", ">slots"),
	FIELD(rlv_client_info, streams, FIELD_U32, "streams", ">streams"),
	{ "tables", "tables", FIELD_OWN, 0, NULL, put_tables },
};

static const struct record client_type = RECORD(rlv_client_info, client_fields);

int cmd_clients(int argc, char **argv)
{
	struct cli_common common = CLI_COMMON_INIT;
	const char *word = NULL;
	struct rlv_client_info *clients = NULL;
	struct rlv_store *store;
	struct json *json = NULL;
	size_t n = 64, room = 0;
	const struct arg_option options[] = { CLI_OPTIONS(common) };
	const struct args args = {
		.usage = "clients [URI] [OPTIONS]",
		.summary =
			"Lists the clients of a store (default " CLI_DEFAULT_URI
			"): how long each has been connected, how long\nits lease still lasts, and how many "
			"client slots (max_clients) and streams (max_writers) it holds\nin which tables. "
			"Each opened store is a client, also the one that this command opens.",
		.options = options,
		.n_options = ARRAY_LEN(options),
		.positional = &word,
		.max_positional = 1,
	};
	int code = cli_parse_store(&args, &common, argc, argv), ret = 0;

	if (code != CLI_CONTINUE)
		return code;
	if (cli_store_open(common.uri, common.timeout_ns, true, &store))
		return CLI_FAILURE;
	/* The number of clients may grow between two requests. */
	while (ret == 0 && room < n) {
		mem_free(clients);
		room = n;
		clients = mem_array(room, sizeof(*clients));
		ret = clients ? rlv_store_clients(store, clients, sizeof(*clients), &n) : -ENOMEM;
	}
	if (ret == 0 && common.json) {
		json = cli_json_begin();
		json_key(json, "clients");
	}
	code = ret ? cli_fail(ret, "clients of %s", common.uri)
		   : record_list(&client_type, clients, n, json);
	if (json)
		code = cli_json_end(json);
	mem_free(clients);
	cli_closed(rlv_store_close(&store), "store");
	return code;
}
