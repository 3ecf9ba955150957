/*
 * The handshake before the proof of a token, by hand: unknown peers, missing or foreign identities,
 * proofs of other tokens, and replayed proofs.
 */
#include "tests/support/processes.h"
#include "tests/support/sockets.h"
#include "tests/support/must_internal.h"

#include "relive/relive.h"
#include "relive/admin.h"

#include "wire/control/auth.h"
#include "wire/control/channel.h"
#include "wire/control.pb-c.h"
#include "wire/control/dial.h"
#include "wire/region.h"

#include "base/bits.h"
#include "base/os/clock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define STORE "s"
#define LAST_TYPE 99

struct fixture {
	struct processes ps;
	pid_t metad;
	uint16_t port;
	struct rlv_store *store; /* of the owner: works all the time */
	char own[128];
	char read[RLV_TOKEN_BYTES];
	struct tls *tls;
	struct channel ch;
	struct auth_nonces nonces;
};

static int setup(void **state)
{
	static struct fixture fx;
	char listen[32];
	const char *const args[] = { "--listen", listen, NULL };

	memset(&fx, 0, sizeof(fx));
	processes_init(&fx.ps);
	fx.port = processes_free_port();
	snprintf(listen, sizeof(listen), "127.0.0.1:%u", fx.port);
	fx.metad = processes_metad(&fx.ps, STORE, args);
	processes_token(&fx.ps, STORE, fx.own);
	assert_int_equal(rlv_store_open("shm:" STORE, NULL, &fx.store), 0);
	assert_int_equal(rlv_store_token(fx.store, "read", fx.read), 0);
	*state = &fx;
	return 0;
}

/* The server goes on, and its owner has not lost the connection. */
static int teardown(void **state)
{
	struct rlv_store_info info = { .size = sizeof(info) };
	struct fixture *fx = *state;

	assert_true(processes_runs(&fx->ps, fx->metad));
	assert_int_equal(rlv_store_info(fx->store, &info), 0);
	assert_int_equal(rlv_store_close(&fx->store), 0);
	processes_fini(&fx->ps);
	return 0;
}

static uint64_t soon(void)
{
	return deadline_after(clock_monotonic(), PROCESSES_WAIT_MS * CLOCK_NS_PER_MS);
}

/* -------- connections -------- */

static void connect_socket(struct fixture *fx)
{
	char path[PROCESSES_PATH + 64];
	int fd;

	processes_path(&fx->ps, STORE "/metad.sock", path);
	fd = sockets_connect_unix(path, SOCK_STREAM);
	assert_true(fd >= 0);
	channel_init(&fx->ch, stream_socket(fd));
}

static void connect_tls(struct fixture *fx, const char *token)
{
	const struct tls_opts opts = { .token = token };
	struct stream stream;

	must(tls_open(&opts, &fx->tls));
	must(stream_init_tls(&stream, sockets_connect_tcp(fx->port), fx->tls));
	channel_init(&fx->ch, stream);
}

static void hang_up(struct fixture *fx)
{
	channel_fini(&fx->ch);
	tls_close(&fx->tls);
}

/* The status of the answer. -ECONNRESET: none, it hung up. */
static int status_of(struct channel_frame *frame, int ret)
{
	Relive__StatusReply *reply;

	if (ret)
		return ret;
	reply = (Relive__StatusReply *)channel_unpack(&relive__status_reply__descriptor, frame);
	assert_non_null(reply);
	ret = dial_status(reply->status);
	relive__status_reply__free_unpacked(reply, NULL);
	return ret;
}

static int say_hello(struct fixture *fx, const char *identity)
{
	Relive__HelloRequest hello = RELIVE__HELLO_REQUEST__INIT;
	Relive__HelloReply *reply;
	struct channel_frame frame;
	int ret;

	must(auth_nonce(fx->nonces.dialler));
	hello.format_major = REGION_FORMAT_MAJOR;
	hello.software = (char *)"test";
	hello.role = (char *)"client";
	hello.nonce = (ProtobufCBinaryData){ AUTH_NONCE_BYTES, fx->nonces.dialler };
	hello.identity = (char *)identity;
	ret = channel_call(&fx->ch, RELIVE__TYPE__TYPE_HELLO, &hello.base, soon(), &frame);
	if (ret)
		return ret;
	reply = (Relive__HelloReply *)channel_unpack(&relive__hello_reply__descriptor, &frame);
	assert_non_null(reply);
	ret = dial_status(reply->status);
	if (ret == 0)
		memcpy(fx->nonces.listener, reply->nonce.data, AUTH_NONCE_BYTES);
	else
		assert_int_equal(reply->proof.len, 0);
	relive__hello_reply__free_unpacked(reply, NULL);
	return ret;
}

static int send_proof(struct fixture *fx, uint8_t proof[AUTH_PROOF_BYTES])
{
	Relive__AuthRequest auth = RELIVE__AUTH_REQUEST__INIT;
	struct channel_frame frame;

	auth.proof = (ProtobufCBinaryData){ AUTH_PROOF_BYTES, proof };
	return status_of(
		&frame, channel_call(&fx->ch, RELIVE__TYPE__TYPE_AUTH, &auth.base, soon(), &frame));
}

