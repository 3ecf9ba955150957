/*
 * fork.h - detects that a handle was made before a fork.
 *
 * Pool mappings do not reach a forked child (MADV_DONTFORK): a child that wrote on after its parent
 * was fenced would break the proof. So the owner of a mapping or a connection stores the fork count
 * at open; if the count differs later, the process is a child that inherited the struct. Such a
 * child frees its memory and closes its descriptors, but unmaps, unlinks and unlocks nothing.
 */
#ifndef RLV_TRANSPORT_FORK_H
#define RLV_TRANSPORT_FORK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

extern _Atomic uint32_t fork_generation;

/*
 * Starts counting forks, if nobody has yet; *generation_out is the current count. -ENOMEM: no
 * handler could be registered. Thread: any.
 */
RLV_MUST_CHECK int fork_watch(uint32_t *generation_out);

/*
 * True if this process is a child forked since fork_watch gave that generation. Relaxed: only the
 * child's first thread writes the count, before any other exists.
 */
static inline bool fork_happened(uint32_t generation)
{
	return atomic_load_explicit(&fork_generation, memory_order_relaxed) != generation;
}

/* Returns -ECHILD; its message says that `what` was opened before a fork. */
int fork_error(const char *what);

#endif
