/*
 * tcp.h - connects to [HOST:]PORT, with one deadline for all calls on a blocking socket.
 */
#ifndef RLV_CLI_TCP_H
#define RLV_CLI_TCP_H

#include <stdint.h>

#include "base/error.h"

/*
 * Connects to the first address of [HOST:]PORT that accepts, without HOST to 127.0.0.1. The caller
 * owns *fd_out. -ENOENT: HOST is unknown, or PORT no number; -ETIMEDOUT: none accepted by
 * deadline_ns, but a name server's own time comes on top; errors of connect(2).
 */
int tcp_connect(const char *address, uint64_t deadline_ns, int *fd_out) RLV_MUST_CHECK;

/*
 * Bounds the next call on the socket by what is left of the deadline. -ETIMEDOUT: nothing is left.
 */
int tcp_limit_wait(int fd, uint64_t deadline_ns) RLV_MUST_CHECK;

/*
 * Error of a socket call that failed: -ETIMEDOUT if tcp_limit_wait's limit ended it, else -errno.
 */
int tcp_failed(const char *call);

#endif
