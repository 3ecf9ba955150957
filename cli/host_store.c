#include "cli/host_store.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "relive/relive.h"

#include "base/bits.h"
#include "base/clock.h"
#include "cli/cli.h"
#include "cli/host_files.h"
#include "cli/interrupt.h"
#include "cli/spawn.h"

#define POLL_NS (20 * CLOCK_NS_PER_MS)
#define TRY_NS (500 * CLOCK_NS_PER_MS)
#define GRACE_NS (5 * CLOCK_NS_PER_S)

/* Nothing of the store runs: a node that outlived its server would be in the way of the new one. */
static int check_down(const struct host_store *store)
{
	struct host_daemon daemons[HOST_FILES_MAX];
	const struct host_daemon *alive = NULL;
	uint32_t n = 0;
	int ret = host_files_daemons(&store->dir, daemons, &n);

	for (uint32_t i = 0; ret == 0 && i < n; i++) {
		if (daemons[i].pid && (!alive || strcmp(daemons[i].name, "metad") == 0))
			alive = &daemons[i];
	}
	if (ret || !alive)
		return ret;
	if (strcmp(alive->name, "metad") == 0)
		return error_set(-EBUSY, "store %s is up already, metadata server pid %d",
				 store->name, (int)alive->pid);
	return error_set(-EBUSY,
			 "store %s has no metadata server, but relive-%.40s still runs, pid %d",
			 store->name, alive->name, (int)alive->pid);
}

static int start(struct host_store *store, const char *const *argv, const char *log, bool tied,
		 pid_t *pid_out)
{
	char log_path[RUNTIME_PATH_BYTES];
	struct spawn_daemon daemon = {
		.binary = argv[0],
		.argv = argv,
		.log_path = log_path,
		.tied = tied,
	};
	int ret = runtime_dir_file(&store->dir, log, log_path);

	return ret ? ret : spawn_daemon(&daemon, pid_out);
}

/* A command line that grows; numbers live in `texts`. */
struct command {
	const char *argv[32];
	size_t n;
	char texts[8][32];
	size_t n_texts;
};

static void add_option(struct command *command, const char *name, const char *value)
{
	if (!value)
		return;
	command->argv[command->n++] = name;
	command->argv[command->n++] = value;
}

static void add_bytes(struct command *command, const char *name, uint64_t bytes)
{
	char *text = command->texts[command->n_texts];

	if (bytes == 0)
		return;
	snprintf(text, sizeof(command->texts[0]), "%llu", (unsigned long long)bytes);
	command->n_texts++;
	add_option(command, name, text);
}

static void add_seconds(struct command *command, const char *name, int64_t ns)
{
	char *text = command->texts[command->n_texts];

	if (ns == 0)
		return;
	snprintf(text, sizeof(command->texts[0]), "%.9g",
		 ns == INT64_MAX ? 0 : (double)ns / CLOCK_NS_PER_S);
	command->n_texts++;
	add_option(command, name, text);
}

static int start_metad(const struct host_store_opts *opts, struct host_store *store)
{
	struct command command = { .argv = { "relive-metad" }, .n = 1 };

	add_option(&command, "--store", opts->store);
	add_option(&command, "--stalled", opts->kill_stalled ? "kill" : "wait");
	add_option(&command, "--listen", opts->listen);
	add_seconds(&command, "--node-lease", opts->node_lease_ns);
	add_seconds(&command, "--node-lost", opts->node_lost_ns);
	add_seconds(&command, "--slow-start", opts->slow_start_ns);
	return start(store, command.argv, "metad.log", opts->tied, &store->metad);
}

static const char *const page_names[] = { "auto", "huge", "small" };

static int spawn_node(struct host_store *store, const struct host_node_opts *opts, bool tied,
		      pid_t *pid_out)
{
	struct command command = { .argv = { "relive-memnode" }, .n = 1 };
	char log[RUNTIME_PATH_BYTES];

	add_option(&command, "--store", opts->store);
	add_option(&command, "--name", opts->name);
	add_option(&command, "--metad", opts->metad);
	add_bytes(&command, "--size", opts->bytes);
	add_option(&command, "--file", opts->file);
	add_option(&command, "--pages", page_names[opts->pages]);
	add_option(&command, "--transport", opts->transport);
	add_option(&command, "--listen", opts->rdma_listen);
	snprintf(log, sizeof(log), "memnode-%.60s.log", opts->name);
	return start(store, command.argv, log, tied, pid_out);
}

