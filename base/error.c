#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char last_text[ERROR_TEXT_BYTES];
static _Thread_local int last_code;

/*
 * Records code and a message, that of fmt followed by rest, and returns code. rest, or an argument
 * of fmt, may be the recorded message itself.
 */
RLV_PRINTF(3, 0)
static int record(int code, const char *rest, const char *fmt, va_list args)
{
	char text[ERROR_TEXT_BYTES];
	int saved = errno;

	if (vsnprintf(text, sizeof(text), fmt, args) < 0)
		text[0] = '\0';
	strncat(text, rest, sizeof(text) - strlen(text) - 1);
	memcpy(last_text, text, sizeof(last_text));
	last_code = code;
	errno = saved;
	return code;
}

int(error_set)(int code, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	code = record(code, "", fmt, args);
	va_end(args);
	return code;
}

int error_prefix(int code, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	code = record(code, last_text, fmt, args);
	va_end(args);
	return code;
}

const char *error_last(void)
{
	return last_text;
}

int error_last_code(void)
{
	return last_code;
}

void error_clear(void)
{
	last_text[0] = '\0';
	last_code = 0;
}

void error_keep(struct error_kept *kept_out)
{
	kept_out->code = last_code;
	memcpy(kept_out->text, last_text, sizeof(kept_out->text));
}

void error_restore(const struct error_kept *kept)
{
	last_code = kept->code;
	memcpy(last_text, kept->text, sizeof(last_text));
}

const char *error_name(int code)
{
	const char *name = strerrorname_np(-code);

	if (code == 0)
		return "OK";
	if (code == -ENOTSUP) /* the library says EOPNOTSUPP, which is the same number here */
		return "ENOTSUP";
	return name ? name : "E?";
}
