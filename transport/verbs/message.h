/*
 * message.h - makes and checks the messages of wire/verbs_layout.h.
 *
 * The sender seals a message when its body is complete. The receiver checks it before it uses any
 * of it: size, type, checksum, zeros in reserved fields, and texts that end.
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

/* Copies and checks a message of any type, of exactly n bytes. -EPROTO. */
RLV_MUST_CHECK int message_receive(union verbs_any *message_out, const void *bytes, size_t n);

#endif