static int start_node(const struct host_store_opts *opts, uint32_t index, struct host_store *store)
{
	char name[16];
	const struct host_node_opts node = {
		.store = opts->store,
		.name = name,
		.bytes = opts->bytes,
		.file = opts->file ? opts->file : opts->dax,
		.pages = opts->pages,
		.transport = opts->transport,
		.rdma_listen = opts->rdma_listen,
	};
	int ret;

	snprintf(name, sizeof(name), "%u", index);
	ret = spawn_node(store, &node, opts->tied, &store->nodes[index]);
	if (ret == 0)
		store->n_nodes = index + 1;
	return ret;
}

static void report_end(const struct host_store *store, const char *daemon, int status)
{
	char log[64], path[RUNTIME_PATH_BYTES], text[SPAWN_STATUS_BYTES];

	cli_error("relive-%.7s ended: %s", daemon, spawn_status_text(status, text));
	snprintf(log, sizeof(log), "%s.log", daemon);
	if (runtime_dir_file(&store->dir, log, path) == 0)
		spawn_log_tail(path, stderr);
}

/* A daemon that ended says why in its log. */
static bool some_daemon_ended(struct host_store *store)
{
	char name[32];
	int status;

	if (store->metad > 0 && spawn_ended(store->metad, &status)) {
		store->metad = 0;
		report_end(store, "metad", status);
		return true;
	}
	for (uint32_t i = 0; i < store->n_nodes; i++) {
		if (store->nodes[i] > 0 && spawn_ended(store->nodes[i], &status)) {
			store->nodes[i] = 0;
			snprintf(name, sizeof(name), "memnode-%u", i);
			report_end(store, name, status);
			return true;
		}
	}
	return false;
}

/* How many nodes a client sees up now; negative = it cannot even ask. */
static int nodes_up(const char *uri)
{
	struct rlv_store_opts opts = RLV_STORE_OPTS_INIT;
	struct rlv_store_info info = { .size = sizeof(info) };
	struct rlv_store *store;
	int ret, up = 0;

	opts.timeout_ns = TRY_NS;
	ret = rlv_store_open(uri, &opts, &store);
	if (ret)
		return ret;
	ret = rlv_store_info(store, &info);
	for (uint32_t i = 0; ret == 0 && i < info.n_nodes && i < 16; i++)
		up += info.nodes[i].state == 1;
	if (rlv_store_close(&store) && ret == 0)
		ret = -EBUSY;
	return ret ? ret : up;
}

static int wait_ready(const struct host_store_opts *opts, struct progress *progress,
		      struct host_store *store)
{
	uint64_t start_ns = clock_now_ns(clock_monotonic());
	int up;

	for (;;) {
		int64_t spent = (int64_t)(clock_now_ns(clock_monotonic()) - start_ns);

		if (interrupt_pending())
			return error_set(-EINTR, "interrupted");
		if (some_daemon_ended(store))
			return error_set(-ECONNREFUSED, "store %s did not start", store->name);
		up = nodes_up(store->uri);
		if (up >= (int)opts->nodes)
			return 0;
		if (spent > opts->timeout_ns)
			break;
		if (progress)
			progress_show(progress, (double)spent / (double)opts->timeout_ns,
				      "waiting for store %s", store->name);
		interrupt_sleep(POLL_NS);
	}
	if (up < 0)
		return error_set(-ETIMEDOUT, "store %s does not answer: %s", store->name,
				 rlv_last_error());
	return error_set(-ETIMEDOUT, "store %s: %d of %u nodes are up", store->name, up,
			 opts->nodes);
}

static int start_all(const struct host_store_opts *opts, struct progress *progress,
		     struct host_store *store)
{
	int ret = check_down(store);

