/*
 * Peers that are refused, and peers of other versions, in both directions: each hears why. Real daemons
 * and the real library on one side, on the other one of ours that claims something else.
 */
#include "tests/support/processes.h"
#include "tests/support/sockets.h"
#include "tests/support/must_internal.h"

#include "relive/relive.h"

#include "transport/attach/packet.h"

#include "wire/control/auth.h"
#include "wire/control.pb-c.h"
#include "wire/control/dial.h"
#include "wire/control/frame.h"
#include "wire/region.h"

#include "base/os/clock.h"
#include "base/os/runtime_dir.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define JUNK 16384
#define JUNKS 4

struct fixture {
	struct processes ps;
	struct runtime_dir dir;
	pid_t metad;
	uint16_t port;
	char token[RUNTIME_TOKEN_BYTES];
	struct tls *tls;
	struct channel ch;
	bool connected;
};

static int setup(void **state)
{
	static struct fixture fx;

	memset(&fx, 0, sizeof(fx));
	processes_init(&fx.ps);
	*state = &fx;
	return 0;
}

static void hang_up(struct fixture *fx)
{
	if (fx->connected)
		channel_fini(&fx->ch);
	fx->connected = false;
	tls_close(&fx->tls);
}

static int teardown(void **state)
{
	struct fixture *fx = *state;

	hang_up(fx);
	processes_fini(&fx->ps);
	return 0;
}

static uint64_t soon(void)
{
	return deadline_after(clock_monotonic(), PROCESSES_WAIT_MS * CLOCK_NS_PER_MS);
}

/* -------- a client that claims something else, at the real server -------- */

static void start(struct fixture *fx)
{
	char listen[32];
	const char *const args[] = { "--listen", listen, NULL };

	fx->port = processes_free_port();
	snprintf(listen, sizeof(listen), "127.0.0.1:%u", fx->port);
	fx->metad = processes_metad(&fx->ps, "s", args);
	must(runtime_dir_open("s", false, &fx->dir));
	must(runtime_dir_token(&fx->dir, fx->token));
}

static int connect_name(const struct fixture *fx, const char *name, int type)
{
	char path[RUNTIME_PATH_BYTES];
	int fd;

	must(runtime_dir_file(&fx->dir, name, path));
	fd = sockets_connect_unix(path, type);
	assert_true(fd >= 0);
	return fd;
}

static void dial(struct fixture *fx, bool tcp)
{
	const struct tls_opts opts = { .token = fx->token, .host = "127.0.0.1" };
	struct stream stream;

	hang_up(fx);
	if (tcp) {
		must(tls_open(&opts, &fx->tls));
		must(stream_init_tls(&stream, sockets_connect_tcp(fx->port), fx->tls));
		channel_init(&fx->ch, stream);
	} else {
		channel_init(&fx->ch, stream_socket(connect_name(fx, "metad.sock", SOCK_STREAM)));
	}
	fx->connected = true;
}

static void write_bytes(struct fixture *fx, const uint8_t *bytes, size_t len)
{
	uint64_t limit = soon();

	while (len) {
		size_t n = 0;
		short events = POLLOUT;
		int ret = stream_write(&fx->ch.stream, bytes, len, &n, &events);

		if (ret == -EAGAIN) {
			struct pollfd ready = { .fd = fx->ch.stream.fd, .events = events };

			assert_true(poll(&ready, 1, deadline_left_ms(clock_monotonic(), limit)) >
				    0);
			continue;
		}
		must(ret);
		bytes += n;
		len -= n;
	}
}

static size_t pack(uint8_t *frame, uint16_t version, uint16_t type, const ProtobufCMessage *message)
{
	struct frame_header head = { .type = type, .request_id = 7 };

	head.length = (uint32_t)protobuf_c_message_pack(message, frame + FRAME_HEADER_BYTES);
	must(frame_encode(&head, frame));
	memcpy(frame + 6, &version, sizeof(version));
	return FRAME_HEADER_BYTES + head.length;
}

static size_t pack_hello(uint8_t *frame, uint16_t version, uint32_t format)
{
	static uint8_t nonce[AUTH_NONCE_BYTES];
	Relive__HelloRequest hello = RELIVE__HELLO_REQUEST__INIT;

	hello.format_major = format;
	hello.software = (char *)"test";
	hello.role = (char *)"client";
	hello.nonce = (ProtobufCBinaryData){ sizeof(nonce), nonce };
	return pack(frame, version, RELIVE__TYPE__TYPE_HELLO, &hello.base);
}

