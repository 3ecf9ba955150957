#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "relive/admin.h"
#include "relive/landing.h"

#include "base/bits.h"
#include "base/os/clock.h"
#include "cli/cli.h"
#include "cli/health.h"
#include "cli/record.h"
#include "cli/store_status.h"

struct request {
	struct cli_common common;
	const char *word; /* the URI */
	const char *node, *daemon;
	bool why, health;
};

static void put_state(const void *record, struct json *json, struct text_table *row)
{
	static const char *const names[] = { "down", "up", "draining", "lost" };
	const struct rlv_node_info *node = record;
	const char *state = node->state < ARRAY_LEN(names) ? names[node->state] : "?";

	if (json) {
		json_put_string(json, "state", state);
		json_put_u64(json, "broken", node->broken);
	} else if (node->broken) {
		text_table_cell(row, "%s, %u broken", state, node->broken);
	} else {
		text_table_cell(row, "%s", state);
	}
}

static void put_transport(const void *record, struct json *json, struct text_table *row)
{
	const struct rlv_node_info *node = record;

	if (json) {
		json_put_string(json, "transport", node->transport);
		json_put_string(json, "why", node->why);
	} else {
		text_table_cell(row, "%s%s%s", node->transport, node->why[0] ? ": " : "",
				node->why);
	}
}

static void put_gauges(const void *record, struct json *json, struct text_table *row)
{
	const struct rlv_node_info *node = record;
	char text[2 * sizeof(node->gauges)] = ""; /* up to 20 digits per number */
	size_t n = 0;

	if (json) {
		json_key(json, "gauges");
		json_object_begin(json);
		for (uint32_t i = 0; i < node->n_gauges; i++)
			json_put_u64(json, node->gauges[i].name, node->gauges[i].value);
		json_object_end(json);
		return;
	}
	for (uint32_t i = 0; i < node->n_gauges; i++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%llu %s", i ? ", " : "",
				      (unsigned long long)node->gauges[i].value,
				      node->gauges[i].name);
	text_table_cell(row, "%s", text);
}

static const struct field node_fields[] = {
	FIELD(rlv_node_info, name, FIELD_TEXT, "name", "node"),
	{ "state", "state", FIELD_OWN, 0, NULL, put_state },
	FIELD(rlv_node_info, pool_bytes, FIELD_BYTES, "pool_bytes", ">pool"),
	FIELD(rlv_node_info, used_bytes, FIELD_BYTES, "used_bytes", ">used"),
	FIELD(rlv_node_info, regions, FIELD_U32, "regions", NULL),
	FIELD(rlv_node_info, shards, FIELD_U32, "shards", ">shards"),
	FIELD(rlv_node_info, clients, FIELD_U32, "clients", ">clients"),
	{ "gauges", "gauges", FIELD_OWN, 0, NULL, put_gauges },
	FIELD(rlv_node_info, agent_cpu_ns, FIELD_NS, "agent_cpu_ns", ">agent cpu"),
	FIELD(rlv_node_info, process_cpu_ns, FIELD_NS, "process_cpu_ns", NULL),
	FIELD(rlv_node_info, silent_ns, FIELD_NS, "silent_ns", NULL),
	FIELD(rlv_node_info, incarnation, FIELD_U64, "incarnation", NULL),
	{ "transport", "transport", FIELD_OWN, 0, NULL, put_transport },
	FIELD(rlv_node_info, pages, FIELD_TEXT, "pages", "pages"),
	FIELD(rlv_node_info, address, FIELD_TEXT, "address", "address"),
};

static const struct record node_type = RECORD(rlv_node_info, node_fields);

static const struct field store_fields[] = {
	FIELD(rlv_store_info, uri, FIELD_TEXT, "uri", "store"),
	FIELD(rlv_store_info, server_version, FIELD_TEXT, "server_version", "version"),
	FIELD(rlv_store_info, term, FIELD_U64, "term", ">term"),
	FIELD(rlv_store_info, n_tables, FIELD_U32, "tables", ">tables"),
	FIELD(rlv_store_info, n_clients, FIELD_U32, "clients", ">clients"),
	FIELD(rlv_store_info, rebuilds, FIELD_U32, "rebuilds", ">rebuilds"),
	FIELD(rlv_store_info, waiting, FIELD_TEXT, "waiting", NULL),
};

static const struct record store_type = RECORD(rlv_store_info, store_fields);

static const char *const modes[] = { "clover", "direct", "central", NULL };

static const struct field heap_fields[] = {
	FIELD(rlv_heap_info, name, FIELD_TEXT, "name", "heap"),
	{ "mode", "mode", FIELD_NAME, offsetof(struct rlv_heap_info, mode), modes, NULL },
	FIELD(rlv_heap_info, parts, FIELD_U32, "parts", ">parts"),
	FIELD(rlv_heap_info, copies_wanted, FIELD_U32, "copies_wanted", ">copies wanted"),
	FIELD(rlv_heap_info, copies, FIELD_U32, "copies", ">whole"),
	FIELD(rlv_heap_info, copies_filling, FIELD_U32, "copies_filling", ">being filled"),
};

