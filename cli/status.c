#include <stdio.h>

#include "base/bits.h"
#include "base/os/clock.h"
#include "cli/cli.h"
#include "cli/health.h"
#include "cli/store_status.h"
#include "program/text_table.h"
#include "program/units.h"
#include "cli/why.h"

struct request {
	struct cli_common common;
	const char *uri;
	const char *node, *daemon;
	bool why, health;
};

static const char *state_name(uint32_t state)
{
	static const char *const names[] = { "down", "up", "draining", "lost" };

	return state < ARRAY_LEN(names) ? names[state] : "?";
}

static void json_node(struct json *json, const struct rlv_node_info *node)
{
	json_object_begin(json);
	json_put_string(json, "name", node->name);
	json_put_string(json, "state", state_name(node->state));
	json_put_string(json, "address", node->address);
	json_put_string(json, "transport", node->transport);
	json_put_u64(json, "pool_bytes", node->pool_bytes);
	json_put_u64(json, "used_bytes", node->used_bytes);
	json_put_u64(json, "regions", node->regions);
	json_put_u64(json, "broken", node->broken);
	json_put_u64(json, "incarnation", node->incarnation);
	json_put_string(json, "pages", node->pages);
	json_put_u64(json, "shards", node->shards);
	json_put_u64(json, "clients", node->clients);
	json_key(json, "gauges");
	json_object_begin(json);
	for (uint32_t i = 0; i < node->n_gauges; i++)
		json_put_u64(json, node->gauges[i].name, node->gauges[i].value);
	json_object_end(json);
	json_put_u64(json, "agent_cpu_ns", node->agent_cpu_ns);
	json_put_u64(json, "process_cpu_ns", node->process_cpu_ns);
	json_put_u64(json, "silent_ns", node->silent_ns);
	json_object_end(json);
}

/* why: NULL unless requested. */
static int print_json(const struct store_status *status, const struct why *why)
{
	const struct rlv_store_info *info = &status->info;
	struct json *json;

	json = cli_json_begin();
	json_put_string(json, "uri", info->uri);
	json_put_string(json, "server_version", info->server_version);
	json_put_u64(json, "term", info->term);
	json_put_u64(json, "tables", info->n_tables);
	json_put_u64(json, "clients", info->n_clients);
	json_put_u64(json, "rebuilds", info->rebuilds);
	json_put_string(json, "waiting", info->waiting);
	json_key(json, "nodes");
	json_array_begin(json);
	for (size_t i = 0; i < status->n_nodes; i++)
		json_node(json, &status->nodes[i]);
	json_array_end(json);
	if (why)
		why_json(json, why);
	return cli_json_end(json);
}

static void put_gauges(struct text_table *table, const struct rlv_node_info *node)
{
	char text[2 * sizeof(node->gauges)] = ""; /* up to 20 digits per number */
	size_t n = 0;

	for (uint32_t i = 0; i < node->n_gauges; i++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%llu %s", i ? ", " : "",
				      (unsigned long long)node->gauges[i].value,
				      node->gauges[i].name);
	text_table_cell(table, "%s", text);
}

static int print_text(const struct store_status *status)
{
	const struct rlv_store_info *info = &status->info;
	char pool[UNITS_TEXT_BYTES], used[UNITS_TEXT_BYTES];
	struct text_table table;
	int ret;

	printf("%s  version %s  term %llu  tables %u  clients %u  rebuilds %u\n", info->uri,
	       info->server_version, (unsigned long long)info->term, info->n_tables,
	       info->n_clients, info->rebuilds);
	text_table_init(&table, "node|state|>pool|>used|>shards|>clients|gauges|>agent cpu|"
				"pages|address");
	for (size_t i = 0; i < status->n_nodes; i++) {
		const struct rlv_node_info *node = &status->nodes[i];

		text_table_cell(&table, "%s", node->name);
		if (node->broken)
			text_table_cell(&table, "%s, %u broken", state_name(node->state),
					node->broken);
		else
			text_table_cell(&table, "%s", state_name(node->state));
		text_table_cell(&table, "%s", units_format_bytes(node->pool_bytes, pool));
		text_table_cell(&table, "%s", units_format_bytes(node->used_bytes, used));
		text_table_cell(&table, "%u", node->shards);
		text_table_cell(&table, "%u", node->clients);
		put_gauges(&table, node);
		text_table_cell(&table, "%.1f ms", (double)node->agent_cpu_ns / 1e6);
		text_table_cell(&table, "%s", node->pages);
		text_table_cell(&table, "%s", node->address);
		text_table_row(&table);
	}
	ret = text_table_print(&table, stdout);
	text_table_fini(&table);
	if (info->waiting[0])
		printf("waiting: %s\n", info->waiting);
	return ret ? CLI_FAILURE : CLI_OK;
}

