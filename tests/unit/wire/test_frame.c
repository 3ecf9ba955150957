#include "tests/support/test.h"

#include "wire/control/frame.h"

#include <errno.h>
#include <string.h>

TEST(frame_encode__golden_bytes)
{
	const struct frame_header head = {
		.length = 0x01020304 & 0xfffff,
		.type = 0x800a,
		.request_id = 0x1112131415161718,
		.term = 0x2122232425262728,
	};
	static const uint8_t golden[FRAME_HEADER_BYTES] = {
		0x04, 0x03, 0x02, 0x00, 0x0a, 0x80, 0x01, 0x00, 0x18, 0x17, 0x16, 0x15,
		0x14, 0x13, 0x12, 0x11, 0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21,
	};
	uint8_t bytes[FRAME_HEADER_BYTES];

	assert_int_equal(frame_encode(&head, bytes), 0);
	assert_memory_equal(bytes, golden, sizeof(golden));
}

TEST(frame_decode__gives_back_what_was_encoded)
{
	const struct frame_header head = {
		.length = FRAME_BODY_MAX,
		.type = 99,
		.request_id = UINT64_MAX,
		.term = 7,
	};
	uint8_t bytes[FRAME_HEADER_BYTES];
	struct frame_header out;

	assert_int_equal(frame_encode(&head, bytes), 0);
	assert_int_equal(frame_decode(bytes, sizeof(bytes), &out), 0);
	assert_int_equal(out.length, head.length);
	assert_int_equal(out.type, head.type);
	assert_int_equal(out.version, FRAME_VERSION);
	assert_true(out.request_id == head.request_id && out.term == head.term);
}

TEST(frame_encode__too_long_gives_eoverflow)
{
	const struct frame_header head = { .length = FRAME_BODY_MAX + 1, .type = 1 };
	uint8_t bytes[FRAME_HEADER_BYTES] = { 42 };

	assert_int_equal(frame_encode(&head, bytes), -EOVERFLOW);
	assert_int_equal(bytes[0], 42);
}

TEST(frame_decode__short_gives_eagain)
{
	uint8_t bytes[FRAME_HEADER_BYTES] = { 0 };
	struct frame_header out;

	for (size_t n = 0; n < FRAME_HEADER_BYTES; n++)
		assert_int_equal(frame_decode(bytes, n, &out), -EAGAIN);
}

static int decode_of(const struct frame_header *head)
{
	uint8_t bytes[FRAME_HEADER_BYTES];
	struct frame_header out = { .length = 4711 };
	int ret;

	memcpy(bytes, head, sizeof(bytes));
	ret = frame_decode(bytes, sizeof(bytes), &out);
	if (ret)
		assert_int_equal(out.length, 4711);
	return ret;
}

TEST(frame_decode__another_version_gives_eproto)
{
	const struct frame_header head = { .type = 1, .version = FRAME_VERSION + 1 };

	assert_int_equal(decode_of(&head), -EPROTO);
	assert_non_null(strstr(error_last(), "version 2"));
}

TEST(frame_decode__too_long_gives_eproto)
{
	const struct frame_header head = {
		.length = FRAME_BODY_MAX + 1,
		.type = 1,
		.version = FRAME_VERSION,
	};

	assert_int_equal(decode_of(&head), -EPROTO);
	assert_non_null(strstr(error_last(), "1048577"));
}

TEST(frame_decode__no_type_gives_eproto)
{
	const struct frame_header head = { .type = FRAME_ANSWER, .version = FRAME_VERSION };

	assert_int_equal(decode_of(&head), -EPROTO);
}

int main(void)
{
	return test_run(NULL, NULL);
}
