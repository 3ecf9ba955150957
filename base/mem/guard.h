/*
 * guard.h - mapped files that somebody else may cut short: a daemon outlives that.
 *
 * A touch of a page that its file does not have any more, or that the disk cannot give, is a SIGBUS.
 * In a process that has installed the guard, the range's flag is set then, and from that page on the
 * range is private zeros: nothing that is read there means anything, nothing that is stored there
 * reaches the file. Users of the range check the flag after they have read. A SIGBUS in no range, or one
 * of broken memory, ends the process as ever.
 *
 * librelive never installs it: signals are its user's. There, guard_add is a no-op.
 */
#ifndef RLV_BASE_MEM_GUARD_H
#define RLV_BASE_MEM_GUARD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

/* Of this process, for good. Before ranges are added. Thread: setup. */
RLV_MUST_CHECK int guard_install(void);

/* *broken becomes true when a page of the range could not be had. -ENOMEM. Thread: any. */
RLV_MUST_CHECK int guard_add(const void *base, uint64_t size, _Atomic bool *broken);

/* Before it is unmapped. A range that was not added is a no-op. Thread: any. */
void guard_remove(const void *base);

#endif
