/*
 * kv_history.h - processes that put and get some keys of a heap and are killed now and then, and the check that what
 * they saw is linearizable (history.h).
 */
#ifndef RLV_TESTS_SUPPORT_KV_HISTORY_H
#define RLV_TESTS_SUPPORT_KV_HISTORY_H

#include "tests/support/processes.h"

#include <stddef.h>

#define KV_HISTORY_KEYS 4u /* "key-0", .. */

/* Forks clients of the heap "h" of the store shm:s, and kills the oldest one, that many times, 30 ms apart; event is
   called before each. Three clients go on. Fails the test on any error. */
void kv_history_begin(struct processes *ps, uint32_t kills, void (*event)(void *ctx, uint32_t i),
		      void *ctx);
/* Values of clients that begin later have that many bytes: multiples of 8, chosen at random; 8 and 8 at first. */
void kv_history_lengths(size_t least, size_t most);
/* Kills the clients when each key was put often enough. */
void kv_history_stop(struct processes *ps);
/* Fails the test unless the history is linearizable, and has puts of each key. */
void kv_history_end(void);

#endif
