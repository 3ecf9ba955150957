/*
 * spawn.h - child processes: starts daemons from our own folder, stops them, prints their logs.
 */
#ifndef RLV_PROGRAM_SPAWN_H
#define RLV_PROGRAM_SPAWN_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "base/error.h"

/*
 * Path of a file beside this process's binary: file is relative to the binary's folder. False:
 * there is none that can be read, and path_out is file itself.
 */
bool spawn_beside(const char *file, char path_out[PATH_MAX]);

struct spawn_daemon {
	const char *binary;      /* "relive-metad": in our own folder, else in PATH */
	const char *const *argv; /* includes argv[0], ends with NULL */
	const char *log_path;    /* stdout and stderr are appended to it; NULL = inherited */
	bool tied;               /* gets SIGTERM when the process that started it ends */
};

/*
 * Starts a daemon in a session of its own, stdin from /dev/null. Returns after its exec(2).
 * -ENOENT: no such binary; errors of fork(2) and exec(2). Thread: setup, the process has one
 * thread.
 */
int spawn_daemon(const struct spawn_daemon *daemon, pid_t *pid_out) RLV_MUST_CHECK;

/*
 * Forks a child that ignores SIGINT, SIGTERM and SIGHUP and is killed when its parent ends. Returns
 * 0 in both, or an error; *pid_out is 0 in the child, and its pid in the parent.
 */
int spawn_fork(pid_t *pid_out) RLV_MUST_CHECK;

/*
 * True if the child has ended, without waiting: its wait(2) status is in *status_out, and the pid
 * is free.
 */
bool spawn_ended(pid_t pid, int *status_out);

/* Waits for the child's end; returns its wait(2) status. */
int spawn_wait(pid_t pid);

/*
 * Ends a child: sends SIGTERM, then SIGKILL after grace_ns, and waits for its end. No-op if it has
 * ended.
 */
void spawn_stop(pid_t pid, int64_t grace_ns);

/* Text of a wait status: "exit 1", "killed by SIGKILL". */
#define SPAWN_STATUS_BYTES 48
const char *spawn_status_text(int status, char text[SPAWN_STATUS_BYTES]);

/*
 * Prints the last lines of a log, at most 12 of the last 2 KiB, to file, indented; nothing if the
 * log cannot be opened.
 */
void spawn_log_tail(const char *log_path, FILE *file);

#endif
