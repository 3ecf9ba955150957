/*
 * health.h - `relive status --health`: one line and an exit code, for probes.
 */
#ifndef RLV_CLI_HEALTH_H
#define RLV_CLI_HEALTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct health_opts {
	const char *uri;
	const char *node;   /* check only this memory node; NULL = all */
	const char *daemon; /* [HOST:]PORT: query its /healthz instead of a store; or NULL */
	int64_t timeout_ns; /* total deadline; 0 = 3 s, and 4 s for a daemon, which has 3 s itself */
	bool json;
};

/* CLI_OK: healthy; else CLI_FAILURE. */
int health_run(const struct health_opts *opts) RLV_MUST_CHECK;

/*
 * GET /healthz: its body up to a line end. 0: 200; -EHOSTDOWN: another status; -ETIMEDOUT; -EINVAL
 * (address); -EPROTO; errors of connect(2).
 */
int health_get(const char *address, int64_t timeout_ns, char *words_out, size_t room)
	RLV_MUST_CHECK;

#endif
