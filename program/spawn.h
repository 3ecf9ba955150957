/*
 * spawn.h - child processes: daemons from the binaries beside ours, their ends and their logs.
 */
#ifndef RLV_PROGRAM_SPAWN_H
#define RLV_PROGRAM_SPAWN_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "base/error.h"

struct spawn_daemon {
	const char *binary;      /* "relive-metad": beside this binary, else in PATH */
	const char *const *argv; /* argv[0] included, NULL at the end */
	const char *log_path;    /* stdout and stderr go there, appended; NULL = where ours go */
	bool tied;               /* SIGTERM when the process that started it is gone */
};

/*
 * Starts it in a session of its own, stdin from /dev/null. -ENOENT: no such binary, or what
 * exec(2) says. Thread: setup, the process has one thread.
 */
int spawn_daemon(const struct spawn_daemon *daemon, pid_t *pid_out) RLV_MUST_CHECK;

/*
 * A forked child of this program with its signals ignored, that dies with its parent: 0 in the
 * child, its pid in the parent, or an error.
 */
int spawn_fork(pid_t *pid_out) RLV_MUST_CHECK;

/* Has the child ended? Then its wait(2) status is in *status_out, and the pid is free. */
bool spawn_ended(pid_t pid, int *status_out);

/* Waits for its end: its wait(2) status. */
int spawn_wait(pid_t pid);

/* SIGTERM, then SIGKILL after grace_ns, and waits. */
void spawn_stop(pid_t pid, int64_t grace_ns);

/* "exit 1", "killed by SIGKILL". */
#define SPAWN_STATUS_BYTES 48
const char *spawn_status_text(int status, char text[SPAWN_STATUS_BYTES]);

/* The last lines of a log, each indented. */
void spawn_log_tail(const char *log_path, FILE *file);

#endif
