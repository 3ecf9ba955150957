/*
 * The control plane over TCP with real daemons: attackers on the path, with another token or
 * without a certificate.
 */
#include "tests/support/certificates.h"
#include "tests/support/processes.h"
#include "tests/support/attack/relay.h"
#include "tests/support/sockets.h"
#include "tests/support/fixture/store_fixture.h"
#include "tests/support/temp_dir.h"
#include "tests/support/must.h"

#include "relive/relive.h"

#include "wire/control.pb-c.h"
#include "wire/control/frame.h"
#include "wire/region.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define STORE "a-store-of-that-name"
#define TABLE "a-table-of-that-name"
#define OTHER_TOKEN "0000000000000000000000000000000000000000000000000000000000000000"

struct fixture {
	struct processes ps;
	char dir[TEMP_DIR_BYTES];
	char uri[64];
	char token[PROCESSES_TOKEN_BYTES];
	uint16_t port;
	pid_t metad;
	struct rlv_store *store;
	struct relay relay;
};

static int setup(void **state)
{
	static struct fixture fx;

	memset(&fx, 0, sizeof(fx));
	processes_init(&fx.ps);
	temp_dir_make(fx.dir);
	fx.port = processes_free_port();
	snprintf(fx.uri, sizeof(fx.uri), "relive://127.0.0.1:%u", fx.port);
	*state = &fx;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *fx = *state;

	expect(rlv_store_close(&fx->store), 0);
	unsetenv("RELIVE_TOKEN");
	unsetenv("RELIVE_TLS_CERT");
	unsetenv("RELIVE_TLS_KEY");
	unsetenv("RELIVE_TLS_CA");
	unsetenv("OPENSSL_CONF");
	temp_dir_remove(fx->dir);
	processes_fini(&fx->ps);
	return 0;
}

/* A server, and a memory node that dials it over TCP. certs: NULL = by token. */
static void start(struct fixture *fx, const struct certificates *certs)
{
	const char *metad[] = { "--listen",
				fx->uri + strlen("relive://"),
				certs ? "--tls-cert" : NULL,
				certs ? certs->cert : NULL,
				"--tls-key",
				certs ? certs->key : NULL,
				"--tls-ca",
				certs ? certs->ca : NULL,
				NULL };
	const char *const node[] = {
		"--size", "32M", "--metad", fx->uri, "--transport", "shm", NULL
	};

	fx->metad = processes_metad(&fx->ps, STORE, metad);
	processes_token(&fx->ps, STORE, fx->token);
	setenv("RELIVE_TOKEN", fx->token, 1);
	if (certs) {
		setenv("RELIVE_TLS_CERT", certs->cert, 1);
		setenv("RELIVE_TLS_KEY", certs->key, 1);
		setenv("RELIVE_TLS_CA", certs->ca, 1);
	}
	(void)processes_memnode(&fx->ps, STORE, "a", node);
}

static int try_open(const char *uri, const char *token, struct rlv_store **store)
{
	struct rlv_store_opts opts = RLV_STORE_OPTS_INIT;

	opts.token = token;
	opts.timeout_ns = (int64_t)PROCESSES_WAIT_MS * 1000000;
	return rlv_store_open(uri, &opts, store);
}

static int make_table(struct rlv_store *store)
{
	static const struct rlv_column columns[] = {
		{ .name = "obs", .dtype = RLV_F32, .role = RLV_OBS, .ndim = 1, .shape = { 4 } },
		{ .name = "reward", .dtype = RLV_F32, .role = RLV_REWARD },
	};
	struct rlv_table_opts opts = RLV_TABLE_OPTS_INIT;
	struct rlv_table *table = NULL;
	int ret;

	opts.columns = columns;
	opts.n_columns = 2;
	opts.capacity = 1024;
	ret = rlv_table_create(store, TABLE, &opts, &table);
	return ret ? ret : rlv_table_close(&table);
}

/* All works: the server goes on, and the node that registered over TCP makes memory. */
static void expect_works(struct fixture *fx)
{
	assert_true(processes_runs(&fx->ps, fx->metad));
	expect(try_open(fx->uri, NULL, &fx->store), 0);
	store_fixture_await_node(fx->store);
	expect(make_table(fx->store), 0);
}

