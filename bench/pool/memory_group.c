#include "bench/pool/memory_group.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static FILE *group_open(const struct memory_group *group, const char *name, const char *mode)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s", group->folder, name);
	return fopen(path, mode);
}

static int group_write(const struct memory_group *group, const char *name, uint64_t value)
{
	FILE *file = group_open(group, name, "we");
	int ret = -errno;

	if (file) {
		ret = fprintf(file, "%" PRIu64, value) < 0 ? -EIO : 0;
		if (fclose(file) && ret == 0)
			ret = -errno;
	}
	return ret ? error_set(ret, "%s/%s: %s", group->folder, name, strerror(-ret)) : 0;
}

/* The number behind a word in a file of lines; word "": of the first line. */
static int group_read(const struct memory_group *group, const char *name, const char *word,
		      uint64_t *value_out)
{
	FILE *file = group_open(group, name, "re");
	size_t length = strlen(word);
	char line[128];
	bool found = false;

	while (file && !found && fgets(line, sizeof(line), file)) {
		found = strncmp(line, word, length) == 0;
		if (found)
			*value_out = strtoull(line + length, NULL, 10);
	}
	if (file)
		(void)fclose(file);
	return found ? 0 : error_set(-ENOTSUP, "%s/%s: no %s", group->folder, name, word);
}

static int group_limit(const struct memory_group *group, uint64_t bytes)
{
	char swap[PATH_MAX];
	int ret = 0;

	snprintf(swap, sizeof(swap), "%s/memory.swap.max", group->folder);
	if (!group->v2)
		ret = group_write(group, "memory.swappiness", 0);
	else if (access(swap, F_OK) == 0) /* absent where the kernel has no swap */
		ret = group_write(group, "memory.swap.max", 0);
	if (ret == 0 && bytes)
		ret = group_write(group, group->v2 ? "memory.max" : "memory.limit_in_bytes", bytes);
	return ret;
}

int memory_group_make(uint64_t bytes, struct memory_group *group_out)
{
	static const char *const roots[] = { "/sys/fs/cgroup/memory", "/sys/fs/cgroup" };
	static uint32_t number;
	uint64_t none;

	number++;
	for (uint32_t i = 0; i < 2; i++) {
		struct memory_group group = { .v2 = i == 1 };

		snprintf(group.folder, sizeof(group.folder), "%s/relive-%d-%" PRIu32, roots[i],
			 (int)getpid(), number);
		if (mkdir(group.folder, 0755))
			continue;
		if (memory_group_peak(&group, &none) == 0 && group_limit(&group, bytes) == 0) {
			*group_out = group;
			return 0;
		}
		memory_group_remove(&group);
	}
	return error_set(-ENOTSUP, "no cgroup with a limit of memory can be made here");
}

void memory_group_remove(const struct memory_group *group)
{
	if (*group->folder)
		(void)rmdir(group->folder);
}

void memory_group_each(uint64_t bytes, struct memory_group *group_out)
{
	*group_out = (struct memory_group){ .address_space = bytes };
}

int memory_group_enter(const struct memory_group *group)
{
	const struct rlimit limit = { group->address_space, group->address_space };

	if (!*group->folder)
		return setrlimit(RLIMIT_AS, &limit) ? error_set(-errno, "RLIMIT_AS: %m") : 0;
	return group_write(group, "cgroup.procs", (uint64_t)getpid());
}

int memory_group_peak(const struct memory_group *group, uint64_t *bytes_out)
{
	return group_read(group, group->v2 ? "memory.peak" : "memory.max_usage_in_bytes", "",
			  bytes_out);
}

int memory_group_kills(const struct memory_group *group, uint64_t *kills_out)
{
	*kills_out = 0;
	if (!*group->folder)
		return 0;
	return group_read(group, group->v2 ? "memory.events" : "memory.oom_control", "oom_kill ",
			  kills_out);
}
