#include "client/meta/rpc.h"

#include "relive/relive.h"

#include "wire/token.h"

#include "base/mem/alloc.h"
#include "base/bits.h"
#include "base/os/lock.h"
#include "base/log.h"
#include "base/os/runtime_dir.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define URI_BYTES 288
#define PATH_BYTES 512

static LOCK_ROLE(rpc_role, "rpc", LOCK_RANK_CHANNEL);

struct rpc {
	struct lock lock;
	pid_t pid; /* that opened it */
	int64_t timeout_ns;
	char store[DIAL_TEXT_BYTES]; /* "" = host */
	char host[256];
	uint16_t port;
	char given_token[TOKEN_TEXT_BYTES]; /* opts.token, or that of a role; "" = none */
	char env_token[TOKEN_TEXT_BYTES];   /* RELIVE_TOKEN, "" = none */
	enum token_role role;
	char tls_cert[PATH_BYTES], tls_key[PATH_BYTES], tls_ca[PATH_BYTES]; /* "" = none */
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
 * What becomes of a call that the server does not answer. The code says what is known of the request,
 * whatever the phase of the server's restart (docs/failure-model.md has the table for users):
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

/* "shm:NAME" or "relive://HOST:PORT". */
static const char *uri_of(const struct rpc *rpc, char text[URI_BYTES])
{
	if (rpc->store[0])
		snprintf(text, URI_BYTES, "shm:%s", rpc->store);
	else
		snprintf(text, URI_BYTES, "relive://%s:%u", rpc->host, rpc->port);
	return text;
}

static int not_sent(const struct rpc *rpc, int code)
{
	char uri[URI_BYTES], remedy[DIAL_TEXT_BYTES + 32] = "start it on its host";

	if (!is_away(code) || (code == -ENOENT && !rpc->is_open))
		return code;
	if (code == -EUSERS) /* it says so itself */
		return error_set(-ECONNREFUSED, "%s: %s", uri_of(rpc, uri), error_last());
	if (rpc->store[0])
		snprintf(remedy, sizeof(remedy), "`relive up --store %s` starts it", rpc->store);
	return error_set(-ECONNREFUSED, "%s: the metadata server does not answer: %s (%s%s)",
			 uri_of(rpc, uri), error_last(),
			 rpc->is_open ? "it was not asked, calls on the data path go on; " : "",
			 remedy);
}

static int not_answered(const struct rpc *rpc, int code)
{
	char uri[URI_BYTES];

	if (!is_away(code))
		return code;
	return error_set(
		code == -ETIMEDOUT ? code : -ECONNRESET,
		"%s: the metadata server did not answer: %s (done or not is not known, calls "
		"on the data path go on)",
		uri_of(rpc, uri), error_last());
}

/* -------- connecting -------- */

static int no_store(const char *store)
{
	return error_set(-ENOENT, "no store %s on this host: start one with `relive up --store %s`",
			 store, store);
}

/*
 * RELIVE_TOKEN is for stores on other hosts. On this host the right to read the store's token file
 * is enough, and the variable may hold another store's token.
 */
static int find_token(const struct rpc *rpc, char token_out[TOKEN_TEXT_BYTES])
{
	const char *given = rpc->given_token[0] || rpc->store[0] ? rpc->given_token
								 : rpc->env_token;
	struct runtime_dir dir;
	int ret;

	if (*given) {
		memcpy(token_out, given, TOKEN_TEXT_BYTES);
		return 0;
	}
	ret = runtime_dir_visit(rpc->store[0] ? rpc->store : "default", &dir);
	if (ret == 0)
		ret = runtime_dir_token(&dir, token_out);
	if (ret == -EACCES && rpc->env_token[0]) {
		memcpy(token_out, rpc->env_token, TOKEN_TEXT_BYTES);
		return 0;
	}
	if (ret == -ENOENT && rpc->is_open)
		return ret; /* its directory existed: the store is down */
	if (ret && !rpc->store[0])
		return error_set(
			-EACCES,
			"relive://%s:%u: no token: set RELIVE_TOKEN (or opts.token) to that of the "
			"store, which stands in the file `token` of its directory on its host",
			rpc->host, rpc->port);
	return ret == -ENOENT ? no_store(rpc->store) : ret;
}

static const char *path_or_none(const char *path)
{
	return *path ? path : NULL;
}

static int rpc_dial(struct rpc *rpc, uint64_t deadline_ns) LOCK_REQUIRES(rpc_role)
{
	char token[TOKEN_TEXT_BYTES], socket[RUNTIME_PATH_BYTES];
	struct dial_opts opts = {
		.host = rpc->host,
		.port = rpc->port,
		.token = token,
		.tls = { path_or_none(rpc->tls_cert), path_or_none(rpc->tls_key),
			 path_or_none(rpc->tls_ca) },
		.role = "client",
		.software = rlv_version(),
		.client_id = rpc->peer.client_id,
		.secret = rpc->peer.secret,
		.deadline_ns = deadline_ns,
	};
	struct runtime_dir dir;
	int ret = find_token(rpc, token);

	if (ret == 0 && rpc->store[0]) {
		/*
		 * The store's directory exists as long as the store; without a server it has no
		 * socket.
		 */
		ret = runtime_dir_visit(rpc->store, &dir);
		if (ret == -ENOENT && !rpc->is_open)
			ret = no_store(rpc->store);
		else if (ret == 0)
			ret = runtime_dir_file(&dir, "metad.sock", socket);
		opts.socket = socket;
	}
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

/* Half of it to all of it, so that the clients of a restarted server do not come in step. */
static void sleep_jittered(uint32_t round, uint64_t deadline_ns)
{
	const int64_t first_ns = 2 * CLOCK_NS_PER_MS, last_ns = 200 * CLOCK_NS_PER_MS;
	int64_t left = deadline_left_ns(clock_monotonic(), deadline_ns);
	int64_t most = first_ns << (round < 8 ? round : 8);
	struct timespec now, ts = { 0 };

	if (most > last_ns)
		most = last_ns;
	clock_gettime(CLOCK_MONOTONIC, &now);
	most = most / 2 + (now.tv_nsec ^ getpid() * 7919L) % (most / 2);
	ts.tv_nsec = most < left ? most : left;
	clock_nanosleep(CLOCK_MONOTONIC, 0, &ts, NULL);
}

/* -------- open and close -------- */

static int take_token(const char *name, const char *token, char token_out[TOKEN_TEXT_BYTES],
		      struct token_id *id_out)
{
	if (strlen(token) >= TOKEN_TEXT_BYTES)
		return error_set(-EINVAL, "%s: %d characters at most", name, TOKEN_TEXT_BYTES - 1);
	memcpy(token_out, token, strlen(token) + 1);
	return token_parse(name, token, id_out);
}

/*
 * For a store on this host only a role's token in RELIVE_TOKEN counts: it selects the role to ask
 * for. Any other value there is ignored, also if it is no token.
 */
static int take_tokens(struct rpc *rpc, const struct rpc_opts *opts)
{
	const char *env = getenv("RELIVE_TOKEN");
	struct token_id id = { .role = TOKEN_ADMIN };
	int ret = 0;

	if (opts->token) {
		ret = take_token("opts.token", opts->token, rpc->given_token, &id);
	} else if (env && *env) {
		ret = take_token("RELIVE_TOKEN", env, rpc->env_token, &id);
		if (ret && opts->store) {
			rpc->env_token[0] = '\0';
			ret = 0;
		} else if (ret == 0 && id.epoch) {
			memcpy(rpc->given_token, rpc->env_token, TOKEN_TEXT_BYTES);
		}
	}
	rpc->role = id.role;
	return ret;
}

/* opts, else the environment. */
static int take_file(char path_out[PATH_BYTES], const char *given, const char *variable)
{
	const char *path = given ? given : getenv(variable);

	if (!path)
		return 0;
	if (strlen(path) >= PATH_BYTES)
		return error_set(-ENAMETOOLONG, "%s: longer than %d bytes", variable,
				 PATH_BYTES - 1);
	memcpy(path_out, path, strlen(path) + 1);
	return 0;
}

LOCK_UNCHECKED int rpc_open(const struct rpc_opts *opts, struct rpc **rpc_out)
{
	struct rpc *rpc = mem_zalloc(sizeof(*rpc));
	int ret;

	if (!rpc)
		return error_set(-ENOMEM, "connection: cannot allocate memory");
	rpc->pid = getpid();
	rpc->timeout_ns = opts->timeout_ns;
	rpc->port = opts->port;
	if (opts->store)
		snprintf(rpc->store, sizeof(rpc->store), "%s", opts->store);
	else
		snprintf(rpc->host, sizeof(rpc->host), "%s", opts->host);
	ret = take_tokens(rpc, opts);
	if (ret == 0)
		ret = take_file(rpc->tls_cert, opts->tls.cert, "RELIVE_TLS_CERT");
	if (ret == 0)
		ret = take_file(rpc->tls_key, opts->tls.key, "RELIVE_TLS_KEY");
	if (ret == 0)
		ret = take_file(rpc->tls_ca, opts->tls.ca, "RELIVE_TLS_CA");
	if (ret == 0)
		ret = not_sent(rpc,
			       rpc_dial(rpc, deadline_after(clock_monotonic(), opts->timeout_ns)));
	if (ret) {
		mem_free(rpc);
		return ret;
	}
	lock_init(&rpc->lock, &rpc_role);
	*rpc_out = rpc;
	return 0;
}

LOCK_UNCHECKED void rpc_close(struct rpc **rpc)
{
	if (!*rpc)
		return;
	hang_up(*rpc);
	if (!rpc_is_forked(*rpc))
		lock_fini(&(*rpc)->lock);
	mem_free(*rpc);
	*rpc = NULL;
}

void rpc_lease(struct rpc *rpc, struct rpc_lease *out)
{
	lock_acquire(&rpc->lock, &rpc_role);
	out->client_id = rpc->peer.client_id;
	out->lease_ns = rpc->peer.lease_ns;
	out->term = rpc->peer.term;
	out->role = rpc->role;
	lock_release(&rpc->lock, &rpc_role);
}

/* -------- calls -------- */

/* Every answer has its Status in front. */
static int check_reply(const ProtobufCMessage *reply)
{
	const ProtobufCFieldDescriptor *field =
		protobuf_c_message_descriptor_get_field(reply->descriptor, 1);
	const Relive__Status *status;

	if (!field || field->type != PROTOBUF_C_TYPE_MESSAGE)
		return error_set(-EPROTO, "answer of the metadata server: %s has no status",
				 reply->descriptor->short_name);
	memcpy(&status, (const char *)reply + field->offset, sizeof(void *));
	return dial_status(status);
}

static int ask_once(struct rpc *rpc, const struct rpc_call *call, uint64_t deadline_ns,
		    ProtobufCMessage **reply_out) LOCK_REQUIRES(rpc_role)
{
	struct channel_frame frame;
	ProtobufCMessage *reply;
	int ret = channel_call(&rpc->channel, call->type, call->request, deadline_ns, &frame);

	if (ret) {
		if (ret != -EOVERFLOW)
			hang_up(rpc);
		return not_answered(rpc, ret);
	}
	reply = channel_unpack(call->reply, &frame);
	if (!reply) {
		hang_up(rpc);
		return -EPROTO;
	}
	ret = check_reply(reply);
	if (ret) {
		protobuf_c_message_free_unpacked(reply, NULL);
		if (ret == -EOWNERDEAD) { /* we were fenced: this id is never admitted again */
			hang_up(rpc);
			rpc->peer.client_id = 0;
		}
		return ret;
	}
	rpc->peer.term = frame.head.term;
	*reply_out = reply;
	return 0;
}

static int rpc_ask_until(struct rpc *rpc, const struct rpc_call *call, uint64_t deadline_ns,
			 ProtobufCMessage **reply_out) LOCK_REQUIRES(rpc_role)
{
	uint64_t old = rpc->peer.client_id;
	bool sent = false;
	int ret;

	do {
		/* The server sends nothing unasked: readable now means closed. */
		if (rpc->connected && channel_is_readable(&rpc->channel))
			hang_up(rpc);
		ret = rpc->connected ? 0 : rpc_dial(rpc, deadline_ns);
		for (uint32_t round = 0;
		     is_away(ret) && !deadline_expired(clock_monotonic(), deadline_ns); round++) {
			sleep_jittered(round, deadline_ns);
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

int rpc_ask(struct rpc *rpc, const struct rpc_call *call, ProtobufCMessage **reply_out)
{
	int64_t timeout_ns = call->timeout_ns ? call->timeout_ns : rpc->timeout_ns;
	uint64_t deadline_ns = deadline_after(clock_monotonic(), timeout_ns);
	char uri[URI_BYTES];
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
				 "before this one took all of its time",
				 uri_of(rpc, uri));
	}
	ret = rpc_ask_until(rpc, call, deadline_ns, reply_out);
	lock_release(&rpc->lock, &rpc_role);
	return ret;
}
