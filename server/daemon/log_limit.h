/*
 * Log limit: how many lines of one kind go to the log. A kind is the function that speaks. LOG_BURST at
 * once, then one every LOG_PAUSE_NS; what is left out is counted, and the count is told later.
 */
#ifndef RLV_SERVER_DAEMON_LOG_LIMIT_H
#define RLV_SERVER_DAEMON_LOG_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

#define LOG_BURST 20u
#define LOG_PAUSE_NS (500 * (uint64_t)CLOCK_NS_PER_MS)
#define LOG_KINDS 64u

struct log_kind {
	const char *where; /* a literal: known by its address */
	uint64_t free_at;  /* when it had said nothing */
	uint64_t left_out;
};

/* All zero at first. Thread: one at a time. */
struct log_limit {
	struct log_kind kinds[LOG_KINDS]; /* those that do not fit share the last */
};

/* True if a line of that kind may be written now; else it is counted as suppressed. */
bool log_limit_pass(struct log_limit *limit, const char *where, uint64_t now_ns);

/* One kind of which lines were left out, whose count begins anew; NULL: there is none. */
const char *log_limit_take(struct log_limit *limit, uint64_t *left_out);

#endif
