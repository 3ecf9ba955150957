/*
 * message.h - the messages of wire/ofi_layout.h: made, checked, and moved over a TCP connection.
 *
 * The sender seals a message when its body is complete. The receiver checks it before it uses any
 * of it: size, type, checksum, zeros in reserved fields, names and texts that end.
 */
#ifndef RLV_TRANSPORT_OFI_MESSAGE_H
#define RLV_TRANSPORT_OFI_MESSAGE_H

#include <stddef.h>

#include "wire/ofi_layout.h"

#include "base/error.h"

union ofi_any {
	struct message_head head;
	struct ofi_hello hello;
	struct ofi_welcome welcome;
	struct ofi_refusal refusal;
	struct ofi_attach attach;
	struct ofi_attached attached;
	struct ofi_detach detach;
	uint8_t bytes[OFI_MESSAGE_MAX];
};

/* Size of a message of that type; 0: unknown type. */
size_t ofi_message_size(uint16_t type);

/* Fills in the head of a message whose body is complete. */
void ofi_message_seal(union ofi_any *message, enum ofi_message type);

/* Copies and checks a message of any type, of exactly n bytes. -EPROTO: the message says why. */
RLV_MUST_CHECK int ofi_message_check(union ofi_any *message_out, const void *bytes, size_t n);

/* One end of a TCP connection that carries messages. */
struct ofi_stream {
	int sock;      /* does not block; -1 = none */
	uint32_t have; /* bytes of `in` */
	union ofi_any in;
};

/*
 * Sets what both ends of a connection need: no waiting, no delay of small packets, and an end within
 * a minute if the other host is silent. Takes over nothing.
 */
RLV_MUST_CHECK int ofi_stream_set(int sock);

/*
 * Takes the next message, without waiting. -EAGAIN: it is not complete yet (no message is set);
 * -ECONNRESET: the other side has hung up; -EPROTO.
 */
RLV_MUST_CHECK int ofi_stream_take(struct ofi_stream *stream, union ofi_any *message_out);

/*
 * Seals and sends a message. -EAGAIN: the other side reads nothing (no part of the message was
 * sent, no message is set); -ECONNRESET.
 */
RLV_MUST_CHECK int ofi_stream_send(struct ofi_stream *stream, union ofi_any *message,
				   enum ofi_message type);

#endif
