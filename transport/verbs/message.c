/*
 * message.c - sizes and checks of each message.
 */
#include "transport/verbs/message.h"

#include <errno.h>
#include <string.h>

#include "base/bits.h"

#include "transport/message_body.h"

#include "wire/message_head.h"

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

static const struct message_family family = { "verbs transport", VERBS_MAGIC, VERBS_VERSION,
					      message_size };

void message_seal(union verbs_any *message, enum verbs_message type)
{
	message_head_seal(&message->head, &family, (uint16_t)type);
}

static bool body_is_sound(const union verbs_any *m)
{
	const struct verbs_attached *a = &m->attached;

	switch (m->head.type) {
	case VERBS_HELLO:
		return m->hello.n_qps > 0 && m->hello.n_qps <= VERBS_LINK_QPS &&
		       m->hello.index < m->hello.n_qps &&
		       (!m->hello.replaces || m->hello.replaces != m->hello.link);
	case VERBS_WELCOME:
		return m->welcome.reserved == 0;
	case VERBS_REFUSAL:
		return m->refusal.status && error_is_code(m->refusal.status) &&
		       message_text_ends(m->refusal.text, VERBS_TEXT_BYTES);
	case VERBS_ATTACH:
		return message_grant_is_sound(m->attach.grant, m->attach.grant_bytes,
					      VERBS_GRANT_BYTES);
	case VERBS_ATTACHED:
		return error_is_code(a->status) && message_text_ends(a->text, VERBS_TEXT_BYTES) &&
		       (a->status ||
			message_range_is_sound(a->region, a->rights, a->address, a->size));
	case VERBS_DETACH:
		return m->detach.region && m->detach.request;
	}
	return false;
}

int message_receive(union verbs_any *message_out, const void *bytes, size_t n)
{
	union verbs_any message = { .bytes = { 0 } };
	int ret;

	if (bytes)
		memcpy(message.bytes, bytes, min_u64(n, sizeof(message)));
	ret = message_head_check(&message.head, bytes ? n : 0, &family);
	if (ret)
		return ret;
	if (!body_is_sound(&message))
		return error_set(-EPROTO, "message of type %u: a field is out of its range",
				 message.head.type);
	memcpy(message_out->bytes, message.bytes, n);
	return 0;
}

int message_read(union verbs_any *message_out, enum verbs_message type, const void *bytes, size_t n)
{
	union verbs_any message = { .bytes = { 0 } };
	int ret = message_receive(&message, bytes, min_u64(n, message_size((uint16_t)type)));

	if (ret == 0 && message.head.type != type)
		ret = error_set(-EPROTO, "message of type %u came, not %u", message.head.type,
				(unsigned)type);
	if (ret == 0)
		memcpy(message_out->bytes, message.bytes, message.head.bytes);
	return ret;
}
