#include "base/os/runtime_dir.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/os/group.h"
#include "base/os/process.h"
#include "base/log.h"
#include "base/os/random.h"

#define NAME_MAX_CHARS 48
#define SECRET_BYTES 32

bool runtime_name_is_valid(const char *name)
{
	size_t len = strnlen(name, NAME_MAX_CHARS + 1);

	if (len == 0 || len > NAME_MAX_CHARS || name[0] == '.')
		return false;
	for (size_t i = 0; i < len; i++)
		if (!isalnum((unsigned char)name[i]) && !strchr("_-.", name[i]))
			return false;
	return true;
}

/* -------- directories -------- */

static int runtime_dir_join(char out[RUNTIME_PATH_BYTES], const char *folder, const char *name)
{
	char path[RUNTIME_PATH_BYTES];
	int n = snprintf(path, sizeof(path), "%s/%s", folder, name);

	if (n < 0 || (size_t)n >= sizeof(path))
		return error_set(
			-ENAMETOOLONG,
			"%s/%s: a socket's path has at most %d bytes: set RELIVE_RUNTIME_DIR to a shorter one",
			folder, name, RUNTIME_PATH_BYTES - 1);
	memcpy(out, path, sizeof(path));
	return 0;
}

static int join_uid(char out[RUNTIME_PATH_BYTES], const char *folder)
{
	char name[32];

	snprintf(name, sizeof(name), "relive-%u", (unsigned int)geteuid());
	return runtime_dir_join(out, folder, name);
}

int runtime_dir_root(char path_out[RUNTIME_PATH_BYTES])
{
	const char *given = getenv("RELIVE_RUNTIME_DIR");
	const char *xdg = getenv("XDG_RUNTIME_DIR");
	struct stat st;

	if (!given || !*given) {
		if (xdg && xdg[0] == '/')
			return runtime_dir_join(path_out, xdg, "relive");
		return geteuid() == 0 ? runtime_dir_join(path_out, "/run", "relive")
				      : join_uid(path_out, "/tmp");
	}
	if (given[0] != '/')
		return error_set(-EINVAL, "RELIVE_RUNTIME_DIR %.64s: give an absolute path", given);
	if (strlen(given) >= RUNTIME_PATH_BYTES)
		return error_set(-ENAMETOOLONG,
				 "RELIVE_RUNTIME_DIR: its path of %zu bytes is too long",
				 strlen(given));
	/* A volume that everybody may write to, as an emptyDir of Kubernetes, gets a folder of ours
	   alone. */
	if (lstat(given, &st) == 0 && S_ISDIR(st.st_mode) && (st.st_mode & S_IWOTH))
		return join_uid(path_out, given);
	memcpy(path_out, given, strlen(given) + 1);
	return 0;
}

/*
 * Checks type, owner and mode of a directory: -EACCES. visits: for a client, which accepts another
 * user's directory that is open to a group that we are in.
 */
static int runtime_dir_check(const char *path, bool visits, struct stat *st)
{
	bool is_shared;

	if (lstat(path, st))
		return error_set(-errno, "%s: %s", path, strerror(errno));
	if (!S_ISDIR(st->st_mode))
		return error_set(-EACCES, "%s: not a directory", path);
	is_shared = visits && (st->st_mode & S_IXGRP);
	/*
	 * Anybody with write permission could plant a socket. Others may have read permission at
	 * most, and only as members of the store's group.
	 */
	if (st->st_uid == geteuid() || (is_shared && group_has_us(st->st_gid)))
		return (st->st_mode & (S_IWGRP | S_IRWXO)) == 0
			       ? 0
			       : error_set(
					 -EACCES,
					 "%s: mode %03o lets others in, want 0700, or 0750 for a group",
					 path, (unsigned int)(st->st_mode & 0777));
	if (is_shared)
		return error_set(-EACCES, "%s: belongs to uid %u, and lets in group %u only", path,
				 (unsigned int)st->st_uid, (unsigned int)st->st_gid);
	return error_set(-EACCES, "%s: belongs to uid %u", path, (unsigned int)st->st_uid);
}

static int runtime_dir_make(const char *path, struct stat *st)
{
	if (mkdir(path, 0700) && errno != EEXIST)
		return error_set(-errno, "mkdir %s: %s", path, strerror(errno));
	return runtime_dir_check(path, false, st);
}