static int show_status(struct rlv_store *store, const struct request *request)
{
	struct store_status status;
	static struct why why;
	int code, ret = store_status_read(store, &status);

	if (ret == 0 && request->why)
		ret = why_ask(store, &why);
	if (ret)
		return cli_fail(ret, "status of %s", request->uri);
	if (request->common.json)
		return print_json(&status, request->why ? &why : NULL);
	code = print_text(&status);
	if (request->why)
		why_print(&why);
	return code;
}

static int run_status(const struct request *request)
{
	const int64_t timeout_ns = request->common.timeout_ns;
	const struct health_opts health = {
		.uri = request->uri,
		.node = request->node,
		.daemon = request->daemon,
		.timeout_ns = timeout_ns,
		.json = request->common.json,
	};
	struct rlv_store *store;
	int code;

	if (request->health)
		return health_run(&health);
	if (cli_store_open(request->uri, timeout_ns ? timeout_ns : 5 * CLOCK_NS_PER_S, true,
			   &store))
		return CLI_FAILURE;
	code = show_status(store, request);
	cli_store_close(&store);
	return code;
}

static bool options_agree(const struct request *request)
{
	if (request->health && request->why)
		cli_error("--health, --why: give one of them");
	else if ((request->node || request->daemon) && !request->health)
		cli_error("--node and --daemon need --health");
	else if (request->node && request->daemon)
		cli_error("--node, --daemon: give one of them");
	else if (request->daemon && request->uri)
		cli_error("--daemon checks one daemon: leave the store out");
	else
		return true;
	return false;
}

int cmd_status(int argc, char **argv)
{
	struct request request = { .common = { .timeout_ns = 0 } };
	const struct arg_option options[] = {
		CLI_OPTION_STORE(request.common),
		CLI_OPTION_JSON(request.common),
		{ "timeout", "TIME", "longest wait for an answer (default 5s; --health: 3s)",
		  &request.common.timeout_ns, ARG_DURATION },
		{ "why", NULL,
		  "show what waits and why: limiters, rebuilds, drains, stopped processes",
		  &request.why, ARG_FLAG },
		{ "health", NULL,
		  "for probes: print one line; exit code 0 if the server answers and all nodes are up",
		  &request.health, ARG_FLAG },
		{ "node", "NAME", "with --health: check this memory node, as the server sees it",
		  &request.node, ARG_TEXT },
		{ "daemon", "[HOST:]PORT",
		  "with --health: check one daemon by the /healthz that it serves with --metrics",
		  &request.daemon, ARG_TEXT },
	};
	const struct args args = {
		.usage = "status [URI] [OPTIONS]",
		.summary =
			"Shows the memory nodes, tables and clients of a store (default "
			"" CLI_DEFAULT_URI
			"), and the\nrebuilds that are pending. Exit code 1 if it does not answer.",
		.options = options,
		.n_options = ARRAY_LEN(options),
		.examples = "relive status\n"
			    "relive status --why\n"
			    "relive status --store replay --json\n"
			    "RELIVE_TOKEN=TOKEN relive status relive://10.0.0.1:7117",
		.positional = &request.uri,
		.max_positional = 1,
	};
	int code = cli_parse_store(&args, &request.common, 0, argc, argv);

	if (code != CLI_CONTINUE)
		return code;
	if (!options_agree(&request))
		return CLI_USAGE;
	if (!request.uri)
		request.uri = CLI_DEFAULT_URI;
	return run_status(&request);
}
