/*
 * access.h - private to ds/heap: reads behind a pin, what follows a put, and memory of an access.
 *
 * Thread: owner, for all.
 */
#ifndef RLV_DS_HEAP_ACCESS_H
#define RLV_DS_HEAP_ACCESS_H

#include "ds/heap/keys.h"

#define HEAP_MOST_READS 4u     /* of a key whose entry is reused each time */
#define HEAP_GUESS_BYTES 1024u /* of an entry whose length is not known */

/* heap_access_open, for that mode; plane NULL = clover. */
RLV_MUST_CHECK int heap_access_begin(struct heap_access *acc, struct heap *heap, uint32_t owner,
				     const struct heap_plane *plane);

/* Forgets the chunks of ranges. */
void heap_ahead_free(struct heap_access *acc);

/* The next read pins. */
void heap_access_pin(struct heap_access *acc);

/* Pins at once, in place. */
RLV_MUST_CHECK int heap_access_announce(struct heap_access *acc);

/* Makes wrs[0] and wrs[1] the pin, over a wire. */
void heap_access_begin_pin(struct heap_access *acc, struct transport_wr *wrs);

/* Reads one range of the tree region, behind the pin if it is due. */
RLV_MUST_CHECK int heap_access_read(struct heap_access *acc, uint64_t off, void *dst, uint32_t len);

/* Runs n requests of a chain behind the pin, which becomes wrs[0] and wrs[1], over a wire. */
RLV_MUST_CHECK int heap_access_run_pinned(struct heap_access *acc, struct transport_wr *wrs,
					  uint32_t n);

/* The next tail, which no request uses any more. An error is that of the tail's last requests. */
RLV_MUST_CHECK int heap_access_tail(struct heap_access *acc, struct heap_tail **tail_out);

/* Sends n requests and the end of the pin. They are hints: what is lost costs reads later. */
RLV_MUST_CHECK int heap_access_send(struct heap_access *acc, struct heap_tail *tail, uint32_t n);

/* The same with room for one more request, from *idle, which lasts until the ticket is done. */
RLV_MUST_CHECK int heap_access_post(struct heap_access *acc, struct transport_wr *wrs, uint32_t n,
				    uint64_t *idle, uint64_t *ticket_out);

/* Waits for what follows the last batch; it is a no-op if there was none. */
RLV_MUST_CHECK int heap_batch_end(struct heap_access *acc);

/* Ends the pin, in place. */
void heap_access_withdraw(struct heap_access *acc);

/* Ends the pin of a call that changes nothing. Returns the call's result, or else an error of ours. */
RLV_MUST_CHECK int heap_access_unpin(struct heap_access *acc, int result);

/* Makes the stage that large; what it held is lost. False: no memory. */
RLV_MUST_CHECK bool heap_access_make_room(struct heap_access *acc, uint64_t bytes);

#endif
