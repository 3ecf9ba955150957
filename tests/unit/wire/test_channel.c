/*
 * Frames over one end of a socket pair; the test plays the other end.
 */
#include "tests/support/test.h"

#include "wire/control/channel.h"
#include "wire/control.pb-c.h"

#include "base/os/clock.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct pair {
	struct channel ch;
	struct channel far;
};

static int setup(void **state)
{
	static struct pair pair;
	int fds[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	channel_init(&pair.ch, stream_socket(fds[0]));
	channel_init(&pair.far, stream_socket(fds[1]));
	*state = &pair;
	return 0;
}

static int teardown(void **state)
{
	struct pair *pair = *state;

	channel_fini(&pair->ch);
	channel_fini(&pair->far);
	return 0;
}

static uint64_t soon(void)
{
	return deadline_after(clock_monotonic(), 10 * CLOCK_NS_PER_MS);
}

static uint64_t later(void)
{
	return deadline_after(clock_monotonic(), 5 * CLOCK_NS_PER_S);
}

static void far_writes(const struct pair *pair, const void *bytes, size_t len)
{
	assert_int_equal(write(pair->far.stream.fd, bytes, len), len);
}

#define CASE(f) TEST_WITH(f, setup, teardown)

CASE(channel_send__arrives_whole)
{
	Relive__TableOpenRequest request = RELIVE__TABLE_OPEN_REQUEST__INIT, *got;
	struct pair *pair = *state;
	struct channel_frame frame;

	request.name = (char *)"replay";
	request.read_only = true;
	pair->ch.term = 9;
	assert_int_equal(channel_send(&pair->ch, 11, 77, &request.base, later()), 0);
	assert_int_equal(channel_receive(&pair->far, later(), &frame), 0);
	assert_int_equal(frame.head.type, 11);
	assert_true(frame.head.request_id == 77 && frame.head.term == 9);
	got = (Relive__TableOpenRequest *)channel_unpack(&relive__table_open_request__descriptor,
							 &frame);
	assert_non_null(got);
	assert_string_equal(got->name, "replay");
	assert_true(got->read_only);
	relive__table_open_request__free_unpacked(got, NULL);
}

CASE(channel_send__an_empty_message)
{
	Relive__Empty request = RELIVE__EMPTY__INIT, *got;
	struct pair *pair = *state;
	struct channel_frame frame;

	assert_int_equal(channel_send(&pair->ch, 40, 1, &request.base, later()), 0);
	assert_int_equal(channel_receive(&pair->far, later(), &frame), 0);
	assert_int_equal(frame.head.length, 0);
	got = (Relive__Empty *)channel_unpack(&relive__empty__descriptor, &frame);
	assert_non_null(got);
	relive__empty__free_unpacked(got, NULL);
}

CASE(channel_send__too_long_gives_eoverflow_and_sends_nothing)
{
	Relive__TableCreateRequest request = RELIVE__TABLE_CREATE_REQUEST__INIT;
	struct pair *pair = *state;

	request.desc.len = FRAME_BODY_MAX + 1;
	request.desc.data = calloc(1, FRAME_BODY_MAX + 1);
	assert_non_null(request.desc.data);
	assert_int_equal(channel_send(&pair->ch, 10, 1, &request.base, later()), -EOVERFLOW);
	assert_false(channel_is_readable(&pair->far));
	free(request.desc.data);
}

/* The peer reads nothing: the socket's buffers fill, and the deadline ends it. */
CASE(channel_send__to_one_who_does_not_read_gives_etimedout)
{
	Relive__TableCreateRequest request = RELIVE__TABLE_CREATE_REQUEST__INIT;
	struct pair *pair = *state;
	int ret = 0;

	request.desc.len = FRAME_BODY_MAX / 2;
	request.desc.data = calloc(1, request.desc.len);
	assert_non_null(request.desc.data);
	for (int i = 0; ret == 0 && i < 64; i++)
		ret = channel_send(&pair->ch, 10, 1, &request.base, soon());
	assert_int_equal(ret, -ETIMEDOUT);
	free(request.desc.data);
}

CASE(channel_receive__nothing_gives_etimedout)
{
	struct pair *pair = *state;
	struct channel_frame frame;

	assert_int_equal(channel_receive(&pair->ch, soon(), &frame), -ETIMEDOUT);
}

/* The received part of a frame is kept, and no call waits for the rest. */
CASE(channel_take__a_frame_that_comes_in_pieces)
{
	const Relive__TableListRequest request = RELIVE__TABLE_LIST_REQUEST__INIT;
	struct frame_header head = { .type = 10, .request_id = 7, .length = 3 };
	struct pair *pair = *state;
	struct channel_frame frame;
	uint8_t bytes[FRAME_HEADER_BYTES + 3] = { 0 };

	memcpy(bytes + FRAME_HEADER_BYTES, "abc", 3);
	assert_int_equal(frame_encode(&head, bytes), 0);
	for (size_t i = 0; i < sizeof(bytes); i++) {
		assert_int_equal(channel_take(&pair->ch, &frame), -EAGAIN);
		assert_int_equal(write(pair->far.stream.fd, &bytes[i], 1), 1);
	}
	assert_int_equal(channel_take(&pair->ch, &frame), 0);
	assert_int_equal(frame.head.request_id, 7);
	assert_memory_equal(frame.body, "abc", 3);
	assert_int_equal(channel_send(&pair->far, 10, 8, &request.base, later()), 0);
	assert_int_equal(channel_take(&pair->ch, &frame), 0); /* the next one begins anew */
	assert_int_equal(frame.head.request_id, 8);
}

CASE(channel_receive__half_a_frame_gives_etimedout)
{
	const struct frame_header head = { .length = 100, .type = 1, .version = 1 };
	struct pair *pair = *state;
	struct channel_frame frame;

	far_writes(pair, &head, sizeof(head));
	assert_int_equal(channel_receive(&pair->ch, soon(), &frame), -ETIMEDOUT);
}

/* A byte each time that it is asked, and 100 ms of the clock gone by. */
static uint64_t tick(void *ctx)
{
	uint64_t *now_ns = ctx;

	return *now_ns += 100 * CLOCK_NS_PER_MS;
}

CASE(channel_receive__bytes_that_keep_coming_end_at_the_deadline)
{
	const struct frame_header head = { .length = 1 << 20, .type = 1, .version = 1 };
	uint64_t now_ns = CLOCK_NS_PER_S;
	const struct clock clock = { .now_ns = tick, .ctx = &now_ns };
	struct channel_frame frame;
	struct channel ch;
	int fds[2];

	/* A packet is a read. */
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
	for (size_t i = 0; i < 150; i++) {
		char byte = i < sizeof(head) ? ((const char *)&head)[i] : 0;

		assert_int_equal(send(fds[1], &byte, 1, 0), 1);
	}
	channel_init(&ch, stream_socket(fds[0]));
	ch.clock = &clock;
	assert_int_equal(channel_receive(&ch, 10 * CLOCK_NS_PER_S, &frame), -ETIMEDOUT);
	assert_true(now_ns < 11 * CLOCK_NS_PER_S);
	channel_fini(&ch);
	close(fds[1]);
}

CASE(channel_receive__closed_gives_econnreset)
{
	const struct frame_header head = { .length = 100, .type = 1, .version = 1 };
	struct pair *pair = *state;
	struct channel_frame frame;

	far_writes(pair, &head, sizeof(head));
	channel_fini(&pair->far);
	assert_int_equal(channel_receive(&pair->ch, later(), &frame), -ECONNRESET);
}

CASE(channel_receive__garbage_gives_eproto)
{
	static const char garbage[FRAME_HEADER_BYTES] = "GET / HTTP/1.1\r\nHost: x";
	struct pair *pair = *state;
	struct channel_frame frame;

	far_writes(pair, garbage, sizeof(garbage));
	assert_int_equal(channel_receive(&pair->ch, later(), &frame), -EPROTO);
}

/* The answer was written before the question: whose id it has is known, they count from 1. */
static int call_answered_by(struct pair *pair, uint16_t type, uint64_t id)
{
	Relive__StatusReply reply = RELIVE__STATUS_REPLY__INIT;
	Relive__Empty request = RELIVE__EMPTY__INIT;
	struct channel_frame frame;

	assert_int_equal(channel_send(&pair->far, type, id, &reply.base, later()), 0);
	return channel_call(&pair->ch, 40, &request.base, later(), &frame);
}

CASE(channel_call__takes_its_answer)
{
	assert_int_equal(call_answered_by(*state, 40 | FRAME_ANSWER, 1), 0);
	assert_int_equal(call_answered_by(*state, 40 | FRAME_ANSWER, 2), 0);
}

CASE(channel_call__answer_of_another_request_gives_eproto)
{
	assert_int_equal(call_answered_by(*state, 40 | FRAME_ANSWER, 2), -EPROTO);
}

CASE(channel_call__answer_of_another_type_gives_eproto)
{
	assert_int_equal(call_answered_by(*state, 30 | FRAME_ANSWER, 1), -EPROTO);
}

CASE(channel_call__a_request_is_no_answer)
{
	assert_int_equal(call_answered_by(*state, 40, 1), -EPROTO);
}

CASE(channel_unpack__no_message_gives_null)
{
	const uint8_t bytes[4] = { 0xff, 0xff, 0xff, 0xff };
	const struct channel_frame frame = { { .length = 4, .type = 1 }, bytes };

	assert_null(channel_unpack(&relive__hello_request__descriptor, &frame));
	assert_non_null(strstr(error_last(), "HelloRequest"));
}

int main(void)
{
	if (test_skips_msan("protobuf-c"))
		return TEST_EXIT_SKIP;
	return test_run(NULL, NULL);
}
