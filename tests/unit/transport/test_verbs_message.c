/* test_verbs_message.c - messages: valid ones are accepted, all others refused. */
#include "tests/support/test.h"

#include <errno.h>
#include <string.h>

#include "transport/transport.h"
#include "transport/verbs/message.h"

static const uint16_t types[] = { VERBS_HELLO,  VERBS_WELCOME,  VERBS_REFUSAL,
				  VERBS_ATTACH, VERBS_ATTACHED, VERBS_DETACH };

/* A message of that type whose every field has a value that it may have. */
static union verbs_any made(uint16_t type)
{
	union verbs_any message = { .bytes = { 0 } };

	switch (type) {
	case VERBS_HELLO:
		message.hello.client_id = 7;
		message.hello.link = 99;
		message.hello.index = 1;
		message.hello.n_qps = 2;
		message.hello.replaces = 98;
		break;
	case VERBS_WELCOME:
		message.welcome.incarnation = 5;
		memset(message.welcome.boot_id, 3, sizeof(message.welcome.boot_id));
		break;
	case VERBS_REFUSAL:
		message.refusal.status = -EACCES;
		strcpy(message.refusal.text, "no");
		break;
	case VERBS_ATTACH:
		message.attach.request = 1;
		message.attach.grant_bytes = 56;
		memset(message.attach.grant, 1, 56);
		break;
	case VERBS_ATTACHED:
		message.attached.request = 1;
		message.attached.region = 4;
		message.attached.rights = RIGHT_READ | RIGHT_ATOMIC;
		message.attached.address = 0x7f0000000000;
		message.attached.size = 2 << 20;
		break;
	default:
		message.detach.region = 4;
		message.detach.request = 1;
		break;
	}
	message_seal(&message, (enum verbs_message)type);
	return message;
}

static void refused(union verbs_any message, size_t n)
{
	union verbs_any out;

	memset(&out, 0xee, sizeof(out));
	error_clear();
	assert_int_equal(message_receive(&out, &message, n), -EPROTO);
	assert_int_equal(error_last_code(), -EPROTO);
	for (size_t i = 0; i < sizeof(out); i++)
		assert_int_equal(out.bytes[i], 0xee);
}

/* With a right checksum: it is the fields that are looked at. */
static void refused_sealed(union verbs_any message)
{
	message_seal(&message, (enum verbs_message)message.head.type);
	refused(message, message.head.bytes);
}

TEST(message_receive__of_what_was_sealed)
{
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		union verbs_any message = made(types[i]), out;

		assert_true(message_size(types[i]) <= VERBS_MESSAGE_MAX);
		assert_int_equal(message.head.bytes, message_size(types[i]));
		assert_int_equal(message_receive(&out, &message, message.head.bytes), 0);
		assert_memory_equal(&out, &message, message.head.bytes);
	}
}

TEST(message_receive__with_any_bit_turned)
{
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		for (size_t bit = 0; bit < message_size(types[i]) * 8; bit++) {
			union verbs_any message = made(types[i]);

			message.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
			refused(message, message_size(types[i]));
		}
	}
}

TEST(message_receive__of_another_length)
{
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		union verbs_any message = made(types[i]);

		for (size_t n = 0; n < sizeof(message); n++)
			if (n != message.head.bytes)
				refused(message, n);
	}
}

TEST(message_receive__of_a_type_that_is_none)
{
	union verbs_any message = made(VERBS_DETACH);

	message.head.type = 0;
	refused(message, message.head.bytes);
	message.head.type = VERBS_DETACH + 1;
	refused(message, message.head.bytes);
	message.head.type = UINT16_MAX;
	refused(message, message.head.bytes);
}

TEST(message_read__takes_padding_behind)
{
	uint8_t padded[196] = { 0 };
	union verbs_any message = made(VERBS_WELCOME), out;

	memcpy(padded, &message, message.head.bytes);
	assert_int_equal(message_read(&out, VERBS_WELCOME, padded, sizeof(padded)), 0);
	assert_memory_equal(&out, &message, message.head.bytes);
	assert_int_equal(message_read(&out, VERBS_WELCOME, padded, message.head.bytes - 1),
			 -EPROTO);
}

TEST(message_read__of_another_type_gives_eproto)
{
	union verbs_any message = made(VERBS_WELCOME), out;

	assert_int_equal(message_read(&out, VERBS_REFUSAL, &message, message.head.bytes), -EPROTO);
	assert_int_equal(message_read(&out, VERBS_WELCOME, NULL, 0), -EPROTO);
}

TEST(message_receive__of_a_hello_out_of_range)
{
	union verbs_any message = made(VERBS_HELLO);

	message.hello.index = 2; /* of 2 */
	refused_sealed(message);
	message = made(VERBS_HELLO);
	message.hello.n_qps = VERBS_LINK_QPS + 1;
	refused_sealed(message);
	message.hello.n_qps = 0;
	refused_sealed(message);
	message = made(VERBS_HELLO);
	message.hello.replaces = message.hello.link;
	refused_sealed(message);
}

TEST(message_receive__of_a_welcome_with_reserved_bits)
{
	union verbs_any message = made(VERBS_WELCOME);

	message.welcome.reserved = 1;
	refused_sealed(message);
}

TEST(message_receive__of_a_refusal_that_is_none)
{
	union verbs_any message = made(VERBS_REFUSAL);

	message.refusal.status = 0;
	refused_sealed(message);
	message.refusal.status = 5;
	refused_sealed(message);
	message.refusal.status = -134;
	refused_sealed(message);
	message = made(VERBS_REFUSAL);
	memset(message.refusal.text, 'x', sizeof(message.refusal.text));
	refused_sealed(message);
}

TEST(message_receive__of_an_attach_with_a_wrong_grant)
{
	union verbs_any message = made(VERBS_ATTACH);

	message.attach.grant_bytes = 0;
	refused_sealed(message);
	message.attach.grant_bytes = 55; /* and a byte behind it */
	refused_sealed(message);
	message.attach.grant_bytes = VERBS_GRANT_BYTES + 1;
	refused_sealed(message);
	message.attach.grant_bytes = VERBS_GRANT_BYTES;
	message_seal(&message, VERBS_ATTACH);
	assert_int_equal(message_receive(&message, message.bytes, message.head.bytes), 0);
}

TEST(message_receive__of_an_attached_region_out_of_range)
{
	union verbs_any message = made(VERBS_ATTACHED);

	message.attached.region = 0;
	refused_sealed(message);
	message = made(VERBS_ATTACHED);
	message.attached.size = 0;
	refused_sealed(message);
	message.attached.size = 12;
	refused_sealed(message);
	message = made(VERBS_ATTACHED);
	message.attached.address = UINT64_MAX - 7;
	refused_sealed(message);
	message = made(VERBS_ATTACHED);
	message.attached.rights = RIGHT_ALL + 1;
	refused_sealed(message);
}

TEST(message_receive__of_an_attach_refused)
{
	union verbs_any message = { .attached = { .request = 3, .status = -EACCES } }, out;

	strcpy(message.attached.text, "grant is not good");
	message_seal(&message, VERBS_ATTACHED);
	assert_int_equal(message_receive(&out, &message, message.head.bytes), 0);
	assert_int_equal(out.attached.status, -EACCES);
	message.attached.status = 1;
	refused_sealed(message);
}

int main(void)
{
	return test_run(NULL, NULL);
}