static int check_name(const char *store)
{
	if (runtime_name_is_valid(store))
		return 0;
	return error_set(-EINVAL, "store name \"%.64s\": want letters, digits, _ - . (%d at most)",
			 store, NAME_MAX_CHARS);
}

/* Opens the directories of the root and of the store; create: makes those that do not exist. */
static int open_as(bool visits, const char *store, bool create, struct runtime_dir *dir_out)
{
	char root[RUNTIME_PATH_BYTES];
	struct runtime_dir dir;
	struct stat st = { 0 };
	int ret = check_name(store);

	if (ret == 0)
		ret = runtime_dir_root(root);
	if (ret == 0)
		ret = runtime_dir_join(dir.path, root, store);
	if (ret == 0)
		ret = create ? runtime_dir_make(root, &st) : runtime_dir_check(root, visits, &st);
	if (ret == 0)
		ret = create ? runtime_dir_make(dir.path, &st)
			     : runtime_dir_check(dir.path, visits, &st);
	if (ret)
		return ret;
	dir.shared = (st.st_mode & S_IXGRP) != 0;
	dir.group = st.st_gid;
	*dir_out = dir;
	return 0;
}

int runtime_dir_open(const char *store, bool create, struct runtime_dir *dir_out)
{
	return open_as(false, store, create, dir_out);
}

/*
 * A directory of another user is trusted only if RELIVE_RUNTIME_DIR names it: anybody can create a
 * name under /tmp.
 */
int runtime_dir_visit(const char *store, struct runtime_dir *dir_out)
{
	const char *own = getenv("RELIVE_RUNTIME_DIR");

	return open_as(own && *own, store, false, dir_out);
}

/* -------- a group -------- */

static int open_to(const char *path, gid_t gid, mode_t mode)
{
	if (chown(path, (uid_t)-1, gid) || chmod(path, mode))
		return error_set(-errno, "%s: give it to group %u: %s", path, (unsigned int)gid,
				 strerror(errno));
	return 0;
}

int runtime_dir_share(struct runtime_dir *dir, const char *group)
{
	char root[RUNTIME_PATH_BYTES];
	struct stat st;
	gid_t gid;
	int ret;

	if (!group)
		return 0;
	ret = group_find(group, &gid);
	if (ret == 0)
		ret = runtime_dir_root(root);
	if (ret == 0)
		ret = runtime_dir_check(root, false, &st);
	if (ret == 0 && (st.st_mode & S_IXGRP) && st.st_gid != gid)
		ret = error_set(-EBUSY,
				"%s: is open to group %u, which other stores there may need: give "
				"this one a RELIVE_RUNTIME_DIR of its own",
				root, (unsigned int)st.st_gid);
	if (ret == 0)
		ret = open_to(root, gid, 0750);
	if (ret == 0)
		ret = open_to(dir->path, gid, 0750);
	if (ret)
		return ret;
	dir->shared = true;
	dir->group = gid;
	return 0;
}

int runtime_dir_share_socket(const struct runtime_dir *dir, const char *file)
{
	char path[RUNTIME_PATH_BYTES];
	int ret = runtime_dir_file(dir, file, path);

	return ret || !dir->shared ? ret : open_to(path, dir->group, 0660);
}

int runtime_dir_file(const struct runtime_dir *dir, const char *file,
		     char path_out[RUNTIME_PATH_BYTES])
{
	return runtime_dir_join(path_out, dir->path, file);
}

/* -------- token -------- */

