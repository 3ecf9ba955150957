#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "relive/relive.h"

#include "base/mem/alloc.h"
#include "base/bits.h"
#include "base/os/clock.h"
#include "cli/cli.h"
#include "cli/host/host_files.h"
#include "cli/host/host_lock.h"
#include "cli/host/host_start.h"
#include "cli/host/host_store.h"
#include "program/interrupt.h"
#include "program/spawn.h"

struct up {
	const struct host_store_opts *opts;
	struct progress *progress;
	struct host_store *store;
	struct host_daemons daemons;
	struct cmdline metad, node; /* options given by the caller */
	bool runs;                  /* a daemon of the store ran before */
	bool occupied;              /* a running daemon, or leftovers of an earlier run, exist */
};

/* -------- daemons to start -------- */

/* True if the daemon belongs to this store and must run when it is up. */
static bool is_part(const struct host_daemon *daemon)
{
	return daemon->line.len && !host_daemon_is_elsewhere(daemon);
}

static const char *node_name(const struct host_daemon *daemon)
{
	return daemon->name + strlen(HOST_NODE);
}

/* True for nodes that `up` creates, which its options apply to; other nodes were added. */
static bool is_numbered(const struct host_daemon *daemon, uint32_t *index_out)
{
	char *end;

	if (!host_daemon_is_node(daemon) || !is_part(daemon))
		return false;
	*index_out = (uint32_t)strtoul(node_name(daemon), &end, 10);
	return end != node_name(daemon) && !*end && *index_out < HOST_STORE_MAX_NODES;
}

/* True if each given option matches that of the running daemon. */
static int check_agrees(const struct up *up, const struct host_daemon *daemon,
			const struct cmdline *given)
{
	const char *name = NULL;

	while ((name = cmdline_next(given, name)) != NULL) {
		const char *value = cmdline_next(given, name);
		const char *now = cmdline_get(&daemon->line, name);

		if (!now || strcmp(now, value) != 0)
			return error_set(-EEXIST,
					 "store %s runs %s %s%s%.200s (%s, pid %d), so %s %.200s "
					 "contradicts it: leave the option out",
					 up->store->name, now ? "with" : "without", name,
					 now ? " " : "", now ? now : "", daemon->name,
					 (int)daemon->pid, name, value);
		name = value;
	}
	return 0;
}

/* Running: checks the options. Otherwise: starts with the recorded options and the given ones. */
static int plan_daemon(const struct up *up, struct host_daemon *daemon, const struct cmdline *given)
{
	return daemon->pid ? check_agrees(up, daemon, given) : cmdline_merge(&daemon->line, given);
}

static int plan_metad(struct up *up)
{
	struct host_daemon *metad;
	int ret = host_daemons_add(&up->daemons, HOST_METAD, &metad);

	if (ret)
		return ret;
	if (up->opts->trust && metad->pid)
		return error_set(-EEXIST,
				 "store %s: its metadata server runs already, pid %d, and reads "
				 "--trust only when it starts",
				 up->store->name, (int)metad->pid);
	metad->once[0] = up->opts->trust ? "--trust" : NULL;
	if (metad->line.len)
		return plan_daemon(up, metad, &up->metad);
	if (up->runs && !host_files_have_catalog(&up->store->dir, up->store->name))
		return error_set(-ENOENT,
				 "store %s has memory nodes, but the command line of its metadata "
				 "server was not recorded: start relive-metad by hand, as before",
				 up->store->name);
	return host_metad_line(up->store->name, &up->metad, &metad->line);
}

