#include "program/units.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"

static const char prefixes[] = "KMGTP";

/*
 * Parses a plain decimal number at the start of text; *rest_out is what follows it. -EINVAL for a
 * sign, hex, nan and inf, which strtod takes.
 */
static int leading_number(const char *text, double *out, const char **rest_out)
{
	char *end;

	if (text[strspn(text, "0123456789.")] == 'x' || !strchr("0123456789.", *text) || !*text)
		return -EINVAL;
	*out = strtod(text, &end);
	*rest_out = end;
	return end > text && isfinite(*out) ? 0 : -EINVAL;
}

/*
 * Parses an integer at the start of text, not as a double, which is exact only up to 2^53. Returns
 * what follows it; NULL: there is none, or it does not fit.
 */
static const char *whole_number(const char *text, uint64_t *out)
{
	char *end;

	errno = 0;
	*out = strtoull(text, &end, 10);
	return isdigit((unsigned char)*text) && errno == 0 ? end : NULL;
}

/* Factor of a prefix letter, base^1 for K to base^5 for P; 0 if unknown. */
static double scale_of(char letter, double base)
{
	const char *at = letter ? strchr(prefixes, toupper((unsigned char)letter)) : NULL;

	return at ? pow(base, (double)(at - prefixes + 1)) : 0;
}

/*
 * Parses a number with a prefix letter: K is base, Ki is 1024. usage: what the number is, and how
 * to write it, for the message. -EINVAL, -ERANGE.
 */
static int parse_scaled(const char *text, double base, const char *usage, uint64_t *out)
{
	uint64_t whole;
	const char *rest = whole_number(text, &whole);
	double value;

	if (rest && !*rest) {
		*out = whole;
		return 0;
	}
	if (leading_number(text, &value, &rest))
		return error_set(-EINVAL, "%s: not a %s", text, usage);
	if (scale_of(*rest, base) > 0) {
		value *= scale_of(*rest, rest[1] == 'i' ? 1024 : base);
		rest += rest[1] == 'i' ? 2 : 1;
	}
	if (base == 1024 && *rest == 'B') /* bytes */
		rest++;
	if (*rest)
		return error_set(-EINVAL, "%s: not a %s", text, usage);
	if (value >= 0x1p64)
		return error_set(-ERANGE, "%s: too large", text);
	if (value != floor(value))
		return error_set(-EINVAL, "%s: not a whole number", text);
	*out = (uint64_t)value;
	return 0;
}

int units_parse_bytes(const char *text, uint64_t *out)
{
	return parse_scaled(text, 1024, "size; write 4096, 64K, 512MiB or 2G", out);
}

int units_parse_count(const char *text, uint64_t *out)
{
	const char *caret, *end = NULL;
	uint64_t base, exponent, value = 1;

	if (!strchr(text, '^'))
		return parse_scaled(text, 1000, "count; write 1000, 500k, 2M, 64Ki or 2^20", out);
	caret = whole_number(text, &base);
	if (caret && *caret == '^')
		end = whole_number(caret + 1, &exponent);
	if (!end || *end)
		return error_set(-EINVAL, "%s: not a count; powers are written 2^20", text);
	if (exponent > 64)
		return error_set(-ERANGE, "%s: too large", text);
	while (exponent--) {
		if (!checked_mul_u64(value, base, &value))
			return error_set(-ERANGE, "%s: too large", text);
	}
	*out = value;
	return 0;
}

int units_parse_duration(const char *text, int64_t *ns_out)
{
	static const struct {
		const char *unit;
		double ns;
	} units[] = { { "", 1e9 },   { "s", 1e9 }, { "ms", 1e6 },
		      { "us", 1e3 }, { "ns", 1 },  { "m", 60e9 } };
	const char *rest;
	double value;

	if (leading_number(text, &value, &rest))
		return error_set(-EINVAL, "%s: not a duration; write 2, 1.5s, 500ms or 3m", text);
	for (size_t i = 0; i < ARRAY_LEN(units); i++) {
		if (strcmp(rest, units[i].unit) != 0)
			continue;
		if (value * units[i].ns > 9e18)
			return error_set(-ERANGE, "%s: longer than 285 years", text);
		*ns_out = (int64_t)(value * units[i].ns);
		return 0;
	}
	return error_set(-EINVAL, "%s: not a duration; write 2, 1.5s, 500ms or 3m", text);
}

int units_parse_number(const char *text, double *out)
{
	bool negative = *text == '-';
	const char *rest;
	double value;

	if (leading_number(text + negative, &value, &rest) || *rest)
		return error_set(-EINVAL, "%s: not a number", text);
	*out = negative ? -value : value;
	return 0;
}

const char *units_format_number(double value, char text[UNITS_TEXT_BYTES])
{
	double size = fabs(value);
	int digits = size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2;

	if (isnan(value))
		snprintf(text, UNITS_TEXT_BYTES, "-");
	else if (size >= 1e15)
		snprintf(text, UNITS_TEXT_BYTES, "%.3g", value);
	else
		snprintf(text, UNITS_TEXT_BYTES, "%.*f", digits, value);
	return text;
}

const char *units_format_si(double value, char text[UNITS_TEXT_BYTES])
{
	static const char *const steps[] = { "", " k", " M", " G", " T", " P" };
	size_t step = 0;

	if (isnan(value))
		return units_format_number(value, text);
	while (fabs(value) >= 999.5 && step + 1 < ARRAY_LEN(steps)) {
		value /= 1000;
		step++;
	}

	size_t used = strlen(units_format_number(value, text));

	snprintf(text + used, UNITS_TEXT_BYTES - used, "%s", steps[step]);
	return text;
}

const char *units_format_bytes(uint64_t bytes, char text[UNITS_TEXT_BYTES])
{
	static const char *const steps[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
	double value = (double)bytes;
	size_t step = 0;

	while (value >= 1024 && step + 1 < ARRAY_LEN(steps)) {
		value /= 1024;
		step++;
	}
	if (value == floor(value))
		snprintf(text, UNITS_TEXT_BYTES, "%.0f %s", value, steps[step]);
	else
		snprintf(text, UNITS_TEXT_BYTES, "%.*f %s",
			 value >= 100  ? 0
			 : value >= 10 ? 1
				       : 2,
			 value, steps[step]);
	return text;
}

bool units_is_address(const char *text)
{
	const char *host_end = text[0] == '[' ? strchr(text, ']') : text;
	const char *port = host_end ? strchr(host_end, ':') : NULL;
	size_t digits = port ? strspn(port + 1, "0123456789") : 0;

	if (!host_end || !*text)
		return false;
	if (!port)
		return text[0] != '[' || host_end[1] == 0;
	return digits > 0 && digits <= 5 && !port[1 + digits] &&
	       strtoul(port + 1, NULL, 10) <= UINT16_MAX;
}