int runtime_dir_token(const struct runtime_dir *dir, char token_out[RUNTIME_TOKEN_BYTES])
{
	char path[RUNTIME_PATH_BYTES], text[RUNTIME_TOKEN_BYTES + 1];
	int fd, ret = runtime_dir_file(dir, "token", path);
	struct stat st;
	ssize_t n = 0;

	if (ret)
		return ret;
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0 && errno == EACCES)
		return error_set(-EACCES,
				 "%s: is its owner's alone: give a token by RELIVE_TOKEN or "
				 "opts.token",
				 path);
	if (fd < 0)
		return error_set(-errno, "%s: %s", path, strerror(errno));
	if (fstat(fd, &st))
		ret = error_set(-errno, "%s: %s", path, strerror(errno));
	else if (st.st_uid != geteuid() || (st.st_mode & (S_IRWXG | S_IRWXO)))
		ret = error_set(-EACCES, "%s: uid %u mode %03o, want 0600 of our own", path,
				(unsigned int)st.st_uid, (unsigned int)(st.st_mode & 0777));
	else if ((n = read(fd, text, sizeof(text))) < 0)
		ret = error_set(-errno, "read %s: %s", path, strerror(errno));
	close(fd);
	for (ssize_t i = 0; ret == 0 && i < RUNTIME_TOKEN_BYTES - 1; i++)
		if (i >= n || !isxdigit((unsigned char)text[i]))
			ret = error_set(-EPROTO, "%s: not %d hexadecimal digits", path,
					RUNTIME_TOKEN_BYTES - 1);
	if (ret)
		return ret;
	memcpy(token_out, text, RUNTIME_TOKEN_BYTES - 1);
	token_out[RUNTIME_TOKEN_BYTES - 1] = '\0';
	return 0;
}

/*
 * Writes 64 hexadecimal digits and a newline: RELIVE_TOKEN if it is such digits, else random ones.
 */
static int write_secret(int fd)
{
	const char *given = getenv("RELIVE_TOKEN");
	uint8_t secret[SECRET_BYTES];
	char text[2 * SECRET_BYTES + 2];

	if (given && (strlen(given) != RUNTIME_TOKEN_BYTES - 1 ||
		      strspn(given, "0123456789abcdefABCDEF") != RUNTIME_TOKEN_BYTES - 1)) {
		if (*given)
			log_warn("RELIVE_TOKEN is not %d hexadecimal digits, so a new store gets "
				 "another token",
				 RUNTIME_TOKEN_BYTES - 1);
		given = NULL;
	}
	if (!given && random_fill(secret, sizeof(secret)))
		return -EIO;
	for (size_t i = 0; i < sizeof(secret) && !given; i++)
		snprintf(text + 2 * i, 3, "%02x", secret[i]);
	if (given)
		memcpy(text, given, sizeof(text) - 2);
	text[sizeof(text) - 2] = '\n';
	if (write(fd, text, sizeof(text) - 1) != (ssize_t)sizeof(text) - 1)
		return errno ? -errno : -EIO;
	return fsync(fd) ? -errno : 0;
}

/*
 * Makes the token's file, unless there is one: written under another name, then linked, so that
 * nobody ever reads half a token.
 */
static int make_token(const struct runtime_dir *dir)
{
	char path[RUNTIME_PATH_BYTES], part[RUNTIME_PATH_BYTES], name[32];
	int fd, ret;

	snprintf(name, sizeof(name), "token.%d", (int)getpid());
	ret = runtime_dir_file(dir, "token", path);
	if (ret == 0)
		ret = runtime_dir_file(dir, name, part);
	if (ret)
		return ret;
	(void)unlink(part);
	fd = open(part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return error_set(-errno, "create %s: %s", part, strerror(errno));
	ret = write_secret(fd);
	close(fd);
	if (ret == 0 && link(part, path) && errno != EEXIST)
		ret = -errno;
	(void)unlink(part);
	return ret ? error_set(ret, "make %s: %s", path, strerror(-ret)) : 0;
}

int runtime_dir_token_make(const struct runtime_dir *dir, char token_out[RUNTIME_TOKEN_BYTES])
{
	int ret = runtime_dir_token(dir, token_out);
	const char *env = ret == 0 ? getenv("RELIVE_TOKEN") : NULL;

	if (env && *env && strcmp(env, token_out) != 0)
		log_warn("RELIVE_TOKEN is not the token of %s, which stays", dir->path);
	if (ret != -ENOENT)
		return ret;
	ret = make_token(dir);
	return ret ? ret : runtime_dir_token(dir, token_out);
}

/* -------- one process for each name -------- */

static int pid_of(const char *path)
{
	char text[16];

	return process_read_text(path, text, sizeof(text)) > 0 ? (int)strtol(text, NULL, 10) : 0;
}

static int lock_paths(const struct runtime_dir *dir, const char *name, char *lock, char *pid)
{
	char file[RUNTIME_PATH_BYTES];
	int ret;

	snprintf(file, sizeof(file), "%s.lock", name);
	ret = runtime_dir_file(dir, file, lock);
	snprintf(file, sizeof(file), "%s.pid", name);
	return ret ? ret : runtime_dir_file(dir, file, pid);
}

/* Pid of the process that has the lock of fd; 0 = nobody, -1 = one of another pid namespace. */
static int lock_holder_pid(int fd)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };

	if (fcntl(fd, F_GETLK, &lock) || lock.l_type == F_UNLCK)
		return 0;
	return lock.l_pid > 0 ? lock.l_pid : -1;
}