/* Number of numbered nodes: as given, as existing, or one for a new store. */
static int plan_nodes(struct up *up, bool known)
{
	uint32_t now = 0, wanted = up->opts->nodes, index;
	int ret = 0;

	for (uint32_t i = 0; i < up->daemons.n; i++)
		now += is_numbered(&up->daemons.at[i], &index);
	if (up->runs && wanted && now && wanted != now)
		return error_set(-EEXIST,
				 "--nodes %u: store %s runs with %u memory nodes; add one by "
				 "relive node add --store %s NAME",
				 wanted, up->store->name, now, up->store->name);
	for (uint32_t i = 0; i < up->daemons.n && ret == 0; i++) {
		struct host_daemon *daemon = &up->daemons.at[i];

		if (!is_numbered(daemon, &index))
			continue;
		if (wanted && index >= wanted && !daemon->pid)
			daemon->line.len = 0;
		else
			ret = plan_daemon(up, daemon, &up->node);
	}
	if (!wanted && !known && !up->runs)
		wanted = 1;
	for (uint32_t i = 0; i < wanted && ret == 0; i++) {
		struct host_daemon *daemon;
		char name[24];

		snprintf(name, sizeof(name), HOST_NODE "%u", i);
		ret = host_daemons_add(&up->daemons, name, &daemon);
		if (ret == 0 && !daemon->line.len)
			ret = host_node_line(up->store->name, node_name(daemon), &up->node,
					     &daemon->line);
	}
	return ret;
}

/* Ports follow the server's. A running node keeps its port. */
static int plan_pages(struct up *up)
{
	const char *given = up->opts->node.metrics;
	const char *colon = given ? strrchr(given, ':') : NULL;
	const char *port = colon ? colon + 1 : given;
	uint32_t index;

	for (uint32_t i = 0; given && i < up->daemons.n; i++) {
		struct host_daemon *daemon = &up->daemons.at[i];
		char text[96]; /* [IP:]PORT */
		int ret;

		if (!is_numbered(daemon, &index) || daemon->pid || !daemon->line.len)
			continue;
		snprintf(text, sizeof(text), "%.*s%lu", (int)(port - given), given,
			 strtoul(port, NULL, 10) + 1 + index);
		ret = cmdline_set(&daemon->line, "--metrics", text);
		if (ret)
			return ret;
	}
	return 0;
}

/* --file or --dax name the pool of node 0, which must start now. */
static int plan_claim(struct up *up)
{
	const struct host_node_opts *opts = &up->opts->node;
	bool any = opts->adopt || opts->discard || opts->trust_clients;
	uint32_t index;

	for (uint32_t i = 0; i < up->daemons.n && any; i++) {
		struct host_daemon *daemon = &up->daemons.at[i];

		if (!is_numbered(daemon, &index))
			continue;
		if (daemon->pid)
			return error_set(
				-EEXIST,
				"store %s: memory node %s runs already, pid %d, and reads "
				"--adopt, --discard and --trust-clients only when it starts",
				up->store->name, node_name(daemon), (int)daemon->pid);
		host_claim(daemon, opts->adopt, opts->discard, opts->trust_clients);
	}
	return 0;
}

/* Without the server's record, other records are of an `up` that was killed early. */
static int plan(struct up *up)
{
	struct host_daemon *metad = host_daemons_find(&up->daemons, HOST_METAD);
	bool known = metad && metad->line.len;
	int ret;

	for (uint32_t i = 0; i < up->daemons.n; i++) {
		const struct host_daemon *daemon = &up->daemons.at[i];

		up->runs |= daemon->pid && !host_daemon_is_elsewhere(daemon);
		up->occupied |= daemon->pid != 0;
	}
	up->occupied |= host_files_have_catalog(&up->store->dir, up->store->name) ||
			host_files_are_kept(&up->store->dir);
	for (uint32_t i = 0; i < up->daemons.n && !known && !up->runs; i++) {
		if (is_part(&up->daemons.at[i]))
			up->daemons.at[i].line.len = 0;
	}
	ret = host_metad_options(up->opts, &up->metad);
	if (ret == 0)
		ret = host_node_options(&up->opts->node, &up->node);
	if (ret == 0)
		ret = plan_metad(up);
	if (ret == 0)
		ret = plan_nodes(up, known);
	if (ret == 0)
		ret = plan_pages(up);
	return ret ? ret : plan_claim(up);
}

/* -------- records -------- */

static int record(const struct up *up, const struct host_daemon *daemon)
{
	if (daemon->pid || cmdline_equals(&daemon->line, &daemon->record))
		return 0;
	return host_files_record(&up->store->dir, daemon->name, &daemon->line);
}

