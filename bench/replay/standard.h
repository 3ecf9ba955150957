/*
 * standard.h - the default cases of `relive bench replay`.
 */
#ifndef RLV_BENCH_REPLAY_STANDARD_H
#define RLV_BENCH_REPLAY_STANDARD_H

#include <stdbool.h>

#include "bench/replay/config.h"
#include "bench/replay/group.h"

/* Number of groups; larger if full. */
uint32_t replay_standard_groups(bool full);

/* Group `index`; base sets seed and windows, and may set the length of a window. */
void replay_standard_group(uint32_t index, const struct replay_config *base,
			   struct replay_group *group_out);

#endif
