/*
 * hello.h - the identity that a peer claims in the first frame of a connection.
 */
#ifndef RLV_SERVER_NET_HELLO_H
#define RLV_SERVER_NET_HELLO_H

#include "server/net/conns.h"

/*
 * Reads a HELLO into peer: role, token, process. For the unix socket the kernel has set `local` and
 * process.pid. -EPROTO (another format), -EINVAL (role), -EACCES (invalid token, another epoch than
 * the store's, or not the token of the TLS connection). The proof of the token follows later.
 */
RLV_MUST_CHECK int hello_take(const Relive__HelloRequest *hello, const struct stream *stream,
			      uint32_t epoch, struct conn_peer *peer);

#endif
