#include "cli/host/host_store.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "relive/relive.h"

#include "base/mem/alloc.h"
#include "base/os/clock.h"
#include "cli/cli.h"
#include "cli/host/host_files.h"
#include "cli/host/host_start.h"
#include "cli/store_status.h"
#include "program/interrupt.h"
#include "program/spawn.h"

struct up {
	const struct host_store_opts *opts;
	struct host_store *store;
	struct host_daemons daemons;
	struct cmdline metad, node; /* options given by the caller */
	bool runs;                  /* a daemon of the store ran before */
	bool is_new;                /* no daemon runs, and nothing is left of an earlier run */
};

/* -------- daemons to start -------- */

static int up_look(struct up *up)
{
	int ret = runtime_dir_open(up->store->name, true, &up->store->dir);

	return ret ? ret : host_files_look(&up->store->dir, &up->daemons);
}

/* True if the daemon belongs to this store and must run when it is up. */
static bool is_part(const struct host_daemon *daemon)
{
	return daemon->line.len && !host_daemon_is_elsewhere(daemon);
}

static const char *node_name(const struct host_daemon *daemon)
{
	return daemon->name + strlen(HOST_NODE);
}

/*
 * True for nodes that `up` creates, which have a number as name, *index_out, and to which its
 * options apply. Nodes with other names were added by `node add`.
 */
static bool is_numbered(const struct host_daemon *daemon, uint32_t *index_out)
{
	char *end;

	if (!host_daemon_is_node(daemon) || !is_part(daemon))
		return false;
	*index_out = (uint32_t)strtoul(node_name(daemon), &end, 10);
	return end != node_name(daemon) && !*end && *index_out < HOST_STORE_MAX_NODES;
}

/*
 * Checks the given options against a running daemon: -EEXIST if one differs from its command line.
 */
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

static int plan_metad(struct up *up, const char *catalog)
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
	if (metad->pid)
		return check_agrees(up, metad, &up->metad);
	if (!metad->line.len && up->runs && !host_files_have(&up->store->dir, catalog))
		return error_set(-ENOENT,
				 "store %s has memory nodes, but the command line of its metadata "
				 "server was not recorded: start relive-metad by hand, as before",
				 up->store->name);
	if (!metad->line.len) {
		cmdline_add(&metad->line, "relive-metad");
		cmdline_set(&metad->line, "--store", up->store->name);
		cmdline_set(&metad->line, "--stalled", "wait");
	}
	cmdline_merge(&metad->line, &up->metad);
	return metad->line.error;
}

/*
 * Merges the given options into the command line of a node's next start; its --metrics port is the
 * server's + 1 + index. -EEXIST: the node runs, and the options contradict it.
 */
static int plan_node(struct up *up, struct host_daemon *daemon, uint32_t index)
{
	const struct host_node_opts *opts = &up->opts->node;
	const char *colon = opts->metrics ? strrchr(opts->metrics, ':') : NULL;
	const char *port = colon ? colon + 1 : opts->metrics;
	char page[96]; /* [IP:]PORT */

	if (daemon->pid && (opts->adopt || opts->discard || opts->trust_clients))
		return error_set(-EEXIST,
				 "store %s: memory node %s runs already, pid %d, and reads "
				 "--adopt, --discard and --trust-clients only when it starts",
				 up->store->name, node_name(daemon), (int)daemon->pid);
	if (daemon->pid)
		return check_agrees(up, daemon, &up->node);
	host_claim(daemon, opts);
	cmdline_merge(&daemon->line, &up->node);
	if (port) {
		snprintf(page, sizeof(page), "%.*s%lu", (int)(port - opts->metrics), opts->metrics,
			 strtoul(port, NULL, 10) + 1 + index);
		cmdline_set(&daemon->line, "--metrics", page);
	}
	return daemon->line.error;
}

/*
 * Plans the numbered nodes: as many as given, else those that exist, else one for a new store.
 * -EEXIST: the store runs with another number of them.
 */
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
	if (!wanted && !known && !up->runs)
		wanted = 1;
	for (uint32_t i = 0; i < wanted && ret == 0; i++) {
		struct host_daemon *daemon;
		char name[24];

		snprintf(name, sizeof(name), HOST_NODE "%u", i);
		ret = host_daemons_add(&up->daemons, name, &daemon);
		if (ret == 0 && !daemon->line.len)
			host_node_line(up->store->name, node_name(daemon), &up->node,
				       &daemon->line);
	}
	for (uint32_t i = 0; i < up->daemons.n && ret == 0; i++) {
		struct host_daemon *daemon = &up->daemons.at[i];

		if (!is_numbered(daemon, &index))
			continue;
		if (wanted && index >= wanted && !daemon->pid)
			daemon->line.len = 0;
		else
			ret = plan_node(up, daemon, index);
	}
	return ret;
}

