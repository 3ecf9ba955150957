/*
 * runtime_dir.h - the directory of sockets, locks and tokens, shared by daemons and clients of a
 * host.
 *
 *   ROOT            RELIVE_RUNTIME_DIR, else $XDG_RUNTIME_DIR/relive, else /run/relive for root,
 *                   else /tmp/relive-UID. Where RELIVE_RUNTIME_DIR is writable for everybody, as
 *                   a volume of Kubernetes is, ROOT is its folder relive-UID, which is ours alone
 *   ROOT/.STORE.lock  held by the one command that starts or stops daemons of the store
 *   ROOT/STORE      one directory for each store, mode 0700; with a group, ROOT and it 0750
 *     metad.sock    control plane (0600, 0660)      metad.lock metad.pid
 *     NODE.sock     node's regions (0600, 0660)     NODE.lock  NODE.pid      (NODE = memnode-NAME)
 *     token         shared secret: 64 hexadecimal digits (0600)
 *     *.cmdline     how `relive` started a daemon (cli/host/cmdline.h)
 *
 * Locks are those of fcntl(2): they end with their process, forked children do not have them, and
 * the holder can be queried without taking the lock. Only the holder may remove a lock file; a
 * process that locked a file removed meanwhile tries again.
 *
 * A directory writable by others is refused: anyone who can put a socket there can impersonate a
 * daemon. A directory of another user is refused too, except to clients in its group if
 * RELIVE_RUNTIME_DIR names it.
 */
#ifndef RLV_BASE_OS_RUNTIME_DIR_H
#define RLV_BASE_OS_RUNTIME_DIR_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/error.h"

#define RUNTIME_PATH_BYTES 108 /* of a socket's name, the final 0 included */
#define RUNTIME_TOKEN_BYTES 65 /* as text, the final 0 included */

struct runtime_dir {
	char path[RUNTIME_PATH_BYTES]; /* of the store */
	bool shared;                   /* with group */
	gid_t group;
};

/* True for 1 to 48 letters, digits, _ - . that do not begin with a dot. */
bool runtime_name_is_valid(const char *name);

/*
 * Path of ROOT, which need not exist. -EINVAL, -ENAMETOOLONG: RELIVE_RUNTIME_DIR is no absolute path,
 * or too long. Thread: setup (it reads the environment).
 */
RLV_MUST_CHECK int runtime_dir_root(char path_out[RUNTIME_PATH_BYTES]);

/*
 * Opens the directory of a store. create: makes missing directories, else -ENOENT. Errors: -EINVAL
 * (name), -EACCES (owner or mode; the message says which), -ENAMETOOLONG, those of mkdir(2).
 * Thread: setup (it reads the environment).
 */
RLV_MUST_CHECK int runtime_dir_open(const char *store, bool create, struct runtime_dir *dir_out);

/*
 * Opens a store's directory for a client. With RELIVE_RUNTIME_DIR set, it may be another user's, if
 * it is open to a group that we are in. -ENOENT: no such directory; else as runtime_dir_open.
 * Thread: any.
 */
RLV_MUST_CHECK int runtime_dir_visit(const char *store, struct runtime_dir *dir_out);

/*
 * Opens ROOT and the store's directory to a group, given by name or number: mode 0750. NULL changes
 * nothing. Errors: those of group_find, -EBUSY (ROOT is open to another group). Thread: setup.
 */
RLV_MUST_CHECK int runtime_dir_share(struct runtime_dir *dir, const char *group);

/* Lets the directory's group, if it has one, connect to the socket of that name. Thread: any. */
RLV_MUST_CHECK int runtime_dir_share_socket(const struct runtime_dir *dir, const char *file);

/*
 * Path of a file in the directory. -ENAMETOOLONG: longer than RUNTIME_PATH_BYTES - 1. Thread: any.
 */
RLV_MUST_CHECK int runtime_dir_file(const struct runtime_dir *dir, const char *file,
				    char path_out[RUNTIME_PATH_BYTES]);

/*
 * Reads the store's token. -ENOENT (no file), -EACCES (it is not our own, or others have access),
 * -EPROTO (not 64 hexadecimal digits). Thread: any.
 */
RLV_MUST_CHECK int runtime_dir_token(const struct runtime_dir *dir,
				     char token_out[RUNTIME_TOKEN_BYTES]);

/*
 * As runtime_dir_token, but makes a missing token: from RELIVE_TOKEN if that is 64 hexadecimal
 * digits, else from random bytes. Thread: any, also in several processes.
 */
RLV_MUST_CHECK int runtime_dir_token_make(const struct runtime_dir *dir,
					  char token_out[RUNTIME_TOKEN_BYTES]);

/*
 * Locks `NAME.lock` for the life of the process and writes this process's pid to `NAME.pid`.
 * *fd_out holds the lock. -EBUSY: a live process has it; *pid_out is that process's pid, or 0. A
 * pid file without a locked lock file is stale and is overwritten.
 */
RLV_MUST_CHECK int runtime_dir_lock(const struct runtime_dir *dir, const char *name, int *fd_out,
				    int *pid_out);

/* Removes `NAME.pid` and releases `NAME.lock`, whose file stays, by closing fd. */
void runtime_dir_unlock(const struct runtime_dir *dir, const char *name, int fd);

/* Pid of the process that has `NAME.lock`; 0 = nobody. Takes and creates nothing. Thread: any. */
int runtime_dir_holder(const struct runtime_dir *dir, const char *name);

/*
 * Locks ROOT/.STORE.lock, which it makes if missing; the store's directory need not exist. *fd_out
 * holds the lock. -EBUSY: another process has it, whose pid is in *pid_out; errors of
 * runtime_dir_open. Thread: setup.
 */
RLV_MUST_CHECK int runtime_store_lock(const char *store, int *fd_out, int *pid_out);

/*
 * Releases the lock of runtime_store_lock; gone: removes its file, for a store that no longer
 * exists. Thread: setup.
 */
void runtime_store_unlock(const char *store, int fd, bool gone);

#endif
