/*
 * Dial: connects a client or memory node to a metadata server, over a unix socket or by TLS over
 * TCP, and proves the token to it (wire/control/auth.h).
 */
#ifndef RLV_WIRE_DIAL_H
#define RLV_WIRE_DIAL_H

#include "wire/control/auth.h"
#include "wire/control/channel.h"
#include "wire/control.pb-c.h"
#include "wire/control/tls.h"

#define DIAL_TEXT_BYTES 64

struct dial_opts {
	const char *socket; /* path of a unix socket; NULL = host and port */
	const char *host;   /* @FILE: as that file announces (wire/control/announce.h) */
	uint16_t port;
	const char *token;     /* the store's own, or one of a role; "" = that of @FILE */
	struct tls_files tls;  /* for TCP; without files the token is the PSK */
	const char *role;      /* "client" or "memnode" */
	const char *software;  /* our version, as text for messages */
	uint64_t client_id;    /* lease of an earlier connection to resume, 0 = new */
	const uint8_t *secret; /* of that lease, AUTH_SECRET_BYTES; unused for a new one */
	uint64_t deadline_ns;  /* on clock_monotonic(); a name server's own time comes on top */
};

struct dial_peer {
	uint64_t client_id; /* lease; a new one if the requested one was fenced */
	uint64_t lease_ns;
	uint8_t secret[AUTH_SECRET_BYTES]; /* of the lease; zero for memory nodes */
	uint64_t term;
	uint8_t store_uuid[16];
	char store[DIAL_TEXT_BYTES];
	char software[DIAL_TEXT_BYTES];
};

/*
 * Connects to a metadata server and proves the token to it; the caller owns *ch_out. A name is
 * looked up, and @FILE read, in each call. Until the deadline it waits for @FILE to appear and to
 * name a server that listens; no other server is waited for. Errors:
 * -ECONNREFUSED, -ENOENT (no such socket), -EHOSTUNREACH (host unknown or not reachable), -EACCES
 * (the tokens of client and server differ), -ETIMEDOUT, -EPROTO, those of tls_open and of the
 * server. Thread: any.
 */
RLV_MUST_CHECK int dial_open(const struct dial_opts *opts, struct channel *ch_out,
			     struct dial_peer *peer_out);

/*
 * Converts the Status of an answer to 0 or an error code, and records its message. -EPROTO: no
 * Status, or its code is no errno.
 */
RLV_MUST_CHECK int dial_status(const Relive__Status *status);

#endif
