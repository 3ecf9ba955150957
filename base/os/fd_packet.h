/*
 * fd_packet.h - one packet over a unix socket (SOCK_SEQPACKET), with descriptors.
 *
 * Nothing here waits. A peer's packet is untrusted: descriptors that are too many are closed.
 */
#ifndef RLV_BASE_OS_FD_PACKET_H
#define RLV_BASE_OS_FD_PACKET_H

#include <stddef.h>

#include "base/error.h"

#define FD_PACKET_MAX 64u /* descriptors of a packet */

/* Sends n bytes and the descriptors, which stay the caller's. -EAGAIN: the peer does not read;
   -ECONNRESET: it has hung up. */
RLV_MUST_CHECK int fd_packet_send(int sock, const void *bytes, size_t n, const int *fds,
				  size_t n_fds);

/*
 * Receives a packet of 1 to room bytes into bytes, its size into *n_out, and its descriptors, at
 * most *n_fds, into fds: the caller closes them. *n_fds: how many came, 0 after an error; if the
 * sender gave some and none came, this process had none free. -EAGAIN: nothing is there;
 * -ECONNRESET: the peer hung up; -EPROTO: the packet is larger, or has more descriptors.
 */
RLV_MUST_CHECK int fd_packet_receive(int sock, void *bytes, size_t room, size_t *n_out, int *fds,
				     size_t *n_fds);

/* Closes n descriptors, but those that are -1, and sets them to -1. */
void fd_packet_close(int *fds, size_t n);

#endif