	if (ret)
		return ret;
	ret = start_metad(opts, store);
	for (uint32_t i = 0; ret == 0 && i < opts->nodes; i++)
		ret = start_node(opts, i, store);
	if (ret == 0)
		ret = wait_ready(opts, progress, store);
	if (ret == 0 && (opts->file || opts->dax))
		ret = host_files_keep(&store->dir);
	if (progress)
		progress_clear(progress);
	return ret;
}

int host_store_up(const struct host_store_opts *opts, struct progress *progress,
		  struct host_store *store_out)
{
	struct host_store store = { 0 };
	int ret;

	if (opts->nodes == 0 || opts->nodes > HOST_STORE_MAX_NODES)
		return error_set(-EINVAL, "%u nodes: 1 to %d", opts->nodes, HOST_STORE_MAX_NODES);
	ret = runtime_dir_open(opts->store, true, &store.dir);
	if (ret)
		return ret;
	snprintf(store.name, sizeof(store.name), "%s", opts->store);
	snprintf(store.uri, sizeof(store.uri), "shm:%s", opts->store);
	ret = start_all(opts, progress, &store);
	if (ret == -EBUSY)
		return ret;
	if (ret == 0) {
		*store_out = store;
		return 0;
	}
	host_store_close(&store);
	host_files_clean(&store.dir);
	return ret;
}

/* -------- one more node -------- */

/* Is the node of that name up? Negative = it cannot even ask. */
static int node_is_up(const char *uri, const char *name)
{
	struct rlv_store_opts opts = RLV_STORE_OPTS_INIT;
	struct rlv_store_info info = { .size = sizeof(info) };
	struct rlv_store *store;
	int ret, up = 0;

	opts.timeout_ns = TRY_NS;
	ret = rlv_store_open(uri, &opts, &store);
	if (ret)
		return ret;
	ret = rlv_store_info(store, &info);
	for (uint32_t i = 0; ret == 0 && i < info.n_nodes && i < ARRAY_LEN(info.nodes); i++)
		if (strcmp(info.nodes[i].name, name) == 0)
			up = info.nodes[i].state == RLV_NODE_UP;
	if (rlv_store_close(&store) && ret == 0)
		ret = -EBUSY;
	return ret ? ret : up;
}

static int wait_node(const struct host_node_opts *opts, const char *uri, pid_t *pid)
{
	uint64_t deadline = deadline_after(clock_monotonic(), opts->timeout_ns);
	int status, up = 0;

	while (!deadline_expired(clock_monotonic(), deadline)) {
		if (interrupt_pending())
			return error_set(-EINTR, "interrupted");
		if (spawn_ended(*pid, &status)) {
			*pid = 0;
			return error_set(-ECONNREFUSED, "node %s did not start", opts->name);
		}
		up = node_is_up(uri, opts->name);
		if (up > 0)
			return 0;
		interrupt_sleep(POLL_NS);
	}
	return error_set(-ETIMEDOUT, "node %s is not up: %s", opts->name,
			 up < 0 ? rlv_last_error() : "the store does not know it");
}

/* Its lock is held; else the one that runs would be taken for the new one. */
static int check_not_here(const struct runtime_dir *dir, const char *node)
{
	char role[80];
	pid_t pid;

	snprintf(role, sizeof(role), "memnode-%.60s", node);
	pid = host_files_pid(dir, role);
	if (pid <= 0)
		return 0;
	return error_set(-EBUSY, "memory node %s runs already, pid %d", node, (int)pid);
}

int host_store_add_node(const struct host_node_opts *opts, pid_t *pid_out)
{
	char uri[RUNTIME_PATH_BYTES], log[RUNTIME_PATH_BYTES], path[RUNTIME_PATH_BYTES];
	struct host_store store = { 0 };
	pid_t pid = 0;
	int ret = runtime_dir_open(opts->store, opts->metad != NULL, &store.dir);

	if (ret == 0)
		ret = check_not_here(&store.dir, opts->name);
	if (ret)
		return ret;
	snprintf(uri, sizeof(uri), opts->metad ? "%s" : "shm:%s",
		 opts->metad ? opts->metad : opts->store);
	ret = spawn_node(&store, opts, false, &pid);
	if (ret == 0)
		ret = wait_node(opts, uri, &pid);
	if (ret == 0) {
		*pid_out = pid;
		return 0;
	}
	snprintf(log, sizeof(log), "memnode-%.60s.log", opts->name);
	if (runtime_dir_file(&store.dir, log, path) == 0)
		spawn_log_tail(path, stderr);
	if (pid > 0)
		spawn_stop(pid, GRACE_NS);
	return ret;
}

