#include "wire/control/tls.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/socket.h>
#include <unistd.h>

#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/kdf.h>
#include <openssl/ssl.h>

#include "base/mem/alloc.h"

#define SALT "relive tls 1"
#define FIRST_ALERT 1000 /* reasons of OpenSSL from here on are alerts of the peer */

struct tls {
	SSL_CTX *ctx;
	const char *host; /* borrowed; NULL = not checked */
	bool server;
	bool psk;
	char token[TOKEN_TEXT_BYTES];        /* server: the store's own */
	char identity[TOKEN_IDENTITY_BYTES]; /* client */
	uint8_t key[TLS_KEY_BYTES];          /* client */
};

struct tls_state {
	SSL *ssl;
	bool client_psk;
	bool server;
	bool files;
	bool open;            /* the handshake is over */
	struct token_id peer; /* server: of the PSK that is tried, or was proved */
};

/* -------- the library -------- */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static OSSL_LIB_CTX *library;
static BIO_METHOD *socket_method;

static bool program_is_ours;

void tls_take_program(void)
{
	program_is_ours = true;
}

/*
 * True if OpenSSL is linked into our own object, so that its settings are ours. True in
 * librelive.so; in a program that links librelive.a only after tls_take_program, else OpenSSL is
 * the program's.
 */
static bool openssl_is_own(void)
{
	Dl_info ours, theirs, program;
	int (*init)(uint64_t, const OPENSSL_INIT_SETTINGS *) = OPENSSL_init_crypto;
	const void *entry = (const void *)getauxval(AT_ENTRY); // NOLINT(performance-no-int-to-ptr)
	void *address;

	memcpy(&address, &init, sizeof(address));
	if (!dladdr(&once, &ours) || !dladdr(address, &theirs) ||
	    ours.dli_fbase != theirs.dli_fbase)
		return false;
	return program_is_ours || !dladdr(entry, &program) || program.dli_fbase != ours.dli_fbase;
}

static int bio_moved(BIO *bio, ssize_t n, bool writing)
{
	BIO_clear_retry_flags(bio);
	if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
		if (writing)
			BIO_set_retry_write(bio);
		else
			BIO_set_retry_read(bio);
	}
	return (int)n;
}

static int fd_of(BIO *bio)
{
	return (int)(intptr_t)BIO_get_data(bio);
}

static int bio_write(BIO *bio, const char *src, int len)
{
	return bio_moved(bio, send(fd_of(bio), src, (size_t)len, MSG_NOSIGNAL), true);
}

static int bio_read(BIO *bio, char *dst, int len)
{
	return bio_moved(bio, recv(fd_of(bio), dst, (size_t)len, 0), false);
}

static long bio_ctrl(BIO *bio, int command, long number, void *pointer)
{
	(void)bio;
	(void)number;
	(void)pointer;
	return command == BIO_CTRL_FLUSH;
}

static void load_library(void)
{
	if (openssl_is_own())
		OPENSSL_init_crypto(OPENSSL_INIT_NO_LOAD_CONFIG, NULL);
	library = OSSL_LIB_CTX_new();
	socket_method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "relive socket");
	if (!library || !socket_method)
		return;
	BIO_meth_set_write(socket_method, bio_write);
	BIO_meth_set_read(socket_method, bio_read);
	BIO_meth_set_ctrl(socket_method, bio_ctrl);
}

static int use_library(void)
{
	if (pthread_once(&once, load_library) || !library || !socket_method)
		return error_set(-EIO, "TLS: OpenSSL could not be initialised");
	return 0;
}

/* -------- errors -------- */

/*
 * Text of this thread's last OpenSSL error, or `otherwise` if there is none. Clears the error
 * queue.
 */
static const char *last_reason(const char *otherwise)
{
	unsigned long code = ERR_peek_last_error();
	const char *why = code ? ERR_reason_error_string(code) : NULL;

	ERR_clear_error();
	return why ? why : otherwise;
}

static int openssl_failed(const char *what)
{
	return error_set(-EIO, "TLS: %s: %s", what, last_reason("OpenSSL failed"));
}

