/*
 * relive down: counts the items that would be lost, asks, and stops the daemons of a store on this
 * host.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "relive/relive.h"

#include "base/bits.h"
#include "base/os/clock.h"
#include "cli/cli.h"
#include "cli/host/host_files.h"
#include "cli/host/host_start.h"
#include "cli/host/host_store.h"
#include "cli/store_status.h"

enum { MAX_SHARDS = 1024 };

struct down {
	struct cli_common common;
	const char *store;
	bool force;
	bool keep; /* the catalog must outlive the daemons */
	struct host_daemons daemons;
	/* Data in memory nodes that would be lost with them. */
	uint32_t tables; /* tables with items in memory */
	uint64_t items;
	char unknown[160]; /* reason why the count is incomplete; "" = complete */
	/* The metadata server that is asked now. */
	const struct host_daemon *only; /* of a store elsewhere: its node here; else NULL */
	struct rlv_store *server;
	struct store_status status;
	uint64_t deadline; /* for its tables */
};

/* -------- data that would be lost -------- */

/*
 * True if the daemon is of the store whose server is asked now: it is down->only, or, if that is
 * NULL, any that belongs to the store of this host.
 */
static bool is_asked(const struct down *down, const struct host_daemon *daemon)
{
	return down->only ? daemon == down->only : !host_daemon_is_elsewhere(daemon);
}

/* True for a running node of the store that is asked now, with its pool in memory. */
static bool holds_memory(const struct down *down, const struct host_daemon *daemon)
{
	return daemon->pid && host_daemon_is_node(daemon) && !host_daemon_is_on_file(daemon) &&
	       is_asked(down, daemon);
}

/*
 * True if the data of that node would be lost: a local node in memory ends with its process; a
 * remote node becomes unusable without the catalog that names it.
 */
static bool is_at_stake(struct down *down, const char *node)
{
	const struct host_daemon *daemon;
	char name[sizeof(daemon->name)];

	snprintf(name, sizeof(name), HOST_NODE "%.55s", node);
	daemon = host_daemons_find(&down->daemons, name);
	if (daemon && is_asked(down, daemon))
		return holds_memory(down, daemon);
	return !down->only && !down->keep;
}

static void set_unknown(struct down *down, const char *why)
{
	if (!down->unknown[0])
		snprintf(down->unknown, sizeof(down->unknown), "%.150s", why);
}

/*
 * Adds a table's items to those of ctx, a struct down, if one of its shards would be lost. If they
 * cannot be read, sets unknown. -ETIMEDOUT: the time for counting is over.
 */
static int count_table(struct rlv_store *store, const char *name, void *ctx)
{
	static struct rlv_shard_info shards[MAX_SHARDS];
	static struct rlv_table_info info;
	struct down *down = ctx;
	struct rlv_table *table = NULL;
	size_t n = MAX_SHARDS;
	int64_t items = 0;
	bool any = false;
	int ret;

	if (deadline_expired(clock_monotonic(), down->deadline)) {
		set_unknown(down, "counting took longer than 10 s");
		return -ETIMEDOUT;
	}
	ret = rlv_table_open(store, name, &table);
	if (ret == -EHOSTDOWN || ret == -ENOENT)
		return 0;
	info = (struct rlv_table_info){ .size = sizeof(info) };
	if (ret == 0)
		ret = rlv_table_shards(table, shards, sizeof(shards[0]), &n);
	for (size_t i = 0; ret == 0 && i < n && i < MAX_SHARDS; i++)
		any |= (shards[i].state == RLV_SHARD_ACTIVE ||
			shards[i].state == RLV_SHARD_DRAINING) &&
		       is_at_stake(down, shards[i].node);
	if (any)
		ret = rlv_table_info(table, &info);
	for (uint32_t v = 0; v < info.n_views && ret == 0; v++)
		if (info.views[v].items > items)
			items = info.views[v].items;
	if (ret)
		set_unknown(down, rlv_last_error());
	down->tables += items > 0;
	down->items += (uint64_t)items;
	(void)!rlv_table_close(&table);
	return 0;
}

