/*
 * host_files.h - files of daemons: directories, recorded command lines, locks of running daemons.
 *
 * `relive` records the command line of each daemon (NAME.cmdline) before it starts it, nodes first,
 * the server last: if the server's record exists, all exist.
 */
#ifndef RLV_CLI_HOST_HOST_FILES_H
#define RLV_CLI_HOST_HOST_FILES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "base/os/runtime_dir.h"
#include "cli/host/cmdline.h"

#define HOST_FILES_MAX 32
#define HOST_METAD "metad"
#define HOST_NODE "memnode-" /* followed by the node's name */

/* Removes a directory recursively; symbolic links are not followed. Undeletable files stay. */
void host_files_remove(const char *path);

/*
 * Removes files of ended daemons from a store's directory; true: and the directory. If a pool is on
 * a file or device (host_files_keep), the catalog, the token, the command lines and the logs stay
 * for the next start.
 */
bool host_files_clean(const struct runtime_dir *dir);

/* Mark: a pool of the store outlives its daemons. */
int host_files_keep(const struct runtime_dir *dir) RLV_MUST_CHECK;
bool host_files_are_kept(const struct runtime_dir *dir);

/*
 * Mark: its daemons are being stopped. Until host_files_clean, running daemons may have been told
 * to end.
 */
int host_files_end(const struct runtime_dir *dir) RLV_MUST_CHECK;
bool host_files_are_ending(const struct runtime_dir *dir);

/* True if the directory has the catalog of a metadata server. */
bool host_files_have_catalog(const struct runtime_dir *dir, const char *store);

struct host_daemon {
	char name[64];         /* metad, memnode-0, .. */
	pid_t pid;             /* process that holds its lock, 0 = not running */
	bool ours;             /* started by us */
	struct cmdline line;   /* of the process, else the record; empty = unknown */
	struct cmdline record; /* recorded command line; empty = none */
	const char *once[3];   /* options of this start only, not recorded; or NULL */
};

bool host_daemon_is_node(const struct host_daemon *daemon);
/* True if its pool is on a file or device. */
bool host_daemon_is_on_file(const struct host_daemon *daemon);
/* True for a node of a store whose metadata server is reached over TCP. */
bool host_daemon_is_elsewhere(const struct host_daemon *daemon);

struct host_daemons {
	uint32_t n;
	struct host_daemon at[HOST_FILES_MAX];
};

/* Running daemons and recorded ones, by name. -E2BIG. */
int host_files_look(const struct runtime_dir *dir, struct host_daemons *daemons_out) RLV_MUST_CHECK;

/* Find by name, or NULL. */
struct host_daemon *host_daemons_find(struct host_daemons *daemons, const char *name);

/* Find by name; added if missing. -E2BIG. */
int host_daemons_add(struct host_daemons *daemons, const char *name,
		     struct host_daemon **daemon_out) RLV_MUST_CHECK;

/* Record the command line for the next start; an empty line: do not start it. */
int host_files_record(const struct runtime_dir *dir, const char *name, const struct cmdline *line)
	RLV_MUST_CHECK;

#endif
