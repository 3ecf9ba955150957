#include "wire/control/frame.h"

#include <errno.h>
#include <string.h>

int frame_encode(const struct frame_header *head, uint8_t bytes_out[FRAME_HEADER_BYTES])
{
	struct frame_header out = *head;

	if (head->length > FRAME_BODY_MAX)
		return error_set(-EOVERFLOW, "frame type %u: body of %u bytes, at most %u",
				 head->type, head->length, FRAME_BODY_MAX);
	out.version = FRAME_VERSION;
	memcpy(bytes_out, &out, sizeof(out));
	return 0;
}

int frame_decode(const uint8_t *bytes, size_t len, struct frame_header *head_out)
{
	struct frame_header head;

	if (len < sizeof(head))
		return -EAGAIN;
	memcpy(&head, bytes, sizeof(head));
	if (head.version != FRAME_VERSION)
		return error_set(-EPROTO, "frames of version %u: this program speaks %u",
				 head.version, FRAME_VERSION);
	if ((head.type & ~FRAME_ANSWER) == 0)
		return error_set(-EPROTO, "frame: type %u", head.type);
	if (head.length > FRAME_BODY_MAX)
		return error_set(-EPROTO, "frame type %u: body of %u bytes, at most %u", head.type,
				 head.length, FRAME_BODY_MAX);
	*head_out = head;
	return 0;
}