static void expect_hangup(int fd)
{
	struct pollfd ready = { .fd = fd, .events = POLLIN };
	char bytes[256];
	ssize_t n = 1;

	while (n > 0) {
		assert_int_equal(poll(&ready, 1, PROCESSES_WAIT_MS), 1);
		n = read(fd, bytes, sizeof(bytes));
		for (ssize_t i = 0; i + 5 < n; i++)
			assert_memory_not_equal(bytes + i, STORE, 6);
	}
	close(fd);
}

/* -------- a man in the middle -------- */

/* Opens, makes a table and closes; the first error. */
static int visit(const char *uri)
{
	struct rlv_store *store = NULL;
	int ret = try_open(uri, NULL, &store);

	if (ret)
		return ret;
	ret = make_table(store);
	expect(rlv_store_close(&store), 0);
	return ret;
}

static int visit_through_relay(struct fixture *fx, size_t change)
{
	char uri[64];
	int ret;

	relay_open(&fx->relay, fx->port, change);
	snprintf(uri, sizeof(uri), "relive://127.0.0.1:%u", fx->relay.port);
	ret = visit(uri);
	relay_close(&fx->relay);
	return ret;
}

#define CASE(f) TEST_WITH(f, setup, teardown)

CASE(tcp__carries_nothing_in_clear)
{
	struct fixture *fx = *state;

	start(fx, NULL);
	expect(visit_through_relay(fx, SIZE_MAX), 0);
	assert_true(fx->relay.client.n > 500 && fx->relay.server.n > 500);
	assert_false(relay_side_has(&fx->relay.client, "client", 6));
	assert_false(relay_side_has(&fx->relay.client, TABLE, strlen(TABLE)));
	assert_false(relay_side_has(&fx->relay.server, STORE, strlen(STORE)));
	assert_false(relay_side_has(&fx->relay.server, "memnode", 7));
}

CASE(tcp__a_recording_played_again_gets_nothing)
{
	struct fixture *fx = *state;
	int fd;

	start(fx, NULL);
	expect(visit_through_relay(fx, SIZE_MAX), 0);
	fd = sockets_connect_tcp(fx->port);
	assert_true(fd >= 0);
	assert_true(send(fd, fx->relay.client.bytes, fx->relay.client.n, MSG_NOSIGNAL) > 0);
	expect_hangup(fd);
	expect_works(fx);
}

/* In the hello, in its end, in the proof within, and in what is asked then. */
CASE(tcp__a_changed_byte_ends_the_connection)
{
	struct fixture *fx = *state;
	size_t all;

	start(fx, NULL);
	expect(visit_through_relay(fx, SIZE_MAX), 0);
	all = fx->relay.client.n;
	for (size_t at = 16; at < 700 && at < all; at += 97) {
		int ret = visit_through_relay(fx, at);

		assert_true(ret == -EPROTO || ret == -EACCES || ret == -ECONNRESET ||
			    ret == -ETIMEDOUT);
	}
	expect_works(fx);
}

/* A hello that would be answered. */
static size_t make_hello(uint8_t *frame)
{
	Relive__HelloRequest request = RELIVE__HELLO_REQUEST__INIT;
	struct frame_header head = { .type = RELIVE__TYPE__TYPE_HELLO, .request_id = 1 };
	uint8_t nonce[32] = { 0 };

	request.format_major = REGION_FORMAT_MAJOR;
	request.software = (char *)"test";
	request.role = (char *)"client";
	request.nonce = (ProtobufCBinaryData){ sizeof(nonce), nonce };
	head.length = (uint32_t)relive__hello_request__pack(&request, frame + FRAME_HEADER_BYTES);
	expect(frame_encode(&head, frame), 0);
	return FRAME_HEADER_BYTES + head.length;
}

CASE(tcp__a_plain_client_is_hung_up_on)
{
	uint8_t frame[256], answer[FRAME_HEADER_BYTES];
	struct pollfd ready = { .events = POLLIN };
	struct fixture *fx = *state;
	size_t len = make_hello(frame);

	start(fx, NULL);
	ready.fd = sockets_connect_tcp(fx->port);
	assert_true(ready.fd >= 0);
	assert_int_equal(send(ready.fd, frame, len, MSG_NOSIGNAL), len);
	assert_int_equal(poll(&ready, 1, PROCESSES_WAIT_MS), 1);
	/* no frame: nothing, or an alert */
	assert_true(recv(ready.fd, answer, sizeof(answer), 0) < (ssize_t)sizeof(answer));
	close(ready.fd);
	expect_works(fx);
}

