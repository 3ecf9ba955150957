/*
 * gauge.h - a gauge of a target by its name; 0 where it has none of that name.
 */
#ifndef RLV_TESTS_SUPPORT_GAUGE_H
#define RLV_TESTS_SUPPORT_GAUGE_H

#include <string.h>

#include "transport/transport.h"

static inline uint64_t gauge_of(struct target_stats stats, const char *name)
{
	for (uint32_t i = 0; i < stats.n_gauges; i++) {
		if (strcmp(stats.gauges[i].name, name) == 0)
			return stats.gauges[i].value;
	}
	return 0;
}

#endif