static bool is_refusal(int reason)
{
	switch (reason) {
	case SSL_R_BINDER_DOES_NOT_VERIFY:
	case SSL_R_CERTIFICATE_VERIFY_FAILED:
	case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE:
	case SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM:
	case SSL_R_NO_SHARED_CIPHER:
	case FIRST_ALERT + SSL_AD_HANDSHAKE_FAILURE:
	case FIRST_ALERT + SSL_AD_BAD_CERTIFICATE:
	case FIRST_ALERT + SSL_AD_UNSUPPORTED_CERTIFICATE:
	case FIRST_ALERT + SSL_AD_CERTIFICATE_REVOKED:
	case FIRST_ALERT + SSL_AD_CERTIFICATE_EXPIRED:
	case FIRST_ALERT + SSL_AD_CERTIFICATE_UNKNOWN:
	case FIRST_ALERT + SSL_AD_ILLEGAL_PARAMETER:
	case FIRST_ALERT + SSL_AD_UNKNOWN_CA:
	case FIRST_ALERT + SSL_AD_ACCESS_DENIED:
	case FIRST_ALERT + SSL_AD_DECRYPT_ERROR:
	case FIRST_ALERT + SSL_AD_UNKNOWN_PSK_IDENTITY:
	case FIRST_ALERT + SSL_AD_CERTIFICATE_REQUIRED:
		return true;
	default:
		return false;
	}
}

static int tls_refused(const struct tls_state *state, const char *why)
{
	if (state->files)
		return error_set(-EACCES, "TLS: the certificates do not agree: %s", why);
	if (state->server)
		return error_set(-EACCES, "token: the peer's is another, or it uses certificates");
	return error_set(-EACCES, "token: the server's is another, or it wants certificates "
				  "(RELIVE_TLS_CERT, RELIVE_TLS_KEY, RELIVE_TLS_CA)");
}

static int tls_broken(const struct tls_state *state)
{
	unsigned long code = ERR_peek_error(), next;
	long verified = SSL_get_verify_result(state->ssl);
	bool is_refused = false;
	const char *why;

	while (!is_refused && (next = ERR_get_error())) {
		is_refused = ERR_GET_LIB(next) == ERR_LIB_SSL && is_refusal(ERR_GET_REASON(next));
		code = is_refused ? next : code;
	}
	ERR_clear_error();
	why = ERR_reason_error_string(code);
	if (ERR_GET_REASON(code) == SSL_R_CERTIFICATE_VERIFY_FAILED && verified != X509_V_OK)
		why = X509_verify_cert_error_string(verified);
	else if (!why)
		why = "unknown";
	if (is_refused)
		return tls_refused(state, why);
	return error_set(-EPROTO, "TLS: %s: %s",
			 state->open ? "connection" : "the peer speaks no TLS 1.3 of ours", why);
}

static int tls_failed(struct tls_state *state, int result, int code, short *events_out)
{
	switch (SSL_get_error(state->ssl, result)) {
	case SSL_ERROR_WANT_READ:
		*events_out = POLLIN;
		return -EAGAIN;
	case SSL_ERROR_WANT_WRITE:
		*events_out = POLLOUT;
		return -EAGAIN;
	case SSL_ERROR_ZERO_RETURN:
		return error_set(-ECONNRESET, "connection: closed by the peer");
	case SSL_ERROR_SYSCALL:
		ERR_clear_error();
		return error_set(-ECONNRESET, "connection: %s%s",
				 code ? strerror(code) : "closed by the peer",
				 state->open ? "" : " during the TLS handshake");
	default:
		return tls_broken(state);
	}
}

/* -------- a stream -------- */

/*
 * Completes the TLS handshake, unless that is done, and clears old errors, so that an SSL_* call
 * may follow. -EAGAIN: poll for *events_out first; else errors of the handshake.
 */
