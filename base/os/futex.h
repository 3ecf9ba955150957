/*
 * futex.h - wait for a shared 32-bit word to change, across threads and processes.
 *
 * The word may lie in any shared mapping. A waker may have been killed before it woke anybody:
 * waiters on words in pool memory cap each sleep (deadline_min) and look again.
 */
#ifndef RLV_BASE_OS_FUTEX_H
#define RLV_BASE_OS_FUTEX_H

#include <stdint.h>

#include "base/error.h"

/*
 * Sleeps while *word is expected, until a wake or deadline_ns of clock_monotonic().
 * 0 = woken or interrupted: look at the word again; -EAGAIN the word was something else;
 * -ETIMEDOUT; -EFAULT, -EINVAL a bad address. Thread: any.
 */
int futex_wait(_Atomic uint32_t *word, uint32_t expected, uint64_t deadline_ns) RLV_MUST_CHECK;

/* Wakes at most n waiters of all processes; returns how many were woken, 0 for a bad address. */
int futex_wake(_Atomic uint32_t *word, int n);

#endif
