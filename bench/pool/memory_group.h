/*
 * memory_group.h - a cgroup with a limit of memory, of version 2 or 1, for processes that a benchmark starts; or,
 * where none can be made, a limit of address space for each of them.
 */
#ifndef RLV_BENCH_POOL_MEMORY_GROUP_H
#define RLV_BENCH_POOL_MEMORY_GROUP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

#define MEMORY_GROUP_BYTES 96u

struct memory_group {
	char folder[MEMORY_GROUP_BYTES]; /* empty: no cgroup */
	bool v2;
	uint64_t address_space; /* of each process, without a cgroup */
};

/* A group of that many bytes, which do not go to swap; 0: no limit. -ENOTSUP: none can be made here. */
RLV_MUST_CHECK int memory_group_make(uint64_t bytes, struct memory_group *group_out);
/* Removes it; its processes have ended. */
void memory_group_remove(const struct memory_group *group);

/* No cgroup: each process that enters gets so many bytes of address space, which its children inherit. */
void memory_group_each(uint64_t bytes, struct memory_group *group_out);

/* The calling process belongs to it from now on, with its children. */
RLV_MUST_CHECK int memory_group_enter(const struct memory_group *group);

/* The most bytes that a cgroup had, and how many of its processes were killed for lack of memory: 0 without one. */
RLV_MUST_CHECK int memory_group_peak(const struct memory_group *group, uint64_t *bytes_out);
RLV_MUST_CHECK int memory_group_kills(const struct memory_group *group, uint64_t *kills_out);

#endif
