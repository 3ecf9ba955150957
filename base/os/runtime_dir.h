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
 * Opens the directory of a store. create: makes missing directories, else -ENOENT. Errors: -EINVAL
 * (name), -EACCES (owner or mode; the message says which), -ENAMETOOLONG, those of mkdir(2).
 * Thread: setup (it reads the environment).
 */
RLV_MUST_CHECK int runtime_dir_open(const char *store, bool create, struct runtime_dir *dir_out);

/* The same for a client, which may be another user of its group. -ENOENT, as above. Thread: any. */
RLV_MUST_CHECK int runtime_dir_visit(const char *store, struct runtime_dir *dir_out);

/*
 * Gives a group access, by name or number; NULL changes nothing. Errors: those of group_find,
 * -EBUSY (ROOT is another group's already). Thread: setup.
 */
RLV_MUST_CHECK int runtime_dir_share(struct runtime_dir *dir, const char *group);

/* Lets the directory's group, if it has one, connect to that socket. Thread: any. */
RLV_MUST_CHECK int runtime_dir_share_socket(const struct runtime_dir *dir, const char *file);

/* PATH/file. -ENAMETOOLONG. Thread: any. */
RLV_MUST_CHECK int runtime_dir_file(const struct runtime_dir *dir, const char *file,
				    char path_out[RUNTIME_PATH_BYTES]);

/* The store's token. -ENOENT, -EACCES (others may read it), -EPROTO (no token). Thread: any. */
RLV_MUST_CHECK int runtime_dir_token(const struct runtime_dir *dir,
				     char token_out[RUNTIME_TOKEN_BYTES]);

/*
 * As runtime_dir_token, but makes a missing token: from RELIVE_TOKEN if that is 64 hexadecimal
 * digits, else from random bytes. Thread: any, also in several processes.
 */
RLV_MUST_CHECK int runtime_dir_token_make(const struct runtime_dir *dir,
					  char token_out[RUNTIME_TOKEN_BYTES]);

/*
 * Takes `NAME.lock` for the life of the process and writes its pid to `NAME.pid`. The descriptor
 * holds the lock. -EBUSY: a live process has it; *pid_out is its pid, or 0. A pid file without
 * a locked lock file is stale and is overwritten.
 */
RLV_MUST_CHECK int runtime_dir_lock(const struct runtime_dir *dir, const char *name, int *fd_out,
				    int *pid_out);

/* Removes the pid file and releases the lock. */
void runtime_dir_unlock(const struct runtime_dir *dir, const char *name, int fd);

/* Pid of the process that has `NAME.lock`; 0 = nobody. Takes and creates nothing. Thread: any. */
int runtime_dir_holder(const struct runtime_dir *dir, const char *name);

/*
 * Takes the store's own lock, which need not exist yet, nor its directory. -EBUSY: another process
 * has it, *pid_out; errors of runtime_dir_open. The descriptor holds it. Thread: setup.
 */
RLV_MUST_CHECK int runtime_store_lock(const char *store, int *fd_out, int *pid_out);

/* Releases the lock; gone: removes its file, for a store that no longer exists. Thread: setup. */
void runtime_store_unlock(const char *store, int fd, bool gone);

#endif
