#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "relive/admin.h"

#include "base/bits.h"
#include "base/os/clock.h"
#include "base/os/group.h"
#include "base/json.h"
#include "cli/cli.h"
#include "cli/host/host_store.h"
#include "cli/host/node_options.h"
#include "program/interrupt.h"

/* Arguments of `relive node ...`. */
struct request {
	struct cli_common common;
	const char *uri;
	const char *name;
	int64_t wait_ns;
	struct host_node_opts opts;
};

/* -------- add -------- */

static int node_add(const struct request *request)
{
	struct host_node_opts opts = request->opts;
	struct json *json;
	gid_t gid;
	pid_t pid;
	int ret;

	opts.name = request->name;
	if (strncmp(request->uri, "shm:", 4) == 0)
		opts.store = request->uri + 4;
	else
		opts.metad = request->uri;
	if (opts.bytes == 0 && !opts.file)
		opts.bytes = UINT64_C(1) << 30;
	ret = opts.group ? group_find(opts.group, &gid) : 0;
	if (ret)
		return cli_fail_local(ret, "add node %s", request->name);
	interrupt_install();
	ret = host_store_add_node(&opts, &pid);
	if (ret)
		return cli_fail_local(ret, "add node %s", request->name);
	if (!request->common.json) {
		printf("node %s is up, pid %d\n", request->name, (int)pid);
		return CLI_OK;
	}
	json = cli_json_begin();
	json_put_string(json, "node", request->name);
	json_put_i64(json, "pid", pid);
	return cli_json_end(json);
}

/* Removes the record of a drained or dropped node, so that `relive up` does not start it again. */
static int forget_record(const struct request *request)
{
	int ret = host_store_forget_node(request->uri, request->name);

	return ret && ret != -ENOENT
		       ? cli_fail_local(
				 ret, "remove the record of node %s; relive up may start it again",
				 request->name)
		       : CLI_OK;
}

/* -------- drain -------- */

static int print_drain(const struct request *request, const struct rlv_drain_info *info)
{
	struct json *json;

	if (!request->common.json && info->shards == 0) {
		printf("node %s is empty: it can be stopped\n", request->name);
		return CLI_OK;
	}
	if (!request->common.json) {
		printf("node %s drains: %u shards and %llu of %llu items are left\n", request->name,
		       info->shards, (unsigned long long)info->items_left,
		       (unsigned long long)info->items_begin);
		return CLI_OK;
	}
	json = cli_json_begin();
	json_put_string(json, "node", request->name);
	json_put_u64(json, "shards", info->shards);
	json_put_u64(json, "items_left", info->items_left);
	json_put_u64(json, "items_begin", info->items_begin);
	return cli_json_end(json);
}

static int node_drain(struct rlv_store *store, const struct request *request)
{
	uint64_t deadline = deadline_after(clock_monotonic(), request->wait_ns);
	struct rlv_drain_info info = { .size = sizeof(info) };
	int ret;

	interrupt_install();
	for (;;) {
		ret = rlv_store_drain_node(store, request->name, &info);
		if (ret)
			return cli_fail(ret, "drain node %s", request->name);
		if (info.shards == 0 || interrupt_pending() ||
		    deadline_expired(clock_monotonic(), deadline))
			break;
		interrupt_sleep(200 * CLOCK_NS_PER_MS);
	}
	print_drain(request, &info);
	if (info.shards)
		return request->wait_ns ? CLI_FAILURE : CLI_OK;
	return forget_record(request);
}

/* -------- drop -------- */

static int print_node_end(const struct request *request, const char *what, const char *more)
{
	struct json *json;

	if (!request->common.json) {
		printf("node %s is %s%s\n", request->name, what, more);
		return CLI_OK;
	}
	json = cli_json_begin();
	json_put_string(json, "node", request->name);
	json_put_bool(json, what, true);
	return cli_json_end(json);
}

