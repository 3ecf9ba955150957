/*
 * log.h - the log of a daemon: lines of text or of JSON on stderr or in a file, which SIGHUP
 * opens again by its name.
 */
#ifndef RLV_SERVER_DAEMON_LOG_H
#define RLV_SERVER_DAEMON_LOG_H

#include "base/error.h"

/*
 * Lines go to stderr from now on, at level info; SIGHUP no longer ends the process. Thread: setup, for
 * all of these.
 */
void daemon_log_begin(void);

/*
 * They are appended to the file instead, also what is written to stdout and stderr, where these are that
 * file already. -EINVAL.
 */
RLV_MUST_CHECK int daemon_log_open(const char *path);

/* "error", "warn", "info", "debug"; "text", "json". -EINVAL. */
RLV_MUST_CHECK int daemon_log_set_level(const char *name);
RLV_MUST_CHECK int daemon_log_set_format(const char *name);

/* Says the last error as the end of the daemon: in its log, and on stderr where that is not the log. */
void daemon_log_failure(const char *program);

#endif
