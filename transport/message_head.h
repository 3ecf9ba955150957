/*
 * message_head.h - seals and checks the head of a message between an initiator and its target.
 */
#ifndef RLV_TRANSPORT_MESSAGE_HEAD_H
#define RLV_TRANSPORT_MESSAGE_HEAD_H

#include <stddef.h>
#include <stdint.h>

#include "wire/message_head.h"

#include "base/error.h"

/* The messages of one protocol. */
struct message_family {
	const char *transport; /* for messages of errors */
	uint32_t magic;
	uint16_t version;
	size_t (*size)(uint16_t type); /* of a whole message; 0: unknown type */
};

/* Fills in the head of a message, with its crc32c. The body behind the head is complete. */
void message_head_seal(struct message_head *head, const struct message_family *family,
		       uint16_t type);

/* Checks that n bytes from head on are one message: magic, version, size, crc32c. -EPROTO. */
RLV_MUST_CHECK int message_head_check(const struct message_head *head, size_t n,
				      const struct message_family *family);

#endif
