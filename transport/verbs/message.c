/*
 * message.c - sizes, checksums and what must hold in each message.
 */
#include "transport/verbs/message.h"

#include <errno.h>
#include <string.h>

#include "base/crc32c.h"

#include "transport/transport.h"

size_t message_size(uint16_t type)
{
	static const size_t sizes[] = {
		[VERBS_HELLO] = sizeof(struct verbs_hello),
		[VERBS_WELCOME] = sizeof(struct verbs_welcome),
		[VERBS_REFUSAL] = sizeof(struct verbs_refusal),
		[VERBS_ATTACH] = sizeof(struct verbs_attach),
		[VERBS_ATTACHED] = sizeof(struct verbs_attached),
		[VERBS_DETACH] = sizeof(struct verbs_detach),
	};

	return type < sizeof(sizes) / sizeof(sizes[0]) ? sizes[type] : 0;
}

static uint32_t checksum(const union verbs_any *message)
{
	struct verbs_head head = message->head;

	head.crc = 0;
	return crc32c(crc32c(0, &head, sizeof(head)), message->bytes + sizeof(head),
		      message->head.bytes - sizeof(head));
}

void message_seal(union verbs_any *message, enum verbs_message type)
{
	message->head = (struct verbs_head){
		.magic = VERBS_MAGIC,
		.version = VERBS_VERSION,
		.type = (uint16_t)type,
		.bytes = (uint32_t)message_size((uint16_t)type),
	};
	message->head.crc = checksum(message);
}

static bool is_zero(const uint8_t *bytes, size_t n)
{
	uint8_t any = 0;

	for (size_t i = 0; i < n; i++)
		any |= bytes[i];
	return any == 0;
}

static bool ends(const char *text)
{
	return memchr(text, 0, VERBS_TEXT_BYTES) != NULL;
}

static bool status_is_errno(int32_t status)
{
	return status <= 0 && status >= -4095;
}

static bool attached_is_sound(const struct verbs_attached *m)
{
	if (!status_is_errno(m->status) || !ends(m->text))
		return false;
	return m->status ||
	       (m->region && m->size && !((m->size | m->address) & 7) &&
		m->address <= UINT64_MAX - m->size && !(m->rights & ~(uint32_t)RIGHT_ALL));
}

static bool body_is_sound(const union verbs_any *m)
{
	switch (m->head.type) {
	case VERBS_HELLO:
		return m->hello.n_qps > 0 && m->hello.n_qps <= VERBS_LINK_QPS &&
		       m->hello.index < m->hello.n_qps &&
		       (!m->hello.replaces || m->hello.replaces != m->hello.link);
	case VERBS_WELCOME:
		return m->welcome.reserved == 0;
	case VERBS_REFUSAL:
		return m->refusal.status && status_is_errno(m->refusal.status) &&
		       ends(m->refusal.text);
	case VERBS_ATTACH:
		return m->attach.grant_bytes > 0 && m->attach.grant_bytes <= VERBS_GRANT_BYTES &&
		       is_zero(m->attach.grant + m->attach.grant_bytes,
			       VERBS_GRANT_BYTES - m->attach.grant_bytes);
	case VERBS_ATTACHED:
		return attached_is_sound(&m->attached);
	case VERBS_DETACH:
		return m->detach.region && m->detach.request;
	}
	return false;
}

/* n is at least what the head says, and the head says what the type wants. */
static int check(const union verbs_any *message)
{
	if (message->head.crc != checksum(message))
		return error_set(-EPROTO, "message of type %u: crc32c is wrong",
				 message->head.type);
	if (!body_is_sound(message))
		return error_set(-EPROTO, "message of type %u: a field is out of its range",
				 message->head.type);
	return 0;
}

static int check_head(const struct verbs_head *head, size_t n)
{
	if (n < sizeof(*head) || head->magic != VERBS_MAGIC)
		return error_set(-EPROTO, "message of %zu bytes: not of the verbs transport", n);
	if (head->version != VERBS_VERSION)
		return error_set(-EPROTO,
				 "version %u of the verbs transport: this program speaks %u",
				 head->version, VERBS_VERSION);
	if (message_size(head->type) == 0 || head->bytes != message_size(head->type) ||
	    head->bytes > n)
		return error_set(-EPROTO,
				 "message of type %u: has %zu bytes, says %u, must have %zu",
				 head->type, n, head->bytes, message_size(head->type));
	return 0;
}

static int copy(union verbs_any *message_out, const void *bytes, size_t n)
{
	struct verbs_head head = { 0 };
	int ret;

	if (bytes)
		memcpy(&head, bytes, n < sizeof(head) ? n : sizeof(head));
	ret = check_head(&head, bytes ? n : 0);
	if (ret)
		return ret;
	memcpy(message_out->bytes, bytes, head.bytes);
	return check(message_out);
}

int message_read(union verbs_any *message_out, enum verbs_message type, const void *bytes, size_t n)
{
	union verbs_any message;
	int ret = copy(&message, bytes, n);

	if (ret)
		return ret;
	if (message.head.type != type)
		return error_set(-EPROTO, "message of type %u came, not %u", message.head.type,
				 (unsigned)type);
	memcpy(message_out->bytes, message.bytes, message.head.bytes);
	return 0;
}

int message_receive(union verbs_any *message_out, const void *bytes, size_t n)
{
	union verbs_any message;
	int ret = copy(&message, bytes, n);

	if (ret)
		return ret;
	if (message.head.bytes != n)
		return error_set(-EPROTO, "message of type %u: %zu bytes came, not %u",
				 message.head.type, n, message.head.bytes);
	memcpy(message_out->bytes, message.bytes, n);
	return 0;
}
