#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char last_text[ERROR_TEXT_BYTES];
static _Thread_local int last_code;

int(error_set)(int code, const char *fmt, ...)
{
	char text[ERROR_TEXT_BYTES]; /* an argument may be error_last() itself */
	int saved = errno;
	va_list args;

	va_start(args, fmt);
	if (vsnprintf(text, sizeof(text), fmt, args) < 0)
		text[0] = '\0';
	va_end(args);
	memcpy(last_text, text, sizeof(last_text));
	last_code = code;
	errno = saved;
	return code;
}

int error_prefix(int code, const char *fmt, ...)
{
	char text[ERROR_TEXT_BYTES];
	int saved = errno;
	va_list args;
	size_t len, rest;

	va_start(args, fmt);
	if (vsnprintf(text, sizeof(text), fmt, args) < 0)
		text[0] = '\0';
	va_end(args);
	len = strlen(text);
	rest = strnlen(last_text, sizeof(last_text) - len - 1);
	memcpy(text + len, last_text, rest);
	text[len + rest] = '\0';
	memcpy(last_text, text, len + rest + 1);
	last_code = code;
	errno = saved;
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