/*
 * Plans which daemons `up` starts, and with which command lines. If none runs and the server has no
 * record, drops the other records: they are of an `up` that was killed early.
 */
static int up_plan(struct up *up)
{
	struct host_daemon *metad = host_daemons_find(&up->daemons, HOST_METAD);
	bool known = metad && metad->line.len, occupied = false;
	char catalog[RUNTIME_PATH_BYTES + 4];
	int ret;

	for (uint32_t i = 0; i < up->daemons.n; i++) {
		const struct host_daemon *daemon = &up->daemons.at[i];

		up->runs |= daemon->pid && !host_daemon_is_elsewhere(daemon);
		occupied |= daemon->pid != 0;
	}
	snprintf(catalog, sizeof(catalog), "%s.db", up->store->name);
	up->is_new = !occupied && !host_files_have(&up->store->dir, catalog) &&
		     !host_files_have(&up->store->dir, HOST_KEPT);
	for (uint32_t i = 0; i < up->daemons.n && !known && !up->runs; i++) {
		if (is_part(&up->daemons.at[i]))
			up->daemons.at[i].line.len = 0;
	}
	host_metad_options(up->opts, &up->metad);
	host_node_options(&up->opts->node, &up->node);
	ret = plan_metad(up, catalog);
	return ret ? ret : plan_nodes(up, known);
}

/* -------- records and processes -------- */

static int up_start(struct up *up, struct host_daemon *daemon)
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

static int start_missing(struct up *up)
{
	struct host_daemon *metad = host_daemons_find(&up->daemons, HOST_METAD);
	bool asked = metad->pid != 0;
	struct store_status status;
	int ret = 0;

	/* All are recorded before any starts, so that they are known after a kill. */
	for (uint32_t i = 0; i <= up->daemons.n && ret == 0; i++) {
		const struct host_daemon *daemon = i < up->daemons.n ? &up->daemons.at[i] : metad;

		if (i < up->daemons.n && daemon == metad)
			continue; /* last: with its record all others are there */
		if (host_daemon_is_on_file(daemon) && is_part(daemon))
			ret = host_files_mark(&up->store->dir, HOST_KEPT);
		if (ret == 0 && !daemon->pid && !cmdline_equals(&daemon->line, &daemon->record))
			ret = host_files_record(&up->store->dir, daemon->name, &daemon->line);
	}
	if (ret == 0 && !asked)
		ret = up_start(up, metad);
	for (uint32_t i = 0; i < up->daemons.n && ret == 0; i++) {
		struct host_daemon *daemon = &up->daemons.at[i];
		uint64_t deadline = deadline_after(clock_monotonic(), HOST_GRACE_NS);

		if (daemon->pid || !is_part(daemon))
			continue;
		/* The server may not have noticed the end of a node that was killed just now. */
		while (asked && !interrupt_pending() &&
		       !deadline_expired(clock_monotonic(), deadline) &&
		       !store_status_ask(up->store->uri, HOST_ASK_NS, &status) &&
		       store_node_is_up(store_status_find(&status, node_name(daemon))))
			interrupt_sleep(HOST_POLL_NS);
		ret = up_start(up, daemon);
	}
	return ret;
}

/*
 * Checks that a daemon runs; starts one again that ran before and has ended since. -ECONNREFUSED:
 * one that this `up` started has ended, or there is no record to start it from; -EEXIST.
 */
