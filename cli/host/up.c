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

/* Arguments of `relive up`. */
struct request {
	struct host_store_opts opts;
	const char *dax; /* the same as opts.node.file, for a device */
	uint32_t nodes;  /* UINT32_MAX = not given */
	bool json, progress;
};

static bool options_agree(const struct request *request)
{
	const struct host_store_opts *opts = &request->opts;
	const struct host_node_opts *node = &opts->node;
	int tls = (opts->tls_cert != NULL) + (opts->tls_key != NULL) + (opts->tls_ca != NULL);
	bool kept = node->file || request->dax, given = request->nodes != UINT32_MAX;
	const char *colon = node->metrics ? strrchr(node->metrics, ':') : NULL;
	const char *port = colon ? colon + 1 : node->metrics; /* the daemons check the rest */
	size_t digits = port ? strspn(port, "0123456789") : 0;
	gid_t gid;

	if (given && (request->nodes == 0 || request->nodes > HOST_STORE_MAX_NODES))
		cli_error("--nodes %u: give 1 to %d", request->nodes, HOST_STORE_MAX_NODES);
	else if (node->file && request->dax)
		cli_error("--file and --dax: give one of them");
	else if (kept && given && request->nodes > 1)
		cli_error("--nodes %u: --file or --dax holds the pool of one node only",
			  request->nodes);
	else if (node->rdma_listen && given && request->nodes > 1)
		cli_error(
			"--rdma-listen: one node only can listen at an address; add the others by "
			"relive node add");
	else if ((node->adopt || node->discard) && !kept)
		cli_error(
			"--adopt and --discard need a pool on a file or device: add --file or --dax");
	else if (opts->listen && !units_is_address(opts->listen))
		cli_error("--listen %.64s: give HOST:PORT or :PORT, with a port up to 65535",
			  opts->listen);
	else if (node->trust_clients && !request->dax)
		cli_error("--trust-clients needs a pool on a device: add --dax");
	else if (tls != 0 && tls != 3)
		cli_error("--tls-cert, --tls-key, --tls-ca: give all three");
	else if (port && (digits == 0 || digits > 5 || port[digits] || strlen(node->metrics) >= 64))
		cli_error("--metrics %.64s: give [IP:]PORT, as 9117 or 0.0.0.0:9117",
			  node->metrics);
	else if (node->bytes && node->bytes < UINT64_C(8) << 20)
		cli_error("--size: give at least 8M");
	else if (node->group && group_find(node->group, &gid))
		cli_error("--group: %s", error_last());
	else
		return true;
	return false;
}

/*
 * True if clients of other hosts are expected: the server listens at more than the loopback, which is
 * its default.
 */
static bool serves_others(const struct host_store_opts *opts)
{
	static const char *const loopback[] = { "127.", "localhost:", "[::1]", ":" };

	for (size_t i = 0; opts->listen && i < ARRAY_LEN(loopback); i++)
		if (strncmp(opts->listen, loopback[i], strlen(loopback[i])) == 0)
			return false;
	return opts->listen || opts->announce;
}

static const char notes[] =
	"A store that was started before keeps each option that is not given again. An option "
	"that\ncontradicts a running daemon is an error. Sockets, logs, the token and the command "
	"lines of the\ndaemons are in RELIVE_RUNTIME_DIR/NAME, which only this user can enter.\n\n"
	"With --group (a name or number) the users of that group can connect: both "
	"directories get mode\n0750, the sockets 0660. They set the same "
	"RELIVE_RUNTIME_DIR, and a token of their own in\nRELIVE_TOKEN: the token file "
	"stays private to this user. Between processes of one user, roles stop\nmistakes, "
	"not attackers.\n\n"
	"Memory nodes serve this host by shared memory. With --announce, or --listen at more than the\n"
	"loopback, they serve other hosts, too: by verbs if there is an RDMA device, else by ofi\n"
	"(TCP), else not; relive status says what and why, and --transport decides it.\n\n"
	"A process that opens a DAX device can map all of it. Clients of this host are therefore "
	"refused,\nand only RDMA clients are served, unless --trust-clients is given at each start "
	"of the node.\n\n"
	"A pool of another store, or with tables that the catalog does not list, is refused and "
	"left\nunchanged, unless --adopt or --discard is given at that start. With both, what cannot "
	"be adopted\nis erased.";

