/*
 * guard.h - keeps a daemon alive when another process truncates a file that it has mapped.
 *
 * Access to a page that the file no longer has, or that the disk cannot read, raises SIGBUS. In a
 * process with the guard installed this sets the range's flag and replaces the range from that page
 * on by private zeros: reads there are meaningless, stores do not reach the file. Users of the
 * range check the flag after they have read. A SIGBUS outside all ranges, or from broken memory,
 * ends the process as usual.
 *
 * librelive never installs the guard: signals belong to its user. There, guard_add is a no-op.
 */
#ifndef RLV_BASE_MEM_GUARD_H
#define RLV_BASE_MEM_GUARD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

/* Installs the handler of SIGBUS, permanently; call it before guard_add. Thread: setup. */
RLV_MUST_CHECK int guard_install(void);

/*
 * Guards a mapped range: if its file cannot give a page, *broken becomes true and zeros are mapped
 * there. A no-op without guard_install. -ENOMEM. Thread: any.
 */
RLV_MUST_CHECK int guard_add(const void *base, uint64_t size, _Atomic bool *broken);

/* Ends guard_add of a range, before it is unmapped. No-op for a range not added. Thread: any. */
void guard_remove(const void *base);

#endif
