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

/*
 * Both set in line those options of a daemon that opts gives; members of 0 or NULL change nothing.
 */
void host_metad_options(const struct host_store_opts *opts, struct cmdline *line);
void host_node_options(const struct host_node_opts *opts, struct cmdline *line);

/*
 * Makes the complete command line of a memory node: the defaults, and the options of `given` over
 * them.
 */
void host_node_line(const char *store, const char *name, const struct cmdline *given,
		    struct cmdline *line_out);

/*
 * Sets daemon->once, the options of its next start only, from opts: --adopt and --discard, for
 * regions that the store does not know, and --trust-clients.
 */
void host_claim(struct host_daemon *daemon, const struct host_node_opts *opts);

/*
 * Starts a daemon with its command line and daemon->once, output to NAME.log; sets pid and ours.
 * tied: it ends with this process. Errors of spawn_daemon.
 */
int host_start(const struct runtime_dir *dir, struct host_daemon *daemon, bool tied) RLV_MUST_CHECK;

/* Prints on stderr how a daemon ended, by its wait(2) status, with the end of its log. */
void host_report_end(const struct runtime_dir *dir, const struct host_daemon *daemon, int status);

/*
 * Sends SIGTERM to all daemons that run, SIGKILL after timeout_ns, and waits for their end.
 * -ETIMEDOUT: some did not end after SIGKILL either.
 */
int host_stop_all(const struct runtime_dir *dir, const struct host_daemons *daemons,
		  int64_t timeout_ns) RLV_MUST_CHECK;

#endif