/*
 * Opens or makes the file at path and locks it; retries if that file was removed in between.
 * -EBUSY: *pid_out is the pid of the process that has it.
 */
static int lock_path(const char *path, int *fd_out, int *pid_out)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	struct stat held, named;

	for (;;) {
		int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600), ret = 0;

		if (fd < 0)
			return error_set(-errno, "create %s: %s", path, strerror(errno));
		if (fcntl(fd, F_SETLK, &lock))
			ret = errno == EAGAIN || errno == EACCES ? -EBUSY : -errno;
		if (ret == 0 && fstat(fd, &held) == 0 && lstat(path, &named) == 0 &&
		    held.st_ino == named.st_ino && held.st_dev == named.st_dev) {
			*fd_out = fd;
			return 0;
		}
		*pid_out = ret ? lock_holder_pid(fd) : 0;
		close(fd);
		if (ret)
			return error_set(ret, "%s: held by pid %d", path, *pid_out);
	}
}

int runtime_dir_lock(const struct runtime_dir *dir, const char *name, int *fd_out, int *pid_out)
{
	char lock[RUNTIME_PATH_BYTES], pid[RUNTIME_PATH_BYTES];
	int fd = -1, file, ret = lock_paths(dir, name, lock, pid);

	if (ret == 0)
		ret = lock_path(lock, &fd, pid_out);
	if (ret == -EBUSY && *pid_out <= 0)
		*pid_out = pid_of(pid);
	if (ret)
		return ret;
	file = open(pid, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (file < 0)
		ret = error_set(-errno, "create %s: %s", pid, strerror(errno));
	else if (dprintf(file, "%d\n", (int)getpid()) < 0)
		ret = error_set(-EIO, "write %s", pid);
	if (file >= 0)
		close(file);
	if (ret)
		close(fd);
	else
		*fd_out = fd;
	return ret;
}

void runtime_dir_unlock(const struct runtime_dir *dir, const char *name, int fd)
{
	char lock[RUNTIME_PATH_BYTES], pid[RUNTIME_PATH_BYTES];

	if (lock_paths(dir, name, lock, pid) == 0)
		(void)unlink(pid);
	close(fd);
}

int runtime_dir_holder(const struct runtime_dir *dir, const char *name)
{
	char lock[RUNTIME_PATH_BYTES], pid[RUNTIME_PATH_BYTES];
	int fd, found;

	if (lock_paths(dir, name, lock, pid))
		return 0;
	fd = open(lock, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return 0;
	found = lock_holder_pid(fd);
	close(fd);
	return found < 0 ? pid_of(pid) : found;
}

/* -------- one command for each store -------- */

static int store_lock_path(const char *store, char out[RUNTIME_PATH_BYTES])
{
	char root[RUNTIME_PATH_BYTES], name[NAME_MAX_CHARS + 8];
	int ret = check_name(store);
	struct stat st;

	if (ret == 0)
		ret = runtime_dir_root(root);
	if (ret == 0)
		ret = runtime_dir_make(root, &st);
	if (ret)
		return ret;
	snprintf(name, sizeof(name), ".%s.lock", store);
	return runtime_dir_join(out, root, name);
}

int runtime_store_lock(const char *store, int *fd_out, int *pid_out)
{
	char path[RUNTIME_PATH_BYTES];
	int ret = store_lock_path(store, path);

	return ret ? ret : lock_path(path, fd_out, pid_out);
}

void runtime_store_unlock(const char *store, int fd, bool gone)
{
	char path[RUNTIME_PATH_BYTES];

	if (gone && store_lock_path(store, path) == 0)
		(void)unlink(path);
	close(fd);
}
