/*
 * relive node: starts a memory node on this host; drains, drops and forgets nodes of a store.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "relive/admin.h"

#include "base/bits.h"
#include "base/os/clock.h"
#include "base/os/group.h"
#include "cli/cli.h"
#include "cli/host/host_files.h"
#include "cli/host/host_start.h"
#include "cli/host/host_store.h"
#include "cli/host/node_options.h"
#include "cli/store_status.h"
#include "program/interrupt.h"
#include "program/spawn.h"

/* Arguments of `relive node ...`. */
struct request {
	struct cli_common common;
	const char *name;
	int64_t wait_ns;
	struct host_node_opts opts;
};

/* -------- add -------- */

/* Starts the node and waits until the store lists it as up; stops it after a failure. */
static int start_node(const struct request *request, const struct runtime_dir *dir,
		      struct host_daemon *daemon)
{
	const struct host_node_opts *opts = &request->opts;
	uint64_t deadline = deadline_after(clock_monotonic(), opts->timeout_ns);
	struct store_status store;
	struct cmdline given = { 0 };
	int status, ret;

	host_node_options(opts, &given);
	host_node_line(opts->store, request->name, &given, &daemon->line);
	cmdline_set(&daemon->line, "--metrics", opts->metrics);
	cmdline_set(&daemon->line, "--metad", opts->metad);
	ret = daemon->line.error;
	host_claim(daemon, opts);
	/* The command line is recorded first, so that it is known after a kill. */
	if (ret == 0)
		ret = host_files_record(dir, daemon->name, &daemon->line);
	if (ret == 0 && !opts->metad && host_daemon_is_on_file(daemon))
		ret = host_files_mark(dir, HOST_KEPT);
	if (ret == 0)
		ret = host_start(dir, daemon, false);
	while (ret == 0) {
		int asked = store_status_ask(request->common.uri, HOST_ASK_NS, &store);

		if (asked == 0 && store_node_is_up(store_status_find(&store, request->name)))
			return 0;
		if (spawn_ended(daemon->pid, &status)) {
			daemon->pid = 0;
			host_report_end(dir, daemon, status);
			ret = error_set(-ECONNREFUSED, "node %s did not start", request->name);
		} else if (interrupt_pending()) {
			ret = error_set(-EINTR, "interrupted");
		} else if (deadline_expired(clock_monotonic(), deadline)) {
			ret = error_set(-ETIMEDOUT, "node %s is not up: %s", request->name,
					asked ? rlv_last_error()
					      : "it has not registered with the store");
		} else {
			interrupt_sleep(HOST_POLL_NS);
		}
	}
	spawn_stop(daemon->pid, HOST_GRACE_NS);
	(void)!host_files_record(dir, daemon->name, &daemon->record);
	return ret;
}

static int node_add(struct request *request)
{
	static struct host_daemons daemons; /* 0.5 MB */
	struct host_node_opts *opts = &request->opts;
	struct host_daemon *daemon = NULL;
	struct runtime_dir dir;
	char name[64];
	gid_t gid;
	int lock, ret = opts->group ? group_find(opts->group, &gid) : 0;

	if (strncmp(request->common.uri, "shm:", 4) == 0)
		opts->store = request->common.uri + 4;
	else
		opts->metad = request->common.uri;
	if (opts->bytes == 0 && !opts->file)
		opts->bytes = UINT64_C(1) << 30;
	interrupt_install();
	if (ret == 0)
		ret = host_lock(opts->store, HOST_LOCK_NS, &lock);
	if (ret)
		return cli_fail_local(ret, "add node %s", request->name);
	/* Under the lock a running node cannot be mistaken for the new one. */
	snprintf(name, sizeof(name), HOST_NODE "%.50s", request->name);
	ret = runtime_dir_open(opts->store, opts->metad != NULL, &dir);
	if (ret == 0 && host_files_have(&dir, HOST_ENDING))
		ret = error_set(-EBUSY, "store %s is half stopped: run relive up --store %s first",
				opts->store, opts->store);
	if (ret == 0)
		ret = host_files_look(&dir, &daemons);
	if (ret == 0)
		ret = host_daemons_add(&daemons, name, &daemon);
	if (ret == 0 && daemon->pid)
		ret = error_set(-EBUSY, "memory node %s runs already, pid %d", request->name,
				(int)daemon->pid);
	if (ret == 0)
		ret = start_node(request, &dir, daemon);
	runtime_store_unlock(opts->store, lock, ret == -ENOENT && daemons.n == 0);
	if (ret)
		return cli_fail_local(ret, "add node %s", request->name);
	return cli_result(
		request->common.json,
		(const struct param[]){ { .key = "node", .text = request->name },
					{ .key = "pid", .number = (uint64_t)daemon->pid } },
		2, "node %s is up, pid %d\n", request->name, (int)daemon->pid);
}

