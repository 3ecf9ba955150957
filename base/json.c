#include "base/json.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static void json_fail(struct json *json, int error)
{
	if (!json->error)
		json->error = error;
}

/*
 * Prints to the stream, unless an error was recorded. json_finish reports failures of the stream.
 */
RLV_PRINTF(2, 3)
static void json_write(struct json *json, const char *fmt, ...)
{
	va_list args;

	if (json->error)
		return;
	va_start(args, fmt);
	(void)vfprintf(json->file, fmt, args);
	va_end(args);
}

/*
 * Called before every value: writes the comma after a former member. Records -EINVAL if a value may
 * not come here: without a key in an object, or a second one at the top level of a line.
 */
static void before_value(struct json *json)
{
	unsigned top = json->depth - 1;

	if (json->depth == 0) {
		if (json->has_root)
			json_fail(json, -EINVAL);
		json->has_root = true;
		return;
	}
	if (json->is_object[top] != json->has_key) {
		json_fail(json, -EINVAL);
		return;
	}
	if (!json->has_key && json->has_member[top])
		json_write(json, ",");
	json->has_member[top] = true;
	json->has_key = false;
}

static void json_open(struct json *json, bool is_object)
{
	before_value(json);
	if (json->depth == JSON_DEPTH_MAX) {
		json_fail(json, -EINVAL);
		return;
	}
	json->is_object[json->depth] = is_object;
	json->has_member[json->depth] = false;
	json->depth++;
	json_write(json, "%c", is_object ? '{' : '[');
}

static void json_close(struct json *json, bool is_object)
{
	if (json->depth == 0 || json->has_key || json->is_object[json->depth - 1] != is_object) {
		json_fail(json, -EINVAL);
		return;
	}
	json->depth--;
	json_write(json, "%c", is_object ? '}' : ']');
}

void json_init(struct json *json, FILE *file)
{
	memset(json, 0, sizeof(*json));
	json->file = file;
}

void json_object_begin(struct json *json)
{
	json_open(json, true);
}

void json_object_end(struct json *json)
{
	json_close(json, true);
}

void json_array_begin(struct json *json)
{
	json_open(json, false);
}

void json_array_end(struct json *json)
{
	json_close(json, false);
}

/*
 * The length of the UTF-8 sequence at text, 0 if there is none: bad lead or continuation byte,
 * overlong form, surrogate, or beyond U+10FFFF.
 */
static size_t utf8_len(const unsigned char *text)
{
	unsigned char lead = text[0];
	unsigned char low = 0x80, high = 0xBF;
	size_t n;

	if (lead < 0x80)
		return 1;
	if (lead < 0xC2 || lead > 0xF4)
		return 0;
	n = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
	if (lead == 0xE0)
		low = 0xA0;
	if (lead == 0xED)
		high = 0x9F;
	if (lead == 0xF0)
		low = 0x90;
	if (lead == 0xF4)
		high = 0x8F;
	if (text[1] < low || text[1] > high)
		return 0;
	for (size_t i = 2; i < n; i++)
		if ((text[i] & 0xC0) != 0x80) /* the final 0 stops here, too */
			return 0;
	return n;
}

static void write_string(struct json *json, const char *string)
{
	static const char escaped[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
	const unsigned char *text = (const unsigned char *)string;

	json_write(json, "\"");
	while (*text) {
		const char *at = strchr(escaped, *text);
		size_t n = utf8_len(text);

		if (n == 0)
			json_write(json, "\xEF\xBF\xBD");
		else if (at)
			json_write(json, "\\%c", letters[at - escaped]);
		else if (*text < 0x20)
			json_write(json, "\\u%04x", *text);
		else
			json_write(json, "%.*s", (int)n, (const char *)text);
		text += n ? n : 1;
	}
	json_write(json, "\"");
}

void json_key(struct json *json, const char *key)
{
	unsigned top = json->depth - 1;

	if (json->depth == 0 || !json->is_object[top] || json->has_key) {
		json_fail(json, -EINVAL);
		return;
	}
	if (json->has_member[top])
		json_write(json, ",");
	write_string(json, key);
	json_write(json, ":");
	json->has_key = true;
}

void json_string(struct json *json, const char *text)
{
	before_value(json);
	if (text)
		write_string(json, text);
	else
		json_write(json, "null");
}

void json_i64(struct json *json, int64_t value)
{
	before_value(json);
	json_write(json, "%" PRId64, value);
}

void json_bool(struct json *json, bool value)
{
	before_value(json);
	json_write(json, value ? "true" : "false");
}

void json_u64(struct json *json, uint64_t value)
{
	before_value(json);
	json_write(json, "%" PRIu64, value);
}

void json_double(struct json *json, double value)
{
	char text[40];
	int digits = 15;

	before_value(json);
	if (!(value - value == 0)) { /* NaN, infinities */
		json_write(json, "null");
		return;
	}
	do {
		snprintf(text, sizeof(text), "%.*g", digits, value);
	} while (digits++ < 17 && strtod(text, NULL) != value);
	for (char *at = text; *at; at++)
		if (!strchr("0123456789+-e", *at))
			*at = '.'; /* a locale may have another decimal point than JSON */
	json_write(json, "%s", text);
}

void json_put_string(struct json *json, const char *key, const char *text)
{
	json_key(json, key);
	json_string(json, text);
}

void json_put_u64(struct json *json, const char *key, uint64_t value)
{
	json_key(json, key);
	json_u64(json, value);
}

void json_put_i64(struct json *json, const char *key, int64_t value)
{
	json_key(json, key);
	json_i64(json, value);
}

void json_put_double(struct json *json, const char *key, double value)
{
	json_key(json, key);
	json_double(json, value);
}

void json_put_bool(struct json *json, const char *key, bool value)
{
	json_key(json, key);
	json_bool(json, value);
}

void json_newline(struct json *json)
{
	if (json->depth != 0)
		json_fail(json, -EINVAL);
	else
		json_write(json, "\n");
	json->has_root = false;
}

int json_finish(struct json *json)
{
	if (json->depth != 0)
		json_fail(json, -EINVAL);
	if (fflush(json->file) != 0 || ferror(json->file))
		json_fail(json, -EIO);
	return json->error;
}

int json_end(struct json *json)
{
	if (json->has_root)
		json_newline(json);
	return json_finish(json);
}