static int get_ready(struct tls_state *state, short *events_out)
{
	int result;

	ERR_clear_error();
	errno = 0;
	if (state->open)
		return 0;
	result = SSL_do_handshake(state->ssl);
	if (result != 1)
		return tls_failed(state, result, errno, events_out);
	/* A server with any certificate completes a handshake: only the PSK proves the token. */
	if (state->client_psk && !SSL_session_reused(state->ssl))
		return tls_refused(state, "the handshake used no token");
	state->open = true;
	ERR_clear_error();
	errno = 0;
	return 0;
}

int tls_read(struct tls_state *state, void *dst, size_t len, size_t *n_out, short *events_out)
{
	int ret = get_ready(state, events_out);

	if (ret)
		return ret;
	ret = SSL_read_ex(state->ssl, dst, len, n_out);
	return ret == 1 ? 0 : tls_failed(state, ret, errno, events_out);
}

int tls_write(struct tls_state *state, const void *src, size_t len, size_t *n_out,
	      short *events_out)
{
	int ret = get_ready(state, events_out);
	struct error_kept reset;
	short events;
	size_t n;
	char byte;

	if (ret)
		return ret;
	ret = SSL_write_ex(state->ssl, src, len, n_out);
	ret = ret == 1 ? 0 : tls_failed(state, ret, errno, events_out);
	if (ret != -ECONNRESET)
		return ret;
	/* A peer that refuses us may hang up before our handshake ends: reads its pending alert. */
	error_keep(&reset);
	ret = SSL_read_ex(state->ssl, &byte, 1, &n);
	if (ret != 1 && tls_failed(state, ret, errno, &events) == -EACCES)
		return -EACCES;
	error_restore(&reset);
	return -ECONNRESET;
}

bool tls_has_bytes(const struct tls_state *state)
{
	return state && SSL_pending(state->ssl) > 0;
}

void tls_end(struct tls_state *state)
{
	if (state)
		SSL_free(state->ssl);
	mem_free(state);
}

int stream_init_tls(struct stream *stream, int fd, const struct tls *tls)
{
	struct tls_state *state = mem_zalloc(sizeof(*state));
	BIO *bio = state ? BIO_new_ex(library, socket_method) : NULL;
	SSL *ssl = bio ? SSL_new(tls->ctx) : NULL;
	uint8_t address[sizeof(struct in6_addr)];
	bool named = ssl;

	*stream = stream_socket(fd);
	if (ssl) {
		BIO_set_data(bio, (void *)(intptr_t)fd); // NOLINT(performance-no-int-to-ptr)
		BIO_set_init(bio, 1);
		SSL_set_bio(ssl, bio, bio);
	} else {
		BIO_free(bio);
	}
	if (ssl && tls->host) {
		if (inet_pton(AF_INET, tls->host, address) == 1 ||
		    inet_pton(AF_INET6, tls->host, address) == 1)
			named = X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), tls->host);
		else
			named = SSL_set_tlsext_host_name(ssl, tls->host) &&
				SSL_set1_host(ssl, tls->host);
	}
	if (!named) {
		SSL_free(ssl);
		mem_free(state);
		stream_close(stream);
		ERR_clear_error();
		return error_set(-ENOMEM, "TLS: cannot allocate memory for a connection");
	}
	if (tls->server)
		SSL_set_accept_state(ssl);
	else
		SSL_set_connect_state(ssl);
	state->ssl = ssl;
	state->server = tls->server;
	state->files = !tls->psk;
	state->client_psk = tls->psk && !tls->server;
	SSL_set_app_data(ssl, state);
	stream->tls = state;
	return 0;
}

bool stream_tls_has_spoken(const struct stream *stream)
{
	const struct tls_state *state = stream->tls;

	return state && BIO_number_written(SSL_get_wbio(state->ssl)) > 0;
}

/* -------- the token -------- */

static OSSL_PARAM tls_octets(const char *name, const char *text)
{
	return OSSL_PARAM_construct_octet_string(name, (char *)text, strlen(text));
}

