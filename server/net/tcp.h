/*
 * TCP: sockets of the metadata server.
 */
#ifndef RLV_SERVER_NET_TCP_H
#define RLV_SERVER_NET_TCP_H

#include <stdint.h>

#include "base/error.h"

/* Bound, to be listened on. host NULL or "" = loopback. *port_out: as bound, for port 0. */
RLV_MUST_CHECK int tcp_bind(const char *host, uint16_t port, int *fd_out, uint16_t *port_out);

/* Small frames go at once. */
void tcp_set_no_delay(int fd);
/* A host that lost its power, or its link, says no goodbye: the kernel asks after it. */
void tcp_keep_alive(int fd);

#endif
