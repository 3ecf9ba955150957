#include "client/meta/rpc.h"

#include "client/store/backoff.h"

#include "relive/relive.h"

#include "wire/control/announce.h"
#include "wire/control/token.h"

#include "base/mem/alloc.h"
#include "base/bits.h"
#include "base/os/lock.h"
#include "base/log.h"
#include "base/os/runtime_dir.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static LOCK_ROLE(rpc_role, "rpc", LOCK_RANK_CHANNEL);

struct rpc {
	struct lock lock;
	pid_t pid; /* that opened it */
	int64_t timeout_ns;
	struct uri uri;
	char token[TOKEN_TEXT_BYTES]; /* opts.token or RELIVE_TOKEN, "" = none */
	bool token_first;             /* it goes before the token file of this host */
	enum token_role role;
	char *tls[3]; /* paths of certificate, key and CA; NULL = none */
	bool is_open; /* it was connected once: such a store there is */
	bool connected LOCK_GUARDED_BY(rpc_role);
	struct channel channel LOCK_GUARDED_BY(rpc_role);
	struct dial_peer peer LOCK_GUARDED_BY(rpc_role);
};

bool rpc_is_forked(const struct rpc *rpc)
{
	return rpc->pid != getpid();
}

/* -------- codes -------- */

/*
 * True for codes of a server that does not answer. The code that a call then returns says what is
 * known of its request, whatever the phase of the server's restart (docs/failure-model.md has the
 * table for users):
 *
 *   not sent    no socket; nobody listens; no way to the host; the   -ECONNREFUSED  not_sent()
 *               handshake breaks off, or nothing is said; the
 *               server is full (-EUSERS, another one may leave);
 *               calls of other threads before it took all of its time
 *   sent        the connection ended; it may not be sent again       -ECONNRESET    not_answered()
 *               (rpc_call.once), or nobody is there by now
 *               no answer in time                                    -ETIMEDOUT     not_answered()
 *
 * -ENOENT of a connection means that this host has no store of that name, and only rpc_open says so.
 * Any other -ENOENT, and any -ESTALE and -EHOSTDOWN, is what the server answered.
 */
static bool is_away(int code)
{
	static const int codes[] = { ENOENT,       ECONNREFUSED, ECONNRESET, EPIPE,     ETIMEDOUT,
				     EHOSTUNREACH, ENETUNREACH,  ENETDOWN,   EHOSTDOWN, EUSERS };

	for (size_t i = 0; i < ARRAY_LEN(codes); i++)
		if (code == -codes[i])
			return true;
	return false;
}

static int not_sent(const struct rpc *rpc, int code)
{
	char remedy[URI_TEXT_BYTES + 32] = "start it on its host";

	if (!is_away(code) || (code == -ENOENT && !rpc->is_open))
		return code;
	if (code == -EUSERS) /* it says so itself */
		return error_set(-ECONNREFUSED, "%s: %s", rpc->uri.whole, error_last());
	if (rpc->uri.kind == URI_SHM)
		snprintf(remedy, sizeof(remedy), "`relive up --store %s` starts it", rpc->uri.text);
	return error_set(-ECONNREFUSED, "%s: the metadata server does not answer: %s (%s%s)",
			 rpc->uri.whole, error_last(),
			 rpc->is_open ? "it was not asked, calls on the data path go on; " : "",
			 remedy);
}

static int not_answered(const struct rpc *rpc, int code)
{
	if (!is_away(code))
		return code;
	return error_set(
		code == -ETIMEDOUT ? code : -ECONNRESET,
		"%s: the metadata server did not answer: %s (done or not is not known, calls "
		"on the data path go on)",
		rpc->uri.whole, error_last());
}

/* -------- connecting -------- */

/*
 * Finds the token, and the socket of a store on this host. RELIVE_TOKEN is for stores on other
 * hosts. On this host the right to read the store's token file is enough, and the variable may hold
 * another store's token.
 */
static int find_store(const struct rpc *rpc, char token_out[TOKEN_TEXT_BYTES],
		      char socket_out[RUNTIME_PATH_BYTES])
{
	bool local = rpc->uri.kind == URI_SHM, given = rpc->token[0] && rpc->token_first;
	bool announced = !local && announce_path(rpc->uri.text);
	struct runtime_dir dir;
	int ret = 0;

	memcpy(token_out, rpc->token, TOKEN_TEXT_BYTES);
	if ((given && !local) || announced)
		return 0;
	/* The store's directory exists as long as the store; without a server it has no socket. */
	ret = runtime_dir_visit(local ? rpc->uri.text : "default", &dir);
	if (ret == 0 && !given) {
		ret = runtime_dir_token(&dir, token_out);
		if (ret == -EACCES && rpc->token[0])
			ret = 0;
	}
	if (ret == 0 && local)
		return runtime_dir_file(&dir, "metad.sock", socket_out);
	if (ret == 0 || (ret == -ENOENT && rpc->is_open)) /* it existed: the store is down */
		return ret;
	if (!local)
		return error_set(
			-EACCES,
			"%s: no token: set RELIVE_TOKEN (or opts.token) to that of the store, "
			"which stands in the file `token` of its directory on its host",
			rpc->uri.whole);
	return ret != -ENOENT ? ret
			      : error_set(-ENOENT,
					  "no store %s on this host: start one with `relive up "
					  "--store %s`",
					  rpc->uri.text, rpc->uri.text);
}

