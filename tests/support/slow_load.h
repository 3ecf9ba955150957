/*
 * slow_load.h - a load of a table in a thread of its own, which stops half way: its table is there, and not whole.
 */
#ifndef RLV_TESTS_SUPPORT_SLOW_LOAD_H
#define RLV_TESTS_SUPPORT_SLOW_LOAD_H

#include <pthread.h>

#include "relive/save.h"

struct slow_load {
	struct rlv_store *store;
	const char *path;
	struct rlv_load_opts opts; /* progress and ctx are slow_load's */
	pthread_t thread;
	pthread_barrier_t meet;
	bool has_met;
	int ret;
};

/* store, path and opts are set. Returns when the load is half way, or has failed before. */
void slow_load_begin(struct slow_load *slow);
/* Lets it go on. Returns its code, when it has ended and its table is closed. */
int slow_load_end(struct slow_load *slow);

#endif
