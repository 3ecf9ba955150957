#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "relive/relive.h"

#include "base/mem/alloc.h"
#include "base/os/clock.h"
#include "cli/host/host_files.h"
#include "cli/host/host_lock.h"
#include "cli/host/host_start.h"
#include "cli/host/host_store.h"
#include "program/interrupt.h"
#include "program/spawn.h"

static int wait_node(const struct host_node_opts *opts, const struct runtime_dir *dir,
		     const char *uri, struct host_daemon *daemon)
{
	uint64_t deadline = deadline_after(clock_monotonic(), opts->timeout_ns);
	struct store_status store;
	int status, asked = 0;

	while (!deadline_expired(clock_monotonic(), deadline)) {
		if (interrupt_pending())
			return error_set(-EINTR, "interrupted");
		if (spawn_ended(daemon->pid, &status)) {
			daemon->pid = 0;
			host_report_end(dir, daemon, status);
			return error_set(-ECONNREFUSED, "node %s did not start", opts->name);
		}
		asked = store_status_ask(uri, HOST_ASK_NS, &store);
		if (asked == 0 && host_node_is_up(&store, opts->name))
			return 0;
		interrupt_sleep(HOST_POLL_NS);
	}
	return error_set(-ETIMEDOUT, "node %s is not up: %s", opts->name,
			 asked ? rlv_last_error() : "it has not registered with the store");
}

/* The command line is recorded first, so that it is known after a kill. */
static int add_node(const struct host_node_opts *opts, const struct runtime_dir *dir,
		    struct host_daemon *daemon)
{
	char uri[RUNTIME_PATH_BYTES];
	int ret = host_files_record(dir, daemon->name, &daemon->line);

	if (ret == 0 && !opts->metad && host_daemon_is_on_file(daemon))
		ret = host_files_keep(dir);
	if (ret == 0)
		ret = host_start(dir, daemon, false);
	snprintf(uri, sizeof(uri), opts->metad ? "%s" : "shm:%s",
		 opts->metad ? opts->metad : opts->store);
	if (ret == 0)
		ret = wait_node(opts, dir, uri, daemon);
	if (ret == 0)
		return 0;
	spawn_stop(daemon->pid, HOST_GRACE_NS);
	(void)!host_files_record(dir, daemon->name, &daemon->record);
	return ret;
}

/* The caller holds the store's lock, so a running node cannot be mistaken for the new one. */
static int add_if_absent(const struct host_node_opts *opts, struct host_daemons *daemons,
			 pid_t *pid_out)
{
	struct host_daemon *daemon;
	struct runtime_dir dir;
	struct cmdline given;
	char name[64];
	int ret = runtime_dir_open(opts->store, opts->metad != NULL, &dir);

	snprintf(name, sizeof(name), HOST_NODE "%.50s", opts->name);
	if (ret == 0 && host_files_are_ending(&dir))
		ret = error_set(-EBUSY, "store %s is half stopped: run relive up --store %s first",
				opts->store, opts->store);
	if (ret == 0)
		ret = host_files_look(&dir, daemons);
	if (ret == 0)
		ret = host_daemons_add(daemons, name, &daemon);
	if (ret)
		return ret;
	if (daemon->pid)
		return error_set(-EBUSY, "memory node %s runs already, pid %d", opts->name,
				 (int)daemon->pid);
	ret = host_node_options(opts, &given);
	if (ret == 0)
		ret = host_node_line(opts->store, opts->name, &given, &daemon->line);
	if (ret == 0)
		ret = cmdline_set(&daemon->line, "--metrics", opts->metrics);
	if (ret == 0)
		ret = cmdline_set(&daemon->line, "--metad", opts->metad);
	host_claim(daemon, opts->adopt, opts->discard, opts->trust_clients);
	if (ret == 0)
		ret = add_node(opts, &dir, daemon);
	*pid_out = daemon->pid;
	return ret;
}

int host_store_add_node(const struct host_node_opts *opts, pid_t *pid_out)
{
	struct host_daemons *daemons = mem_zalloc(sizeof(*daemons));
	struct host_lock lock;
	int ret;

	if (!daemons)
		return error_set(-ENOMEM, "add a node: cannot allocate memory");
	ret = host_lock_take(opts->store, HOST_STORE_LOCK_NS, NULL, &lock);
	if (ret == 0) {
		ret = add_if_absent(opts, daemons, pid_out);
		host_lock_give(&lock, ret == -ENOENT && daemons->n == 0);
	}
	mem_free(daemons);
	return ret;
}

int host_store_forget_node(const char *uri, const char *node)
{
	const struct cmdline none = { .len = 0 };
	char name[64];
	struct runtime_dir dir;
	struct host_lock lock;
	int ret;

	if (strncmp(uri, "shm:", 4) != 0)
		return 0;
	snprintf(name, sizeof(name), HOST_NODE "%.50s", node);
	ret = host_lock_take(uri + 4, HOST_STORE_LOCK_NS, NULL, &lock);
	if (ret)
		return ret;
	ret = runtime_dir_open(uri + 4, false, &dir);
	if (ret == 0)
		ret = host_files_record(&dir, name, &none);
	host_lock_give(&lock, false);
	return ret;
}
