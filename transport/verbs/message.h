/*
 * message.h - makes and checks the messages of wire/verbs_layout.h.
 *
 * A message is sealed by whoever sends it, after its body is complete, and checked by whoever
 * receives it, before anything else looks at it: size, type, checksum, zero in what is reserved,
 * and texts that end.
 */
#ifndef RLV_TRANSPORT_VERBS_MESSAGE_H
#define RLV_TRANSPORT_VERBS_MESSAGE_H

#include <stddef.h>

#include "wire/verbs_layout.h"

#include "base/error.h"

union verbs_any {
	struct message_head head;
	struct verbs_hello hello;
	struct verbs_welcome welcome;
	struct verbs_refusal refusal;
	struct verbs_attach attach;
	struct verbs_attached attached;
	struct verbs_detach detach;
	uint8_t bytes[VERBS_MESSAGE_MAX];
};

/* Size of a message of that type; 0: unknown type. */
size_t message_size(uint16_t type);

/* Fills in the head of a message whose body is complete. */
void message_seal(union verbs_any *message, enum verbs_message type);

/*
 * Copies and checks a message of that type from the start of n bytes (rdma_cm pads private data
 * with zeros). -EPROTO: the message says why.
 */
RLV_MUST_CHECK int message_read(union verbs_any *message_out, enum verbs_message type,
				const void *bytes, size_t n);

/* The same for any type that arrives by SEND, of exactly n bytes. */
RLV_MUST_CHECK int message_receive(union verbs_any *message_out, const void *bytes, size_t n);

#endif
