/*
 * packet.h - one message of wire/attach_layout.h in one packet, with at most one descriptor.
 */
#ifndef RLV_TRANSPORT_ATTACH_PACKET_H
#define RLV_TRANSPORT_ATTACH_PACKET_H

#include <stddef.h>

#include "wire/attach_layout.h"

#include "base/error.h"

#define PACKET_MAX 512 /* larger than every message */

struct packet {
	union {
		struct message_head head;
		struct attach_hello hello;
		struct attach_hello_reply hello_reply;
		struct attach_region region;
		struct attach_region_reply region_reply;
		struct attach_bye bye;
		uint8_t bytes[PACKET_MAX];
	};
	int fd; /* that came or goes with it; -1 = none. Received: the receiver's to close */
};

/* Size of a message of that type, 0 if there is none. */
size_t packet_size(uint16_t type);

/* Fills in the head and the crc of a message whose body is complete. */
void packet_seal(struct packet *packet, enum attach_type type);

/* -EPROTO unless these n bytes are one whole message of a known type. */
RLV_MUST_CHECK int packet_check(const struct packet *packet, size_t n);

/*
 * Sends a message and packet->fd (-1: none), which stays the caller's. Never waits. -EAGAIN: the
 * peer does not read; -ECONNRESET: it has hung up.
 */
RLV_MUST_CHECK int packet_send(int sock, const struct packet *packet);

/*
 * Receives a message, and in packet_out->fd its descriptor, which the caller closes (-1: none).
 * Never waits. -EAGAIN: nothing there; -ECONNRESET: the peer hung up; -EPROTO: not a message.
 */
RLV_MUST_CHECK int packet_receive(int sock, struct packet *packet_out);

/* Closes packet->fd, if there is one, and sets it to -1. */
void packet_drop_fd(struct packet *packet);

#endif