static int look_at(struct up *up, struct host_daemon *daemon)
{
	int status;

	if (!daemon->ours) {
		if (runtime_dir_holder(&up->store->dir, daemon->name))
			return 0;
		if (!daemon->record.len)
			return error_set(-ECONNREFUSED,
					 "store %s: %s, pid %d, has ended, and its command line "
					 "was not recorded: start it by hand, as before",
					 up->store->name, daemon->name, (int)daemon->pid);
		daemon->line = daemon->record;
		return up_start(up, daemon);
	}
	if (!spawn_ended(daemon->pid, &status))
		return 0;
	/* The daemon may end because another one runs, started by an `up` that was killed. */
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

/*
 * Waits until the server answers and lists every node of this host as up. -ETIMEDOUT, -EINTR,
 * errors of look_at.
 */
static int wait_ready(struct up *up, struct progress *progress)
{
	const int64_t timeout_ns = up->opts->node.timeout_ns;
	uint64_t begin = clock_now_ns(clock_monotonic());
	const struct host_daemon *absent = NULL;
	struct store_status status;
	int64_t spent = 0;
	int ret, asked = 0;

	while (spent <= timeout_ns) {
		ret = interrupt_pending() ? error_set(-EINTR, "interrupted") : 0;
		for (uint32_t i = 0; i < up->daemons.n && ret == 0; i++) {
			if (is_part(&up->daemons.at[i]))
				ret = look_at(up, &up->daemons.at[i]);
		}
		if (ret)
			return ret;
		asked = store_status_ask(up->store->uri, HOST_ASK_NS, &status);
		absent = NULL;
		for (uint32_t i = 0; i < up->daemons.n && !asked; i++) {
			const struct host_daemon *daemon = &up->daemons.at[i];

			if (host_daemon_is_node(daemon) && is_part(daemon) &&
			    !store_node_is_up(store_status_find(&status, node_name(daemon))))
				absent = daemon;
		}
		if (!asked && !absent)
			return 0;
		spent = (int64_t)(clock_now_ns(clock_monotonic()) - begin);
		if (progress)
			progress_show(progress, (double)spent / (double)timeout_ns,
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
static bool up_undo(struct up *up)
{
	for (uint32_t i = 0; i < up->daemons.n; i++) {
		struct host_daemon *daemon = &up->daemons.at[i];

		if (daemon->ours && !up->runs) {
			spawn_stop(daemon->pid, HOST_GRACE_NS);
			daemon->pid = 0;
		}
		if (!daemon->pid && !cmdline_equals(&daemon->line, &daemon->record))
			(void)!host_files_record(&up->store->dir, daemon->name, &daemon->record);
	}
	if (up->is_new)
		host_files_remove(up->store->dir.path);
	return up->is_new;
}

int host_store_up(const struct host_store_opts *opts, struct progress *progress,
		  struct host_store *store_out)
{
	const char *name = opts->node.store;
	struct up *up = mem_zalloc(sizeof(*up));
	int ret, lock;

	memset(store_out, 0, sizeof(*store_out));
	if (!up)
		return error_set(-ENOMEM, "up: cannot allocate memory");
	up->opts = opts;
	up->store = store_out;
	snprintf(store_out->name, sizeof(store_out->name), "%s", name);
	snprintf(store_out->uri, sizeof(store_out->uri), "shm:%s", name);
	ret = host_lock(name, opts->node.timeout_ns, &lock);
	if (ret)
		goto out;
	ret = up_look(up);
	/* Completes a `down` that was killed: daemons that it told to end must not end while in use. */
	if (ret == 0 && host_files_have(&store_out->dir, HOST_ENDING)) {
		ret = host_stop_all(&store_out->dir, &up->daemons, HOST_GRACE_NS);
		if (ret == 0) {
			host_files_clean(&store_out->dir);
			ret = up_look(up);
		}
	}
	if (ret == 0)
		ret = up_plan(up);
	if (ret == 0)
		ret = start_missing(up);
	if (ret == 0)
		ret = wait_ready(up, progress);
	runtime_store_unlock(name, lock, ret && up_undo(up));
	if (progress)
		progress_clear(progress);
	store_out->was_up = up->runs;
	for (uint32_t i = 0; ret == 0 && i < up->daemons.n; i++) {
		const struct host_daemon *daemon = &up->daemons.at[i];

		if (!is_part(daemon))
			continue;
		if (host_daemon_is_node(daemon))
			store_out->nodes[store_out->n_nodes++] = daemon->pid;
		else
			store_out->metad = daemon->pid;
	}
out:
	mem_free(up);
	return ret;
}

/* -------- a private store -------- */

int host_store_private(uint32_t nodes, uint64_t bytes, struct host_store *store_out)
{
	struct host_store_opts opts = { .node = HOST_NODE_OPTS_INIT, .tied = true };
	const char *tmp = getenv("TMPDIR");
	char root[RUNTIME_PATH_BYTES];
	int ret;

	opts.node.store = "private";
	opts.node.bytes = bytes;
	opts.nodes = nodes;
	/* A socket name is limited to 108 bytes, so a deep TMPDIR is unusable. */
	if (!tmp || !*tmp || strlen(tmp) > 40)
		tmp = "/tmp";
	snprintf(root, sizeof(root), "%s/relive-XXXXXX", tmp);
	if (!mkdtemp(root))
		return error_set(-errno, "create directory %s: %m", root);
	ret = setenv("RELIVE_RUNTIME_DIR", root, 1) ? error_set(-ENOMEM, "set RELIVE_RUNTIME_DIR")
						    : host_store_up(&opts, NULL, store_out);
	if (ret)
		host_files_remove(root);
	else
		memcpy(store_out->temp_root, root, sizeof(root));
	return ret;
}

void host_store_close(struct host_store *store)
{
	for (uint32_t i = 0; i < store->n_nodes; i++)
		spawn_stop(store->nodes[i], HOST_GRACE_NS);
	spawn_stop(store->metad, HOST_GRACE_NS);
	if (store->temp_root[0])
		host_files_remove(store->temp_root);
	memset(store, 0, sizeof(*store));
}
