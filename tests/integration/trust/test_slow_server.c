/*
 * A metadata server that knows the token and then answers a byte at a time, with headers that look
 * right, over a unix socket and through TLS: calls end at their deadline.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "relive/relive.h"

#include "tests/support/fixture/cli_fixture.h"
#include "tests/support/sockets.h"
#include "tests/support/test.h"
#include "wire/control/auth.h"
#include "wire/control.pb-c.h"
#include "wire/region.h"
#include "wire/control/tls.h"

#include "base/os/clock.h"

#define TOKEN "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define STORE "slow"
#define BYTE_NS (100 * CLOCK_NS_PER_MS)
#define TABLES 40
#define CALL_NS (500 * CLOCK_NS_PER_MS)
#define MUCH_LATER_NS \
	(10 * CLOCK_NS_PER_S) /* what asks in turn, or waits to the end, takes longer */
#define THREADS 30

struct fixture {
	struct cli_fixture *cli;
	int listener;
	bool tcp;
	char uri[64];
};

/* -------- the server, a process for each connection -------- */

static uint64_t no_hurry(void)
{
	return deadline_after(clock_monotonic(), 60 * CLOCK_NS_PER_S);
}

static void answer(struct channel *ch, const struct channel_frame *to,
		   const ProtobufCMessage *reply)
{
	if (channel_send(ch, to->head.type | FRAME_ANSWER, to->head.request_id, reply, no_hurry()))
		_exit(1);
}

static void greet(struct channel *ch, const struct channel_frame *frame)
{
	Relive__HelloReply reply = RELIVE__HELLO_REPLY__INIT;
	Relive__Status fine = RELIVE__STATUS__INIT;
	uint8_t proof[AUTH_PROOF_BYTES], uuid[16] = { 1 };
	struct auth_nonces nonces = { .listener = { 7 } };
	Relive__HelloRequest *hello =
		(Relive__HelloRequest *)channel_unpack(&relive__hello_request__descriptor, frame);

	if (!hello || hello->nonce.len != AUTH_NONCE_BYTES)
		_exit(1);
	memcpy(nonces.dialler, hello->nonce.data, AUTH_NONCE_BYTES);
	if (auth_prove(AUTH_LISTENER, TOKEN, &nonces, proof))
		_exit(1);
	reply.status = &fine;
	reply.format_major = REGION_FORMAT_MAJOR;
	reply.nonce = (ProtobufCBinaryData){ AUTH_NONCE_BYTES, nonces.listener };
	reply.proof = (ProtobufCBinaryData){ sizeof(proof), proof };
	reply.store_uuid = (ProtobufCBinaryData){ sizeof(uuid), uuid };
	reply.store_name = (char *)STORE;
	reply.software = (char *)"slow";
	answer(ch, frame, &reply.base);
}

static void let_in(struct channel *ch, const struct channel_frame *frame)
{
	Relive__AuthReply reply = RELIVE__AUTH_REPLY__INIT;
	Relive__Status fine = RELIVE__STATUS__INIT;

	reply.status = &fine;
	reply.client_id = 1;
	reply.lease_ns = 60 * CLOCK_NS_PER_S;
	ch->term = 1;
	answer(ch, frame, &reply.base);
}

static void list(struct channel *ch, const struct channel_frame *frame)
{
	Relive__TableListReply reply = RELIVE__TABLE_LIST_REPLY__INIT;
	Relive__Status fine = RELIVE__STATUS__INIT;
	char names[TABLES][16], *at[TABLES];

	for (int i = 0; i < TABLES; i++) {
		snprintf(names[i], sizeof(names[i]), "t%d", i);
		at[i] = names[i];
	}
	reply.status = &fine;
	reply.n_names = TABLES;
	reply.names = at;
	answer(ch, frame, &reply.base);
}

/* A header of the answer that is awaited, and then a body of 1 MiB that takes a day. */
static void dribble(struct channel *ch, const struct channel_frame *frame)
{
	const struct frame_header head = {
		.length = FRAME_BODY_MAX,
		.type = frame->head.type | FRAME_ANSWER,
		.request_id = frame->head.request_id,
		.term = 1,
	};
	uint8_t bytes[FRAME_HEADER_BYTES + 256] = { 0 };
	const struct timespec pause = { .tv_nsec = BYTE_NS };
	short events;
	size_t n;

	if (frame_encode(&head, bytes))
		_exit(1);
	for (size_t i = 0;; i = i + 1 < sizeof(bytes) ? i + 1 : FRAME_HEADER_BYTES) {
		if (stream_write(&ch->stream, bytes + i, 1, &n, &events))
			_exit(0);
		nanosleep(&pause, NULL);
	}
}

static void serve(int fd, const struct tls *tls)
{
	struct channel_frame frame;
	struct stream stream;
	struct channel ch;

	if (!tls)
		stream = stream_socket(fd);
	else if (stream_init_tls(&stream, fd, tls))
		_exit(1);
	channel_init(&ch, stream);
	while (channel_receive(&ch, no_hurry(), &frame) == 0) {
		if (frame.head.type == RELIVE__TYPE__TYPE_HELLO)
			greet(&ch, &frame);
		else if (frame.head.type == RELIVE__TYPE__TYPE_AUTH)
			let_in(&ch, &frame);
		else if (frame.head.type == RELIVE__TYPE__TYPE_TABLE_LIST)
			list(&ch, &frame);
		else
			dribble(&ch, &frame);
	}
	_exit(0);
}

