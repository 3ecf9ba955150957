/*
 * TCP: sockets of the metadata server.
 */
#ifndef RLV_SERVER_NET_TCP_H
#define RLV_SERVER_NET_TCP_H

#include <stdint.h>

#include "base/error.h"

/* Socket bound to an address. host NULL or "" = loopback. *port_out: bound port. */
RLV_MUST_CHECK int tcp_bind(const char *host, uint16_t port, int *fd_out, uint16_t *port_out);

/* Send small frames without delay. */
void tcp_set_no_delay(int fd);
/* Enable keep-alive probes: a host that lost power or link does not close connections. */
void tcp_keep_alive(int fd);

#endif
