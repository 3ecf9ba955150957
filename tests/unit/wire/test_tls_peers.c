/*
 * TLS streams against peers that are not ours: OpenSSL as anybody may use it, with certificates or PSKs of
 * its own.
 */
#include "tests/support/certificates.h"
#include "tests/support/temp_dir.h"
#include "tests/support/must_internal.h"

#include "wire/control/tls.h"

#include "base/bits.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <openssl/err.h>
#include <openssl/ssl.h>

#define TOKEN "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define OTHER_TOKEN "1123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define ROUNDS 100

struct fixture {
	char dir[TEMP_DIR_BYTES];
	struct tls *tls;
	struct stream ours;
	int ret; /* of our last step */
	char words[256];
	SSL_CTX *ctx;
	SSL *theirs;
	bool done; /* their handshake is over, and well */
	int fd;
	const char *identity; /* of their PSK */
	uint8_t key[TLS_KEY_BYTES];
};

static int setup(void **state)
{
	static struct fixture fx;

	memset(&fx, 0, sizeof(fx));
	temp_dir_make(fx.dir);
	*state = &fx;
	return 0;
}

static void hang_up(struct fixture *fx)
{
	if (!fx->tls)
		return;
	stream_close(&fx->ours);
	tls_close(&fx->tls);
	SSL_free(fx->theirs);
	SSL_CTX_free(fx->ctx);
	close(fx->fd);
	ERR_clear_error();
}

static int teardown(void **state)
{
	struct fixture *fx = *state;

	hang_up(fx);
	unsetenv("SSL_CERT_FILE");
	temp_dir_remove(fx->dir);
	return 0;
}

static void connect_both(struct fixture *fx, const struct tls_opts *opts)
{
	int fds[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds),
			 0);
	must(tls_open(opts, &fx->tls));
	must(stream_init_tls(&fx->ours, fds[0], fx->tls));
	fx->fd = fds[1];
	fx->ctx = SSL_CTX_new(TLS_method());
	assert_non_null(fx->ctx);
	assert_int_equal(SSL_CTX_set_min_proto_version(fx->ctx, TLS1_3_VERSION), 1);
	SSL_CTX_set_app_data(fx->ctx, fx);
	fx->ret = -EAGAIN;
	fx->done = false;
}

static void attach(struct fixture *fx, bool server)
{
	fx->theirs = SSL_new(fx->ctx);
	assert_non_null(fx->theirs);
	assert_int_equal(SSL_set_fd(fx->theirs, fx->fd), 1);
	if (server)
		SSL_set_accept_state(fx->theirs);
	else
		SSL_set_connect_state(fx->theirs);
}

/* A client of ours writes, a server reads: both begin with the handshake. */
static void step(struct fixture *fx, bool client)
{
	char byte = 'x';
	short events;
	size_t n;

	if (fx->ret != -EAGAIN)
		return;
	fx->ret = client ? stream_write(&fx->ours, &byte, 1, &n, &events)
			 : stream_read(&fx->ours, &byte, 1, &n, &events);
	if (fx->ret && fx->ret != -EAGAIN)
		snprintf(fx->words, sizeof(fx->words), "%s", error_last());
}

static void drive(struct fixture *fx, bool client)
{
	for (int i = 0; i < ROUNDS; i++) {
		step(fx, client);
		ERR_clear_error();
		if (!fx->done)
			fx->done = SSL_do_handshake(fx->theirs) == 1;
		if (fx->done && !client && i < ROUNDS / 2)
			(void)SSL_write(fx->theirs, "y", 1);
	}
}

static void expect_refused(const struct fixture *fx, const char *words)
{
	if (fx->ret != -EACCES || !strstr(fx->words, words))
		fail_msg("%s (%s), want EACCES (%s)", error_name(fx->ret), fx->words, words);
}

/* -------- servers -------- */

static void offer_certificate(struct fixture *fx, const struct certificates *certs)
{
	const struct tls_opts opts = { .token = TOKEN };

	connect_both(fx, &opts);
	assert_int_equal(SSL_CTX_use_certificate_chain_file(fx->ctx, certs->cert), 1);
	assert_int_equal(SSL_CTX_use_PrivateKey_file(fx->ctx, certs->key, SSL_FILETYPE_PEM), 1);
	attach(fx, true);
	drive(fx, true);
}

#define CASE(f) TEST_WITH(f, setup, teardown)

/*
 * That the PSK was not used a client sees at the end of the handshake only: it has verified the certificate
 * before, and says nothing more.
 */
CASE(client__ends_the_handshake_at_a_certificate)
{
	struct fixture *fx = *state;
	struct certificates certs;

	certificates_make(&certs, fx->dir, "anybody");
	offer_certificate(fx, &certs);
	expect_refused(fx, "token");
	assert_false(fx->done);
}

