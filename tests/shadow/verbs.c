/*
 * verbs.c - a module in librelive-verbs' stead, which says in the environment what was called.
 */
#include <stdlib.h>

#include "transport/verbs/calls.h"

__attribute__((visibility("default"))) const struct verbs_calls *rlv_verbs_calls(void);

static int fork_init(void)
{
	return setenv("SHADOW_FORK_INIT", getenv("SHADOW_FORK_INIT") ? "twice" : "once", 1);
}

const struct verbs_calls *rlv_verbs_calls(void)
{
	static const struct verbs_calls calls = { .version = VERBS_CALLS_VERSION,
						  .fork_init = fork_init };

	return &calls;
}
