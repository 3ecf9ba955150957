/*
 * Direct: keys changed in place under a lock, as pDPM-Direct does (Tsai and others, ATC 2020). For
 * comparison with clover, and where memory matters more than writers that meet.
 *
 *   get   READ of the committed copy, until its checksum holds                              1 RT
 *   put   lock (CAS), and READ of the committed header | WRITE of the second copy
 *         | WRITE of the committed copy | unlock                                            4 RT
 *
 * The write of the committed copy is the linearization point. The lock names its owner. If that dies,
 * the lock is taken over when the owner has been fenced, by direct_settle: if the second copy is whole
 * and newer, the put is completed by it, else nothing was changed. Until then gets of a torn committed
 * copy, and puts, return -EAGAIN. No time is guessed.
 */
#ifndef RLV_DS_HEAP_DIRECT_H
#define RLV_DS_HEAP_DIRECT_H

#include "ds/heap/keys.h"

extern const struct heap_plane direct_plane;

#define DIRECT_COMMITTED 0u /* copies of a pair */
#define DIRECT_SECOND 1u

/* heap_move of this mode. Cost: 2 RT for each bucket, with an entry 6 and the entry three times. */
RLV_MUST_CHECK int direct_move(struct heap *from, struct heap *to, struct heap_move_at *at,
			       uint64_t bytes, bool *done_out);

/* Completes or undoes the put that a dead or leaving owner was in, and unlocks. May be repeated.
   Cost: one word; with a lock 6 RT and the copies. */
RLV_MUST_CHECK int direct_settle(struct heap *heap, uint32_t owner);

#endif