int host_store_private(uint64_t bytes, int64_t timeout_ns, struct host_store *store_out)
{
	struct host_store_opts opts = {
		.store = "private",
		.bytes = bytes,
		.tied = true,
		.nodes = 1,
		.timeout_ns = timeout_ns,
	};
	const char *tmp = getenv("TMPDIR");
	char root[RUNTIME_PATH_BYTES];
	int ret;

	/* The name of a socket has 108 bytes, so a deep TMPDIR cannot be used. */
	if (!tmp || !*tmp || strlen(tmp) > 40)
		tmp = "/tmp";
	snprintf(root, sizeof(root), "%s/relive-XXXXXX", tmp);
	if (!mkdtemp(root))
		return error_set(-errno, "make %s: %m", root);
	if (setenv("RELIVE_RUNTIME_DIR", root, 1)) {
		rmdir(root);
		return error_set(-ENOMEM, "set RELIVE_RUNTIME_DIR");
	}
	ret = host_store_up(&opts, NULL, store_out);
	if (ret)
		host_files_remove(root);
	else
		memcpy(store_out->temp_root, root, sizeof(root));
	return ret;
}

void host_store_close(struct host_store *store)
{
	for (uint32_t i = 0; i < store->n_nodes; i++)
		spawn_stop(store->nodes[i], GRACE_NS);
	spawn_stop(store->metad, GRACE_NS);
	store->n_nodes = 0;
	store->metad = 0;
	if (store->temp_root[0])
		host_files_remove(store->temp_root);
	store->temp_root[0] = 0;
}

static bool any_alive(const struct runtime_dir *dir, const struct host_daemon *daemons, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		if (daemons[i].pid && host_files_pid(dir, daemons[i].name))
			return true;
	}
	return false;
}

/* Holding its lock proves that the pid is the daemon's and not a later process's. */
static void signal_all(const struct runtime_dir *dir, const struct host_daemon *daemons, uint32_t n,
		       int number)
{
	for (uint32_t i = 0; i < n; i++) {
		pid_t pid = daemons[i].pid ? host_files_pid(dir, daemons[i].name) : 0;

		if (pid > 0)
			kill(pid, number);
	}
}

static bool wait_gone(const struct runtime_dir *dir, const struct host_daemon *daemons, uint32_t n,
		      int64_t timeout_ns)
{
	uint64_t deadline = deadline_after(clock_monotonic(), timeout_ns);

	while (any_alive(dir, daemons, n)) {
		if (deadline_expired(clock_monotonic(), deadline))
			return false;
		usleep(POLL_NS / CLOCK_NS_PER_US);
	}
	return true;
}

int host_store_down(const char *name, int64_t timeout_ns, uint32_t *stopped_out)
{
	struct host_daemon daemons[HOST_FILES_MAX];
	struct runtime_dir dir;
	uint32_t n = 0, running = 0;
	int ret = runtime_dir_open(name, false, &dir);

	if (ret == 0)
		ret = host_files_daemons(&dir, daemons, &n);
	if (ret)
		return ret;
	for (uint32_t i = 0; i < n; i++)
		running += daemons[i].pid > 0;
	signal_all(&dir, daemons, n, SIGTERM);
	if (!wait_gone(&dir, daemons, n, timeout_ns)) {
		signal_all(&dir, daemons, n, SIGKILL);
		if (!wait_gone(&dir, daemons, n, GRACE_NS))
			return error_set(-ETIMEDOUT, "daemons of %s do not end", name);
	}
	host_files_clean(&dir);
	*stopped_out = running;
	return 0;
}
