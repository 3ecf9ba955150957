/*
 * host_start.h - how daemons of a store are started and stopped.
 */
#ifndef RLV_CLI_HOST_HOST_START_H
#define RLV_CLI_HOST_HOST_START_H

#include "relive/relive.h"

#include "base/error.h"
#include "cli/host/cmdline.h"
#include "cli/host/host_files.h"
#include "cli/host/host_store.h"
#include "cli/store_status.h"

#define HOST_POLL_NS 20000000
#define HOST_GRACE_NS 5000000000

/* The options that the caller gave, and no others. */
int host_metad_options(const struct host_store_opts *opts, struct cmdline *line_out) RLV_MUST_CHECK;
int host_node_options(const struct host_store_opts *opts, struct cmdline *line_out) RLV_MUST_CHECK;

/* Whole command lines: `given` over the defaults. */
int host_metad_line(const char *store, const struct cmdline *given, struct cmdline *line_out)
	RLV_MUST_CHECK;
int host_node_line(const char *store, const char *name, const struct cmdline *given,
		   struct cmdline *line_out) RLV_MUST_CHECK;

/* A person's words on what the node's pool holds and the store does not know: of its next start alone. */
void host_claim(struct host_daemon *daemon, bool adopt, bool discard, bool trust_clients);

/* Starts it by its line, with NAME.log for its output; pid and ours are set. */
int host_start(const struct runtime_dir *dir, struct host_daemon *daemon, bool tied) RLV_MUST_CHECK;

/* Says on stderr how it ended, with the end of its log. */
void host_report_end(const struct runtime_dir *dir, const struct host_daemon *daemon, int status);

/* SIGTERM, then SIGKILL after timeout_ns, and waits. -ETIMEDOUT: some do not end. */
int host_stop_all(const struct runtime_dir *dir, const struct host_daemons *daemons,
		  int64_t timeout_ns) RLV_MUST_CHECK;

/* What the metadata server says of the store's nodes. Negative = it cannot be asked. */
int host_ask(const char *uri, struct store_status *status_out) RLV_MUST_CHECK;

/* True if the node is up by that answer. */
bool host_node_is_up(const struct store_status *status, const char *name);

#endif