/* A certificate of a CA that this host trusts. */
CASE(client__refuses_certificates_that_the_host_trusts)
{
	struct fixture *fx = *state;
	struct certificates certs;

	certificates_make(&certs, fx->dir, "localhost");
	setenv("SSL_CERT_FILE", certs.ca, 1);
	offer_certificate(fx, &certs);
	expect_refused(fx, "token");
}

/* -------- clients -------- */

static SSL_SESSION *their_session(SSL *ssl)
{
	static const unsigned char suite[] = { 0x13, 0x01 };
	const struct fixture *fx = SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));
	SSL_SESSION *session = SSL_SESSION_new();

	assert_non_null(session);
	assert_int_equal(SSL_SESSION_set1_master_key(session, fx->key, sizeof(fx->key)), 1);
	assert_int_equal(SSL_SESSION_set_cipher(session, SSL_CIPHER_find(ssl, suite)), 1);
	assert_int_equal(SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION), 1);
	return session;
}

static int use_identity(SSL *ssl, const EVP_MD *md, const unsigned char **id, size_t *len,
			SSL_SESSION **session)
{
	const struct fixture *fx = SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));

	(void)md;
	*id = (const unsigned char *)fx->identity;
	*len = strlen(fx->identity);
	*session = their_session(ssl);
	return 1;
}

/* Names the identity, and has the key of another. token: the store's, of which that one is made. */
static void offer_identity(struct fixture *fx, const char *identity, const char *token,
			   const char *of)
{
	const struct tls_opts opts = { .server = true, .token = TOKEN };
	char derived[TOKEN_TEXT_BYTES];
	struct token_id id;

	assert_true(token_identity_parse(of, strlen(of), &id));
	must(token_derive(token, &id, derived));
	must(tls_derive(derived, "relive tls 1", of, fx->key));
	fx->identity = identity;
	connect_both(fx, &opts);
	SSL_CTX_set_psk_use_session_callback(fx->ctx, use_identity);
	attach(fx, false);
	drive(fx, false);
}

CASE(server__knows_the_role_by_the_identity)
{
	static const char *const identities[] = { "relive:1:admin:0", "relive:1:read:1",
						  "relive:1:node:77", "relive:1:admin:4294967295" };
	struct fixture *fx = *state;
	char back[TOKEN_IDENTITY_BYTES];
	struct token_id id;

	for (size_t i = 0; i < ARRAY_LEN(identities); i++) {
		offer_identity(fx, identities[i], TOKEN, identities[i]);
		if (fx->ret)
			fail_msg("%s: %s", identities[i], fx->words);
		assert_true(stream_token(&fx->ours, &id));
		token_identity(&id, back);
		assert_string_equal(back, identities[i]);
		hang_up(fx);
	}
}

/* Attempts by holders of tokens with fewer rights, or of earlier epochs. */
CASE(server__refuses_identities_of_other_keys)
{
	static const struct {
		const char *identity, *of;
	} tries[] = {
		{ "relive:1:admin:0", "relive:1:read:1" },
		{ "relive:1:admin:1", "relive:1:read:1" },
		{ "relive:1:write:1", "relive:1:read:1" },
		{ "relive:1:node:1", "relive:1:read:1" },
		{ "relive:1:read:2", "relive:1:read:1" },
		{ "relive:1:read:1", "relive:1:read:2" },
		{ "relive:1:read:1", "relive:1:admin:0" },
	};
	struct fixture *fx = *state;

	for (size_t i = 0; i < ARRAY_LEN(tries); i++) {
		offer_identity(fx, tries[i].identity, TOKEN, tries[i].of);
		expect_refused(fx, "token");
		assert_false(fx->done);
		hang_up(fx);
		offer_identity(fx, tries[i].identity, OTHER_TOKEN, tries[i].identity);
		expect_refused(fx, "token");
		hang_up(fx);
	}
}

CASE(server__refuses_identities_that_are_none)
{
	static char longest[257] = "relive:1:read:";
	static const char *const identities[] = {
		"x",
		"relive:1:god:1",
		"relive:1:read:0",
		"relive:1:read:01",
		"relive:1:",
		"relive:1:read:1 x",
		"relive:2:read:1",
		"\xff\xfe\x01%s%n",
		"relive:1:read:4294967297",
		longest,
	};
	struct fixture *fx = *state;

	memset(longest + 14, '1', sizeof(longest) - 15);
	for (size_t i = 0; i < ARRAY_LEN(identities); i++) {
		offer_identity(fx, identities[i], TOKEN, "relive:1:read:1");
		expect_refused(fx, "token");
		assert_false(fx->done);
		hang_up(fx);
	}
}

int main(void)
{
	if (test_skips_msan("OpenSSL"))
		return TEST_EXIT_SKIP;
	return test_run(NULL, NULL);
}
