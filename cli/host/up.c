#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "base/os/group.h"
#include "base/json.h"
#include "cli/cli.h"
#include "cli/host/host_store.h"
#include "cli/host/node_options.h"
#include "program/interrupt.h"
#include "program/units.h"

#define MIN_BYTES (UINT64_C(8) << 20)

static void print_text(const struct host_store *store, const struct host_store_opts *opts)
{
	const char *plural = store->n_nodes == 1 ? "" : "s";
	char bytes[UNITS_TEXT_BYTES];

	printf("%s\n", store->uri);
	if (store->was_up && store->started == 0)
		fprintf(stderr, "store %s is up already: %u memory node%s\n", store->name,
			store->n_nodes, plural);
	else if (opts->node.bytes)
		fprintf(stderr, "store %s is up: %u memory node%s of %s\n", store->name,
			store->n_nodes, plural, units_format_bytes(opts->node.bytes, bytes));
	else
		fprintf(stderr, "store %s is up: %u memory node%s\n", store->name, store->n_nodes,
			plural);
}

static int print_up(const struct host_store *store, const struct host_store_opts *opts,
		    bool as_json)
{
	struct json *json;

	if (!as_json) {
		print_text(store, opts);
		return CLI_OK;
	}
	json = cli_json_begin();
	json_put_string(json, "uri", store->uri);
	json_put_string(json, "store", store->name);
	json_put_i64(json, "metad_pid", store->metad);
	json_key(json, "memnode_pids");
	json_array_begin(json);
	for (uint32_t i = 0; i < store->n_nodes; i++)
		json_i64(json, store->nodes[i]);
	json_array_end(json);
	json_put_u64(json, "started", store->started);
	return cli_json_end(json);
}

static bool tls_agrees(const struct host_store_opts *opts)
{
	int n = (opts->tls_cert != NULL) + (opts->tls_key != NULL) + (opts->tls_ca != NULL);

	return n == 0 || n == 3;
}

static bool group_is_usable(const char *group)
{
	gid_t gid;

	if (!group || group_find(group, &gid) == 0)
		return true;
	cli_error("--group: %s", error_last());
	return false;
}

/* [IP:]PORT: the daemons check the rest. */
static bool has_port(const char *address)
{
	const char *colon = strrchr(address, ':');
	const char *port = colon ? colon + 1 : address;
	size_t digits = strspn(port, "0123456789");

	return digits > 0 && digits <= 5 && !port[digits] && strlen(address) < 64;
}

static bool options_agree(const struct host_store_opts *opts)
{
	if (opts->node.file && opts->dax)
		cli_error("--file and --dax: give one of them");
	else if ((opts->node.file || opts->dax) && opts->nodes > 1)
		cli_error("--nodes %u: --file or --dax holds the pool of one node only",
			  opts->nodes);
	else if (opts->node.rdma_listen && opts->nodes > 1)
		cli_error(
			"--rdma-listen: only one node can listen there; start others by relive node "
			"add");
	else if ((opts->node.adopt || opts->node.discard) && !opts->node.file && !opts->dax)
		cli_error(
			"--adopt and --discard need a pool on a file or device: add --file or --dax");
	else if (opts->listen && !units_is_address(opts->listen))
		cli_error("--listen %.64s: give HOST:PORT or :PORT, with a port up to 65535",
			  opts->listen);
	else if (opts->node.trust_clients && !opts->dax)
		cli_error("--trust-clients needs a pool on a device: add --dax");
	else if (!tls_agrees(opts))
		cli_error("--tls-cert, --tls-key, --tls-ca: give all three");
	else if (opts->node.metrics && !has_port(opts->node.metrics))
		cli_error("--metrics %.64s: give [IP:]PORT, as 9117 or 0.0.0.0:9117",
			  opts->node.metrics);
	else if (opts->node.bytes && opts->node.bytes < MIN_BYTES)
		cli_error("--size: give at least 8M");
	else
		return group_is_usable(opts->node.group);
	return false;
}

static int bring_up(const struct host_store_opts *opts, bool as_json, bool bar)
{
	struct progress progress;
	struct host_store store;
	int ret;

	interrupt_install();
	progress_begin(&progress, bar);
	ret = host_store_up(opts, &progress, &store);
	if (ret == 0)
		return print_up(&store, opts, as_json);
	return cli_fail_local(ret, "up");
}