/* Records are written before any start, so that they are known after a kill. */
static int record_all(struct up *up)
{
	int ret = 0;

	for (uint32_t i = 0; i < up->daemons.n && ret == 0; i++) {
		const struct host_daemon *daemon = &up->daemons.at[i];

		if (host_daemon_is_on_file(daemon) && is_part(daemon))
			ret = host_files_keep(&up->store->dir);
		if (ret == 0 && host_daemon_is_node(daemon))
			ret = record(up, daemon);
	}
	return ret ? ret : record(up, host_daemons_find(&up->daemons, HOST_METAD));
}

/* -------- processes -------- */

static int start(struct up *up, struct host_daemon *daemon)
{
	int ret = host_start(&up->store->dir, daemon, up->opts->tied);

	if (ret)
		return ret;
	up->store->started++;
	if (up->runs)
		cli_error("store %s: %s was not running; it is started", up->store->name,
			  daemon->name);
	return 0;
}

/* The server may not have noticed the end of a node that was killed just now. */
static void wait_down(const struct up *up, const struct host_daemon *daemon)
{
	uint64_t deadline = deadline_after(clock_monotonic(), HOST_GRACE_NS);
	struct store_status status;

	while (!interrupt_pending() && !deadline_expired(clock_monotonic(), deadline)) {
		if (store_status_ask(up->store->uri, HOST_ASK_NS, &status) ||
		    !host_node_is_up(&status, node_name(daemon)))
			return;
		interrupt_sleep(HOST_POLL_NS);
	}
}

static int start_missing(struct up *up)
{
	struct host_daemon *metad = host_daemons_find(&up->daemons, HOST_METAD);
	bool asked = metad->pid != 0;
	int ret = asked ? 0 : start(up, metad);

	for (uint32_t i = 0; i < up->daemons.n && ret == 0; i++) {
		struct host_daemon *daemon = &up->daemons.at[i];

		if (daemon->pid || !is_part(daemon))
			continue;
		if (asked)
			wait_down(up, daemon);
		ret = start(up, daemon);
	}
	return ret;
}

/* Includes a daemon that ran before and has ended since. */
static int look_at_other(struct up *up, struct host_daemon *daemon)
{
	if (runtime_dir_holder(&up->store->dir, daemon->name))
		return 0;
	if (!daemon->record.len)
		return error_set(-ECONNREFUSED,
				 "store %s: %s, pid %d, has ended, and its command line was not "
				 "recorded: start it by hand, as before",
				 up->store->name, daemon->name, (int)daemon->pid);
	daemon->line = daemon->record;
	return start(up, daemon);
}

/* Our daemon may end because another one runs, started by an `up` that was killed. */
static int look_at_ours(struct up *up, struct host_daemon *daemon)
{
	int status;

	if (!spawn_ended(daemon->pid, &status))
		return 0;
	daemon->ours = false;
	daemon->pid = runtime_dir_holder(&up->store->dir, daemon->name);
	if (daemon->pid == 0) {
		host_report_end(&up->store->dir, daemon, status);
		return error_set(-ECONNREFUSED, "store %s did not start", up->store->name);
	}
	up->store->started--;
	daemon->record = daemon->line;
	if (cmdline_of_process(daemon->pid, &daemon->line))
		return 0; /* it ended just now; the next look detects it */
	return check_agrees(up, daemon, host_daemon_is_node(daemon) ? &up->node : &up->metad);
}

static int look_at_all(struct up *up)
{
	int ret = interrupt_pending() ? error_set(-EINTR, "interrupted") : 0;

	for (uint32_t i = 0; i < up->daemons.n && ret == 0; i++) {
		struct host_daemon *daemon = &up->daemons.at[i];

		if (is_part(daemon))
			ret = daemon->ours ? look_at_ours(up, daemon) : look_at_other(up, daemon);
	}
	return ret;
}