/* -------- tokens -------- */

CASE(tcp__another_token_gives_eacces)
{
	struct fixture *fx = *state;
	struct rlv_store *store = NULL;

	start(fx, NULL);
	expect(try_open(fx->uri, OTHER_TOKEN, &store), -EACCES);
	assert_non_null(strstr(rlv_last_error(), "token"));
	expect_works(fx);
}

CASE(store_open__token_under_128_bits_gives_einval)
{
	struct fixture *fx = *state;
	struct rlv_store *store = NULL;

	start(fx, NULL);
	expect(try_open(fx->uri, "0123456789abcdef0123456789abcde", &store), -EINVAL);
	assert_non_null(strstr(rlv_last_error(), "opts.token"));
	expect(try_open(fx->uri, "a base64 of 126 bits.", &store), -EINVAL);
	setenv("RELIVE_TOKEN", "secret", 1);
	expect(try_open(fx->uri, NULL, &store), -EINVAL);
	assert_non_null(strstr(rlv_last_error(), "RELIVE_TOKEN"));
}

CASE(memnode__token_under_128_bits_is_refused)
{
	struct fixture *fx = *state;
	const char *const args[] = { "--store", STORE,     "--name", "b", "--size",
				     "4M",      "--metad", fx->uri,  NULL };
	pid_t node;

	start(fx, NULL);
	setenv("RELIVE_TOKEN", "secret", 1);
	node = processes_start(&fx->ps, "relive-memnode", args);
	assert_int_equal(processes_wait(&fx->ps, node, PROCESSES_WAIT_MS), 2);
}

/* -------- certificates -------- */

CASE(certificates__let_in_who_has_one_and_the_token)
{
	struct fixture *fx = *state;
	struct certificates certs;
	struct rlv_store *store = NULL;

	certificates_make(&certs, fx->dir, "us");
	start(fx, &certs);
	expect_works(fx);
	expect(try_open(fx->uri, OTHER_TOKEN, &store), -EACCES);
	assert_non_null(strstr(rlv_last_error(), "token"));
}

CASE(certificates__keep_out_who_has_none)
{
	struct fixture *fx = *state;
	struct certificates certs, others;
	struct rlv_store *store = NULL;

	certificates_make(&certs, fx->dir, "us");
	certificates_make(&others, fx->dir, "others");
	start(fx, &certs);
	setenv("RELIVE_TLS_CERT", others.cert, 1);
	setenv("RELIVE_TLS_KEY", others.key, 1);
	expect(try_open(fx->uri, NULL, &store), -EACCES);
	unsetenv("RELIVE_TLS_CA");
	expect(try_open(fx->uri, NULL, &store), -EINVAL);
	unsetenv("RELIVE_TLS_CERT");
	unsetenv("RELIVE_TLS_KEY");
	expect(try_open(fx->uri, NULL, &store), -EACCES);
	assert_non_null(strstr(rlv_last_error(), "RELIVE_TLS_CERT"));
}

/* -------- settings of the host -------- */

/* Daemons and the command have an OpenSSL of their own, which reads no settings of the host. */
CASE(openssl_conf__is_not_read)
{
	static const char text[] = "openssl_conf = all\nconfig_diagnostics = 1\n"
				   "[all]\nssl_conf = ssl\nproviders = none\n"
				   "[ssl]\nsystem_default = worse\n"
				   "[worse]\nMaxProtocol = TLSv1.2\nNoSuchCommand = 1\n"
				   "[none]\nnowhere = nowhere\n[nowhere]\nactivate = 1\n";
	struct fixture *fx = *state;
	const char *const args[] = { "status", fx->uri, NULL };
	char path[TEMP_DIR_BYTES + 16];
	FILE *file;

	snprintf(path, sizeof(path), "%s/openssl.cnf", fx->dir);
	file = fopen(path, "we");
	assert_non_null(file);
	assert_true(fputs(text, file) >= 0);
	assert_int_equal(fclose(file), 0);
	setenv("OPENSSL_CONF", path, 1);
	start(fx, NULL);
	assert_int_equal(processes_wait(&fx->ps, processes_start(&fx->ps, "relive", args),
					PROCESSES_WAIT_MS),
			 0);
}

int main(void)
{
	return test_run(NULL, NULL);
}
