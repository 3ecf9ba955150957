#include "base/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

_Atomic int log_limit = LOG_LEVEL_NONE;

/*
 * The callback and its context change together. Not a ranked lock: logging is allowed under any
 * lock, and the callback runs outside this one.
 */
static pthread_mutex_t sink_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct {
	log_fn fn;
	void *ctx;
} sink;

void log_set(log_fn fn, void *ctx, enum log_level level)
{
	pthread_mutex_lock(&sink_mutex);
	sink.fn = fn;
	sink.ctx = ctx;
	/* relaxed: log_write takes the mutex before it looks at the sink */
	atomic_store_explicit(&log_limit, fn ? (int)level : LOG_LEVEL_NONE, memory_order_relaxed);
	pthread_mutex_unlock(&sink_mutex);
}

void log_write(enum log_level level, const char *where, const char *fmt, ...)
{
	char text[LOG_TEXT_BYTES];
	int saved = errno;
	log_fn fn;
	void *ctx;
	va_list args;

	pthread_mutex_lock(&sink_mutex);
	fn = sink.fn;
	ctx = sink.ctx;
	pthread_mutex_unlock(&sink_mutex);
	if (fn) {
		errno = saved; /* for %m */
		va_start(args, fmt);
		if (vsnprintf(text, sizeof(text), fmt, args) >= 0)
			fn(ctx, level, where, text);
		va_end(args);
	}
	errno = saved;
}

const char *log_level_name(enum log_level level)
{
	static const char *const names[] = { "none", "error", "warn", "info", "debug" };

	return (unsigned)level < sizeof(names) / sizeof(names[0]) ? names[level] : "?";
}
