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
#define HOST_LOCK_NS 20000000000 /* longest wait of `node` and `down` for the lock */
#define HOST_METAD "metad"
#define HOST_NODE "memnode-" /* followed by the node's name */

/*
 * Takes the lock of commands that start or stop daemons of a store; it ends with its process, or
 * with runtime_store_unlock. Waits for the command that holds it, and after a second names its pid
 * on stderr. -ETIMEDOUT: held for longer than timeout_ns, -EINTR, errors of runtime_store_lock.
 */
int host_lock(const char *store, int64_t timeout_ns, int *fd_out) RLV_MUST_CHECK;

/* Removes a directory recursively; symbolic links are not followed. Undeletable files stay. */
void host_files_remove(const char *path);

/*
 * Removes a store's directory after its daemons have ended: true. With the mark HOST_KEPT (a pool
 * is on a file or device) removes only sockets, pid files and HOST_ENDING: false. Catalog, token,
 * command lines and logs then stay for the next start.
 */
bool host_files_clean(const struct runtime_dir *dir);

/* Marks in a store's directory. */
#define HOST_KEPT "persistent" /* a pool of the store outlives its daemons */
#define HOST_ENDING "ending"   /* until host_files_clean, daemons may have been told to end */

int host_files_mark(const struct runtime_dir *dir, const char *mark) RLV_MUST_CHECK;

/* True if the store's directory has a file of that name: a mark, or the catalog, STORE.db. */
bool host_files_have(const struct runtime_dir *dir, const char *name);

struct host_daemon {
	char name[64];         /* metad, memnode-0, .. */
	pid_t pid;             /* process that holds its lock, 0 = not running */
	bool ours;             /* started by us */
	struct cmdline line;   /* of the process, else the record; empty = unknown */
	struct cmdline record; /* recorded command line; empty = none */
	const char *once[3];   /* options of this start only, not recorded; or NULL */
};

bool host_daemon_is_node(const struct host_daemon *daemon);
/* True if the daemon's command line puts its pool on a file or device. */
bool host_daemon_is_on_file(const struct host_daemon *daemon);
/* True for a node (--metad) of a store whose metadata server is reached over TCP. */
bool host_daemon_is_elsewhere(const struct host_daemon *daemon);

struct host_daemons {
	uint32_t n;
	struct host_daemon at[HOST_FILES_MAX];
};

/*
 * Finds the daemons of a store's directory that run or have a recorded command line, sorted by
 * name. -E2BIG: more than HOST_FILES_MAX; errors of opendir(3) and of reading a record.
 */
int host_files_look(const struct runtime_dir *dir, struct host_daemons *daemons_out) RLV_MUST_CHECK;

/* The daemon of that name, or NULL. */
struct host_daemon *host_daemons_find(struct host_daemons *daemons, const char *name);

/*
 * Finds the daemon of that name, or adds one with only its name set. -E2BIG: there are
 * HOST_FILES_MAX.
 */
int host_daemons_add(struct host_daemons *daemons, const char *name,
		     struct host_daemon **daemon_out) RLV_MUST_CHECK;

/* Path of a daemon's file: its name and an end, as ".log". */
int host_file_path(const struct runtime_dir *dir, const char *daemon, const char *end,
		   char path_out[RUNTIME_PATH_BYTES]) RLV_MUST_CHECK;

/*
 * Records the command line of a daemon for its next start. An empty line removes the record, so
 * that the daemon is not started.
 */
int host_files_record(const struct runtime_dir *dir, const char *name, const struct cmdline *line)
	RLV_MUST_CHECK;

#endif
