/*
 * TLS: TLS 1.3 around a stream (wire/control/channel.h). All TCP connections of the control plane use it.
 *
 *   by default       external PSK with (EC)DHE: HKDF-SHA256 of a token (wire/control/token.h). The PSK's
 *                    identity names its role and epoch; nobody has a certificate.
 *   with tls_files   mutual certificates of one CA, no PSK; token proved inside (wire/control/auth.h)
 *
 * The suites are those with SHA-256, because a PSK is bound to one hash. There are no tickets, no
 * early data and no settings of the system's openssl.cnf. The end of a connection sends no
 * close_notify: a forked child would end its parent's connection with it, and frames carry their
 * length.
 */
#ifndef RLV_WIRE_TLS_H
#define RLV_WIRE_TLS_H

#include "wire/control/channel.h"
#include "wire/control/token.h"

#include "base/error.h"

#define TLS_KEY_BYTES 32

/* Paths of PEM files. All three or none. */
struct tls_files {
	const char *cert; /* chain of our own certificate */
	const char *key;
	const char *ca; /* that must have signed the peer's certificate */
};

struct tls_opts {
	bool server;
	const char *token; /* at a server: the store's own. Unused with files */
	const char *host;  /* client with files: name or address in the server's certificate */
	struct tls_files files;
};

struct tls;

/*
 * Makes the TLS settings of one side. -EINVAL: only some of the three files are given, one cannot
 * be used, or the token is malformed; -EIO: OpenSSL failed; -ENOMEM. Thread: any, for all tls_*.
 */
RLV_MUST_CHECK int tls_open(const struct tls_opts *opts, struct tls **tls_out);
/* Frees the settings and sets *tls to NULL. Streams whose handshake is complete stay usable. */
void tls_close(struct tls **tls);

/*
 * Called by Relive's own programs, before TLS is used: OpenSSL linked into the program then reads
 * no openssl.cnf. Thread: setup.
 */
void tls_take_program(void);

/*
 * Derives key_out from key, salt and info by HKDF-SHA256, independent of openssl.cnf. -EIO: OpenSSL
 * failed. Thread: any.
 */
RLV_MUST_CHECK int tls_derive(const char *key, const char *salt, const char *info,
			      uint8_t key_out[TLS_KEY_BYTES]);

/*
 * At a server, after the handshake: gives role and epoch of the token that the peer proved by TLS.
 * False: it proved none so, as with certificates or over a plain socket.
 */
bool stream_token(const struct stream *stream, struct token_id *id_out);

/*
 * Makes a TLS stream of a socket; owns fd, and closes it if this fails: -ENOMEM. The first read or
 * write begins the handshake, which can fail with -EACCES (the token, or a certificate), -EPROTO
 * (the peer speaks no TLS 1.3) or -ECONNRESET.
 */
RLV_MUST_CHECK int stream_init_tls(struct stream *stream, int fd, const struct tls *tls);

/*
 * tls_read, tls_write and tls_end do stream_read, stream_write and stream_close for TLS.
 * tls_end(NULL) is a no-op.
 */
RLV_MUST_CHECK int tls_read(struct tls_state *state, void *dst, size_t len, size_t *n_out,
			    short *events_out);
RLV_MUST_CHECK int tls_write(struct tls_state *state, const void *src, size_t len, size_t *n_out,
			     short *events_out);
void tls_end(struct tls_state *state);
/* True if OpenSSL has buffered bytes, which poll does not report; false for NULL. */
bool tls_has_bytes(const struct tls_state *state);

/*
 * True if our side of the handshake has sent bytes. A server with a token sends none before the
 * peer's first message has proved the token. False for streams without TLS.
 */
bool stream_tls_has_spoken(const struct stream *stream);

#endif