static int serve_all(void *ctx)
{
	const struct tls_opts opts = { .server = true, .token = TOKEN };
	const struct fixture *fx = ctx;
	struct tls *tls = NULL;

	signal(SIGCHLD, SIG_IGN);
	signal(SIGPIPE, SIG_IGN);
	if (fx->tcp && tls_open(&opts, &tls))
		return 1;
	for (;;) {
		int fd = accept4(fx->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd < 0)
			return 1;
		if (fork() == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			serve(fd, tls);
		}
		close(fd);
	}
}

/* -------- fixture -------- */

static void listen_here(struct fixture *fx)
{
	char path[PROCESSES_PATH + 64];
	uint16_t port = 0;

	if (fx->tcp) {
		fx->listener = sockets_listen_tcp(&port);
		snprintf(fx->uri, sizeof(fx->uri), "relive://127.0.0.1:%u", port);
	} else {
		processes_path(&fx->cli->ps, STORE "/metad.sock", path);
		fx->listener = sockets_listen_unix(path, SOCK_STREAM);
		snprintf(fx->uri, sizeof(fx->uri), "shm:" STORE);
	}
}

/* Files as a store of this host leaves them. */
static void make_store(const struct fixture *fx)
{
	char path[PROCESSES_PATH + 64];
	int fd;

	processes_path(&fx->cli->ps, STORE, path);
	assert_int_equal(mkdir(path, 0700), 0);
	processes_path(&fx->cli->ps, STORE "/token", path);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, TOKEN "\n", 65), 65);
	close(fd);
}

static int open_fixture(void **state, bool tcp)
{
	static struct fixture fx;
	void *cli = NULL;

	fx = (struct fixture){ .tcp = tcp };
	assert_int_equal(cli_fixture_open(&cli), 0);
	fx.cli = cli;
	make_store(&fx);
	listen_here(&fx);
	(void)processes_fork(&fx.cli->ps, serve_all, &fx);
	if (tcp)
		setenv("RELIVE_TOKEN", TOKEN, 1);
	*state = &fx;
	return 0;
}

static int open_unix(void **state)
{
	return open_fixture(state, false);
}

static int open_tls(void **state)
{
	return open_fixture(state, true);
}

static int close_fixture(void **state)
{
	struct fixture *fx = *state;
	void *cli = fx->cli;

	close(fx->listener);
	unsetenv("RELIVE_TOKEN");
	return cli_fixture_close(&cli);
}

/* -------- tests -------- */

static uint64_t now_ns(void)
{
	return clock_now_ns(clock_monotonic());
}

struct opening {
	const struct fixture *fx;
	struct rlv_store *store;
};

static bool opens_store(void *ctx)
{
	struct rlv_store_opts opts = RLV_STORE_OPTS_INIT;
	struct opening *opening = ctx;

	opts.timeout_ns = CALL_NS;
	return rlv_store_open(opening->fx->uri, &opts, &opening->store) == 0;
}

/* On a busy host the time of its calls may be too short. */
static struct rlv_store *open_store(const struct fixture *fx)
{
	struct opening opening = { fx, NULL };

	assert_true(processes_until(opens_store, &opening));
	return opening.store;
}

/* A call whose turn comes late, or whose time is over early, has none left to connect. */
static bool is_over(int ret)
{
	return ret == -ETIMEDOUT || ret == -ECONNREFUSED;
}

static void store_info__ends_at_its_deadline(void **state)
{
	struct rlv_store_info info = { .size = sizeof(info) };
	struct rlv_store *store = open_store(*state);
	uint64_t begin = now_ns();

	assert_true(is_over(rlv_store_info(store, &info)));
	assert_true(is_over(rlv_store_info(store, &info))); /* on a connection of its own */
	assert_int_equal(rlv_store_close(&store), 0);
	assert_true(now_ns() - begin < MUCH_LATER_NS);
}

static void *ask(void *ctx)
{
	struct rlv_store_info info = { .size = sizeof(info) };
	uint64_t begin = now_ns();
	int ret = rlv_store_info(ctx, &info);

	return is_over(ret) && now_ns() - begin < MUCH_LATER_NS ? NULL : ctx;
}

/* The threads share a connection, so each but the first waits for those before it. */
static void store_info__of_many_threads_ends_at_its_deadline(void **state)
{
	struct rlv_store *store = open_store(*state);
	pthread_t threads[THREADS];
	void *late, *any = NULL;

	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, ask, store), 0);
	for (int i = 0; i < THREADS; i++) {
		assert_int_equal(pthread_join(threads[i], &late), 0);
		any = late ? late : any;
	}
	assert_int_equal(rlv_store_close(&store), 0);
	assert_null(any);
}

static void commands__do_not_ask_again_for_each_table(void **state)
{
	static const char *const words[] = { "table list", "inspect", "table list --json" };
	struct fixture *fx = *state;
	char line[128];

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		uint64_t begin = now_ns();

		snprintf(line, sizeof(line), "%s %s --timeout 500ms", words[i], fx->uri);
		cli_expect(fx->cli, line, 1);
		if (!strstr(fx->cli->err, "ECONNREFUSED")) /* its time was over early */
			cli_expect_words(fx->cli->err, "ETIMEDOUT");
		if (now_ns() - begin > MUCH_LATER_NS)
			fail_msg("%s took %.1f s", line, (double)(now_ns() - begin) / 1e9);
	}
}

#define CASE(test, open) cmocka_unit_test_setup_teardown(test, open, close_fixture)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(store_info__ends_at_its_deadline, open_unix),
		CASE(store_info__ends_at_its_deadline, open_tls),
		CASE(store_info__of_many_threads_ends_at_its_deadline, open_unix),
		CASE(commands__do_not_ask_again_for_each_table, open_unix),
		CASE(commands__do_not_ask_again_for_each_table, open_tls),
	};

	return TEST_RUN(tests, NULL, NULL);
}
