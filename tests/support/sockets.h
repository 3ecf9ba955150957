/*
 * sockets.h - plain sockets on this host, for tests that stand in for a peer. All are closed on exec.
 */
#ifndef RLV_TESTS_SUPPORT_SOCKETS_H
#define RLV_TESTS_SUPPORT_SOCKETS_H

#include <stdbool.h>
#include <stdint.h>

/* Listen: a TCP port of loopback, any if *port is 0; a path, type as of socket(2). Fail the test on any error. */
int sockets_listen_tcp(uint16_t *port);
int sockets_listen_unix(const char *path, int type);

/* Connect: -1 if nobody listens there. */
int sockets_connect_tcp(uint16_t port);
int sockets_connect_unix(const char *path, int type);

/* True if the page of metrics that is served at the port has the line. */
bool sockets_metrics_have(uint16_t port, const char *line);

#endif
