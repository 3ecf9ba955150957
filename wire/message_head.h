/*
 * Head of every message between an initiator and its target (wire/attach_layout.h,
 * wire/verbs_layout.h).
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

#endif
