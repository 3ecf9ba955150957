/*
 * library.c - the calls of the API that need no store: version, errors, log.
 */
#include "relive/relive.h"

#include "base/error.h"
#include "base/log.h"

#include <stdio.h>

const char *rlv_last_error(void)
{
	return error_last();
}

const char *rlv_error_name(int code)
{
	return error_name(code);
}

#define VERSION_TEXT(a, b, c) #a "." #b "." #c
#define VERSION_EXPAND(a, b, c) VERSION_TEXT(a, b, c)

const char *rlv_version(void)
{
	return VERSION_EXPAND(RLV_VERSION_MAJOR, RLV_VERSION_MINOR, RLV_VERSION_PATCH);
}

/* -------- log: the public callback takes whole lines -------- */

static struct {
	void (*fn)(void *ctx, enum rlv_log_level level, const char *line);
	void *ctx;
} log_user;

static void log_forward(void *ctx, enum log_level level, const char *where, const char *text)
{
	char line[ERROR_TEXT_BYTES + 64];

	(void)ctx;
	snprintf(line, sizeof(line), "%s %s", where, text);
	log_user.fn(log_user.ctx, (enum rlv_log_level)(level - LOG_LEVEL_ERROR), line);
}

void rlv_log_set(void (*fn)(void *ctx, enum rlv_log_level level, const char *line), void *ctx,
		 enum rlv_log_level most)
{
	log_user.fn = fn;
	log_user.ctx = ctx;
	log_set(fn ? log_forward : NULL, NULL, (enum log_level)most + LOG_LEVEL_ERROR);
}
