/*
 * TLS streams over socket pairs. What one end writes lies in the middle, and the test moves it on: at
 * once, byte by byte, changed, or not at all.
 */
#include "tests/support/certificates.h"
#include "tests/support/temp_dir.h"
#include "tests/support/must_internal.h"

#include "wire/control.pb-c.h"
#include "wire/control/tls.h"

#include "base/os/clock.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define TOKEN "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define OTHER_TOKEN "1123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define ROUNDS 20000 /* more steps than any handshake has, byte by byte */

enum { CLIENT, SERVER };

/* One end: its stream, and the bytes that it sends and receives. */
struct end {
	struct tls *tls;
	struct stream stream;
	int wire; /* -1 = hung up */
	int ret;  /* of its last step */
	char words[256];
};

struct fixture {
	struct end ends[2];
	char dir[TEMP_DIR_BYTES];
};

static void open_end(struct end *end, const struct tls_opts *opts)
{
	int fds[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds),
			 0);
	must(tls_open(opts, &end->tls));
	must(stream_init_tls(&end->stream, fds[0], end->tls));
	end->wire = fds[1];
	end->ret = -EAGAIN;
	end->words[0] = '\0';
}

static void open_both(struct fixture *fx, const char *client_token, const char *server_token)
{
	const struct tls_opts client = { .token = client_token };
	const struct tls_opts server = { .token = server_token, .server = true };

	open_end(&fx->ends[CLIENT], &client);
	open_end(&fx->ends[SERVER], &server);
}

static void hang_up(struct end *end)
{
	if (end->wire >= 0)
		close(end->wire);
	end->wire = -1;
}

static int setup(void **state)
{
	static struct fixture fx;

	memset(&fx, 0, sizeof(fx));
	temp_dir_make(fx.dir);
	*state = &fx;
	return 0;
}

static void close_ends(struct fixture *fx)
{
	for (int i = 0; i < 2; i++) {
		struct end *end = &fx->ends[i];

		if (!end->tls)
			continue;
		stream_close(&end->stream);
		tls_close(&end->tls);
		hang_up(end);
	}
}

static int teardown(void **state)
{
	struct fixture *fx = *state;

	close_ends(fx);
	temp_dir_remove(fx->dir);
	return 0;
}

/* -------- moving on -------- */

/* Up to len bytes from one end to the other; how many. */
static size_t carry(struct fixture *fx, int from, size_t len)
{
	uint8_t bytes[4096];
	ssize_t n;

	if (len > sizeof(bytes))
		len = sizeof(bytes);
	if (fx->ends[from].wire < 0 || fx->ends[!from].wire < 0)
		return 0;
	n = read(fx->ends[from].wire, bytes, len);
	if (n <= 0)
		return 0;
	assert_int_equal(send(fx->ends[!from].wire, bytes, (size_t)n, MSG_NOSIGNAL), n);
	return (size_t)n;
}

/* The client writes one byte and the server reads it; both begin with the handshake. */
static void step(struct fixture *fx, int who)
{
	struct end *end = &fx->ends[who];
	char byte = 'x';
	short events;
	size_t n = 0;

	if (end->ret != -EAGAIN)
		return;
	if (who == CLIENT)
		end->ret = stream_write(&end->stream, &byte, 1, &n, &events);
	else
		end->ret = stream_read(&end->stream, &byte, 1, &n, &events);
	if (end->ret == 0)
		assert_true(n == 1 && byte == 'x');
	else if (end->ret != -EAGAIN)
		snprintf(end->words, sizeof(end->words), "%s", error_last());
}

/* Until nobody has anything more to say, by so many bytes at a time. Bytes that the client sent. */
static size_t drive(struct fixture *fx, size_t at_once)
{
	size_t moved = 1, sent = 0;

	for (int i = 0; moved && i < ROUNDS; i++) {
		size_t there, back;

		step(fx, CLIENT);
		there = carry(fx, CLIENT, at_once);
		step(fx, SERVER);
		back = carry(fx, SERVER, at_once);
		moved = there + back;
		sent += there;
	}
	step(fx, CLIENT);
	step(fx, SERVER);
	return sent;
}

static bool mentions(const char *words)
{
	return strstr(error_last(), words) != NULL;
}

