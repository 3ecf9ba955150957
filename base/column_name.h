/* Names of columns, as a signature, a trace and a command give them. */
#ifndef BASE_COLUMN_NAME_H
#define BASE_COLUMN_NAME_H

#include <stdbool.h>
#include <string.h>

#define COLUMN_NAME_RULE "[A-Za-z_][A-Za-z0-9_.]*"

/* True if a name of `room` bytes at most, with its end, follows the rule: nothing in it has to be quoted in JSON
   or in a label. */
static inline bool column_name_is_valid(const char *name, size_t room)
{
	static const char digits[] = "0123456789.";
	static const char all[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789.";
	size_t len = name ? strnlen(name, room) : 0;

	return len > 0 && len < room && !strchr(digits, name[0]) && strspn(name, all) == len;
}

#endif
