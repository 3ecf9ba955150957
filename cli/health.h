/*
 * health.h - `relive status --health`: one line and an exit code, for probes.
 */
#ifndef RLV_CLI_HEALTH_H
#define RLV_CLI_HEALTH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

/*
 * Prints whether a store or a daemon is healthy. node: check only this memory node; NULL = all.
 * daemon: [HOST:]PORT whose /healthz is queried instead of the store, or NULL. timeout_ns: total
 * deadline; 0 = 3 s, and 4 s for a daemon, which has 3 s itself. CLI_OK: healthy; else CLI_FAILURE.
 */
int health_run(const char *uri, const char *node, const char *daemon, int64_t timeout_ns, bool json)
	RLV_MUST_CHECK;

#endif
