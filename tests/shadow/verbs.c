/* verbs.c - a stand-in for librelive-verbs that records calls in the environment. */
#include <stdlib.h>

#include "transport/verbs/calls.h"

__attribute__((visibility("default"))) const void *rlv_verbs_calls(void);

static int fork_init(void)
{
	return setenv("SHADOW_FORK_INIT", getenv("SHADOW_FORK_INIT") ? "twice" : "once", 1);
}

const void *rlv_verbs_calls(void)
{
	static const struct verbs_calls calls = { .version = VERBS_CALLS_VERSION,
						  .fork_init = fork_init };

	return &calls;
}
