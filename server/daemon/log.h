/*
 * log.h - the log of a daemon: lines of text or JSON on stderr or in a file, which SIGHUP reopens
 * by name.
 */
#ifndef RLV_SERVER_DAEMON_LOG_H
#define RLV_SERVER_DAEMON_LOG_H

#include "base/error.h"

/*
 * Starts logging to stderr at level info; SIGHUP then reopens a log file instead of ending the
 * process. Thread: setup, as for all functions of log.h.
 */
void daemon_log_begin(void);

/*
 * Logs to the file instead of stderr, appending. If stdout or stderr is that file already, it
 * follows when SIGHUP reopens the file. -EINVAL: the name is too long, or the file cannot be
 * opened.
 */
RLV_MUST_CHECK int daemon_log_open(const char *path);

/* The least severe level to log: "error", "warn", "info" or "debug"; the format: "text" or "json".
   -EINVAL: another name. */
RLV_MUST_CHECK int daemon_log_set_level(const char *name);
RLV_MUST_CHECK int daemon_log_set_format(const char *name);

/* Reports the last error as the reason of the daemon's end: in the log if that is a file or JSON,
   and as plain text on stderr unless stderr is that log. */
void daemon_log_failure(const char *program);

#endif
