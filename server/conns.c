#include "server/conns.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <event2/buffer.h>
#include <event2/event.h>
#include <event2/listener.h>

#include "wire/region.h"

#include "base/alloc.h"
#include "base/log.h"

#include "server/flow.h"
#include "server/version.h"

#define MAX_LISTENERS 2
#define AUTH_BODY_MAX 4096u /* before the proof */
#define BACKLOG 128

enum conn_phase { PHASE_HELLO, PHASE_AUTH, PHASE_READY };

struct conn {
	struct conn *next, *prev;
	struct conns *conns;
	struct flow flow;
	enum conn_phase phase;
	bool dropped; /* freed when the callback is over */
	bool detached;
	bool busy; /* in a callback */
	struct auth_nonces nonces;
	struct conn_peer peer;
	void *user;
};

struct conns {
	struct conns_opts opts;
	struct tls *tls; /* NULL: no TCP */
	struct evconnlistener *listeners[MAX_LISTENERS];
	uint32_t n_listeners;
	char socket_path[108]; /* "" = none */
	struct conn *first;
	uint32_t n;
	bool full_logged;
};

const struct conn_peer *conn_peer(const struct conn *conn)
{
	return &conn->peer;
}

void conn_set_user(struct conn *conn, void *user)
{
	conn->user = user;
}

void *conn_user(const struct conn *conn)
{
	return conn->user;
}

/* -------- life -------- */

static void conn_free(struct conn *conn)
{
	struct conns *conns = conn->conns;

	if (conn->phase == PHASE_READY && !conn->detached)
		conns->opts.ops->on_close(conns->opts.ctx, conn);
	if (conn->prev)
		conn->prev->next = conn->next;
	else
		conns->first = conn->next;
	if (conn->next)
		conn->next->prev = conn->prev;
	conns->n--;
	if (!conn->detached)
		flow_close(&conn->flow);
	mem_free(conn);
}

void conn_drop(struct conn *conn)
{
	conn->dropped = true;
	if (!conn->busy)
		conn_free(conn);
}

static void refuse(struct conn *conn, const char *why)
{
	log_warn("drop connection of pid %u: %s", conn->peer.process.pid, why);
	conn_drop(conn);
}

int conn_detach(struct conn *conn, struct channel *ch_out)
{
	struct stream stream;

	if (evbuffer_get_length(conn->flow.out) || evbuffer_get_length(conn->flow.in))
		return error_set(-EPROTO, "connection: asked before it was answered");
	stream = flow_detach(&conn->flow);
	conn->detached = true;
	channel_init_stream(ch_out, &stream);
	ch_out->term = conn->conns->opts.term;
	conn_drop(conn);
	return 0;
}

/* -------- answers -------- */

void conn_answer(struct conn *conn, const struct frame_header *head,
		 const ProtobufCMessage *message)
{
	struct frame_header out = {
		.type = (uint16_t)(head->type | FRAME_ANSWER),
		.request_id = head->request_id,
		.term = conn->conns->opts.term,
	};
	size_t len = protobuf_c_message_get_packed_size(message);
	uint8_t bytes[FRAME_HEADER_BYTES];
	uint8_t *body = mem_alloc(len + 1);
	int ret = body ? 0 : error_set(-ENOMEM, "answer of %zu bytes: no memory", len);

	out.length = (uint32_t)len;
	if (ret == 0)
		ret = frame_encode(&out, bytes);
	if (ret) {
		mem_free(body);
		refuse(conn, error_last());
		return;
	}
	protobuf_c_message_pack(message, body);
	flow_write(&conn->flow, bytes, sizeof(bytes));
	flow_write(&conn->flow, body, len);
	mem_free(body);
}

void conn_answer_status(struct conn *conn, const struct frame_header *head, int code)
{
	Relive__StatusReply reply = RELIVE__STATUS_REPLY__INIT;
	Relive__Status status = RELIVE__STATUS__INIT;

	status.code = code;
	status.message = code ? (char *)error_last() : (char *)"";
	reply.status = &status;
	conn_answer(conn, head, &reply.base);
}

/* A last, short answer goes out at once: it would be forgotten with the connection. */
static void refuse_with_answer(struct conn *conn)
{
	flow_push(&conn->flow);
	conn_drop(conn);
}

/* -------- hello, auth -------- */

static int check_hello(struct conn *conn, const Relive__HelloRequest *hello)
{
	struct conn_peer *peer = &conn->peer;

	if (hello->format_major != REGION_FORMAT_MAJOR)
		return error_set(-EPROTO, "format %u: this server speaks %d", hello->format_major,
				 REGION_FORMAT_MAJOR);
	if (hello->nonce.len != AUTH_NONCE_BYTES)
		return error_set(-EPROTO, "hello: nonce of %zu bytes", hello->nonce.len);
	if (strcmp(hello->role, "client") == 0)
		peer->role = CONN_CLIENT;
	else if (strcmp(hello->role, "memnode") == 0)
		peer->role = CONN_MEMNODE;
	else
		return error_set(-EINVAL, "hello: role \"%.32s\"", hello->role);
	memcpy(conn->nonces.dialler, hello->nonce.data, AUTH_NONCE_BYTES);
	peer->wanted_id = hello->client_id;
	return 0;
}

