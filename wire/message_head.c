/* message_head.c - magic, version, size and checksum. */
#include "wire/message_head.h"

#include <errno.h>

#include "base/crc32c.h"

static uint32_t message_crc(const struct message_head *head)
{
	struct message_head zeroed = *head;

	zeroed.crc = 0;
	return crc32c(crc32c(0, &zeroed, sizeof(zeroed)), head + 1, head->bytes - sizeof(*head));
}

void message_head_seal(struct message_head *head, const struct message_family *family,
		       uint16_t type)
{
	*head = (struct message_head){
		.magic = family->magic,
		.version = family->version,
		.type = type,
		.bytes = (uint32_t)family->size(type),
	};
	head->crc = message_crc(head);
}

int message_head_check(const struct message_head *head, size_t n,
		       const struct message_family *family)
{
	if (n < sizeof(*head) || head->magic != family->magic)
		return error_set(-EPROTO, "message of %zu bytes: not of the %s", n, family->name);
	if (head->version != family->version)
		return error_set(-EPROTO, "version %u of the %s: this program speaks %u",
				 head->version, family->name, family->version);
	if (head->bytes != n || family->size(head->type) != n)
		return error_set(-EPROTO,
				 "message of type %u: has %zu bytes, says %u, must have %zu",
				 head->type, n, head->bytes, family->size(head->type));
	if (head->crc != message_crc(head))
		return error_set(-EPROTO, "message of type %u: crc32c is wrong", head->type);
	return 0;
}
