/*
 * Head of every message between two programs of a host or an initiator and its target
 * (wire/attach_layout.h, wire/verbs_layout.h, wire/lease_layout.h); sealing and checking it.
 *   offset size
 *        0    4  magic
 *        4    2  version
 *        6    2  type
 *        8    4  bytes of the message
 *       12    4  crc32c of the message with this field zero
 */
#ifndef RLV_WIRE_MESSAGE_HEAD_H
#define RLV_WIRE_MESSAGE_HEAD_H

#include "wire/le.h"

#include "base/error.h"

struct message_head {
	uint32_t magic;
	uint16_t version;
	uint16_t type;
	uint32_t bytes;
	uint32_t crc;
};

WIRE_SIZE(message_head, 16);
WIRE_AT(message_head, magic, 0);
WIRE_AT(message_head, version, 4);
WIRE_AT(message_head, type, 6);
WIRE_AT(message_head, bytes, 8);
WIRE_AT(message_head, crc, 12);

/* The messages of one protocol. */
struct message_family {
	const char *name; /* for messages of errors: "shm transport" */
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
