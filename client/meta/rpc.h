/*
 * Rpc: requests to the metadata server, over one connection that is made again when it broke.
 *
 * A reconnect names the client id and shows its secret, so that a restarted server finds the lease again and nothing is
 * lost. It happens in the next call, within that call's deadline; in between the data path goes on.
 */
#ifndef RLV_CLIENT_META_RPC_H
#define RLV_CLIENT_META_RPC_H

#include "client/store/uri.h"

#include "wire/control/dial.h"

#include "relive/admin.h"

#include "base/error.h"

struct rpc;

/* A request and the type of its reply. */
struct rpc_call {
	uint16_t type;
	bool once;    /* do not resend after the connection broke: -ECONNRESET */
	bool no_wait; /* -EAGAIN while another call is in progress */
	const ProtobufCMessage *request;
	const ProtobufCMessageDescriptor *reply; /* its field 1 is a Status; NULL = only that */
	int64_t timeout_ns;                      /* 0 = that of the connection */
};

/*
 * Connects once, by shm: or relive://. Of the options it uses the token, the TLS files and
 * timeout_ns (negative = for ever). Default files: RELIVE_TLS_CERT, RELIVE_TLS_KEY, RELIVE_TLS_CA.
 * Default token: shm: the store's token file, unless RELIVE_TOKEN is a role's; relive://:
 * RELIVE_TOKEN, else that of @FILE, or the token file of store `default` here. The message of a failure says what to
 * do. -ENOENT (no such store here), -ECONNREFUSED (the server does not answer), -EACCES (token),
 * -EPROTO. Thread: any, for all.
 */
RLV_MUST_CHECK int rpc_open(const struct uri *uri, const struct rlv_store_opts *opts,
			    struct rpc **rpc_out);

/*
 * Sends a request and waits for its reply. reply_out: a pointer to a pointer to the reply's struct,
 * which protobuf_c_message_free_unpacked frees; its status was 0. Unused where call->reply is NULL.
 * Errors: the status of the reply; -ECONNREFUSED: the server does not answer, and was not asked;
 * -ETIMEDOUT, -ECONNRESET: it was asked, and done or not is not known; -EAGAIN: call->no_wait;
 * -ECHILD: we are a forked child. -EOWNERDEAD: the server had fenced this client; the next call
 * dials in as a new one.
 */
RLV_MUST_CHECK int rpc_ask(struct rpc *rpc, const struct rpc_call *call, void *reply_out);

/* The lease as of the last connection. */
struct rpc_lease {
	uint64_t client_id;
	uint64_t lease_ns;
	uint64_t term;
	enum token_role role; /* of the token: sets which calls are allowed */
};

struct rpc_lease rpc_lease(struct rpc *rpc);

/* True if it was opened before a fork, by the parent. */
bool rpc_is_forked(const struct rpc *rpc);

void rpc_close(struct rpc **rpc);

#endif