static const struct record heap_type = RECORD(rlv_heap_info, heap_fields);

/* How samplers' batches come to devices, if any do. */
static void put_landings(const void *record, struct json *json, struct text_table *row)
{
	const struct rlv_lag *lag = record;
	char text[160] = "";
	size_t n = 0;

	for (uint32_t path = 0; path < ARRAY_LEN(lag->landings); path++) {
		const char *name = rlv_landing_path_name(path);

		if (!lag->landings[path])
			continue;
		if (json && !n) {
			json_key(json, "landings");
			json_object_begin(json);
		}
		if (json)
			json_put_u64(json, name, lag->landings[path]);
		if (n < sizeof(text))
			n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%s %u", n ? ", " : "",
					      name, lag->landings[path]);
	}
	if (json && n)
		json_object_end(json);
	if (!json)
		text_table_cell(row, "%s", n ? text : "-");
}

/* The members of struct rlv_lag, by the names that they have in lists of that kind. */
#define LAG_FIELDS(object, version_key, version_heading, readers_name, lag) \
	FIELD(rlv_lag, name, FIELD_TEXT, object, object), \
		FIELD(rlv_lag, newest, FIELD_U64, version_key, ">" version_heading), \
		FIELD(rlv_lag, readers, FIELD_U32, readers_name, ">" readers_name), \
		FIELD(rlv_lag, least, FIELD_DOUBLE, "least", ">" lag ": least"), \
		FIELD(rlv_lag, mean, FIELD_DOUBLE, "mean", ">mean"), \
		FIELD(rlv_lag, most, FIELD_DOUBLE, "most", ">most")

static const struct field staleness_fields[] = {
	LAG_FIELDS("table", "policy_version", "policy version", "samplers", "staleness"),
	{ "landings", "landings", FIELD_OWN, 0, NULL, put_landings },
};
static const struct field publish_fields[] = {
	LAG_FIELDS("weights", "version", "version", "readers", "publish_lag"),
};

static const struct record staleness_type = RECORD(rlv_lag, staleness_fields);
static const struct record publish_type = RECORD(rlv_lag, publish_fields);

/* -------- --why: pending waits and their causes -------- */

enum { MAX_WAITS = 256, MAX_OBJECTS = 255 /* limit of the metadata server */ };

static const char *wait_kind(const struct rlv_wait *wait)
{
	static const char *const names[] = { "?", "limiter", "rebuild", "drain", "stopped" };

	return wait->kind < ARRAY_LEN(names) ? names[wait->kind] : "?";
}

static void put_wait(struct json *json, const struct rlv_wait *wait)
{
	json_object_begin(json);
	json_put_string(json, "kind", wait_kind(wait));
	json_put_u64(json, "client_id", wait->client_id);
	json_put_u64(json, "pid", wait->pid);
	json_put_u64(json, "slot", wait->slot);
	json_put_string(json, "table", wait->table);
	if (wait->kind == RLV_WAIT_LIMITER && wait->view != UINT32_MAX)
		json_put_u64(json, "view", wait->view);
	if (wait->kind == RLV_WAIT_REBUILD || wait->kind == RLV_WAIT_DRAIN)
		json_put_u64(json, "shard", wait->shard);
	if (wait->kind == RLV_WAIT_DRAIN) {
		json_put_string(json, "node", wait->node);
		json_put_u64(json, "items_left", wait->left);
	}
	json_put_bool(json, "stopped", wait->stopped);
	json_put_u64(json, "since_ns", wait->since_ns);
	json_put_string(json, "words", wait->words);
	json_object_end(json);
}

/* -------- all of it -------- */

/* Lists that are shown beside the store and its nodes. */
struct lists {
	struct rlv_heap_info heaps[MAX_OBJECTS];
	struct rlv_lag staleness[MAX_OBJECTS], publish[MAX_OBJECTS];
	struct rlv_wait waits[MAX_WAITS];
	size_t n_heaps, n_staleness, n_publish, n_waits, waits_shown;
};

