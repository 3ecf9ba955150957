/*
 * hello.h - who a peer says that it is, in the first frame of a connection.
 */
#ifndef RLV_SERVER_NET_HELLO_H
#define RLV_SERVER_NET_HELLO_H

#include "server/net/conns.h"

/*
 * Takes what a HELLO says into peer, whose `local` and, there, process.pid the kernel has said: role,
 * token, process. -EPROTO (another format), -EINVAL (role), -EACCES (a token that is none, of another
 * epoch than the store's, or not that of the TLS connection). The proof of the token comes later.
 */
RLV_MUST_CHECK int hello_take(const Relive__HelloRequest *hello, const struct stream *stream,
			      uint32_t epoch, struct conn_peer *peer);

#endif