/* The answer to request 7, of a status alone or that begins with one. */
static void expect_refusal(struct fixture *fx, uint16_t type, int code, const char *words)
{
	Relive__StatusReply *reply;
	struct channel_frame frame;

	must(channel_receive(&fx->ch, soon(), &frame));
	assert_int_equal(frame.head.type, type | FRAME_ANSWER);
	assert_int_equal(frame.head.request_id, 7);
	reply = (Relive__StatusReply *)channel_unpack(&relive__status_reply__descriptor, &frame);
	assert_non_null(reply);
	assert_int_equal(reply->status->code, code);
	if (!strstr(reply->status->message, words))
		fail_msg("\"%s\" is not in \"%s\"", words, reply->status->message);
	relive__status_reply__free_unpacked(reply, NULL);
}

static void expect_end(struct fixture *fx)
{
	struct channel_frame frame;

	assert_int_equal(channel_receive(&fx->ch, soon(), &frame), -ECONNRESET);
}

/* It has been refused by then, and does not look before it has sent all it has. */
static void send_with_junk(struct fixture *fx, const uint8_t *frame, size_t len)
{
	static uint8_t junk[JUNK];
	struct pollfd answered = { .fd = fx->ch.stream.fd, .events = POLLIN };

	write_bytes(fx, frame, len);
	assert_int_equal(poll(&answered, 1, PROCESSES_WAIT_MS), 1);
	for (int i = 0; i < JUNKS; i++)
		write_bytes(fx, junk, sizeof(junk));
}

#define CASE(f) TEST_WITH(f, setup, teardown)

CASE(hello__of_another_format_hears_both_versions)
{
	struct fixture *fx = *state;
	uint8_t frame[256];
	char words[64];

	start(fx);
	snprintf(words, sizeof(words), "format %u: this server speaks %u", REGION_FORMAT_MAJOR + 1,
		 REGION_FORMAT_MAJOR);
	for (int tcp = 0; tcp < 2; tcp++) {
		dial(fx, tcp);
		write_bytes(fx, frame, pack_hello(frame, FRAME_VERSION, REGION_FORMAT_MAJOR + 1));
		expect_refusal(fx, RELIVE__TYPE__TYPE_HELLO, -EPROTO, words);
		expect_end(fx);
	}
}

CASE(hello__refused_hears_it_whatever_else_it_sent)
{
	struct fixture *fx = *state;
	uint8_t frame[256];

	start(fx);
	for (int tcp = 0; tcp < 2; tcp++) {
		dial(fx, tcp);
		send_with_junk(fx, frame,
			       pack_hello(frame, FRAME_VERSION, REGION_FORMAT_MAJOR + 1));
		expect_refusal(fx, RELIVE__TYPE__TYPE_HELLO, -EPROTO, "this server speaks");
	}
}

CASE(frame__of_another_version_hears_both_versions)
{
	struct fixture *fx = *state;
	uint8_t frame[256];

	start(fx);
	for (int tcp = 0; tcp < 2; tcp++) {
		dial(fx, tcp);
		write_bytes(fx, frame, pack_hello(frame, FRAME_VERSION + 1, REGION_FORMAT_MAJOR));
		expect_refusal(fx, RELIVE__TYPE__TYPE_HELLO, -EPROTO,
			       "frames of version 2: this program speaks 1");
		expect_end(fx);
	}
}

CASE(frame__that_is_no_hello_hears_so)
{
	Relive__Empty nothing = RELIVE__EMPTY__INIT;
	struct fixture *fx = *state;
	uint8_t frame[256];

	start(fx);
	for (int tcp = 0; tcp < 2; tcp++) {
		dial(fx, tcp);
		write_bytes(
			fx, frame,
			pack(frame, FRAME_VERSION, RELIVE__TYPE__TYPE_STORE_INFO, &nothing.base));
		expect_refusal(fx, RELIVE__TYPE__TYPE_STORE_INFO, -EPROTO,
			       "the first one must be HELLO");
		expect_end(fx);
	}
}

