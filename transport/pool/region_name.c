/*
 * region_name.c - a name is that of a region if it is what would be made of the numbers in it.
 */
#include "transport/pool/region_name.h"

#include <stdio.h>
#include <string.h>

#include "wire/region.h"
#include "wire/rptr.h"

struct word {
	const char *text;
	uint32_t number;
};

static const struct word kinds[] = { { "table", OBJECT_TABLE }, { NULL, 0 } };
static const struct word roles[] = { { "tree", REGION_TREE },
				     { "rows", REGION_ROWS },
				     { "slots", REGION_SLOTS },
				     { "pages", REGION_PAGES },
				     { NULL, 0 } };

static void put_word(const struct word *words, uint32_t number, char text[16])
{
	for (; words->text; words++) {
		if (words->number == number) {
			(void)snprintf(text, 16, "%s", words->text);
			return;
		}
	}
	(void)snprintf(text, 16, "%u", number);
}

void region_name_format(const struct target_region *info, char name[REGION_NAME_BYTES])
{
	char kind[16], role[16];

	put_word(kinds, info->kind, kind);
	put_word(roles, info->role, role);
	(void)snprintf(name, REGION_NAME_BYTES, "region-%04u.%s.%u.%u.%s", info->id, kind,
		       info->object, info->part, role);
}

/* A word or a number, up to the dot or the end. */
static bool take(const char **at, const struct word *words, uint32_t *out)
{
	size_t n = strcspn(*at, ".");
	uint64_t number = 0;

	for (; words && words->text; words++) {
		if (strlen(words->text) == n && strncmp(*at, words->text, n) == 0) {
			*out = words->number;
			*at += n;
			return true;
		}
	}
	if (n == 0 || n > 10)
		return false;
	for (size_t i = 0; i < n; i++) {
		if ((*at)[i] < '0' || (*at)[i] > '9')
			return false;
		number = 10 * number + (uint64_t)((*at)[i] - '0');
	}
	*out = (uint32_t)number;
	*at += n;
	return number <= UINT32_MAX;
}

static bool take_dot(const char **at)
{
	bool is = **at == '.';

	*at += is;
	return is;
}

bool region_name_parse(const char *name, struct target_region *info_out)
{
	static const char prefix[] = "region-";
	struct target_region info = { 0 };
	char again[REGION_NAME_BYTES];
	const char *at = name;

	if (strncmp(at, prefix, sizeof(prefix) - 1) != 0)
		return false;
	at += sizeof(prefix) - 1;
	if (!take(&at, NULL, &info.id) || !take_dot(&at) || !take(&at, kinds, &info.kind) ||
	    !take_dot(&at) || !take(&at, NULL, &info.object) || !take_dot(&at) ||
	    !take(&at, NULL, &info.part) || !take_dot(&at) || !take(&at, roles, &info.role))
		return false;
	if (info.id == 0 || info.id > RPTR_MAX_REGION)
		return false;
	region_name_format(&info, again);
	if (strcmp(name, again) != 0)
		return false;
	*info_out = info;
	return true;
}

bool region_name_is_tmp(const char *name)
{
	size_t length = strlen(name), tail = strlen(REGION_NAME_TMP);
	struct target_region info;
	char head[REGION_NAME_BYTES];

	if (length <= tail || length - tail >= sizeof(head) ||
	    strcmp(name + length - tail, REGION_NAME_TMP) != 0)
		return false;
	(void)snprintf(head, sizeof(head), "%.*s", (int)(length - tail), name);
	return region_name_parse(head, &info);
}
