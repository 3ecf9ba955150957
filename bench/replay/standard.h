/*
 * standard.h - the cases that `relive bench replay` runs without options.
 */
#ifndef RLV_BENCH_REPLAY_STANDARD_H
#define RLV_BENCH_REPLAY_STANDARD_H

#include <stdbool.h>

#include "bench/replay/config.h"
#include "bench/replay/group.h"

/* How many groups there are; more of them when full. */
uint32_t replay_standard_groups(bool full);

/* Group `index`; base says seed, windows, and the length of a window for a change of it. */
void replay_standard_group(uint32_t index, const struct replay_config *base,
			   struct replay_group *group_out);

#endif