/* A unix socket's peer is known by the kernel; another's only by what it says, if of this host. */
static void identify(struct conn *conn, const Relive__HelloRequest *hello)
{
	struct conn_peer *peer = &conn->peer;
	struct process_id self;

	if (peer->local) {
		peer->has_process = process_read(peer->process.pid, &peer->process) == 0;
		return;
	}
	if (process_self(&self) || hello->boot_id.len != sizeof(self.boot_id) ||
	    memcmp(self.boot_id, hello->boot_id.data, sizeof(self.boot_id)) != 0 ||
	    hello->pid > UINT32_MAX)
		return;
	peer->process = self;
	peer->process.pid = (uint32_t)hello->pid;
	peer->process.start_time = hello->start_time;
	peer->has_process = true;
}

static int answer_hello(struct conn *conn, const struct frame_header *head)
{
	const struct conns_opts *opts = &conn->conns->opts;
	Relive__HelloReply reply = RELIVE__HELLO_REPLY__INIT;
	Relive__Status status = RELIVE__STATUS__INIT;
	uint8_t proof[AUTH_PROOF_BYTES];
	int ret = auth_nonce(conn->nonces.listener);

	if (ret == 0)
		ret = auth_prove_listener(opts->token, &conn->nonces, proof);
	if (ret)
		return ret;
	reply.status = &status;
	reply.nonce = (ProtobufCBinaryData){ AUTH_NONCE_BYTES, conn->nonces.listener };
	reply.proof = (ProtobufCBinaryData){ sizeof(proof), proof };
	reply.software = (char *)SERVER_VERSION;
	reply.store_uuid = (ProtobufCBinaryData){ 16, (uint8_t *)opts->store_uuid };
	reply.store_name = (char *)opts->store_name;
	conn_answer(conn, head, &reply.base);
	conn->phase = PHASE_AUTH;
	return 0;
}

static void on_hello(struct conn *conn, const struct channel_frame *frame)
{
	Relive__HelloRequest *hello = NULL;
	int ret = 0;

	if (frame->head.type == RELIVE__TYPE__TYPE_HELLO)
		hello = (Relive__HelloRequest *)channel_unpack(&relive__hello_request__descriptor,
							       frame);
	if (!hello) {
		refuse(conn, "its first frame is no hello");
		return;
	}
	ret = check_hello(conn, hello);
	identify(conn, hello);
	relive__hello_request__free_unpacked(hello, NULL);
	if (ret == 0)
		ret = answer_hello(conn, &frame->head);
	if (ret) {
		log_warn("refuse pid %u: %s", conn->peer.process.pid, error_last());
		conn_answer_status(conn, &frame->head, ret);
		refuse_with_answer(conn);
	}
}

static int take_secret(struct conn *conn, const ProtobufCBinaryData *secret)
{
	if (secret->len != 0 && secret->len != AUTH_SECRET_BYTES)
		return error_set(-EPROTO, "auth: secret of %zu bytes", secret->len);
	if (secret->len)
		memcpy(conn->peer.secret, secret->data, AUTH_SECRET_BYTES);
	return 0;
}

static int check_auth(struct conn *conn, const struct channel_frame *frame)
{
	Relive__AuthRequest *request = NULL;
	uint8_t proof[AUTH_PROOF_BYTES];
	int ret = auth_prove_dialler(conn->conns->opts.token, &conn->nonces, proof);

	if (ret)
		return ret;
	if (frame->head.type == RELIVE__TYPE__TYPE_AUTH)
		request = (Relive__AuthRequest *)channel_unpack(&relive__auth_request__descriptor,
								frame);
	if (!request)
		return error_set(-EPROTO, "no proof of the token");
	if (!auth_is_proof(proof, request->proof.data, request->proof.len))
		ret = error_set(-EACCES, "token: the proof is wrong");
	else
		ret = take_secret(conn, &request->secret);
	relive__auth_request__free_unpacked(request, NULL);
	return ret;
}

