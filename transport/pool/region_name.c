/*
 * region_name.c - names of regions' files. A file is a region if formatting its parsed numbers
 * gives its name.
 */
#include "transport/pool/region_name.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wire/region.h"
#include "wire/rptr.h"

#define PAGE_TAIL ".page-" /* behind the name of its region */

struct word {
	const char *text;
	uint32_t number;
};

static const struct word kinds[] = { { "table", OBJECT_TABLE },
				     { "heap", OBJECT_HEAP },
				     { NULL, 0 } };
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

void region_name_format(const struct target_region *info, uint32_t page,
			char name[REGION_NAME_BYTES])
{
	char kind[16], role[16], tail[sizeof(PAGE_TAIL) + 10] = "";

	put_word(kinds, info->kind, kind);
	put_word(roles, info->role, role);
	if (page != REGION_WHOLE)
		(void)snprintf(tail, sizeof(tail), PAGE_TAIL "%u", page);
	(void)snprintf(name, REGION_NAME_BYTES, "region-%04u.%s.%u.%u.%s%s", info->id, kind,
		       info->object, info->part, role, tail);
}

/*
 * Parses the text at *at up to the next dot, and moves *at behind the dot. Returns the number of
 * the word, or the decimal number; arbitrary if it is neither: callers format the parsed numbers
 * and compare the names.
 */
static uint32_t region_name_take(const char **at, const struct word *words)
{
	const char *text = *at;
	size_t n = strcspn(text, ".");

	*at += n + (text[n] == '.');
	for (; words && words->text; words++) {
		if (strlen(words->text) == n && strncmp(text, words->text, n) == 0)
			return words->number;
	}
	return (uint32_t)strtoul(text, NULL, 10);
}

bool region_name_parse(const char *name, struct target_region *info_out, uint32_t *page_out)
{
	static const char prefix[] = "region-";
	const char *tail = strstr(name, PAGE_TAIL), *at = name + sizeof(prefix) - 1;
	struct target_region info = { 0 };
	char again[REGION_NAME_BYTES];
	uint32_t page = REGION_WHOLE;

	if (strncmp(name, prefix, sizeof(prefix) - 1) != 0)
		return false;
	info.id = region_name_take(&at, NULL);
	info.kind = region_name_take(&at, kinds);
	info.object = region_name_take(&at, NULL);
	info.part = region_name_take(&at, NULL);
	info.role = region_name_take(&at, roles);
	if (tail)
		page = (uint32_t)strtoul(tail + strlen(PAGE_TAIL), NULL, 10);
	region_name_format(&info, page, again);
	if (info.id == 0 || info.id > RPTR_MAX_REGION || strcmp(name, again) != 0 ||
	    (tail && info.role != REGION_PAGES))
		return false;
	*info_out = info;
	*page_out = page;
	return true;
}

bool region_name_is_tmp(const char *name)
{
	size_t length = strlen(name), tail = strlen(REGION_NAME_TMP);
	struct target_region info;
	char head[REGION_NAME_BYTES];
	uint32_t page;

	if (length <= tail || length - tail >= sizeof(head) ||
	    strcmp(name + length - tail, REGION_NAME_TMP) != 0)
		return false;
	(void)snprintf(head, sizeof(head), "%.*s", (int)(length - tail), name);
	return region_name_parse(head, &info, &page);
}
