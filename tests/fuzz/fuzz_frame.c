/*
 * Fuzzes the daemons' input: the header of a frame, then its body as every message that may come
 * with it.
 */
#include "wire/control/channel.h"
#include "wire/control.pb-c.h"
#include "wire/control/frame.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const ProtobufCMessageDescriptor *const kinds[] = {
	&relive__hello_request__descriptor,         &relive__hello_reply__descriptor,
	&relive__auth_request__descriptor,          &relive__auth_reply__descriptor,
	&relive__table_create_request__descriptor,  &relive__table_open_request__descriptor,
	&relive__table_reply__descriptor,           &relive__slot_request__descriptor,
	&relive__node_register_request__descriptor, &relive__store_info_reply__descriptor,
	&relive__node_region_reply__descriptor,     &relive__node_grant_reply__descriptor,
	&relive__token_request__descriptor,         &relive__token_reply__descriptor,
};

#define N_KINDS (sizeof(kinds) / sizeof(kinds[0]))

/* An unpacked message can be packed again, into no more bytes than were read. */
static void unpack(const ProtobufCMessageDescriptor *kind, const struct channel_frame *frame)
{
	ProtobufCMessage *message = channel_unpack(kind, frame);
	uint8_t *bytes;
	size_t len;

	if (!message)
		return;
	len = protobuf_c_message_get_packed_size(message);
	bytes = malloc(len + 1);
	if (bytes && protobuf_c_message_pack(message, bytes) != len)
		abort();
	free(bytes);
	protobuf_c_message_free_unpacked(message, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct channel_frame frame;
	uint8_t *body;

	if (frame_decode(data, size, &frame.head) || frame.head.length > size - FRAME_HEADER_BYTES)
		return 0;
	body = malloc(frame.head.length ? frame.head.length : 1u);
	if (!body)
		return 0;
	memcpy(body, data + FRAME_HEADER_BYTES, frame.head.length);
	frame.body = body;
	unpack(kinds[frame.head.type % N_KINDS], &frame);
	free(body);
	return 0;
}