int tls_derive(const char *key, const char *salt, const char *info, uint8_t key_out[TLS_KEY_BYTES])
{
	const OSSL_PARAM params[] = {
		OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, (char *)"SHA256", 0),
		tls_octets(OSSL_KDF_PARAM_KEY, key),
		tls_octets(OSSL_KDF_PARAM_SALT, salt),
		tls_octets(OSSL_KDF_PARAM_INFO, info),
		OSSL_PARAM_construct_end(),
	};
	EVP_KDF_CTX *ctx;
	EVP_KDF *kdf;
	int done;

	if (use_library())
		return -EIO;
	kdf = EVP_KDF_fetch(library, "HKDF", NULL);
	ctx = kdf ? EVP_KDF_CTX_new(kdf) : NULL;
	done = ctx ? EVP_KDF_derive(ctx, key_out, TLS_KEY_BYTES, params) : 0;
	EVP_KDF_CTX_free(ctx);
	EVP_KDF_free(kdf);
	return done == 1 ? 0 : openssl_failed("HKDF");
}

/*
 * Makes the TLS session that carries the key as PSK; NULL: OpenSSL failed. Each handshake needs a
 * new one, since a session grows old.
 */
static SSL_SESSION *psk_session(SSL *ssl, const uint8_t key[TLS_KEY_BYTES])
{
	static const unsigned char suite[] = { 0x13, 0x01 }; /* TLS_AES_128_GCM_SHA256 */
	const SSL_CIPHER *cipher = SSL_CIPHER_find(ssl, suite);
	SSL_SESSION *session = SSL_SESSION_new();

	if (session && cipher && SSL_SESSION_set1_master_key(session, key, TLS_KEY_BYTES) &&
	    SSL_SESSION_set_cipher(session, cipher) &&
	    SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION))
		return session;
	SSL_SESSION_free(session);
	return NULL;
}

static int use_psk(SSL *ssl, const EVP_MD *md, const unsigned char **id_out, size_t *id_len_out,
		   SSL_SESSION **session_out)
{
	const struct tls *tls = SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));

	(void)md;
	*id_out = (const unsigned char *)tls->identity;
	*id_len_out = strlen(tls->identity);
	*session_out = psk_session(ssl, tls->key);
	return *session_out != NULL;
}

/*
 * OpenSSL's callback at a server: the session of the token that the identity names. An unknown
 * identity continues without PSK and fails, since there is no certificate. A token of another epoch
 * passes, so that HELLO can report it.
 */
static int find_psk(SSL *ssl, const unsigned char *id, size_t id_len, SSL_SESSION **session_out)
{
	const struct tls *tls = SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));
	struct tls_state *state = SSL_get_app_data(ssl);
	char token[TOKEN_TEXT_BYTES], identity[TOKEN_IDENTITY_BYTES];
	uint8_t key[TLS_KEY_BYTES];

	*session_out = NULL;
	if (!token_identity_parse(id, id_len, &state->peer))
		return 1;
	token_identity(&state->peer, identity);
	if (token_derive(tls->token, &state->peer, token) == 0 &&
	    tls_derive(token, SALT, identity, key) == 0)
		*session_out = psk_session(ssl, key);
	OPENSSL_cleanse(token, sizeof(token));
	OPENSSL_cleanse(key, sizeof(key));
	return *session_out != NULL;
}

bool stream_token(const struct stream *stream, struct token_id *id_out)
{
	const struct tls_state *state = stream->tls;

	if (!state || !state->server || state->files || !state->open)
		return false;
	*id_out = state->peer;
	return true;
}

static int use_token(struct tls *tls, const char *token)
{
	struct token_id id;
	int ret = 0;

	if (strlen(token) >= sizeof(tls->token))
		return error_set(-EINVAL, "token: %zu characters at most", sizeof(tls->token) - 1);
	SSL_CTX_set_app_data(tls->ctx, tls);
	if (tls->server) {
		memcpy(tls->token, token, strlen(token) + 1);
		SSL_CTX_set_psk_find_session_callback(tls->ctx, find_psk);
	} else {
		ret = token_parse("token", token, &id);
		if (ret == 0) {
			token_identity(&id, tls->identity);
			ret = tls_derive(token, SALT, tls->identity, tls->key);
		}
		SSL_CTX_set_psk_use_session_callback(tls->ctx, use_psk);
	}
	SSL_CTX_set_verify(tls->ctx, tls->server ? SSL_VERIFY_NONE : SSL_VERIFY_PEER, NULL);
	return ret;
}