static const char notes[] =
	"A store that was started before keeps its options where they are not given "
	"again. An option\nthat contradicts a running daemon is an error. Sockets, logs, "
	"the token and the daemons' command\nlines are in RELIVE_RUNTIME_DIR/NAME, which "
	"only this user can enter.\n\n"
	"With --group (a name or number) the users of that group can connect: both "
	"directories get mode\n0750, the sockets 0660. They set the same "
	"RELIVE_RUNTIME_DIR, and a token of their own in\nRELIVE_TOKEN: the token file "
	"stays private to this user. Between processes of one user, roles stop\nmistakes, "
	"not attackers.\n\n"
	"A descriptor of a DAX device opens all of it, so clients of this host are "
	"refused and only RDMA\nclients served, unless --trust-clients is given at each "
	"start of the node.\n\n"
	"A pool of another store, or with tables that the catalog does not know, is "
	"refused and left\nunchanged; --adopt or --discard allow it once. With both, what "
	"cannot be adopted is erased.";

static int check_and_bring_up(struct host_store_opts *opts, uint32_t nodes, bool as_json, bool bar)
{
	if (nodes != HOST_STORE_UNSET && (nodes == 0 || nodes > HOST_STORE_MAX_NODES)) {
		cli_error("--nodes %u: give 1 to %d", nodes, HOST_STORE_MAX_NODES);
		return CLI_USAGE;
	}
	opts->nodes = nodes == HOST_STORE_UNSET ? 0 : nodes;
	if (!options_agree(opts))
		return CLI_USAGE;
	if (opts->dax)
		opts->node.file = opts->dax;
	return bring_up(opts, as_json, bar);
}

int cmd_up(int argc, char **argv)
{
	struct host_store_opts opts = { .node = HOST_NODE_OPTS_INIT, .stalled = HOST_STORE_UNSET };
	bool as_json = false, bar = false;
	uint32_t nodes = HOST_STORE_UNSET;
	const struct arg_option options[] = {
		{ "store", "NAME", "name of the store (default: default)", &opts.node.store,
		  ARG_TEXT },
		HOST_NODE_OPTIONS(opts.node),
		{ "dax", "PATH", "keep the pool on a DAX device", &opts.dax, ARG_TEXT },
		{ "listen", "HOST:PORT", "also serve relive://HOST:PORT", &opts.listen, ARG_TEXT },
		{ "metrics", "[IP:]PORT",
		  "serve /metrics and /healthz of the server; of the nodes at the next ports",
		  &opts.node.metrics, ARG_TEXT },
		{ "tls-cert", "FILE", "PEM: certificate for TCP connections, beside the token",
		  &opts.tls_cert, ARG_TEXT },
		{ "tls-key", "FILE", "PEM: key of that certificate", &opts.tls_key, ARG_TEXT },
		{ "tls-ca", "FILE", "PEM: CA that signs all certificates", &opts.tls_ca, ARG_TEXT },
		{ "stalled", "wait|kill",
		  "wait for a stopped process that holds blocks, or kill it (default wait)",
		  &opts.stalled, ARG_CHOICE },
		{ "nodes", "N", "number of memory nodes (default 1)", &nodes, ARG_COUNT32 },
		{ "node-lease", "TIME", "a node that is silent for this long is down (default 1s)",
		  &opts.node_lease_ns, ARG_DURATION },
		{ "node-lost", "TIME",
		  "a node in memory that is down for this long is lost (default 30s)",
		  &opts.node_lost_ns, ARG_DURATION },
		{ "slow-start", "TIME",
		  "time until a new shard gets its full share of blocks (default 10s)",
		  &opts.slow_start_ns, ARG_DURATION },
		{ "trust", NULL,
		  "accept rows without checksums even if a power loss may have torn them",
		  &opts.trust, ARG_FLAG },
		{ "timeout", "TIME", "longest wait until all daemons are ready (default 20s)",
		  &opts.node.timeout_ns, ARG_DURATION },
		{ "json", NULL, "print one JSON object", &as_json, ARG_FLAG },
		{ "progress", NULL, "show progress even without a terminal", &bar, ARG_FLAG },
	};
	const struct args args = {
		.usage = "up [OPTIONS]",
		.summary =
			"Starts a store on this host: relive-metad and relive-memnode. Waits until they "
			"are ready and\nprints the URI. Running daemons are left alone; those that "
			"ended are started with the options\nthat they had, nodes of `relive node add` "
			"included.",
		.options = options,
		.n_options = ARRAY_LEN(options),
		.notes = notes,
		.examples = "relive up --size 8G --listen 0.0.0.0:7117\n"
			    "relive up --store replay --file /srv/replay",
	};
	int code = cli_parse(&args, argc, argv);

	return code != CLI_CONTINUE ? code : check_and_bring_up(&opts, nodes, as_json, bar);
}
