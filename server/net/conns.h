/*
 * Conns: incoming connections on one libevent loop: frames and authentication by token.
 *
 *   accept -> TLS (over TCP) -> HELLO -> AUTH -> ready: frames go to on_frame
 *
 * All input of a peer is untrusted. Before authentication a peer may send two small frames within
 * CONN_AUTH_SECONDS of its accept. Anything else, and later any invalid frame, is refused and
 * logged without effect on other peers. The refusal is an answer that the peer can read: the
 * connection ends when the peer closes it, or CONN_LAST_WORDS_SECONDS later.
 *
 * Unauthenticated connections have limits of their own, one for TCP and one for the unix socket. At
 * the limit the oldest is dropped, unanswered ones first. max_conns limits authenticated clients;
 * part of it is reserved for the unix socket. Memory nodes come on top. The kernel keeps
 * authenticated TCP connections alive.
 *
 * A peer that does not read its answers, or has too many pending, is not read from meanwhile; after
 * FLOW_WRITE_SECONDS it is cut.
 */
#ifndef RLV_SERVER_NET_CONNS_H
#define RLV_SERVER_NET_CONNS_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/control/auth.h"
#include "wire/control/channel.h"
#include "wire/control.pb-c.h"
#include "wire/control/tls.h"

#include "base/error.h"
#include "base/os/process.h"

#define CONN_AUTH_SECONDS 5
#define CONN_LAST_WORDS_SECONDS 1

struct conn;
struct conns;
struct evconnlistener;
struct event_base;

enum conn_role { CONN_CLIENT = 1, CONN_MEMNODE = 2 };

/* The authenticated peer. */
struct conn_peer {
	enum conn_role role;
	struct token_id token; /* token that it proved */
	bool local;            /* over the unix socket: the kernel gives the pid */
	bool has_process;      /* on this host: process is valid */
	struct process_id process;
	uint64_t wanted_id;                /* lease to resume; 0 = a new one */
	uint8_t secret[AUTH_SECRET_BYTES]; /* claimed secret of that lease */
};

struct conn_lease {
	uint64_t client_id; /* 0 = none */
	uint8_t secret[AUTH_SECRET_BYTES];
	uint64_t lease_ns;
};

struct conn_ops {
	/* The peer has proved its token: returns 0 and its lease (client_id 0 = none), or the error
	   of a refusal. */
	int (*on_ready)(void *ctx, struct conn *conn, struct conn_lease *lease_out);
	void (*on_frame)(void *ctx, struct conn *conn, const struct channel_frame *frame);
	/* conn closes or is refused after on_ready has returned 0: last callback about it. */
	void (*on_close)(void *ctx, struct conn *conn);
};

struct conns_opts {
	struct event_base *base;
	const struct conn_ops *ops;
	void *ctx;
	const char *token;      /* the store's token; borrowed */
	uint32_t epoch;         /* token epoch */
	struct tls_files tls;   /* for TCP; none: the token is the PSK */
	const char *store_name; /* borrowed */
	uint8_t store_uuid[16];
	uint64_t term;
	uint32_t max_conns;
};

RLV_MUST_CHECK int conns_open(const struct conns_opts *opts, struct conns **conns_out);
void conns_close(struct conns **conns);

/* Listens on a unix socket at path, mode 0600. Replaces a file there: the caller holds the lock of
   its name. -ENAMETOOLONG; errors of bind. */
RLV_MUST_CHECK int conns_listen_socket(struct conns *conns, const char *path);
/* Listens on TCP, with TLS. host NULL or "" = loopback, port 0 = any; *port_out: bound port.
   -EINVAL: host; -EADDRINUSE; errors of tls_open. */
RLV_MUST_CHECK int conns_listen_tcp(struct conns *conns, const char *host, uint16_t port,
				    uint16_t *port_out);

const struct conn_peer *conn_peer(const struct conn *conn);
/* Writes the peer's address to text: "unix", numeric HOST:PORT, or "tcp" if it cannot be found. */
void conn_address(const struct conn *conn, char *text, size_t bytes);
/* Sets the pointer that conn_user returns, which conns.c does not use; NULL at first. */
void conn_set_user(struct conn *conn, void *user);
void *conn_user(const struct conn *conn);

/* Queues message as the answer to the request with header head. Drops conn if memory is out or the
   peer does not read its answers. */
void conn_answer(struct conn *conn, const struct frame_header *head,
		 const ProtobufCMessage *message);
/* Answers the request with header head by a status: code, and error_last() if code is not 0. */
void conn_answer_status(struct conn *conn, const struct frame_header *head, int code);

/* Refuses role tokens of other epochs from now on. Connections that use one are cut as by
   conn_refuse: queued answers are still sent. */
void conns_set_epoch(struct conns *conns, uint32_t epoch);

/* Closes and frees conn: now, or in a callback of conn's own input when that returns. */
void conn_drop(struct conn *conn);
/* Logs error_last(), answers the request with header head by it and code, and closes conn when the
   peer does, or after CONN_LAST_WORDS_SECONDS. */
void conn_refuse(struct conn *conn, const struct frame_header *head, int code);

/* Moves the stream of conn to *ch_out, which the caller then owns; frees conn without on_close.
   -EPROTO: input is unread or output unsent; conn goes on. */
RLV_MUST_CHECK int conn_detach(struct conn *conn, struct channel *ch_out);

#endif
