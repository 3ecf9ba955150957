/*
 * host_lock.h - serializes commands that start or stop daemons of a store. The lock ends with its
 * process.
 */
#ifndef RLV_CLI_HOST_HOST_LOCK_H
#define RLV_CLI_HOST_HOST_LOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "program/progress.h"

struct host_lock {
	const char *store;
	int fd;
};

/*
 * Waits for the lock, and prints on stderr which command holds it. progress may be NULL.
 * -ETIMEDOUT, -EINTR, errors of runtime_store_lock.
 */
int host_lock_take(const char *store, int64_t timeout_ns, struct progress *progress,
		   struct host_lock *lock_out) RLV_MUST_CHECK;

/* gone: no file of the store is left on this host. */
void host_lock_give(struct host_lock *lock, bool gone);

#endif