/* -------- drain, drop, forget -------- */

/*
 * Removes the record of a drained or dropped node of a store of this host, so that `relive up` does
 * not start it again. CLI_OK, or CLI_FAILURE.
 */
static int forget_record(const struct request *request)
{
	const struct cmdline none = { .len = 0 };
	const char *store = request->common.uri + 4;
	struct runtime_dir dir;
	char name[64];
	int ret, lock;

	if (strncmp(request->common.uri, "shm:", 4) != 0)
		return CLI_OK;
	snprintf(name, sizeof(name), HOST_NODE "%.50s", request->name);
	ret = host_lock(store, HOST_LOCK_NS, &lock);
	if (ret == 0) {
		ret = runtime_dir_open(store, false, &dir);
		if (ret == 0)
			ret = host_files_record(&dir, name, &none);
		runtime_store_unlock(store, lock, false);
	}
	if (ret == 0 || ret == -ENOENT)
		return CLI_OK;
	return cli_fail_local(ret, "remove the record of node %s; relive up may start it again",
			      request->name);
}

static int node_drain(struct rlv_store *store, const struct request *request)
{
	uint64_t deadline = deadline_after(clock_monotonic(), request->wait_ns);
	struct rlv_drain_info info = { .size = sizeof(info) };
	char text[128] = "is empty: it can be stopped";
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
	if (info.shards)
		snprintf(text, sizeof(text), "drains: %u shards and %llu of %llu items are left",
			 info.shards, (unsigned long long)info.items_left,
			 (unsigned long long)info.items_begin);
	ret = cli_result(
		request->common.json,
		(const struct param[]){ { .key = "node", .text = request->name },
					{ .key = "shards", .number = info.shards },
					{ .key = "items_left", .number = info.items_left },
					{ .key = "items_begin", .number = info.items_begin } },
		4, "node %s %s\n", request->name, text);
	if (info.shards)
		return request->wait_ns ? CLI_FAILURE : ret;
	return forget_record(request);
}

/* -------- command line -------- */

static int run_verb(const char *verb, struct request *request)
{
	const struct host_node_opts *opts = &request->opts;
	bool drain = strcmp(verb, "drain") == 0, drop = strcmp(verb, "drop") == 0;
	const char *done = drop ? "dropped" : "forgotten";
	struct rlv_store *store;
	int code, ret;

	if ((opts->adopt || opts->discard || opts->trust_clients) && !opts->file) {
		cli_error("--adopt, --discard and --trust-clients need a pool on a file or device: "
			  "add --file PATH");
		return CLI_USAGE;
	}
	if (strcmp(verb, "add") == 0)
		return node_add(request);
	if (!drain && !drop && strcmp(verb, "forget") != 0) {
		cli_error("node %.40s: use add, drain, drop or forget", verb);
		return CLI_USAGE;
	}
	if (cli_store_open(request->common.uri, request->common.timeout_ns, false, &store))
		return CLI_FAILURE;
	if (drain) {
		code = node_drain(store, request);
	} else {
		ret = drop ? rlv_store_drop_node(store, request->name)
			   : rlv_store_forget_node(store, request->name);
		code = ret ? cli_fail(ret, "%s node %s", verb, request->name)
			   : cli_result(request->common.json,
					(const struct param[]){
						{ .key = "node", .text = request->name },
						{ .key = done, .number = 1, .kind = PARAM_FLAG } },
					2, "node %s is %s%s\n", request->name, done,
					drop ? ", its items are lost" : "");
		code = code ? code : forget_record(request);
	}
	cli_closed(rlv_store_close(&store), "store");
	return code;
}

int cmd_node(int argc, char **argv)
{
	struct request request = { .common = CLI_COMMON_INIT, .opts = HOST_NODE_OPTS_INIT };
	const char *words[3] = { NULL, NULL, NULL };
	const struct arg_option options[] = {
		CLI_OPTIONS(request.common),
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
	int code = cli_parse(&args, argc, argv);

	if (code == CLI_CONTINUE)
		code = cli_take_uri(&request.common, words + 1, 2, 1);
	if (code != CLI_CONTINUE)
		return code;
	request.name = words[1];
	return run_verb(words[0], &request);
}