static void say_hello(struct fixture *fx)
{
	struct channel_frame answer;
	uint8_t frame[256];

	write_bytes(fx, frame, pack_hello(frame, FRAME_VERSION, REGION_FORMAT_MAJOR));
	must(channel_receive(&fx->ch, soon(), &answer));
	assert_int_equal(answer.head.type, RELIVE__TYPE__TYPE_HELLO | FRAME_ANSWER);
}

CASE(proof__that_is_wrong_hears_it_whatever_else_was_sent)
{
	static uint8_t proof[AUTH_PROOF_BYTES];
	Relive__AuthRequest auth = RELIVE__AUTH_REQUEST__INIT;
	struct fixture *fx = *state;
	uint8_t frame[256];

	start(fx);
	auth.proof = (ProtobufCBinaryData){ sizeof(proof), proof };
	for (int tcp = 0; tcp < 2; tcp++) {
		dial(fx, tcp);
		say_hello(fx);
		send_with_junk(fx, frame,
			       pack(frame, FRAME_VERSION, RELIVE__TYPE__TYPE_AUTH, &auth.base));
		expect_refusal(fx, RELIVE__TYPE__TYPE_AUTH, -EACCES, "token");
	}
}

static void prove(struct fixture *fx)
{
	char socket[RUNTIME_PATH_BYTES];
	const struct dial_opts opts = { .socket = socket,
					.token = fx->token,
					.role = "client",
					.software = "test",
					.deadline_ns = soon() };
	struct dial_peer peer;

	hang_up(fx);
	must(runtime_dir_file(&fx->dir, "metad.sock", socket));
	must(dial_open(&opts, &fx->ch, &peer));
	fx->connected = true;
}

/* Of a later minor version: the connection goes on. A body that cannot be read ends it. */
CASE(request__that_is_not_known_hears_so)
{
	static uint8_t bad[FRAME_HEADER_BYTES + 64];
	const struct frame_header head = { .length = 64,
					   .type = RELIVE__TYPE__TYPE_TABLE_OPEN,
					   .request_id = 7 };
	Relive__Empty nothing = RELIVE__EMPTY__INIT;
	struct fixture *fx = *state;
	uint8_t frame[256];

	start(fx);
	prove(fx);
	for (int i = 0; i < 2; i++) {
		write_bytes(fx, frame, pack(frame, FRAME_VERSION, 999, &nothing.base));
		expect_refusal(fx, 999, -ENOTSUP, "request of type 999: unknown to this server");
	}
	memset(bad, 0xff, sizeof(bad));
	must(frame_encode(&head, bad));
	write_bytes(fx, bad, sizeof(bad));
	expect_refusal(fx, RELIVE__TYPE__TYPE_TABLE_OPEN, -EPROTO, "TableOpenRequest");
	expect_end(fx);
}

/* -------- a server that claims something else, at the library and a memory node -------- */

enum claim { CLAIM_FRAMES, CLAIM_FORMAT, CLAIM_REFUSES };

static size_t answer_as(enum claim claim, uint8_t *frame, uint64_t request_id)
{
	static uint8_t bytes[AUTH_NONCE_BYTES];
	Relive__HelloReply reply = RELIVE__HELLO_REPLY__INIT;
	Relive__Status status = RELIVE__STATUS__INIT;
	uint16_t version = claim == CLAIM_FRAMES ? 9 : FRAME_VERSION;
	size_t len;

	status.message = (char *)"";
	if (claim == CLAIM_REFUSES) {
		status.code = -EPROTO;
		status.message = (char *)"format 2: this server speaks 9";
	}
	reply.status = &status;
	reply.nonce = (ProtobufCBinaryData){ AUTH_NONCE_BYTES, bytes };
	reply.proof = (ProtobufCBinaryData){ AUTH_PROOF_BYTES, bytes };
	reply.store_uuid = (ProtobufCBinaryData){ 16, bytes };
	reply.software = (char *)"9.0.0";
	reply.store_name = (char *)"fake";
	len = pack(frame, version, RELIVE__TYPE__TYPE_HELLO | FRAME_ANSWER, &reply.base);
	if (claim == CLAIM_FORMAT) { /* field 7, a varint, which peers that do not know it skip */
		const uint8_t field[] = { 7 << 3, 9 };

		memcpy(frame + len, field, sizeof(field));
		len += sizeof(field);
		frame[0] += sizeof(field);
	}
	memcpy(frame + 8, &request_id, sizeof(request_id));
	return len;
}

