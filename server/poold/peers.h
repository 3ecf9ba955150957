/*
 * peers.h - connections of a pool's broker (wire/lease_layout.h).
 *
 * All input is untrusted. A peer that sends anything else than a message, or does not read its
 * answers, is hung up on; its job, if it has one, goes on until its process ends. At PEERS_MAX
 * connections the oldest without a job goes.
 */
#ifndef RLV_SERVER_POOLD_PEERS_H
#define RLV_SERVER_POOLD_PEERS_H

#include "server/poold/poold.h"

#define PEERS_MAX 256u

/* Takes over a connected, non-blocking socket. After an error, such as -ENOMEM, it is closed. */
RLV_MUST_CHECK int poold_peers_add(struct poold *poold, int sock);
/* Tells a job that it may repeat what was -EAGAIN. */
void poold_peers_wake(struct poold_device *device, uint32_t job);
/* Hangs up on the connection of a job; on all. */
void poold_peers_drop(struct poold_device *device, uint32_t job);
void poold_peers_drop_all(struct poold *poold);
/* Handles what has come from all peers. */
void poold_peers_serve(struct poold *poold);

#endif
