/*
 * hello.h - the identity that a peer claims in the first frame of a connection.
 */
#ifndef RLV_SERVER_NET_HELLO_H
#define RLV_SERVER_NET_HELLO_H

#include "server/net/conns.h"

/*
 * Reads a HELLO into peer: role, lease to resume, token, process. The caller has set peer->local
 * and, for the unix socket, process.pid from the kernel. -EPROTO (another format, or no nonce),
 * -EINVAL (role), -EACCES (invalid token identity, another epoch than the store's, or not the token
 * of the TLS connection). The proof of the token follows in a later frame.
 */
RLV_MUST_CHECK int hello_take(const Relive__HelloRequest *hello, const struct stream *stream,
			      uint32_t epoch, struct conn_peer *peer);

#endif
