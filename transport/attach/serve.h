/*
 * serve.h - the target's socket: greets clients and hands them descriptors of regions.
 *
 * Nothing here waits: sockets do not block, every message is one packet, and a peer that sends
 * anything else, too much, or nothing for too long is dropped. A target that does not listen has
 * none: where serve is NULL, progress, renewals and drop_client do nothing, and poll_fd is -1.
 */
#ifndef RLV_TRANSPORT_ATTACH_SERVE_H
#define RLV_TRANSPORT_ATTACH_SERVE_H

#include <stdbool.h>

#include "transport/attach/target.h"

struct serve;

/*
 * Makes a unix socket at path, mode 0600, in the place of a stale one, and listens. -EADDRINUSE: a
 * live process listens there. -EEXIST: the file is no socket.
 */
RLV_MUST_CHECK int serve_open(struct target *target, const char *path, struct serve **serve_out);

/*
 * Hangs up on all clients, removes the socket and frees serve. A forked child (forked) only closes
 * its descriptors: the socket's name stays. NULL is a no-op.
 */
void serve_close(struct serve *serve, bool forked);

/*
 * Handles pending events, a bounded number at a time, without waiting: new connections and
 * messages. Drops peers that send no HELLO in time, or the oldest of them if there are too many.
 * NULL is a no-op.
 */
RLV_MUST_CHECK int serve_progress(struct serve *serve) LOCK_REQUIRES(target_role);

/*
 * Handles all pending messages of connections that may renew pages. A metadata server renews pages
 * over the socket and sends other requests over another connection; called before those, this keeps
 * their order.
 */
void serve_renewals(struct serve *serve) LOCK_REQUIRES(target_role);

/*
 * Takes ownership of an accepted, non-blocking socket, and expects its HELLO. After an error, such
 * as -ENOMEM, it is still the caller's.
 */
RLV_MUST_CHECK int serve_adopt(struct serve *serve, int sock);

int serve_poll_fd(const struct serve *serve);

/* Hangs up on all connections of a client; the client itself is not removed. */
void serve_drop_client(struct serve *serve, struct client *client) LOCK_REQUIRES(target_role);

#endif
