#include "cli/host/host_start.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/os/clock.h"
#include "cli/cli.h"
#include "program/spawn.h"

/* -------- command lines -------- */

void host_metad_options(const struct host_store_opts *opts, struct cmdline *line)
{
	cmdline_set(line, "--stalled", opts->stalled);
	cmdline_set(line, "--listen", opts->listen);
	cmdline_set_path(line, "--announce", opts->announce);
	cmdline_set(line, "--metrics", opts->node.metrics);
	cmdline_set_path(line, "--tls-cert", opts->tls_cert);
	cmdline_set_path(line, "--tls-key", opts->tls_key);
	cmdline_set_path(line, "--tls-ca", opts->tls_ca);
	cmdline_set(line, "--group", opts->node.group);
	cmdline_set(line, "--log-level", opts->node.log_level);
	cmdline_set(line, "--log-format", opts->node.log_format);
	cmdline_set_ns(line, "--node-lease", opts->node_lease_ns);
	cmdline_set_ns(line, "--node-lost", opts->node_lost_ns);
	cmdline_set_ns(line, "--slow-start", opts->slow_start_ns);
}

void host_node_options(const struct host_node_opts *opts, struct cmdline *line)
{
	cmdline_set_bytes(line, "--size", opts->bytes);
	cmdline_set_path(line, "--file", opts->file);
	cmdline_set(line, "--pages", opts->pages);
	cmdline_set(line, "--transport", opts->transport);
	cmdline_set(line, "--group", opts->group);
	cmdline_set(line, "--listen", opts->rdma_listen);
	cmdline_set(line, "--interface", opts->interface);
	cmdline_set(line, "--ports", opts->ports);
	cmdline_set(line, "--provider", opts->provider);
	cmdline_set(line, "--log-level", opts->log_level);
	cmdline_set(line, "--log-format", opts->log_format);
}

void host_node_line(const char *store, const char *name, const struct cmdline *given,
		    struct cmdline *line_out)
{
	line_out->len = 0;
	cmdline_add(line_out, "relive-memnode");
	cmdline_set(line_out, "--store", store);
	cmdline_set(line_out, "--name", name);
	cmdline_set(line_out, "--pages", "auto");
	cmdline_set(line_out, "--transport", "auto");
	if (!cmdline_get(given, "--file"))
		cmdline_set_bytes(line_out, "--size", UINT64_C(1) << 30);
	cmdline_merge(line_out, given);
}

void host_claim(struct host_daemon *daemon, const struct host_node_opts *opts)
{
	daemon->once[0] = opts->adopt ? "--adopt" : NULL;
	daemon->once[1] = opts->discard ? "--discard" : NULL;
	daemon->once[2] = opts->trust_clients ? "--trust-clients" : NULL;
}

/* -------- processes -------- */

static int log_path(const struct runtime_dir *dir, const struct host_daemon *daemon,
		    char path[RUNTIME_PATH_BYTES])
{
	char file[80];

	snprintf(file, sizeof(file), "%.60s.log", daemon->name);
	return runtime_dir_file(dir, file, path);
}

int host_start(const struct runtime_dir *dir, struct host_daemon *daemon, bool tied)
{
	char log[RUNTIME_PATH_BYTES];
	const char *argv[CMDLINE_MAX_ARGS + ARRAY_LEN(daemon->once) + 3];
	struct spawn_daemon spawn = { .argv = argv, .log_path = log, .tied = tied };
	size_t n;
	int ret = log_path(dir, daemon, log);

	if (ret)
		return ret;
	n = cmdline_argv(&daemon->line, argv);
	if (!cmdline_get(&daemon->line, "--log")) {
		argv[n++] = "--log"; /* unlike stderr, a named file can be rotated by SIGHUP */
		argv[n++] = log;
	}
	for (size_t i = 0; i < ARRAY_LEN(daemon->once); i++)
		if (daemon->once[i])
			argv[n++] = daemon->once[i];
	argv[n] = NULL;
	spawn.binary = argv[0];
	ret = spawn_daemon(&spawn, &daemon->pid);
	memset(daemon->once, 0, sizeof(daemon->once));
	if (ret == 0)
		daemon->ours = true;
	return ret;
}

void host_report_end(const struct runtime_dir *dir, const struct host_daemon *daemon, int status)
{
	char path[RUNTIME_PATH_BYTES], text[SPAWN_STATUS_BYTES];

	cli_error("%s ended: %s", daemon->line.text, spawn_status_text(status, text));
	if (log_path(dir, daemon, path) == 0)
		spawn_log_tail(path, stderr);
}

static bool wait_gone(const struct runtime_dir *dir, const struct host_daemons *daemons,
		      int64_t timeout_ns)
{
	uint64_t deadline = deadline_after(clock_monotonic(), timeout_ns);

	for (uint32_t i = 0; i < daemons->n; i++) {
		while (runtime_dir_holder(dir, daemons->at[i].name)) {
			if (deadline_expired(clock_monotonic(), deadline))
				return false;
			usleep(HOST_POLL_NS / CLOCK_NS_PER_US);
		}
	}
	return true;
}

int host_stop_all(const struct runtime_dir *dir, const struct host_daemons *daemons,
		  int64_t timeout_ns)
{
	for (int number = SIGTERM; number; number = number == SIGTERM ? SIGKILL : 0) {
		for (uint32_t i = 0; i < daemons->n; i++) {
			/* Holding the lock proves that the pid is the daemon's, not a later process's. */
			pid_t pid = runtime_dir_holder(dir, daemons->at[i].name);

			if (pid > 0)
				kill(pid, number);
		}
		if (wait_gone(dir, daemons, number == SIGTERM ? timeout_ns : HOST_GRACE_NS))
			return 0;
	}
	return error_set(-ETIMEDOUT, "stop the daemons in %s: some still run after SIGKILL",
			 dir->path);
}