static int count_tables(struct down *down)
{
	bool any = false;
	int ret = store_status_read(down->server, &down->status);

	if (ret)
		return ret;
	for (size_t i = 0; i < down->status.n_nodes && !down->only; i++) {
		const char *pages = down->status.nodes[i].pages;

		down->keep |= strcmp(pages, "file") == 0 || strcmp(pages, "dax") == 0;
	}
	for (size_t i = 0; i < down->status.n_nodes; i++)
		any |= is_at_stake(down, down->status.nodes[i].name);
	if (down->status.info.n_tables == 0 || !any)
		return 0;
	/* The count is complete only if each node with memory at stake answers. */
	for (uint32_t i = 0; i < down->daemons.n; i++) {
		const char *name = down->daemons.at[i].name + strlen(HOST_NODE);
		const struct rlv_node_info *node;
		char why[160];

		if (!holds_memory(down, &down->daemons.at[i]))
			continue;
		node = store_status_find(&down->status, name);
		snprintf(why, sizeof(why), "memory node %.60s runs and does not answer", name);
		if (node && node->state == RLV_NODE_DOWN)
			set_unknown(down, why);
	}
	down->deadline = deadline_after(clock_monotonic(), 10 * CLOCK_NS_PER_S);
	return cli_each_table(down->server, NULL, count_table, down) ? -EIO : 0;
}

static void ask_server(struct down *down, const char *uri)
{
	struct rlv_store_opts opts = RLV_STORE_OPTS_INIT;
	int ret;

	opts.timeout_ns = 3 * CLOCK_NS_PER_S;
	opts.read_only = true;
	ret = rlv_store_open(uri, &opts, &down->server);
	if (ret == 0)
		ret = count_tables(down);
	if (ret)
		set_unknown(down, rlv_last_error());
	if (down->server)
		(void)!rlv_store_close(&down->server);
}

/*
 * Counts the items that would be lost, by asking the metadata servers of the store and of the nodes
 * here that belong to stores on other hosts.
 */
static void count_loss(struct down *down)
{
	const struct host_daemon *metad = host_daemons_find(&down->daemons, HOST_METAD);
	char uri[HOST_STORE_URI_BYTES];
	bool any =
		!down->keep && metad &&
		(cmdline_get(&metad->line, "--listen") || cmdline_get(&metad->line, "--announce"));

	for (uint32_t i = 0; i < down->daemons.n; i++)
		any |= holds_memory(down, &down->daemons.at[i]);
	snprintf(uri, sizeof(uri), "shm:%.50s", down->store);
	if (metad && metad->pid)
		ask_server(down, uri);
	else if (any)
		set_unknown(down, "its metadata server is not running");
	/* Nodes of stores on other hosts: each store is queried by itself. */
	for (uint32_t i = 0; i < down->daemons.n; i++) {
		const struct host_daemon *daemon = &down->daemons.at[i];

		if (!host_daemon_is_elsewhere(daemon))
			continue;
		down->only = daemon;
		if (holds_memory(down, daemon))
			ask_server(down, cmdline_get(&daemon->line, "--metad"));
	}
}

/*
 * Prints what would be lost and asks on the terminal: true = yes. Without a terminal false: --force
 * is required.
 */
static bool user_agrees(const struct down *down)
{
	char answer[16];

	if (down->items)
		cli_error(
			"store %s holds %llu items in %u table%s in memory; stopping it loses them",
			down->store, (unsigned long long)down->items, down->tables,
			down->tables == 1 ? "" : "s");
	if (down->unknown[0])
		cli_error("store %s: cannot count the items in its memory nodes: %s", down->store,
			  down->unknown);
	if (!isatty(STDIN_FILENO) || !isatty(STDERR_FILENO)) {
		cli_error(
			"nothing was stopped: there is no terminal to ask for confirmation (see --force)");
		if (down->unknown[0])
			cli_hint(
				"relive up --store %s, which starts missing daemons, so that down can count",
				down->store);
		return false;
	}
	fprintf(stderr, "Stop it and lose them? [y/N] ");
	if (fgets(answer, sizeof(answer), stdin) && (answer[0] == 'y' || answer[0] == 'Y'))
		return true;
	cli_error("nothing was stopped");
	return false;
}

