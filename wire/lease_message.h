/*
 * lease_message.h - one message of wire/lease_layout.h in one packet, with its descriptors.
 */
#ifndef RLV_WIRE_LEASE_MESSAGE_H
#define RLV_WIRE_LEASE_MESSAGE_H

#include "wire/lease_layout.h"

struct lease_message {
	union {
		struct message_head head;
		struct lease_hello hello;
		struct lease_take take;
		struct lease_refs refs; /* HOLD, GIVE, EXPOSE, BYE */
		struct lease_end end;
		struct lease_profile profile;
		struct lease_ask ask;
		struct lease_limit limit;
		struct lease_drain drain;
		struct lease_answer answer;
		struct lease_pool_answer pool;
		struct lease_jobs_answer jobs;
		uint8_t bytes[LEASE_BYTES_MAX];
	};
	int fds[LEASE_REFS]; /* received: the receiver's to close, by lease_close_fds */
	size_t n_fds;
};

/* Fills in the head of a message whose body is complete. */
void lease_seal(struct lease_message *message, enum lease_type type);

/*
 * Seals the message, whose body is complete, and sends it with its descriptors, which stay the
 * caller's. Never waits. -EAGAIN: the peer does not read; -ECONNRESET: it has hung up.
 */
RLV_MUST_CHECK int lease_send(int sock, struct lease_message *message, enum lease_type type);

/*
 * Receives a message and checks it: size, crc32c, numbers and texts within their bounds, reserved
 * words zero, and as many descriptors as its type has. Never waits. -EAGAIN: nothing is there;
 * -ECONNRESET: the peer hung up; -EPROTO: not a message, and its descriptors are closed.
 */
RLV_MUST_CHECK int lease_receive(int sock, struct lease_message *message_out);

/* Checks n bytes that came with message->n_fds descriptors. -EPROTO. */
RLV_MUST_CHECK int lease_check(const struct lease_message *message, size_t n);

/* Closes what descriptors the message has. */
void lease_close_fds(struct lease_message *message);

#endif