static int wait_ready(struct up *up)
{
	uint64_t begin = clock_now_ns(clock_monotonic());
	const struct host_daemon *absent = NULL;
	struct store_status status;
	int64_t spent = 0;
	int ret, asked = 0;

	while (spent <= up->opts->node.timeout_ns) {
		ret = look_at_all(up);
		if (ret)
			return ret;
		asked = store_status_ask(up->store->uri, HOST_ASK_NS, &status);
		absent = NULL;
		for (uint32_t i = 0; i < up->daemons.n && !asked; i++) {
			const struct host_daemon *daemon = &up->daemons.at[i];

			if (host_daemon_is_node(daemon) && is_part(daemon) &&
			    !host_node_is_up(&status, node_name(daemon)))
				absent = daemon;
		}
		if (asked == 0 && !absent)
			return 0;
		spent = (int64_t)(clock_now_ns(clock_monotonic()) - begin);
		if (up->progress)
			progress_show(up->progress,
				      (double)spent / (double)up->opts->node.timeout_ns,
				      "waiting for store %s", up->store->name);
		interrupt_sleep(HOST_POLL_NS);
	}
	if (asked)
		return error_set(-ETIMEDOUT, "store %s does not answer: %s", up->store->name,
				 rlv_last_error());
	return error_set(
		-ETIMEDOUT,
		"store %s: %s, pid %d, runs, but has not registered with the server: see its log",
		up->store->name, absent ? absent->name : "a node", absent ? (int)absent->pid : 0);
}

/* -------- up -------- */

/*
 * After a failure: keeps started daemons if the store ran before; else stops all. Restores the
 * records of daemons that did not start. True: no files remain.
 */
static bool undo(struct up *up)
{
	for (uint32_t i = 0; i < up->daemons.n && !up->runs; i++) {
		struct host_daemon *daemon = &up->daemons.at[i];

		if (!daemon->ours)
			continue;
		spawn_stop(daemon->pid, HOST_GRACE_NS);
		daemon->pid = 0;
	}
	for (uint32_t i = 0; i < up->daemons.n; i++) {
		const struct host_daemon *daemon = &up->daemons.at[i];

		if (!daemon->pid && !cmdline_equals(&daemon->line, &daemon->record))
			(void)!host_files_record(&up->store->dir, daemon->name, &daemon->record);
	}
	if (up->occupied)
		return false;
	host_files_remove(up->store->dir.path);
	return true;
}

static int bring_up(struct up *up)
{
	int ret = host_files_look(&up->store->dir, &up->daemons);

	/* Completes a `down` that was killed: daemons that it told to end must not end while in use. */
	if (ret == 0 && host_files_are_ending(&up->store->dir)) {
		ret = host_stop_all(&up->store->dir, &up->daemons, HOST_GRACE_NS);
		if (ret)
			return ret;
		host_files_clean(&up->store->dir);
		ret = runtime_dir_open(up->store->name, true, &up->store->dir);
		if (ret == 0)
			ret = host_files_look(&up->store->dir, &up->daemons);
	}
	if (ret == 0)
		ret = plan(up);
	if (ret == 0)
		ret = record_all(up);
	if (ret == 0)
		ret = start_missing(up);
	return ret ? ret : wait_ready(up);
}

int host_store_up(const struct host_store_opts *opts, struct progress *progress,
		  struct host_store *store_out)
{
	const char *name = opts->node.store;
	struct host_store store = { 0 };
	struct host_lock lock;
	bool gone = false;
	struct up *up;
	int ret;

	if (opts->nodes > HOST_STORE_MAX_NODES)
		return error_set(-EINVAL, "--nodes %u: give 1 to %d", opts->nodes,
				 HOST_STORE_MAX_NODES);
	up = mem_zalloc(sizeof(*up));
	if (!up)
		return error_set(-ENOMEM, "up: cannot allocate memory");
	up->opts = opts;
	up->progress = progress;
	up->store = &store;
	snprintf(store.name, sizeof(store.name), "%s", name);
	snprintf(store.uri, sizeof(store.uri), "shm:%s", name);
	ret = host_lock_take(name, opts->node.timeout_ns, progress, &lock);
	if (ret)
		goto out;
	ret = runtime_dir_open(name, true, &store.dir);
	if (ret == 0) {
		ret = bring_up(up);
		gone = ret && undo(up);
	}
	host_lock_give(&lock, gone);
	if (progress)
		progress_clear(progress);
	store.was_up = up->runs;
	for (uint32_t i = 0; ret == 0 && i < up->daemons.n; i++) {
		const struct host_daemon *daemon = &up->daemons.at[i];

		if (!is_part(daemon))
			continue;
		if (host_daemon_is_node(daemon))
			store.nodes[store.n_nodes++] = daemon->pid;
		else
			store.metad = daemon->pid;
	}
	if (ret == 0)
		*store_out = store;
out:
	mem_free(up);
	return ret;
}