static void expect_end(const struct fixture *fx, int who, int ret, const char *words)
{
	const struct end *end = &fx->ends[who];

	if (end->ret != ret || !strstr(end->words, words))
		fail_msg("%s: %s (%s), want %s (%s)", who == CLIENT ? "client" : "server",
			 error_name(end->ret), end->words, error_name(ret), words);
}

#define CASE(f) TEST_WITH(f, setup, teardown)

/* -------- the token -------- */

CASE(handshake__with_the_token_carries_bytes)
{
	struct fixture *fx = *state;

	open_both(fx, TOKEN, TOKEN);
	(void)drive(fx, SIZE_MAX);
	expect_end(fx, CLIENT, 0, "");
	expect_end(fx, SERVER, 0, "");
}

CASE(handshake__byte_by_byte)
{
	struct fixture *fx = *state;

	open_both(fx, TOKEN, TOKEN);
	(void)drive(fx, 1);
	expect_end(fx, CLIENT, 0, "");
	expect_end(fx, SERVER, 0, "");
}

CASE(handshake__another_token_gives_eacces)
{
	struct fixture *fx = *state;

	open_both(fx, OTHER_TOKEN, TOKEN);
	(void)drive(fx, SIZE_MAX);
	expect_end(fx, SERVER, -EACCES, "token");
	expect_end(fx, CLIENT, -EACCES, "token");
}

/* A man in the middle: a server with a certificate that does not know the token. */
CASE(client__refuses_a_server_with_only_a_certificate)
{
	struct fixture *fx = *state;
	struct certificates certs;
	struct tls_opts server = { .server = true };
	const struct tls_opts client = { .token = TOKEN };

	certificates_make(&certs, fx->dir, "anybody");
	server.files = (struct tls_files){ certs.cert, certs.key, certs.ca };
	open_end(&fx->ends[CLIENT], &client);
	open_end(&fx->ends[SERVER], &server);
	(void)drive(fx, SIZE_MAX);
	expect_end(fx, CLIENT, -EACCES, "token");
	assert_int_not_equal(fx->ends[SERVER].ret, 0);
}

CASE(server__refuses_a_client_with_only_a_certificate)
{
	const struct tls_opts server = { .server = true, .token = TOKEN };
	struct tls_opts client = { .host = "127.0.0.1" };
	struct fixture *fx = *state;
	struct certificates certs;

	certificates_make(&certs, fx->dir, "anybody");
	client.files = (struct tls_files){ certs.cert, certs.key, certs.ca };
	open_end(&fx->ends[CLIENT], &client);
	open_end(&fx->ends[SERVER], &server);
	(void)drive(fx, SIZE_MAX);
	expect_end(fx, SERVER, -EACCES, "");
	expect_end(fx, CLIENT, -EACCES, "");
}

/* -------- certificates -------- */

struct identities {
	struct certificates server, client;
	const char *client_ca; /* which the client trusts */
	const char *server_ca;
	const char *host;
};

static void drive_certified(struct fixture *fx, const struct identities *ids)
{
	const struct tls_opts server = {
		.server = true,
		.files = { ids->server.cert, ids->server.key, ids->server_ca },
	};
	const struct tls_opts client = {
		.host = ids->host,
		.files = { ids->client.cert, ids->client.key, ids->client_ca },
	};

	open_end(&fx->ends[CLIENT], &client);
	open_end(&fx->ends[SERVER], &server);
	(void)drive(fx, SIZE_MAX);
}

static void make_identities(struct fixture *fx, struct identities *ids)
{
	certificates_make(&ids->server, fx->dir, "server");
	certificates_make(&ids->client, fx->dir, "client");
	ids->client_ca = ids->server.ca;
	ids->server_ca = ids->client.ca;
	ids->host = "127.0.0.1";
}

CASE(certificates__of_the_right_cas_carry_bytes)
{
	struct identities ids;

	make_identities(*state, &ids);
	drive_certified(*state, &ids);
	for (int i = 0; i < 2; i++)
		assert_int_equal(((struct fixture *)*state)->ends[i].ret, 0);
}

CASE(certificates__server_of_another_ca_gives_eacces)
{
	struct fixture *fx = *state;
	struct identities ids;

	make_identities(fx, &ids);
	ids.client_ca = ids.client.ca;
	drive_certified(fx, &ids);
	expect_end(fx, CLIENT, -EACCES, "");
	expect_end(fx, SERVER, -EACCES, "");
}

