/*
 * tcp.h - connects to [HOST:]PORT and talks, with one deadline for all calls. A signal, or a stop of the process, ends
 * no wait.
 */
#ifndef RLV_CLI_TCP_H
#define RLV_CLI_TCP_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/*
 * Connects to the first address of [HOST:]PORT that accepts, without HOST to 127.0.0.1. The caller
 * owns *fd_out. -ENOENT: HOST is unknown, or PORT no number; -ETIMEDOUT: none accepted by
 * deadline_ns, but a name server's own time comes on top; errors of connect(2).
 */
int tcp_connect(const char *address, uint64_t deadline_ns, int *fd_out) RLV_MUST_CHECK;

/* Sends all. -ETIMEDOUT, and errors of send(2). */
int tcp_send(int fd, const void *bytes, size_t len, uint64_t deadline_ns) RLV_MUST_CHECK;

/* Receives what comes next, at most len; *n_out = 0: the peer has closed. -ETIMEDOUT, and errors of recv(2). */
int tcp_receive(int fd, void *bytes, size_t len, uint64_t deadline_ns, size_t *n_out)
	RLV_MUST_CHECK;

#endif
