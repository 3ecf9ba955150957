#include "bench/pool/lines.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

#include "program/units.h"

int lines_open(struct lines *lines, const char *path, char separator)
{
	*lines = (struct lines){ .path = path, .separator = separator };
	lines->file = fopen(path, "re");
	return lines->file ? 0 : error_set(-errno, "%s: %s", path, strerror(errno));
}

void lines_close(struct lines *lines)
{
	if (lines->file)
		fclose(lines->file);
	lines->file = NULL;
}

int lines_error(const struct lines *lines, const char *fmt, ...)
{
	char text[256];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	return error_set(-EINVAL, "%s:%u: %s", lines->path, lines->number, text);
}

/* Cuts the text into fields without blanks around them. */
static int lines_cut(struct lines *lines)
{
	char *at = lines->text;

	lines->n = 0;
	while (at) {
		char *end = strchr(at, lines->separator), *last;

		if (end)
			*end = '\0';
		at += strspn(at, " \t\r");
		for (last = at + strlen(at); last > at && strchr(" \t\r", last[-1]); last--)
			last[-1] = '\0';
		if (lines->n == LINES_FIELDS)
			return lines_error(lines, "more than %u fields", LINES_FIELDS);
		if (*at || lines->separator != ' ')
			lines->fields[lines->n++] = at;
		at = end ? end + 1 : NULL;
	}
	return 1;
}

int lines_next(struct lines *lines)
{
	while (fgets(lines->text, sizeof(lines->text), lines->file)) {
		size_t len = strlen(lines->text);

		lines->number++;
		if (len + 1 == sizeof(lines->text) && lines->text[len - 1] != '\n')
			return lines_error(lines, "the line has more than %u bytes",
					   LINES_BYTES - 2);
		lines->text[strcspn(lines->text, "\n")] = '\0';
		if (lines->text[strspn(lines->text, " \t\r")] && lines->text[0] != '#')
			return lines_cut(lines);
	}
	return ferror(lines->file) ? error_set(-EIO, "%s: cannot be read", lines->path) : 0;
}

int lines_number(const struct lines *lines, uint32_t field, const char *what,
		 const double limits[2], double *out)
{
	if (field >= lines->n || !*lines->fields[field])
		return lines_error(lines, "no %s", what);
	if (units_parse_number(lines->fields[field], out))
		return lines_error(lines, "%s '%.40s' is not a number", what, lines->fields[field]);
	if (!(*out >= limits[0] && *out <= limits[1]))
		return lines_error(lines, "%s %s is not between %g and %g", what,
				   lines->fields[field], limits[0], limits[1]);
	return 0;
}
