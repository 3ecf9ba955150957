/*
 * TCP: sockets of the metadata server.
 */
#ifndef RLV_SERVER_NET_TCP_H
#define RLV_SERVER_NET_TCP_H

#include <stdint.h>

#include "base/error.h"

/*
 * Creates a TCP socket bound to host (NULL or "" = loopback) and port (0 = any); it does not listen
 * yet. *port_out: bound port. -EINVAL: host; -EADDRINUSE and other errors of bind.
 */
RLV_MUST_CHECK int tcp_bind(const char *host, uint16_t port, int *fd_out, uint16_t *port_out);

/* Sets TCP_NODELAY: small frames are sent without delay. Failures are ignored. */
void tcp_set_no_delay(int fd);
/* Enables keep-alive probes, which end a connection after about a minute without the peer's host: a
   host that lost power or link does not close connections. */
void tcp_keep_alive(int fd);

#endif
