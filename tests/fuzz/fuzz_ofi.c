/*
 * Fuzzes messages beside libfabric. Byte 0: bit 0 = head and checksum are corrected first, for the
 * type in byte 1. The rest is the message.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "transport/ofi/message.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define SEALED 1

/* Checks an accepted message: its checksum is right, its texts end, its lengths are bounded. */
static void look(const union ofi_any *message)
{
	union ofi_any again = *message;

	ofi_message_seal(&again, (enum ofi_message)message->head.type);
	if (memcmp(&again.head, &message->head, sizeof(again.head)) != 0)
		abort();
	if (message->head.type == OFI_WELCOME &&
	    strnlen(message->welcome.provider, OFI_PROVIDER_BYTES) == OFI_PROVIDER_BYTES)
		abort();
	if (message->head.type == OFI_REFUSAL &&
	    strnlen(message->refusal.text, OFI_TEXT_BYTES) == OFI_TEXT_BYTES)
		abort();
	if (message->head.type == OFI_ATTACH && message->attach.grant_bytes > OFI_GRANT_BYTES)
		abort();
	if (message->head.type == OFI_ATTACHED &&
	    message->attached.endpoint_bytes > OFI_ENDPOINT_BYTES)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	union ofi_any message = { .bytes = { 0 } }, in = { .bytes = { 0 } };
	size_t n;

	if (size < 2)
		return 0;
	n = size - 2 < OFI_MESSAGE_MAX ? size - 2 : OFI_MESSAGE_MAX;
	memcpy(in.bytes, data + 2, n);
	if ((data[0] & SEALED) && ofi_message_size(data[1])) {
		ofi_message_seal(&in, (enum ofi_message)data[1]);
		n = in.head.bytes;
	}
	if (ofi_message_check(&message, in.bytes, n) == 0)
		look(&message);
	return 0;
}
