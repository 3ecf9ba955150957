/*
 * host_start.h - starts and stops the daemons of a store.
 */
#ifndef RLV_CLI_HOST_HOST_START_H
#define RLV_CLI_HOST_HOST_START_H

#include "relive/relive.h"

#include "base/error.h"
#include "cli/host/cmdline.h"
#include "cli/host/host_files.h"
#include "cli/host/host_store.h"

#define HOST_POLL_NS 20000000
#define HOST_GRACE_NS 5000000000
#define HOST_ASK_NS 500000000 /* longest wait for each answer of the server */

/* Sets the given options only. */
void host_metad_options(const struct host_store_opts *opts, struct cmdline *line);
void host_node_options(const struct host_node_opts *opts, struct cmdline *line);

/* Complete command line of a memory node: `given` over the defaults. */
void host_node_line(const char *store, const char *name, const struct cmdline *given,
		    struct cmdline *line_out);

/* Options of the node's next start only: the operator's claim on regions unknown to the store. */
void host_claim(struct host_daemon *daemon, const struct host_node_opts *opts);

/* Starts it with its command line, output to NAME.log; sets pid and ours. */
int host_start(const struct runtime_dir *dir, struct host_daemon *daemon, bool tied) RLV_MUST_CHECK;

/* Print on stderr how it ended, with the end of its log. */
void host_report_end(const struct runtime_dir *dir, const struct host_daemon *daemon, int status);

/* SIGTERM, then SIGKILL after timeout_ns, and waits. -ETIMEDOUT: some did not end. */
int host_stop_all(const struct runtime_dir *dir, const struct host_daemons *daemons,
		  int64_t timeout_ns) RLV_MUST_CHECK;

#endif
