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
 * Listens at path, mode 0600. -EADDRINUSE: a live process listens there. -EEXIST: the file is no
 * socket.
 */
RLV_MUST_CHECK int serve_open(struct target *target, const char *path, struct serve **serve_out);

/* In a forked child (forked) the socket's name stays. NULL is a no-op. */
void serve_close(struct serve *serve, bool forked);

/* Handles all pending events, without waiting. */
RLV_MUST_CHECK int serve_progress(struct serve *serve) LOCK_REQUIRES(target_role);

/*
 * Takes the renewals that clients have sent. A metadata server renews pages over the socket and
 * sends other requests over another connection; called before those, this keeps their order.
 */
void serve_renewals(struct serve *serve) LOCK_REQUIRES(target_role);

/* Takes an accepted, non-blocking connection, which is then its own. -ENOMEM leaves it. */
RLV_MUST_CHECK int serve_adopt(struct serve *serve, int sock);

int serve_poll_fd(const struct serve *serve);

/* Hangs up on all connections of a client. */
void serve_drop_client(struct serve *serve, struct client *client) LOCK_REQUIRES(target_role);

#endif