/* -------- certificates -------- */

static int bad_file(const char *kind, const char *path)
{
	return error_set(-EINVAL, "TLS %s %s: %s", kind, path, last_reason("cannot be read"));
}

static int use_files(struct tls *tls, const struct tls_files *files)
{
	int mode = SSL_VERIFY_PEER | (tls->server ? SSL_VERIFY_FAIL_IF_NO_PEER_CERT : 0);

	if (!files->cert || !files->key || !files->ca)
		return error_set(-EINVAL, "TLS: certificate, key and CA: give all three or none");
	ERR_clear_error();
	if (SSL_CTX_use_certificate_chain_file(tls->ctx, files->cert) != 1)
		return bad_file("certificate", files->cert);
	if (SSL_CTX_use_PrivateKey_file(tls->ctx, files->key, SSL_FILETYPE_PEM) != 1 ||
	    SSL_CTX_check_private_key(tls->ctx) != 1)
		return bad_file("key", files->key);
	if (SSL_CTX_load_verify_file(tls->ctx, files->ca) != 1)
		return bad_file("CA", files->ca);
	SSL_CTX_set_verify(tls->ctx, mode, NULL);
	return 0;
}

/* -------- open, close -------- */

/* Sets all that an openssl.cnf could have set: TLS 1.3 only, suites, groups, no tickets. -EIO. */
static int set_protocol(SSL_CTX *ctx)
{
	static const char suites[] = "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256";

	SSL_CTX_clear_options(ctx, SSL_OP_ALLOW_NO_DHE_KEX);
	SSL_CTX_set_options(ctx, SSL_OP_NO_TICKET);
	SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
	SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
	SSL_CTX_set_security_level(ctx, 2);
	if (SSL_CTX_set_min_proto_version(ctx, TLS1_3_VERSION) == 1 &&
	    SSL_CTX_set_max_proto_version(ctx, TLS1_3_VERSION) == 1 &&
	    SSL_CTX_set_ciphersuites(ctx, suites) == 1 && SSL_CTX_set_num_tickets(ctx, 0) == 1 &&
	    SSL_CTX_set_max_early_data(ctx, 0) == 1 &&
	    SSL_CTX_set1_groups_list(ctx, "X25519:P-256") == 1)
		return 0;
	return openssl_failed("settings");
}

int tls_open(const struct tls_opts *opts, struct tls **tls_out)
{
	const struct tls_files *files = &opts->files;
	struct tls *tls;
	int ret;

	ret = use_library();
	if (ret)
		return ret;
	tls = mem_zalloc(sizeof(*tls));
	if (!tls)
		return error_set(-ENOMEM, "TLS: cannot allocate memory");
	tls->server = opts->server;
	tls->psk = !files->cert && !files->key && !files->ca;
	tls->host = tls->psk || tls->server ? NULL : opts->host;
	tls->ctx = SSL_CTX_new_ex(library, NULL, TLS_method());
	if (tls->ctx) /* records that are no data do not keep a read from its deadline */
		SSL_CTX_clear_mode(tls->ctx, SSL_MODE_AUTO_RETRY);
	ret = tls->ctx ? set_protocol(tls->ctx) : openssl_failed("context");
	if (ret == 0)
		ret = tls->psk ? use_token(tls, opts->token) : use_files(tls, files);
	if (ret)
		tls_close(&tls);
	else
		*tls_out = tls;
	return ret;
}

void tls_close(struct tls **tls_ptr)
{
	struct tls *tls = *tls_ptr;

	if (!tls)
		return;
	SSL_CTX_free(tls->ctx);
	OPENSSL_cleanse(tls->key, sizeof(tls->key));
	OPENSSL_cleanse(tls->token, sizeof(tls->token));
	mem_free(tls);
	*tls_ptr = NULL;
}
