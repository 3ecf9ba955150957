/*
 * Frame of the control plane: a header, then a body of one message of wire/control.proto.
 *
 *   offset size
 *        0    4  length of the body, at most 1 MiB
 *        4    2  type: enum Type of control.proto; the top bit marks an answer
 *        6    2  version of the framing: 1
 *        8    8  request id: chosen by the requester, repeated in the answer
 *       16    8  term of the metadata server; 0 = not known yet
 *
 * Bytes of a peer are untrusted: a header is checked before its body is read.
 */
#ifndef RLV_WIRE_FRAME_H
#define RLV_WIRE_FRAME_H

#include "wire/le.h"

#include "base/error.h"

#define FRAME_HEADER_BYTES 24u
#define FRAME_BODY_MAX (1u << 20)
#define FRAME_VERSION 1
#define FRAME_ANSWER 0x8000u

struct frame_header {
	uint32_t length;
	uint16_t type;
	uint16_t version;
	uint64_t request_id;
	uint64_t term;
};

WIRE_SIZE(frame_header, 24);
WIRE_AT(frame_header, length, 0);
WIRE_AT(frame_header, type, 4);
WIRE_AT(frame_header, version, 6);
WIRE_AT(frame_header, request_id, 8);
WIRE_AT(frame_header, term, 16);

/*
 * Writes a header as bytes, with version FRAME_VERSION whatever head says. -EOVERFLOW: head->length
 * is over FRAME_BODY_MAX; bytes_out is untouched. Thread: any.
 */
RLV_MUST_CHECK int frame_encode(const struct frame_header *head,
				uint8_t bytes_out[FRAME_HEADER_BYTES]);

/*
 * Reads a header from the first `len` bytes of a stream. -EAGAIN: fewer than a header; -EPROTO:
 * another version, no type, or a body that is too long (the message says which). Thread: any.
 */
RLV_MUST_CHECK int frame_decode(const uint8_t *bytes, size_t len, struct frame_header *head_out);

#endif