static void on_auth(struct conn *conn, const struct channel_frame *frame)
{
	const struct timeval write_limit = { .tv_sec = CONN_WRITE_SECONDS };
	const struct conns_opts *opts = &conn->conns->opts;
	Relive__AuthReply reply = RELIVE__AUTH_REPLY__INIT;
	Relive__Status status = RELIVE__STATUS__INIT;
	struct conn_lease lease = { 0 };
	int ret = check_auth(conn, frame);

	if (ret == 0)
		ret = opts->ops->on_ready(opts->ctx, conn, &lease);
	status.code = ret;
	status.message = ret ? (char *)error_last() : (char *)"";
	reply.status = &status;
	reply.client_id = lease.client_id;
	reply.lease_ns = lease.lease_ns;
	if (lease.client_id)
		reply.secret = (ProtobufCBinaryData){ sizeof(lease.secret), lease.secret };
	if (ret)
		log_warn("refuse pid %u: %s", conn->peer.process.pid, error_last());
	else
		conn->phase = PHASE_READY;
	conn_answer(conn, &frame->head, &reply.base);
	if (ret)
		refuse_with_answer(conn);
	else
		flow_set_write_limit(&conn->flow, &write_limit);
}

/* -------- reading -------- */

static void take_frame(struct conn *conn, const struct channel_frame *frame)
{
	const struct conns_opts *opts = &conn->conns->opts;

	if (conn->phase == PHASE_HELLO)
		on_hello(conn, frame);
	else if (conn->phase == PHASE_AUTH)
		on_auth(conn, frame);
	else
		opts->ops->on_frame(opts->ctx, conn, frame);
}

/* 0: a frame was taken; -EAGAIN: not all of it is there; else the stream is broken. */
static int read_frame(struct conn *conn)
{
	struct evbuffer *in = conn->flow.in;
	uint8_t bytes[FRAME_HEADER_BYTES];
	ssize_t n = evbuffer_copyout(in, bytes, sizeof(bytes));
	struct channel_frame frame;
	uint8_t *all, *body;
	int ret = frame_decode(bytes, n < 0 ? 0 : (size_t)n, &frame.head);

	if (ret)
		return ret;
	if (frame.head.type & FRAME_ANSWER)
		return error_set(-EPROTO, "an answer, unasked");
	if (conn->phase != PHASE_READY && frame.head.length > AUTH_BODY_MAX)
		return error_set(-EPROTO, "%u bytes before the proof of the token",
				 frame.head.length);
	if (evbuffer_get_length(in) < FRAME_HEADER_BYTES + (size_t)frame.head.length)
		return -EAGAIN;
	all = mem_alloc(FRAME_HEADER_BYTES + (size_t)frame.head.length);
	if (!all)
		return error_set(-ENOMEM, "frame of %u bytes: no memory", frame.head.length);
	evbuffer_remove(in, all, FRAME_HEADER_BYTES + (size_t)frame.head.length);
	body = all + FRAME_HEADER_BYTES;
	frame.body = body;
	take_frame(conn, &frame);
	mem_free(all);
	return 0;
}

static void on_read(void *ctx)
{
	struct conn *conn = ctx;
	int ret = 0;

	conn->busy = true;
	while (ret == 0 && !conn->dropped)
		ret = read_frame(conn);
	if (ret && ret != -EAGAIN && !conn->dropped)
		refuse(conn, error_last());
	conn->busy = false;
	if (conn->dropped)
		conn_free(conn);
}

/* Who hangs up is no news, unless it was refused. */
static void on_end(void *ctx, int code)
{
	if (code == -ECONNRESET)
		conn_drop(ctx);
	else
		refuse(ctx, error_last());
}

static const struct flow_ops flow_ops = {
	.on_read = on_read,
	.on_end = on_end,
};

/* -------- accepting -------- */

static uint32_t peer_pid(int fd)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) || cred.pid <= 0)
		return 0;
	return (uint32_t)cred.pid;
}

