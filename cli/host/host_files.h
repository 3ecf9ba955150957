/*
 * host_files.h - what daemons leave on disk: their directories, how they were started, who runs.
 *
 * `relive` writes down the command line of each daemon before it starts it (NAME.cmdline), nodes
 * first, the server last: where the server's is, all are.
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
#define HOST_NODE "memnode-" /* and the node's name */

/* Removes a directory with all in it; symbolic links are not followed. What cannot go stays. */
void host_files_remove(const char *path);

/*
 * Removes what daemons that have ended leave in the directory of a store; true: with the directory.
 * Where a pool is on a file or device (host_files_keep), the catalog, the token, the command lines
 * and the logs stay for the next start.
 */
bool host_files_clean(const struct runtime_dir *dir);

/* A pool of the store survives its daemons. */
int host_files_keep(const struct runtime_dir *dir) RLV_MUST_CHECK;
bool host_files_are_kept(const struct runtime_dir *dir);

/*
 * Its daemons are being stopped: until host_files_clean, some that run have been told to end, and
 * nobody can tell which.
 */
int host_files_end(const struct runtime_dir *dir) RLV_MUST_CHECK;
bool host_files_are_ending(const struct runtime_dir *dir);

/* True if the directory holds the catalog of a metadata server. */
bool host_files_have_catalog(const struct runtime_dir *dir, const char *store);

struct host_daemon {
	char name[64];         /* metad, memnode-0, .. */
	pid_t pid;             /* of the process that holds its lock, 0 = not running */
	bool ours;             /* we started it */
	struct cmdline line;   /* of the process, else as written down; empty = unknown */
	struct cmdline record; /* as written down; empty = it is not */
	const char *once[3];   /* options for this start alone, never written down; or NULL */
};

bool host_daemon_is_node(const struct host_daemon *daemon);
/* Its pool is on a file or device. */
bool host_daemon_is_on_file(const struct host_daemon *daemon);
/* A node of a store whose metadata server is asked over TCP. */
bool host_daemon_is_elsewhere(const struct host_daemon *daemon);

struct host_daemons {
	uint32_t n;
	struct host_daemon at[HOST_FILES_MAX];
};

/* Those that run there, and those that `relive` started or was to start, by name. -E2BIG. */
int host_files_look(const struct runtime_dir *dir, struct host_daemons *daemons_out) RLV_MUST_CHECK;

/* The one of that name, or NULL. */
struct host_daemon *host_daemons_find(struct host_daemons *daemons, const char *name);

/* The same, added if it is not there. -E2BIG. */
int host_daemons_add(struct host_daemons *daemons, const char *name,
		     struct host_daemon **daemon_out) RLV_MUST_CHECK;

/* How a daemon is started next; an empty line: not at all. */
int host_files_record(const struct runtime_dir *dir, const char *name, const struct cmdline *line)
	RLV_MUST_CHECK;

#endif
