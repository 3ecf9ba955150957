#include <errno.h>
#include <stdio.h>

#include "relive/admin.h"

#include "base/mem/alloc.h"
#include "base/bits.h"
#include "base/os/clock.h"
#include "base/json.h"
#include "cli/cli.h"
#include "program/text_table.h"

static void json_client(struct json *json, const struct rlv_client_info *client)
{
	uint32_t shown = (uint32_t)min_u64(client->n_tables, ARRAY_LEN(client->tables));

	json_object_begin(json);
	json_put_u64(json, "client", client->id);
	json_put_u64(json, "pid", client->pid);
	json_put_bool(json, "same_host", client->pid != 0);
	json_put_string(json, "role", client->role);
	json_put_string(json, "address", client->address);
	json_put_bool(json, "fenced", client->fenced);
	json_put_u64(json, "age_ns", client->age_ns);
	json_put_u64(json, "lease_ns", client->lease_ns);
	json_put_u64(json, "slots", client->slots);
	json_put_u64(json, "streams", client->streams);
	json_key(json, "tables");
	json_array_begin(json);
	for (uint32_t i = 0; i < shown; i++) {
		json_object_begin(json);
		json_put_string(json, "table", client->tables[i].name);
		json_put_u64(json, "slots", client->tables[i].slots);
		json_put_u64(json, "streams", client->tables[i].streams);
		json_object_end(json);
	}
	json_array_end(json);
	json_put_u64(json, "tables_left_out", client->n_tables - shown);
	json_object_end(json);
}

static int print_json(const struct rlv_client_info *clients, size_t n)
{
	struct json *json;

	json = cli_json_begin();
	json_key(json, "clients");
	json_array_begin(json);
	for (size_t i = 0; i < n; i++)
		json_client(json, &clients[i]);
	json_array_end(json);
	return cli_json_end(json);
}

static void put_tables(struct text_table *table, const struct rlv_client_info *client)
{
	char text[256] = "";
	size_t used = 0;

	for (uint32_t i = 0; i < client->n_tables && i < 3; i++)
		used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s %u", i ? ", " : "",
					 client->tables[i].name, client->tables[i].slots);
	if (client->n_tables > 3)
		text_table_cell(table, "%s and %u more", text, client->n_tables - 3);
	else
		text_table_cell(table, "%s", text);
}

static int print_text(const struct rlv_client_info *clients, size_t n)
{
	struct text_table table;
	int ret;

	text_table_init(&table, "client|>pid|role|connection|>since|>lease|>slots|>streams|tables");
	for (size_t i = 0; i < n; i++) {
		const struct rlv_client_info *client = &clients[i];

		text_table_cell(&table, "%llu", (unsigned long long)client->id);
		if (client->pid)
			text_table_cell(&table, "%u", client->pid);
		else
			text_table_cell(&table, "another host");
		text_table_cell(&table, "%s", client->role);
		text_table_cell(&table, "%s",
				client->fenced       ? "fenced"
				: client->address[0] ? client->address
						     : "away");
		text_table_cell(&table, "%.0f s", (double)client->age_ns / CLOCK_NS_PER_S);
		text_table_cell(&table, "%.1f s", (double)client->lease_ns / CLOCK_NS_PER_S);
		text_table_cell(&table, "%u", client->slots);
		text_table_cell(&table, "%u", client->streams);
		put_tables(&table, client);
		text_table_row(&table);
	}
	ret = text_table_print(&table, stdout);
	text_table_fini(&table);
	return ret ? CLI_FAILURE : CLI_OK;
}

/* Get all clients; freed by the caller. Their number may grow during the requests. */
static struct rlv_client_info *read_clients(struct rlv_store *store, size_t *n_out, int *code)
{
	struct rlv_client_info *clients = NULL;
	size_t n = 64, room = 0;

	while (room < n) {
		mem_free(clients);
		room = n;
		clients = mem_array(room, sizeof(*clients));
		*code = clients ? rlv_store_clients(store, clients, sizeof(*clients), &n) : -ENOMEM;
		if (*code)
			break;
	}
	*n_out = n;
	return clients;
}

int cmd_clients(int argc, char **argv)
{
	struct cli_common common = CLI_COMMON_INIT;
	const char *uri = NULL;
	struct rlv_client_info *clients;
	struct rlv_store *store;
	size_t n = 0;
	const struct arg_option options[] = { CLI_OPTION_JSON(common), CLI_OPTION_TIMEOUT(common) };
	const struct args args = {
		.usage = "clients [URI] [OPTIONS]",
		.summary =
			"Lists the clients of a store (default " CLI_DEFAULT_URI
			"): how long each has been connected, how long\nits lease still lasts, and how many "
			"client slots (max_clients) and streams (max_writers) it holds\nin which tables. "
			"Each opened store is a client, also the one that this command opens.",
		.options = options,
		.n_options = ARRAY_LEN(options),
		.positional = &uri,
		.max_positional = 1,
	};
	int code = cli_parse(&args, argc, argv), ret = 0;

	if (code != CLI_CONTINUE)
		return code;
	uri = uri ? uri : CLI_DEFAULT_URI;
	if (cli_store_open(uri, common.timeout_ns, true, &store))
		return CLI_FAILURE;
	clients = read_clients(store, &n, &ret);
	if (ret)
		code = cli_fail(ret, "clients of %s", uri);
	else
		code = common.json ? print_json(clients, n) : print_text(clients, n);
	mem_free(clients);
	cli_store_close(&store);
	return code;
}