/* The kernel vouches for who is at a unix socket; all else is TLS. */
static int begin(struct conn *conn, evutil_socket_t fd)
{
	const struct timeval limit = { .tv_sec = CONN_AUTH_SECONDS };
	struct stream stream;
	const int one = 1;
	int ret = 0;

	if (conn->peer.local) {
		conn->peer.process.pid = peer_pid(fd);
		stream_init_socket(&stream, fd);
	} else {
		(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		ret = stream_init_tls(&stream, fd, conn->conns->tls);
	}
	if (ret)
		return ret;
	conn->flow.ops = &flow_ops;
	conn->flow.ctx = conn;
	return flow_open(&conn->flow, conn->conns->opts.base, &stream, &limit);
}

static void add(struct conns *conns, evutil_socket_t fd, bool local)
{
	struct conn *conn = mem_zalloc(sizeof(*conn));

	if (!conn) {
		close(fd);
		return;
	}
	conn->conns = conns;
	conn->peer.local = local;
	if (begin(conn, fd)) {
		log_warn("accept: %s", error_last());
		mem_free(conn);
		return;
	}
	conn->next = conns->first;
	if (conns->first)
		conns->first->prev = conn;
	conns->first = conn;
	conns->n++;
}

static void on_accept(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *address,
		      int len, void *arg)
{
	struct conns *conns = arg;
	bool full = conns->n >= conns->opts.max_conns;

	(void)listener;
	(void)len;
	if (full && !conns->full_logged)
		log_warn("refuse connections: %u are open", conns->n);
	conns->full_logged = full;
	if (full)
		close(fd);
	else
		add(conns, fd, address->sa_family == AF_UNIX);
}

/* Out of descriptors, mostly: a pause, or the loop would spin. */
static void on_accept_error(struct evconnlistener *listener, void *arg)
{
	(void)arg;
	(void)listener;
	log_error("accept: %s", strerror(errno));
	usleep(10 * 1000);
}

static int add_listener(struct conns *conns, int fd)
{
	struct evconnlistener *listener;

	if (conns->n_listeners == MAX_LISTENERS)
		return error_set(-ENOSPC, "listen: %d addresses are the most", MAX_LISTENERS);
	listener = evconnlistener_new(conns->opts.base, on_accept, conns,
				      LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC, BACKLOG, fd);
	if (!listener)
		return error_set(-errno, "listen: %s", strerror(errno));
	evconnlistener_set_error_cb(listener, on_accept_error);
	conns->listeners[conns->n_listeners++] = listener;
	return 0;
}

int conns_listen_socket(struct conns *conns, const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	mode_t mask;
	int fd, ret;

	if (strlen(path) >= sizeof(address.sun_path))
		return error_set(-ENAMETOOLONG, "socket %s: name too long", path);
	memcpy(address.sun_path, path, strlen(path) + 1);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return error_set(-errno, "socket: %s", strerror(errno));
	/* The caller holds the lock of the name: whoever bound it before is gone. */
	(void)unlink(path);
	mask = umask(0177);
	ret = bind(fd, (struct sockaddr *)&address, sizeof(address)) ? -errno : 0;
	umask(mask);
	if (ret)
		(void)error_set(ret, "bind %s: %s", path, strerror(-ret));
	else
		ret = add_listener(conns, fd);
	if (ret)
		close(fd);
	else
		snprintf(conns->socket_path, sizeof(conns->socket_path), "%s", path);
	return ret;
}

static int bind_tcp(const struct addrinfo *at, int *fd_out)
{
	const int one = 1;
	int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int ret = 0;

	if (fd < 0)
		return -errno;
	(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, at->ai_addr, at->ai_addrlen))
		ret = -errno;
	if (ret)
		close(fd);
	else
		*fd_out = fd;
	return ret;
}

static uint16_t bound_port(int fd)
{
	union {
		struct sockaddr any;
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
	} address = { .v6 = { .sin6_port = 0 } };
	socklen_t len = sizeof(address);

	if (getsockname(fd, &address.any, &len))
		return 0;
	return ntohs(address.any.sa_family == AF_INET6 ? address.v6.sin6_port
						       : address.v4.sin_port);
}

static int use_tls(struct conns *conns)
{
	const struct tls_opts opts = {
		.server = true,
		.token = conns->opts.token,
		.files = conns->opts.tls,
	};

	return conns->tls ? 0 : tls_open(&opts, &conns->tls);
}

int conns_listen_tcp(struct conns *conns, const char *host, uint16_t port, uint16_t *port_out)
{
	struct addrinfo wanted = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM };
	struct addrinfo *found = NULL;
	const char *name = host && *host ? host : "127.0.0.1";
	char service[8];
	int fd = -1, ret = use_tls(conns);

	if (ret)
		return ret;
	snprintf(service, sizeof(service), "%u", port);
	ret = getaddrinfo(name, service, &wanted, &found);
	if (ret)
		return error_set(-EINVAL, "listen on %s: %s", name, gai_strerror(ret));
	ret = bind_tcp(found, &fd);
	freeaddrinfo(found);
	if (ret)
		return error_set(ret, "listen on %s:%u: %s", name, port, strerror(-ret));
	ret = add_listener(conns, fd);
	if (ret) {
		close(fd);
		return ret;
	}
	*port_out = bound_port(fd);
	return 0;
}

int conns_open(const struct conns_opts *opts, struct conns **conns_out)
{
	struct conns *conns = mem_zalloc(sizeof(*conns));

	if (!conns)
		return error_set(-ENOMEM, "connections: no memory");
	conns->opts = *opts;
	*conns_out = conns;
	return 0;
}

void conns_close(struct conns **conns_ptr)
{
	struct conns *conns = *conns_ptr;

	if (!conns)
		return;
	for (uint32_t i = 0; i < conns->n_listeners; i++)
		evconnlistener_free(conns->listeners[i]);
	while (conns->first)
		conn_free(conns->first);
	if (conns->socket_path[0])
		(void)unlink(conns->socket_path);
	tls_close(&conns->tls);
	mem_free(conns);
	*conns_ptr = NULL;
}
