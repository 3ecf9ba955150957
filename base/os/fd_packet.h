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

struct fd_packet {
	void *bytes;
	size_t n;
	int *fds;
	size_t n_fds;
};

/* Sends the bytes and the descriptors, which stay the caller's. -EAGAIN: the peer does not read;
   -ECONNRESET: it has hung up. */
RLV_MUST_CHECK int fd_packet_send(int sock, const struct fd_packet *packet);

/*
 * Receives a packet of 1 to packet->n bytes and at most packet->n_fds descriptors, which the caller
 * closes, and sets both numbers; n_fds is 0 after an error, and if the sender gave some but this
 * process had none free. -EAGAIN: nothing is there; -ECONNRESET: the peer hung up; -EPROTO: the
 * packet is larger, or has more descriptors.
 */
RLV_MUST_CHECK int fd_packet_receive(int sock, struct fd_packet *packet);

/* Closes n descriptors, but those that are -1, and sets them to -1. */
void fd_packet_close(int *fds, size_t n);

#endif
