/*
 * log.h - log messages of the library, to a callback that the user sets. Default: none.
 *
 * Log once, where it is first detected: the call that failed and %m, never the presumed cause.
 * `key value` pairs, lower case: log_warn("fence client %u pid %d", slot, pid). Nothing above
 * debug per operation; hot paths count.
 */
#ifndef RLV_BASE_LOG_H
#define RLV_BASE_LOG_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/error.h"

#define LOG_TEXT_BYTES 1024

enum log_level {
	LOG_LEVEL_NONE,
	LOG_LEVEL_ERROR,
	LOG_LEVEL_WARN,
	LOG_LEVEL_INFO,
	LOG_LEVEL_DEBUG,
};

/*
 * Receives log messages. text: one line, no newline, borrowed for the call. May run on any thread,
 * several at once.
 */
typedef void (*log_fn)(void *ctx, enum log_level level, const char *where, const char *text);

/*
 * Sends messages up to level to fn from now on; fn NULL or LOG_LEVEL_NONE: drops them. A message in
 * progress on another thread may still reach the earlier callback. Thread: any.
 */
void log_set(log_fn fn, void *ctx, enum log_level level);

/* "error", "warn", "info", "debug". Static. */
const char *log_level_name(enum log_level level);

/* Private to the macros. */
extern _Atomic int log_limit;
void log_write(enum log_level level, const char *where, const char *fmt, ...) RLV_PRINTF(3, 4);

static inline bool log_enabled(enum log_level level)
{
	/* relaxed: a switch, it publishes nothing */
	return (int)level <= atomic_load_explicit(&log_limit, memory_order_relaxed);
}

#define LOG_AT(level, ...) \
	do { \
		if (__builtin_expect(log_enabled(level), 0)) \
			log_write((level), __func__, __VA_ARGS__); \
	} while (0)

#define log_error(...) LOG_AT(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warn(...) LOG_AT(LOG_LEVEL_WARN, __VA_ARGS__)
#define log_info(...) LOG_AT(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) LOG_AT(LOG_LEVEL_DEBUG, __VA_ARGS__)

#endif
