/*
 * log.h - the log of a daemon: lines of text or JSON on stderr or in a file, which SIGHUP reopens
 * by name.
 */
#ifndef RLV_SERVER_DAEMON_LOG_H
#define RLV_SERVER_DAEMON_LOG_H

#include "base/error.h"

/*
 * Starts logging to stderr at level info; SIGHUP no longer ends the process. Thread: setup, for all
 * of these.
 */
void daemon_log_begin(void);

/*
 * Appends to the file instead, and redirects stdout and stderr if they are that file already.
 * -EINVAL.
 */
RLV_MUST_CHECK int daemon_log_open(const char *path);

/* "error", "warn", "info", "debug"; "text", "json". -EINVAL. */
RLV_MUST_CHECK int daemon_log_set_level(const char *name);
RLV_MUST_CHECK int daemon_log_set_format(const char *name);

/* Logs the last error as the reason of the daemon's end; also on stderr if the log is a file. */
void daemon_log_failure(const char *program);

#endif
