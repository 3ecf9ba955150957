/*
 * host_files.h - what is left on disk of daemons: their directories and who still runs.
 */
#ifndef RLV_CLI_HOST_FILES_H
#define RLV_CLI_HOST_FILES_H

#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "base/runtime_dir.h"

/* Removes a directory with all in it; symbolic links are not followed. What cannot go stays. */
void host_files_remove(const char *path);

/*
 * Removes what daemons leave in the directory of a store. Where the pool is on a file or device
 * (host_files_keep), the catalog, the token and the logs stay for the next start.
 */
void host_files_clean(const struct runtime_dir *dir);

/* The store's pool survives its daemons. */
int host_files_keep(const struct runtime_dir *dir) RLV_MUST_CHECK;

#define HOST_FILES_MAX 32

struct host_daemon {
	char name[64]; /* metad, memnode-0, .. */
	pid_t pid;     /* of the process that holds its lock, 0 = not running */
};

/* The daemons that ever started there. -E2BIG: more than HOST_FILES_MAX. */
int host_files_daemons(const struct runtime_dir *dir, struct host_daemon *daemons_out,
		       uint32_t *n_out) RLV_MUST_CHECK;

/* Pid of the daemon that runs under the name, 0 if none. */
pid_t host_files_pid(const struct runtime_dir *dir, const char *name);

#endif
