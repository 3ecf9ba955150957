/*
 * Conns: connections of those who dial in, on one libevent loop: frames, and the proof of the
 * token.
 *
 *   accept -> TLS (over TCP) -> HELLO -> AUTH -> ready: frames go to on_frame
 *
 * Everything a peer sends is input. Before the proof it may send two small frames within
 * CONN_AUTH_SECONDS of its accept; anything else, and later any frame that is not one of ours, is
 * refused, logged, and harms nobody else. The refusal is an answer, which the peer can read: the
 * connection ends when the peer has ended it, or CONN_LAST_WORDS_SECONDS later.
 *
 * Connections without proof have room of their own, over TCP and at the unix socket each: when it is
 * full, the oldest is dropped, but none that was answered while there are others. max_conns are
 * clients that have proved the token; some of it is for those at the unix socket. Memory nodes come on
 * top. TCP connections are kept alive by the kernel from the proof on.
 *
 * A peer that does not take its answers, or waits for too many, is not read from until it has; after
 * FLOW_WRITE_SECONDS it is cut.
 */
#ifndef RLV_SERVER_NET_CONNS_H
#define RLV_SERVER_NET_CONNS_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/auth.h"
#include "wire/channel.h"
#include "wire/control.pb-c.h"
#include "wire/tls.h"

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
	struct token_id token; /* that it proved */
	bool local;            /* over the unix socket: the kernel vouches for the pid */
	bool has_process;      /* of this host: process names it */
	struct process_id process;
	uint64_t wanted_id;                /* the lease it wants to go on with; 0 = a new one */
	uint8_t secret[AUTH_SECRET_BYTES]; /* of that lease, as it says */
};

struct conn_lease {
	uint64_t client_id; /* 0 = none */
	uint8_t secret[AUTH_SECRET_BYTES];
	uint64_t lease_ns;
};

struct conn_ops {
	/* The peer proved the token: gives it a lease, or refuses. */
	int (*on_ready)(void *ctx, struct conn *conn, struct conn_lease *lease_out);
	void (*on_frame)(void *ctx, struct conn *conn, const struct channel_frame *frame);
	/* The last word about conn. */
	void (*on_close)(void *ctx, struct conn *conn);
};

struct conns_opts {
	struct event_base *base;
	const struct conn_ops *ops;
	void *ctx;
	const char *token;      /* the store's own; borrowed */
	uint32_t epoch;         /* of tokens of roles */
	struct tls_files tls;   /* of TCP; none: the token is the PSK */
	const char *store_name; /* borrowed */
	uint8_t store_uuid[16];
	uint64_t term;
	uint32_t max_conns;
};

RLV_MUST_CHECK int conns_open(const struct conns_opts *opts, struct conns **conns_out);
void conns_close(struct conns **conns);

/* A unix socket, mode 0600; a file of that name that nobody listens on is replaced. */
RLV_MUST_CHECK int conns_listen_socket(struct conns *conns, const char *path);
/* host NULL or "" = loopback. -EADDRINUSE; those of tls_open. *port_out: as bound, for port 0. */
RLV_MUST_CHECK int conns_listen_tcp(struct conns *conns, const char *host, uint16_t port,
				    uint16_t *port_out);

const struct conn_peer *conn_peer(const struct conn *conn);
/* Where it comes from: "unix", or HOST:PORT in numbers. */
void conn_address(const struct conn *conn, char *text, size_t bytes);
/* Whatever the owner of ops wants to keep with it. */
void conn_set_user(struct conn *conn, void *user);
void *conn_user(const struct conn *conn);

/* Answers the request that head came from. */
void conn_answer(struct conn *conn, const struct frame_header *head,
		 const ProtobufCMessage *message);
/* An answer of nothing but a status: code, and error_last() if it is not 0. */
void conn_answer_status(struct conn *conn, const struct frame_header *head, int code);

/* Tokens of roles of other epochs are refused from now on; who has proved one is sent what waits and cut. */
void conns_set_epoch(struct conns *conns, uint32_t epoch);

/* Closes when the current callback is over. */
void conn_drop(struct conn *conn);
/* The same with words: answers code and error_last(), which the peer can read first. */
void conn_refuse(struct conn *conn, const struct frame_header *head, int code);

/* Makes a channel of the connection, which is gone for us: no on_close. -EPROTO: more was sent. */
RLV_MUST_CHECK int conn_detach(struct conn *conn, struct channel *ch_out);

#endif
