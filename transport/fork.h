/*
 * fork.h - has this process been forked since?
 *
 * Pool mappings do not reach a forked child (MADV_DONTFORK): a child that wrote on after its parent
 * was fenced would break the proof. So whoever owns a mapping or a connection keeps the count
 * of its birth, and another count now means "I am a child that inherited this struct". Such a child
 * frees its memory and closes its descriptors, but unmaps, unlinks and unlocks nothing.
 */
#ifndef RLV_TRANSPORT_FORK_H
#define RLV_TRANSPORT_FORK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

extern _Atomic uint32_t fork_generation;

/* Starts the counting; the present count. Thread: any. */
RLV_MUST_CHECK int fork_watch(uint32_t *generation_out);

/* Relaxed: only the child's own first thread writes it, before any other exists. */
static inline bool fork_happened(uint32_t generation)
{
	return atomic_load_explicit(&fork_generation, memory_order_relaxed) != generation;
}

/* -ECHILD and its message. */
int fork_error(const char *what);

#endif