static int rpc_dial(struct rpc *rpc, uint64_t deadline_ns) LOCK_REQUIRES(rpc_role)
{
	char token[TOKEN_TEXT_BYTES], socket[RUNTIME_PATH_BYTES];
	const struct dial_opts opts = {
		.socket = rpc->uri.kind == URI_SHM ? socket : NULL,
		.host = rpc->uri.text,
		.port = rpc->uri.port,
		.token = token,
		.tls = { rpc->tls[0], rpc->tls[1], rpc->tls[2] },
		.role = "client",
		.software = rlv_version(),
		.client_id = rpc->peer.client_id,
		.secret = rpc->peer.secret,
		.deadline_ns = deadline_ns,
	};
	int ret = find_store(rpc, token, socket);

	if (ret)
		return ret;
	ret = dial_open(&opts, &rpc->channel, &rpc->peer);
	if (ret)
		return ret == -ENOENT ? error_set(-ECONNREFUSED, "%s", error_last()) : ret;
	rpc->connected = true;
	rpc->is_open = true;
	return 0;
}

static void hang_up(struct rpc *rpc) LOCK_REQUIRES(rpc_role)
{
	if (rpc->connected)
		channel_fini(&rpc->channel);
	rpc->connected = false;
}

/* -------- open and close -------- */

/*
 * Takes the token from opts.token (`given`) or RELIVE_TOKEN. For a store on this host the variable
 * only counts if it is a role's token, which selects the role to ask for, or if the token file is
 * closed to us; one that is no token is ignored.
 */
static int take_token(struct rpc *rpc, const char *given)
{
	const char *env = getenv("RELIVE_TOKEN"), *name = given ? "opts.token" : "RELIVE_TOKEN";
	const char *token = given || !env || !*env ? given : env;
	bool local = rpc->uri.kind == URI_SHM;
	struct token_id id = { .role = TOKEN_ADMIN };
	int ret = 0;

	if (token && strlen(token) >= TOKEN_TEXT_BYTES)
		ret = error_set(-EINVAL, "%s: %d characters at most", name, TOKEN_TEXT_BYTES - 1);
	else if (token)
		ret = token_parse(name, token, &id);
	if (ret)
		return given || !local ? ret : 0;
	snprintf(rpc->token, sizeof(rpc->token), "%s", token ? token : "");
	rpc->token_first = given || !local || id.epoch;
	rpc->role = id.role;
	return 0;
}

LOCK_UNCHECKED int rpc_open(const struct uri *uri, const struct rlv_store_opts *opts,
			    struct rpc **rpc_out)
{
	static const char *const variables[] = { "RELIVE_TLS_CERT", "RELIVE_TLS_KEY",
						 "RELIVE_TLS_CA" };
	const char *const files[] = { opts->tls_cert, opts->tls_key, opts->tls_ca };
	struct rpc *rpc = mem_zalloc(sizeof(*rpc));
	int ret;

	if (!rpc)
		return error_set(-ENOMEM, "connection: cannot allocate memory");
	rpc->pid = getpid();
	rpc->timeout_ns = opts->timeout_ns;
	rpc->uri = *uri;
	rpc->role = TOKEN_ADMIN;
	lock_init(&rpc->lock, &rpc_role);
	ret = take_token(rpc, opts->token);
	for (size_t i = 0; ret == 0 && i < ARRAY_LEN(files); i++) {
		const char *path = files[i] ? files[i] : getenv(variables[i]);

		if (!path || !*path)
			continue;
		rpc->tls[i] = mem_strdup(path);
		if (!rpc->tls[i])
			ret = error_set(-ENOMEM, "connection: cannot allocate memory");
	}
	if (ret == 0)
		ret = not_sent(rpc,
			       rpc_dial(rpc, deadline_after(clock_monotonic(), opts->timeout_ns)));
	if (ret)
		rpc_close(&rpc);
	else
		*rpc_out = rpc;
	return ret;
}