CASE(certificates__server_of_another_name_gives_eacces)
{
	struct fixture *fx = *state;
	struct identities ids;

	make_identities(fx, &ids);
	ids.host = "10.0.0.1";
	drive_certified(fx, &ids);
	expect_end(fx, CLIENT, -EACCES, "");
	close_ends(fx);
	ids.host = "elsewhere.example";
	drive_certified(fx, &ids);
	expect_end(fx, CLIENT, -EACCES, "");
	close_ends(fx);
	ids.host = "localhost";
	drive_certified(fx, &ids);
	expect_end(fx, CLIENT, 0, "");
}

/* The client thinks that all is well before the server has looked: it hears of it when it reads. */
CASE(certificates__client_of_another_ca_gives_eacces)
{
	struct fixture *fx = *state;
	struct identities ids;
	struct stream *stream = &fx->ends[CLIENT].stream;
	short events;
	size_t n;
	char byte;

	make_identities(fx, &ids);
	ids.server_ca = ids.server.ca;
	drive_certified(fx, &ids);
	expect_end(fx, SERVER, -EACCES, "");
	assert_int_equal(stream_read(stream, &byte, 1, &n, &events), -EACCES);
	assert_true(mentions("certificates"));
}

/* The server has hung up: its alert is reported, not the failed write. */
CASE(certificates__refusal_is_heard_by_who_writes)
{
	struct fixture *fx = *state;
	struct identities ids;
	struct stream *stream = &fx->ends[CLIENT].stream;
	short events;
	size_t n;

	make_identities(fx, &ids);
	ids.server_ca = ids.server.ca;
	drive_certified(fx, &ids);
	hang_up(&fx->ends[CLIENT]);
	assert_int_equal(stream_write(stream, "y", 1, &n, &events), -EACCES);
	assert_true(mentions("certificates"));
}

CASE(tls_open__files_that_cannot_be_used_give_einval)
{
	struct fixture *fx = *state;
	struct certificates certs, other;
	struct tls_opts opts = { .server = true };
	struct tls *tls = NULL;

	certificates_make(&certs, fx->dir, "a");
	certificates_make(&other, fx->dir, "b");
	opts.files = (struct tls_files){ certs.cert, certs.key, NULL };
	assert_int_equal(tls_open(&opts, &tls), -EINVAL);
	opts.files = (struct tls_files){ certs.cert, other.key, certs.ca };
	assert_int_equal(tls_open(&opts, &tls), -EINVAL);
	assert_true(mentions(other.key));
	opts.files = (struct tls_files){ certs.cert, certs.key, "/nowhere/ca.pem" };
	assert_int_equal(tls_open(&opts, &tls), -EINVAL);
	assert_true(mentions("/nowhere/ca.pem"));
	opts.files = (struct tls_files){ certs.key, certs.key, certs.ca };
	assert_int_equal(tls_open(&opts, &tls), -EINVAL);
	assert_null(tls);
}

/* -------- bad peers -------- */

/* A peer that is gone within a handshake, after each number of bytes. */
CASE(handshake__cut_at_every_byte)
{
	struct fixture *fx = *state;
	size_t all;

	open_both(fx, TOKEN, TOKEN);
	all = drive(fx, SIZE_MAX);
	close_ends(fx);
	for (size_t cut = 0; cut < all; cut++) {
		open_both(fx, TOKEN, TOKEN);
		step(fx, CLIENT);
		for (size_t left = cut; left;) {
			size_t n = carry(fx, CLIENT, left);

			step(fx, SERVER);
			(void)carry(fx, SERVER, SIZE_MAX);
			step(fx, CLIENT);
			left -= n;
			if (n == 0)
				break;
		}
		hang_up(&fx->ends[CLIENT]);
		hang_up(&fx->ends[SERVER]);
		step(fx, SERVER);
		assert_int_equal(fx->ends[SERVER].ret, -ECONNRESET);
		close_ends(fx);
	}
}

