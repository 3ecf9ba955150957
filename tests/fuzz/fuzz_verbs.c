/*
 * Fuzzes messages of an RDMA peer. Byte 0: bit 0 = as private data, of the type in byte 1, else by
 * SEND; bit 1 = head and checksum are corrected first. The rest is the message.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "transport/verbs/message.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define AS_PRIVATE_DATA 1
#define SEALED 2

static void repair(uint8_t *bytes, size_t *n_inout, uint16_t type)
{
	union verbs_any message = { .bytes = { 0 } };
	size_t want = message_size(type);

	if (want == 0)
		return;
	memcpy(message.bytes, bytes, *n_inout < want ? *n_inout : want);
	message_seal(&message, (enum verbs_message)type);
	memcpy(bytes, message.bytes, want);
	*n_inout = want;
}

/* Checks an accepted message: its checksum is right, and its texts end with a zero byte. */
static void look(const union verbs_any *message, uint16_t type)
{
	union verbs_any again = *message;

	message_seal(&again, (enum verbs_message)message->head.type);
	if (memcmp(&again.head, &message->head, sizeof(again.head)) != 0)
		abort();
	if (type && message->head.type != type)
		abort();
	if (message->head.type == VERBS_REFUSAL &&
	    strnlen(message->refusal.text, VERBS_TEXT_BYTES) == VERBS_TEXT_BYTES)
		abort();
	if (message->head.type == VERBS_ATTACH && message->attach.grant_bytes > VERBS_GRANT_BYTES)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	union verbs_any message = { .bytes = { 0 } };
	uint8_t bytes[2 * VERBS_MESSAGE_MAX] = { 0 };
	size_t n;

	if (size < 2)
		return 0;
	n = size - 2 < VERBS_MESSAGE_MAX ? size - 2 : VERBS_MESSAGE_MAX;
	memcpy(bytes, data + 2, n);
	if (data[0] & SEALED)
		repair(bytes, &n, data[1]);
	if (data[0] & AS_PRIVATE_DATA) {
		if (message_read(&message, (enum verbs_message)data[1], bytes, n) == 0)
			look(&message, data[1]);
	} else if (message_receive(&message, bytes, n) == 0) {
		look(&message, 0);
	}
	return 0;
}
