/*
 * fork.c - counts forks in the child.
 */
#include "transport/fork.h"

#include <errno.h>
#include <pthread.h>

_Atomic uint32_t fork_generation;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int once_ret;

static void count_in_child(void)
{
	atomic_fetch_add_explicit(&fork_generation, 1, memory_order_relaxed);
}

static void fork_handler_install(void)
{
	once_ret = pthread_atfork(NULL, NULL, count_in_child);
}

int fork_watch(uint32_t *generation_out)
{
	int ret = pthread_once(&once, fork_handler_install);

	if (ret || once_ret)
		return error_set(-ENOMEM, "cannot register a fork handler");
	*generation_out = atomic_load_explicit(&fork_generation, memory_order_relaxed);
	return 0;
}

int fork_error(const char *what)
{
	return error_set(-ECHILD, "%s was opened before a fork: open another one in the child",
			 what);
}