/* Each byte of the client's hello changed, behind the version in front, which nobody reads. */
CASE(handshake__changed_at_every_byte)
{
	struct fixture *fx = *state;
	uint8_t hello[1024];
	ssize_t len;

	open_both(fx, TOKEN, TOKEN);
	step(fx, CLIENT);
	len = read(fx->ends[CLIENT].wire, hello, sizeof(hello));
	assert_true(len > 100 && len < (ssize_t)sizeof(hello));
	close_ends(fx);
	for (ssize_t at = 3; at < len; at++) {
		open_both(fx, TOKEN, TOKEN);
		step(fx, CLIENT);
		assert_int_equal(read(fx->ends[CLIENT].wire, hello, sizeof(hello)), len);
		hello[at] ^= 0x41;
		assert_int_equal(write(fx->ends[SERVER].wire, hello, (size_t)len), len);
		(void)drive(fx, SIZE_MAX);
		hang_up(&fx->ends[SERVER]);
		step(fx, SERVER);
		assert_true(fx->ends[SERVER].ret == -EACCES || fx->ends[SERVER].ret == -EPROTO ||
			    fx->ends[SERVER].ret == -ECONNRESET);
		close_ends(fx);
	}
}

static void expect_garbage_refused(struct fixture *fx, int who, const void *bytes, size_t len)
{
	struct end *end = &fx->ends[who];

	open_both(fx, TOKEN, TOKEN);
	assert_int_equal(write(end->wire, bytes, len), len);
	step(fx, who);
	assert_int_equal(end->ret, -EPROTO);
	assert_true(mentions("TLS"));
	close_ends(fx);
}

CASE(handshake__plain_peers_give_eproto)
{
	static const char http[] = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
	const struct frame_header head = { .length = 0, .type = 1, .version = 1 };
	uint8_t frame[FRAME_HEADER_BYTES];

	must(frame_encode(&head, frame));
	expect_garbage_refused(*state, SERVER, http, sizeof(http));
	expect_garbage_refused(*state, SERVER, frame, sizeof(frame));
	expect_garbage_refused(*state, CLIENT, http, sizeof(http));
	expect_garbage_refused(*state, CLIENT, frame, sizeof(frame));
}

/* SIGPIPE is not blocked here: a signal would end the test. */
CASE(write__to_a_closed_peer_gives_econnreset)
{
	struct fixture *fx = *state;
	struct stream *stream = &fx->ends[CLIENT].stream;
	short events;
	size_t n;
	int ret = 0;

	open_both(fx, TOKEN, TOKEN);
	(void)drive(fx, SIZE_MAX);
	hang_up(&fx->ends[CLIENT]);
	for (int i = 0; ret == 0 && i < 3; i++)
		ret = stream_write(stream, "y", 1, &n, &events);
	assert_int_equal(ret, -ECONNRESET);
}

CASE(channel_call__silent_peer_gives_etimedout)
{
	Relive__Empty request = RELIVE__EMPTY__INIT;
	struct fixture *fx = *state;
	struct channel_frame frame;
	struct channel ch;

	open_both(fx, TOKEN, TOKEN);
	channel_init(&ch, fx->ends[CLIENT].stream);
	assert_int_equal(channel_call(&ch, 40, &request.base,
				      deadline_after(clock_monotonic(), 20 * CLOCK_NS_PER_MS),
				      &frame),
			 -ETIMEDOUT);
}

/* -------- frames -------- */

/* Two in one record: poll does not see the second one. */
CASE(channel__finds_what_came_in_one_record)
{
	const uint64_t soon = deadline_after(clock_monotonic(), 5 * CLOCK_NS_PER_S);
	const struct frame_header head = { .length = 0, .type = 40, .version = 1 };
	struct fixture *fx = *state;
	struct stream *server = &fx->ends[SERVER].stream;
	uint8_t frames[2 * FRAME_HEADER_BYTES];
	struct channel_frame frame;
	struct channel ch;
	short events;
	size_t n = 0;

	open_both(fx, TOKEN, TOKEN);
	(void)drive(fx, SIZE_MAX);
	must(frame_encode(&head, frames));
	must(frame_encode(&head, frames + FRAME_HEADER_BYTES));
	must(stream_write(server, frames, sizeof(frames), &n, &events));
	assert_int_equal(n, sizeof(frames));
	assert_true(carry(fx, SERVER, SIZE_MAX) > sizeof(frames));
	channel_init(&ch, fx->ends[CLIENT].stream);
	for (int i = 0; i < 2; i++) {
		assert_true(channel_is_readable(&ch));
		must(channel_receive(&ch, soon, &frame));
	}
	assert_false(channel_is_readable(&ch));
}

int main(void)
{
	if (test_skips_msan("OpenSSL"))
		return TEST_EXIT_SKIP;
	return test_run(NULL, NULL);
}