LOCK_UNCHECKED void rpc_close(struct rpc **rpc)
{
	if (!*rpc)
		return;
	hang_up(*rpc);
	if (!rpc_is_forked(*rpc))
		lock_fini(&(*rpc)->lock);
	for (size_t i = 0; i < ARRAY_LEN((*rpc)->tls); i++)
		mem_free((*rpc)->tls[i]);
	mem_free(*rpc);
	*rpc = NULL;
}

struct rpc_lease rpc_lease(struct rpc *rpc)
{
	struct rpc_lease lease = { .role = rpc->role };

	lock_acquire(&rpc->lock, &rpc_role);
	lease.client_id = rpc->peer.client_id;
	lease.lease_ns = rpc->peer.lease_ns;
	lease.term = rpc->peer.term;
	lock_release(&rpc->lock, &rpc_role);
	return lease;
}

/* -------- calls -------- */

static int ask_once(struct rpc *rpc, const struct rpc_call *call, uint64_t deadline_ns,
		    void *reply_out) LOCK_REQUIRES(rpc_role)
{
	const ProtobufCMessageDescriptor *answer = call->reply ? call->reply
							       : &relive__status_reply__descriptor;
	/* Every answer has its Status in front. */
	const ProtobufCFieldDescriptor *field = protobuf_c_message_descriptor_get_field(answer, 1);
	const Relive__Status *status;
	struct channel_frame frame;
	ProtobufCMessage *reply;
	int ret = channel_call(&rpc->channel, call->type, call->request, deadline_ns, &frame);

	if (ret) {
		if (ret != -EOVERFLOW)
			hang_up(rpc);
		return not_answered(rpc, ret);
	}
	reply = channel_unpack(answer, &frame);
	if (!reply) {
		hang_up(rpc);
		return -EPROTO;
	}
	memcpy(&status, (const char *)reply + field->offset, sizeof(void *));
	ret = dial_status(status);
	if (ret == 0)
		rpc->peer.term = frame.head.term;
	if (ret == 0 && call->reply)
		memcpy(reply_out, &reply, sizeof(void *));
	else
		protobuf_c_message_free_unpacked(reply, NULL);
	if (ret == -EOWNERDEAD) { /* we were fenced: this id is never admitted again */
		hang_up(rpc);
		rpc->peer.client_id = 0;
	}
	return ret;
}

static int rpc_ask_until(struct rpc *rpc, const struct rpc_call *call, uint64_t deadline_ns,
			 void *reply_out) LOCK_REQUIRES(rpc_role)
{
	struct backoff backoff = {
		.first_ns = 2 * CLOCK_NS_PER_MS,
		.doublings = 7, /* to 256 ms */
		.jitter = true,
	};
	uint64_t old = rpc->peer.client_id;
	bool sent = false;
	int ret;

	do {
		/* The server sends nothing unasked: readable now means closed. */
		if (rpc->connected && channel_is_readable(&rpc->channel))
			hang_up(rpc);
		ret = rpc->connected ? 0 : rpc_dial(rpc, deadline_ns);
		while (is_away(ret) && !deadline_expired(clock_monotonic(), deadline_ns)) {
			backoff_sleep(&backoff, clock_monotonic(), deadline_ns);
			ret = rpc_dial(rpc, deadline_ns);
		}
		if (ret)
			return sent ? not_answered(rpc, ret) : not_sent(rpc, ret);
		if (rpc->peer.client_id != old)
			log_warn("reconnect client %llu lost its lease, new client %llu",
				 (unsigned long long)old, (unsigned long long)rpc->peer.client_id);
		old = rpc->peer.client_id;
		ret = ask_once(rpc, call, deadline_ns, reply_out);
		sent = true;
	} while (ret == -ECONNRESET && !rpc->connected && !call->once &&
		 !deadline_expired(clock_monotonic(), deadline_ns));
	return ret;
}

int rpc_ask(struct rpc *rpc, const struct rpc_call *call, void *reply_out)
{
	int64_t timeout_ns = call->timeout_ns ? call->timeout_ns : rpc->timeout_ns;
	uint64_t deadline_ns = deadline_after(clock_monotonic(), timeout_ns);
	int ret;

	if (rpc_is_forked(rpc))
		return error_set(-ECHILD,
				 "this store was opened before fork(): open one in the child");
	if (call->no_wait) {
		if (!lock_try_acquire(&rpc->lock, &rpc_role))
			return error_set(-EAGAIN, "the connection to the server is in use");
	} else if (!lock_acquire_until(&rpc->lock, &rpc_role, deadline_ns)) {
		return error_set(-ECONNREFUSED,
				 "%s: the metadata server does not answer: calls of other threads "
				 "before this one took all of its time (it was not asked, calls on "
				 "the data path go on)",
				 rpc->uri.whole);
	}
	ret = rpc_ask_until(rpc, call, deadline_ns, reply_out);
	lock_release(&rpc->lock, &rpc_role);
	return ret;
}