/* -------- down -------- */

/*
 * Stops the daemons of the store, including those that another command started, and removes their
 * files.
 */
static int bring_down(struct down *down)
{
	struct host_daemons *daemons = &down->daemons;
	struct runtime_dir dir;
	uint32_t stopped = 0;
	bool gone = false; /* no file is left */
	int lock, ret = runtime_dir_open(down->store, false, &dir);

	if (ret == 0)
		ret = host_lock(down->store, HOST_LOCK_NS, &lock);
	if (ret)
		goto out;
	/* Another `down` may have removed the store before we had its lock. */
	ret = runtime_dir_open(down->store, false, &dir);
	gone = ret == -ENOENT;
	if (ret == 0)
		ret = host_files_look(&dir, daemons);
	if (ret)
		goto unlock;
	down->keep = host_files_have(&dir, HOST_KEPT);
	for (uint32_t i = 0; i < daemons->n; i++) {
		const struct host_daemon *daemon = &daemons->at[i];

		down->keep |= host_daemon_is_on_file(daemon) && !host_daemon_is_elsewhere(daemon);
		stopped += daemon->pid > 0;
	}
	count_loss(down);
	if ((down->items || down->unknown[0]) && !down->force && !user_agrees(down)) {
		ret = -ECANCELED;
		goto unlock;
	}
	ret = down->keep ? host_files_mark(&dir, HOST_KEPT) : 0;
	if (ret == 0)
		ret = host_files_mark(&dir, HOST_ENDING);
	if (ret == 0)
		ret = host_stop_all(&dir, daemons, down->common.timeout_ns);
	if (ret == 0)
		gone = host_files_clean(&dir);
unlock:
	runtime_store_unlock(down->store, lock, gone);
out:
	if (ret == -ECANCELED)
		return CLI_REFUSED;
	if (ret == -ENOENT)
		(void)error_set(ret, "no store %s runs on this host", down->store);
	if (ret)
		return cli_fail_local(ret, "down");
	return cli_result(down->common.json,
			  (const struct param[]){ { .key = "store", .text = down->store },
						  { .key = "stopped", .number = stopped } },
			  2, "store %s is down, %u daemon%s stopped\n", down->store, stopped,
			  stopped == 1 ? "" : "s");
}

int cmd_down(int argc, char **argv)
{
	static struct down down; /* 1 MB */
	const struct arg_option options[] = {
		{ "store", "NAME", "name of the store (default: default)", &down.store, ARG_TEXT },
		CLI_OPTION_JSON(down.common),
		{ "timeout", "TIME",
		  "time that daemons have to stop before they are killed (default 5s)",
		  &down.common.timeout_ns, ARG_DURATION },
		{ "force", NULL, "stop even if items in memory are lost; do not ask", &down.force,
		  ARG_FLAG },
	};
	const struct args args = {
		.usage = "down [OPTIONS]",
		.summary =
			"Stops the daemons of a store on this host and removes their sockets, logs "
			"and token.\nItems in memory are lost; a pool in a directory or on a device is kept, "
			"with its catalog.",
		.options = options,
		.n_options = ARRAY_LEN(options),
		.notes =
			"If memory nodes hold items, or these cannot be counted, the command asks on the "
			"terminal. Without\na terminal it stops nothing, and exits with 3, unless "
			"--force is given.",
		.examples = "relive down --store replay",
	};
	int code;

	down.common = (struct cli_common)CLI_COMMON_INIT;
	down.store = "default";
	code = cli_parse(&args, argc, argv);
	return code == CLI_CONTINUE ? bring_down(&down) : code;
}