/* An embedded store lists no heaps and lags. */
static int read_lists(struct rlv_store *store, bool why, struct lists *out)
{
	size_t n_lags = MAX_OBJECTS;
	int ret;

	out->n_heaps = MAX_OBJECTS;
	ret = rlv_store_heaps(store, out->heaps, sizeof(out->heaps[0]), &out->n_heaps);
	if (ret == 0)
		ret = rlv_store_lags(store, out->staleness, sizeof(out->staleness[0]), &n_lags);
	if (ret == -ENOTSUP) {
		out->n_heaps = n_lags = 0;
		ret = 0;
	}
	if (ret)
		return ret;
	out->n_heaps = min_u64(out->n_heaps, MAX_OBJECTS);
	n_lags = min_u64(n_lags, MAX_OBJECTS);
	for (size_t i = 0; i < n_lags; i++) {
		const struct rlv_lag lag = out->staleness[i];

		if (lag.kind == RLV_LAG_STALENESS)
			out->staleness[out->n_staleness++] = lag;
		else
			out->publish[out->n_publish++] = lag;
	}
	out->n_waits = MAX_WAITS;
	if (why)
		ret = rlv_store_waits(store, out->waits, sizeof(out->waits[0]), &out->n_waits);
	out->waits_shown = why ? min_u64(out->n_waits, MAX_WAITS) : 0;
	return ret;
}

static int show_json(const struct store_status *status, const struct lists *lists, bool why)
{
	struct json *json = cli_json_begin();

	record_members(&store_type, &status->info, json);
	json_key(json, "nodes");
	record_list(&node_type, status->nodes, status->n_nodes, json);
	json_key(json, "heaps");
	record_list(&heap_type, lists->heaps, lists->n_heaps, json);
	json_key(json, "staleness");
	record_list(&staleness_type, lists->staleness, lists->n_staleness, json);
	json_key(json, "publish_lag");
	record_list(&publish_type, lists->publish, lists->n_publish, json);
	if (why) {
		json_key(json, "waits");
		json_array_begin(json);
		for (size_t i = 0; i < lists->waits_shown; i++)
			put_wait(json, &lists->waits[i]);
		json_array_end(json);
		json_put_u64(json, "waits_left_out", lists->n_waits - lists->waits_shown);
	}
	return cli_json_end(json);
}

static void show_wait(const struct rlv_wait *wait)
{
	printf("%-8s", wait_kind(wait));
	if (wait->pid)
		printf("  pid %u", wait->pid);
	else if (wait->client_id)
		printf("  client %" PRIx64 " of another host", wait->client_id);
	if (wait->slot)
		printf(" slot %u", wait->slot);
	if (wait->since_ns)
		printf("  for %.1f s", (double)wait->since_ns / (double)CLOCK_NS_PER_S);
	printf("  %s\n", wait->words);
}

static int show_text(const struct store_status *status, const struct lists *lists, bool why)
{
	const struct {
		const struct record *type;
		const void *array;
		size_t n;
	} tables[] = { { &store_type, &status->info, 1 },
		       { &node_type, status->nodes, status->n_nodes },
		       { &heap_type, lists->heaps, lists->n_heaps },
		       { &staleness_type, lists->staleness, lists->n_staleness },
		       { &publish_type, lists->publish, lists->n_publish } };
	int code = CLI_OK;

	for (size_t i = 0; code == CLI_OK && i < ARRAY_LEN(tables); i++)
		if (i < 2 || tables[i].n)
			code = record_list(tables[i].type, tables[i].array, tables[i].n, NULL);
	if (status->info.waiting[0])
		printf("waiting: %s\n", status->info.waiting);
	for (size_t i = 0; i < lists->waits_shown; i++)
		show_wait(&lists->waits[i]);
	if (why && lists->n_waits == 0)
		printf("nothing is waiting\n");
	else if (why && lists->n_waits > lists->waits_shown)
		printf("and %zu more\n", lists->n_waits - lists->waits_shown);
	return code;
}

static int show_status(struct rlv_store *store, const struct request *request)
{
	static struct lists lists;
	struct store_status status;
	int ret = store_status_read(store, &status);

	if (ret == 0)
		ret = read_lists(store, request->why, &lists);
	if (ret)
		return cli_fail(ret, "status of %s", request->common.uri);
	return request->common.json ? show_json(&status, &lists, request->why)
				    : show_text(&status, &lists, request->why);
}

static bool options_agree(const struct request *request)
{
	if (request->health && request->why)
		cli_error("--health, --why: give one of them");
	else if ((request->node || request->daemon) && !request->health)
		cli_error("--node and --daemon need --health");
	else if (request->node && request->daemon)
		cli_error("--node, --daemon: give one of them");
	else if (request->daemon && strcmp(request->common.uri, CLI_DEFAULT_URI) != 0)
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
		.positional = &request.word,
		.max_positional = 1,
	};
	int code = cli_parse_store(&args, &request.common, argc, argv);
	int64_t timeout_ns = request.common.timeout_ns;
	struct rlv_store *store;

	if (code != CLI_CONTINUE)
		return code;
	if (!options_agree(&request))
		return CLI_USAGE;
	if (request.health)
		return health_run(request.common.uri, request.node, request.daemon, timeout_ns,
				  request.common.json);
	if (cli_store_open(request.common.uri, timeout_ns ? timeout_ns : 5 * CLOCK_NS_PER_S, true,
			   &store))
		return CLI_FAILURE;
	code = show_status(store, &request);
	cli_closed(rlv_store_close(&store), "store");
	return code;
}