struct fake {
	int listener;
	enum claim claim;
};

static int run_fake(void *ctx)
{
	const struct fake *fake = ctx;

	for (;;) {
		struct channel_frame hello;
		struct channel ch;
		uint8_t frame[512];
		size_t len;
		int fd = accept4(fake->listener, NULL, NULL, SOCK_CLOEXEC);

		if (fd < 0)
			return 1;
		channel_init(&ch, stream_socket(fd));
		if (channel_receive(&ch, soon(), &hello) == 0) {
			len = answer_as(fake->claim, frame, hello.head.request_id);
			(void)!send(fd, frame, len, MSG_NOSIGNAL);
			(void)!channel_receive(&ch, soon(), &hello); /* until it hangs up */
		}
		channel_fini(&ch);
	}
}

static void start_fake(struct fixture *fx, enum claim claim)
{
	struct fake fake = { .claim = claim };
	char path[RUNTIME_PATH_BYTES];

	must(runtime_dir_open("fake", true, &fx->dir));
	must(runtime_dir_token_make(&fx->dir, fx->token));
	must(runtime_dir_file(&fx->dir, "metad.sock", path));
	fake.listener = sockets_listen_unix(path, SOCK_STREAM);
	(void)processes_fork(&fx->ps, run_fake, &fake);
	close(fake.listener);
}

static void expect_both_print(struct fixture *fx, enum claim claim, const char *words)
{
	const char *const args[] = { "--store", "fake", "--name", "a", "--size", "4M", NULL };
	struct rlv_store *store = NULL;
	pid_t node;
	int ret;

	start_fake(fx, claim);
	ret = rlv_store_open("shm:fake", NULL, &store);
	if (ret != -EPROTO || !strstr(rlv_last_error(), words))
		fail_msg("the library says %s: %s", rlv_error_name(ret), rlv_last_error());
	node = processes_start(&fx->ps, "relive-memnode", args);
	for (int i = 0; i < PROCESSES_WAIT_MS / 10 && processes_runs(&fx->ps, node); i++)
		processes_sleep_ns(10 * CLOCK_NS_PER_MS);
	assert_true(processes_log_has(&fx->ps, node, words));
	assert_int_equal(processes_wait(&fx->ps, node, PROCESSES_WAIT_MS), 5);
}

CASE(server__of_other_frames_is_refused_with_both_versions)
{
	expect_both_print(*state, CLAIM_FRAMES, "frames of version 9: this program speaks 1");
}

CASE(server__of_another_format_is_refused_with_both_versions)
{
	char words[64];

	snprintf(words, sizeof(words), "format 9: this program speaks %u", REGION_FORMAT_MAJOR);
	expect_both_print(*state, CLAIM_FORMAT, words);
}

CASE(server__that_refuses_us_is_quoted)
{
	expect_both_print(*state, CLAIM_REFUSES, "format 2: this server speaks 9");
}

/* -------- the memory node's own socket -------- */

CASE(attach__of_another_version_hears_both_versions)
{
	const char *const args[] = { "--size", "4M", NULL };
	struct packet packet = { .fd = -1 };
	struct fixture *fx = *state;
	struct pollfd ready = { .events = POLLIN };

	start(fx);
	(void)processes_memnode(&fx->ps, "s", "a", args);
	ready.fd = connect_name(fx, "memnode-a.sock", SOCK_SEQPACKET);
	packet_seal(&packet, ATTACH_HELLO);
	packet.head.version = ATTACH_VERSION + 8;
	assert_int_equal(send(ready.fd, packet.bytes, packet.head.bytes, MSG_NOSIGNAL),
			 packet.head.bytes);
	assert_int_equal(poll(&ready, 1, PROCESSES_WAIT_MS), 1);
	must(packet_receive(ready.fd, &packet));
	close(ready.fd);
	assert_int_equal(packet.head.type, ATTACH_HELLO_REPLY);
	assert_int_equal(packet.hello_reply.status, -EPROTO);
	assert_non_null(strstr(packet.hello_reply.text, "version 9"));
}

int main(void)
{
	return test_run(NULL, NULL);
}
