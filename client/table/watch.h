/*
 * watch.h - waits for other clients: a warning after 2 s, and an error when there is no progress.
 *
 * Progress is read twice a second: the counts of all views, and the number of rows in open blocks, which
 * grows with each append, also before the first item is complete. Calls that do not wait pay nothing.
 */
#ifndef RLV_CLIENT_TABLE_WATCH_H
#define RLV_CLIENT_TABLE_WATCH_H

#include <stdint.h>

#include "relive/relive.h"

#include "base/error.h"

struct handle;

/* Writes the reason for the wait: at most WATCH_TEXT_BYTES. Returns the view concerned. */
#define WATCH_TEXT_BYTES sizeof(((struct rlv_watch *)0)->text)
typedef uint32_t (*watch_explain_fn)(void *ctx, char *text);

/* Resets the watch for a new wait; watch->text stays as it is. */
static inline void watch_begin(struct rlv_watch *watch)
{
	watch->size = (uint32_t)sizeof(*watch);
	watch->warned = false;
	watch->began_ns = 0;
}

/*
 * Call it once in each round of a wait. After 2 s it logs a warning. -ETIMEDOUT: no progress for
 * the store's stall_ns; the message says what the call waits for. The server is told of the wait,
 * too. Cost: one reading of the clock; twice a second 1 phase for each view, and ring_trace of each
 * shard.
 */
RLV_MUST_CHECK int watch_wait(struct rlv_watch *watch, struct handle *h, watch_explain_fn explain,
			      void *ctx);

/* As watch_wait, with a watch that the program owns. -EINVAL: it is NULL, or its size is not
   set. */
RLV_MUST_CHECK int watch_user_wait(struct rlv_watch *watch, struct handle *h,
				   watch_explain_fn explain, void *ctx);

#endif