static int node_drop(struct rlv_store *store, const struct request *request)
{
	int ret = rlv_store_drop_node(store, request->name);

	if (ret)
		return cli_fail(ret, "drop node %s", request->name);
	return print_node_end(request, "dropped", ", its items are lost") ? CLI_FAILURE
									  : forget_record(request);
}

/* -------- forget -------- */

static int node_forget(struct rlv_store *store, const struct request *request)
{
	int ret = rlv_store_forget_node(store, request->name);

	if (ret)
		return cli_fail(ret, "forget node %s", request->name);
	return print_node_end(request, "forgotten", "") ? CLI_FAILURE : forget_record(request);
}

/* -------- command line -------- */

static const struct {
	const char *name;
	int (*run)(struct rlv_store *store, const struct request *request);
} verbs[] = { { "drain", node_drain }, { "drop", node_drop }, { "forget", node_forget } };

static int run_verb(const char *verb, const struct request *request)
{
	struct rlv_store *store;
	size_t i = 0;
	int code;

	if ((request->opts.adopt || request->opts.discard || request->opts.trust_clients) &&
	    !request->opts.file) {
		cli_error("--adopt, --discard and --trust-clients need a pool on a file or device: "
			  "add --file PATH");
		return CLI_USAGE;
	}
	if (strcmp(verb, "add") == 0)
		return node_add(request);
	while (i < ARRAY_LEN(verbs) && strcmp(verb, verbs[i].name) != 0)
		i++;
	if (i == ARRAY_LEN(verbs)) {
		cli_error("node %.40s: use add, drain, drop or forget", verb);
		return CLI_USAGE;
	}
	if (cli_store_open(request->uri, request->common.timeout_ns, false, &store))
		return CLI_FAILURE;
	code = verbs[i].run(store, request);
	cli_store_close(&store);
	return code;
}

int cmd_node(int argc, char **argv)
{
	struct request request = { .common = CLI_COMMON_INIT, .opts = HOST_NODE_OPTS_INIT };
	const char *words[3] = { NULL, NULL, NULL };
	const struct arg_option options[] = {
		CLI_OPTION_STORE(request.common),
		CLI_OPTION_JSON(request.common),
		CLI_OPTION_TIMEOUT(request.common),
		{ NULL, NULL, "Options of drain", NULL, ARG_HEADING },
		{ "wait", "TIME",
		  "wait until the node can be stopped; exit code 1 if it cannot by then",
		  &request.wait_ns, ARG_DURATION },
		{ NULL, NULL, "Options of add", NULL, ARG_HEADING },
		HOST_NODE_OPTIONS(request.opts),
		{ "metrics", "[IP:]PORT", "serve /metrics and /healthz (default IP 127.0.0.1)",
		  &request.opts.metrics, ARG_TEXT },
	};
	const struct args args = {
		.usage = "node add|drain|drop|forget [URI] NAME [OPTIONS]",
		.summary =
			"Manages the memory nodes of a running store (default " CLI_DEFAULT_URI
			").\nadd starts a node on this host, also for a store on another host "
			"(relive://HOST:PORT, with its\ntoken in RELIVE_TOKEN). drain gives new blocks "
			"to the other nodes only, until the items of this\none are overwritten and it "
			"can be stopped. drop declares that a node that is down is lost.\nforget "
			"removes from the catalog a node that is down and holds no data.\n\nadd refuses a "
			"pool of another store, or with tables that the catalog does not list, and leaves\nit "
			"unchanged, unless --adopt or --discard is given. With both, what cannot be adopted is\n"
			"erased.",
		.options = options,
		.n_options = ARRAY_LEN(options),
		.examples = "relive node add --store replay extra --size 8G\n"
			    "relive node drain --store replay extra --wait 10m",
		.positional = words,
		.min_positional = 2,
		.max_positional = 3,
	};
	int code = cli_parse_store(&args, &request.common, 1, argc, argv);

	if (code != CLI_CONTINUE)
		return code;
	request.uri = words[2] ? words[1] : CLI_DEFAULT_URI;
	request.name = words[2] ? words[2] : words[1];
	return run_verb(words[0], &request);
}