static int bring_up(struct request *request)
{
	struct host_store_opts *opts = &request->opts;
	char bytes[UNITS_TEXT_BYTES];
	struct progress progress;
	struct host_store store;
	struct json *json;
	bool was_up;
	int ret;

	if (request->nodes != UINT32_MAX)
		opts->nodes = request->nodes;
	if (request->dax)
		opts->node.file = request->dax;
	if (serves_others(opts) && !opts->node.transport && !opts->node.rdma_listen)
		opts->node.rdma_listen = ":0"; /* with which the node chooses a network */
	interrupt_install();
	progress_begin(&progress, request->progress);
	ret = host_store_up(opts, &progress, &store);
	if (ret)
		return cli_fail_local(ret, "up");
	if (request->json) {
		json = cli_json_begin();
		json_put_string(json, "uri", store.uri);
		json_put_string(json, "store", store.name);
		json_put_i64(json, "metad_pid", store.metad);
		json_key(json, "memnode_pids");
		json_array_begin(json);
		for (uint32_t i = 0; i < store.n_nodes; i++)
			json_i64(json, store.nodes[i]);
		json_array_end(json);
		json_put_u64(json, "started", store.started);
		return cli_json_end(json);
	}
	was_up = store.was_up && store.started == 0;
	printf("%s\n", store.uri);
	fprintf(stderr, "store %s is up%s: %u memory node%s", store.name, was_up ? " already" : "",
		store.n_nodes, store.n_nodes == 1 ? "" : "s");
	if (!was_up && opts->node.bytes)
		fprintf(stderr, " of %s", units_format_bytes(opts->node.bytes, bytes));
	fprintf(stderr, "\n");
	return CLI_OK;
}

int cmd_up(int argc, char **argv)
{
	struct request request = { .opts = { .node = HOST_NODE_OPTS_INIT }, .nodes = UINT32_MAX };
	struct host_store_opts *opts = &request.opts;
	const struct arg_option options[] = {
		{ "store", "NAME", "name of the store (default: default)", &opts->node.store,
		  ARG_TEXT },
		HOST_NODE_OPTIONS(opts->node),
		{ "dax", "PATH", "keep the pool on a DAX device", &request.dax, ARG_TEXT },
		{ "listen", "HOST:PORT", "also serve relive://HOST:PORT", &opts->listen, ARG_TEXT },
		{ "announce", "FILE",
		  "write where the server listens, and the token, to FILE (0600), for\nrelive://@FILE "
		  "on hosts that share it (without --listen: any port)",
		  &opts->announce, ARG_TEXT },
		{ "metrics", "[IP:]PORT",
		  "serve the server's /metrics and /healthz here, those of the nodes at\nthe next ports",
		  &opts->node.metrics, ARG_TEXT },
		{ "tls-cert", "FILE", "PEM: certificate for TCP connections, beside the token",
		  &opts->tls_cert, ARG_TEXT },
		{ "tls-key", "FILE", "PEM: key of that certificate", &opts->tls_key, ARG_TEXT },
		{ "tls-ca", "FILE", "PEM: CA that signs all certificates", &opts->tls_ca,
		  ARG_TEXT },
		{ "stalled", "wait|kill",
		  "wait for a stopped process that holds blocks (default), or kill it",
		  &opts->stalled, ARG_WORD },
		{ "nodes", "N", "number of memory nodes (default 1)", &request.nodes, ARG_COUNT32 },
		{ "node-lease", "TIME", "a node that is silent for this long is down (default 1s)",
		  &opts->node_lease_ns, ARG_DURATION },
		{ "node-lost", "TIME",
		  "a node in memory that is down for this long is lost (default 30s)",
		  &opts->node_lost_ns, ARG_DURATION },
		{ "slow-start", "TIME",
		  "time until a new shard gets its full share of blocks (default 10s)",
		  &opts->slow_start_ns, ARG_DURATION },
		{ "trust", NULL,
		  "accept rows without checksums even if a power loss may have torn them",
		  &opts->trust, ARG_FLAG },
		{ "timeout", "TIME", "longest wait until all daemons are ready (default 20s)",
		  &opts->node.timeout_ns, ARG_DURATION },
		{ "json", NULL, "print one JSON object", &request.json, ARG_FLAG },
		{ "progress", NULL, "show progress even without a terminal", &request.progress,
		  ARG_FLAG },
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
			    "relive up --store replay --file /srv/replay\n"
			    "relive up --announce ~/replay.uri",
	};
	int code = cli_parse(&args, argc, argv);

	if (code != CLI_CONTINUE)
		return code;
	return options_agree(&request) ? bring_up(&request) : CLI_USAGE;
}
