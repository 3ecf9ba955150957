/*
 * Log limit: rate limit of log lines by kind. A kind is the logging function. LOG_BURST lines at
 * once, then one every LOG_PAUSE_NS; suppressed lines are counted, and the count is logged later.
 */
#ifndef RLV_SERVER_DAEMON_LOG_LIMIT_H
#define RLV_SERVER_DAEMON_LOG_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

#define LOG_BURST 20u
#define LOG_PAUSE_NS (500 * (uint64_t)CLOCK_NS_PER_MS)
#define LOG_KINDS 64u

struct log_kind {
	const char *where; /* a literal, compared by address */
	uint64_t free_at;  /* time at which its burst is full again */
	uint64_t left_out;
};

/* Zero-initialized. Thread: one at a time. */
struct log_limit {
	struct log_kind kinds[LOG_KINDS]; /* kinds beyond the array share the last entry */
};

/* True if a line of the kind `where` may be written at now_ns; else it is counted as suppressed. */
bool log_limit_pass(struct log_limit *limit, const char *where, uint64_t now_ns);

/* Returns a kind that has suppressed lines, sets *left_out to their number and resets it; NULL: no
   kind has any. */
const char *log_limit_take(struct log_limit *limit, uint64_t *left_out);

#endif