static int prove(struct fixture *fx, const char *token)
{
	uint8_t proof[AUTH_PROOF_BYTES];

	must(auth_prove(AUTH_DIALLER, token, &fx->nonces, proof));
	return send_proof(fx, proof);
}

static int ask(struct fixture *fx, uint32_t type)
{
	Relive__Empty request = RELIVE__EMPTY__INIT;
	struct channel_frame frame;

	return status_of(&frame,
			 channel_call(&fx->ch, (uint16_t)type, &request.base, soon(), &frame));
}

/* -------- cases -------- */

#define CASE(f) TEST_WITH(f, setup, teardown)

/* The peer gets the reason, and nothing else. */
CASE(stranger__is_refused)
{
	struct fixture *fx = *state;

	for (uint32_t type = 0; type <= LAST_TYPE; type++) {
		if (type == RELIVE__TYPE__TYPE_HELLO)
			continue;
		connect_socket(fx);
		assert_int_equal(ask(fx, type), -EPROTO);
		assert_true(ask(fx, RELIVE__TYPE__TYPE_STORE_INFO) < 0);
		hang_up(fx);
	}
}

/* The peer sends HELLO, and continues without a proof. */
CASE(stranger__is_refused_behind_its_hello)
{
	struct fixture *fx = *state;

	for (uint32_t type = 0; type <= LAST_TYPE; type++) {
		connect_socket(fx);
		assert_int_equal(say_hello(fx, "relive:1:read:1"), 0);
		assert_true(ask(fx, type) < 0);
		assert_true(ask(fx, RELIVE__TYPE__TYPE_STORE_INFO) < 0);
		hang_up(fx);
	}
}

CASE(hello__identities_that_are_none_are_refused)
{
	static char thousand[1001] = "relive:1:read:";
	static const char *const identities[] = { "x",
						  "relive:1:read",
						  "relive:1:god:1",
						  "relive:1:read:0",
						  "relive:1:read:x",
						  "%s%n\x01\xff",
						  thousand };
	struct fixture *fx = *state;

	memset(thousand + 14, '7', sizeof(thousand) - 15);
	for (size_t i = 0; i < ARRAY_LEN(identities); i++) {
		connect_socket(fx);
		assert_int_equal(say_hello(fx, identities[i]), -EACCES);
		assert_non_null(strstr(error_last(), "identity"));
		hang_up(fx);
	}
}

CASE(hello__of_another_epoch_is_refused)
{
	static const char *const identities[] = { "relive:1:admin:2", "relive:1:read:4294967295" };
	struct fixture *fx = *state;

	for (size_t i = 0; i < ARRAY_LEN(identities); i++) {
		connect_socket(fx);
		assert_int_equal(say_hello(fx, identities[i]), -EACCES);
		assert_non_null(strstr(error_last(), "the store is at 1"));
		hang_up(fx);
	}
}

/* By TLS it is a reader: no word of its own makes more of it. */
CASE(hello__of_another_token_than_that_of_tls_is_refused)
{
	static const char *const identities[] = { "", "relive:1:admin:0", "relive:1:admin:1",
						  "relive:1:learn:1" };
	struct fixture *fx = *state;

	for (size_t i = 0; i < ARRAY_LEN(identities); i++) {
		connect_tls(fx, fx->read);
		assert_int_equal(say_hello(fx, identities[i]), -EACCES);
		assert_non_null(strstr(error_last(), "TLS"));
		hang_up(fx);
	}
	connect_tls(fx, fx->read);
	assert_int_equal(say_hello(fx, "relive:1:read:1"), 0);
	assert_int_equal(prove(fx, fx->read), 0);
	hang_up(fx);
}

CASE(auth__proof_of_another_token_is_refused)
{
	static const char *const identities[] = { "", "relive:1:admin:0", "relive:1:admin:1",
						  "relive:1:write:1", "relive:1:node:1" };
	struct fixture *fx = *state;

	for (size_t i = 0; i < ARRAY_LEN(identities); i++) {
		connect_socket(fx);
		assert_int_equal(say_hello(fx, identities[i]), 0);
		assert_int_equal(prove(fx, fx->read), -EACCES);
		hang_up(fx);
	}
	connect_socket(fx);
	assert_int_equal(say_hello(fx, "relive:1:read:1"), 0);
	assert_int_equal(prove(fx, fx->own), -EACCES); /* of more, but not of what was said */
	hang_up(fx);
}

CASE(auth__proof_played_again_is_refused)
{
	struct fixture *fx = *state;
	uint8_t proof[AUTH_PROOF_BYTES];

	connect_socket(fx);
	assert_int_equal(say_hello(fx, "relive:1:read:1"), 0);
	must(auth_prove(AUTH_DIALLER, fx->read, &fx->nonces, proof));
	assert_int_equal(send_proof(fx, proof), 0);
	hang_up(fx);
	connect_socket(fx);
	assert_int_equal(say_hello(fx, "relive:1:read:1"), 0);
	assert_int_equal(send_proof(fx, proof), -EACCES);
	hang_up(fx);
}

int main(void)
{
	return test_run(NULL, NULL);
}
