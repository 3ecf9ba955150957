/*
 * thread.h - a thread of the library's own in the program of its user.
 */
#ifndef RLV_BASE_OS_THREAD_H
#define RLV_BASE_OS_THREAD_H

#include <pthread.h>

#include "base/error.h"

/* Starts run(arg) with all signals blocked: those of the program are not for it. Errors: those of
   pthread_create. Thread: any. */
RLV_MUST_CHECK int thread_start(pthread_t *thread_out, void *(*run)(void *arg), void *arg);

#endif
