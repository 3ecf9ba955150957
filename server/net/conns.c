#include "server/net/conns.h"

#include <errno.h>
#include <stddef.h>
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

#include "base/mem/alloc.h"
#include "base/bits.h"
#include "base/os/clock.h"
#include "base/log.h"

#include "server/net/flow.h"
#include "server/net/hello.h"
#include "server/net/tcp.h"
#include "server/net/timed_queue.h"
#include "server/daemon/version.h"

enum {
	MAX_LISTENERS = 2,
	BACKLOG = 1024,
	AUTH_BODY_MAX = 4096,  /* before authentication */
	QUEUE_MAX = 256,       /* connections per queue, except the ready queue */
	ACCEPTS_MAX = 16,      /* accepts per turn, then accepted connections are served */
	OWED_MAX = 64,         /* pending requests per connection */
	RESERVED_MAX = 64,     /* part of max_conns reserved for the unix socket */
	READY_NODES_MAX = 128, /* in addition to max_conns; nodes leave at registration */
};

enum conn_phase { PHASE_HELLO, PHASE_AUTH, PHASE_READY, PHASE_LAST_WORDS };

/* Eviction order when descriptors run out. */
enum conn_queue { QUEUE_TCP, QUEUE_LAST_WORDS, QUEUE_LOCAL, QUEUE_READY, QUEUES };

struct conn {
	struct timed_link link;
	struct conns *conns;
	struct flow flow;
	enum conn_phase phase;
	uint32_t owed; /* pending answers */
	bool dropped;  /* freed when the callback returns */
	bool detached;
	bool busy; /* in a callback */
	struct auth_nonces nonces;
	char token[TOKEN_TEXT_BYTES]; /* token to be proved */
	struct conn_peer peer;
	void *user;
};

struct conns {
	struct conns_opts opts;
	struct tls *tls; /* NULL: no TCP */
	struct timed_queue queues[QUEUES];
	struct event *sweep; /* timer of the next queue deadline */
	struct event *again; /* timer to resume accepting */
	uint32_t accepted;   /* accepts in this turn */
	uint32_t n_nodes;    /* ready connections of memory nodes */
	struct evconnlistener *listeners[MAX_LISTENERS];
	uint32_t n_listeners;
	char socket_path[108]; /* "" = none */
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

void conn_address(const struct conn *conn, char *text, size_t bytes)
{
	char host[NI_MAXHOST], port[NI_MAXSERV];
	struct sockaddr_storage addr;
	socklen_t len = sizeof(addr);

	snprintf(text, bytes, "%s", conn->peer.local ? "unix" : "tcp");
	if (conn->peer.local || getpeername(conn->flow.stream.fd, (struct sockaddr *)&addr, &len) ||
	    getnameinfo((struct sockaddr *)&addr, len, host, sizeof(host), port, sizeof(port),
			NI_NUMERICHOST | NI_NUMERICSERV))
		return;
	snprintf(text, bytes, strchr(host, ':') ? "[%s]:%s" : "%s:%s", host, port);
}

/* -------- queues -------- */

static struct conn *conn_of(struct timed_link *link)
{
	return (struct conn *)((char *)link - offsetof(struct conn, link));
}

static void queue_up(struct conn *conn, enum conn_queue number)
{
	timed_queue_add(&conn->conns->queues[number], &conn->link);
	timed_queue_schedule(conn->conns->queues, QUEUES, conn->conns->sweep);
}

/* -------- life -------- */

static void conn_part(struct conn *conn)
{
	struct conns *conns = conn->conns;

	if (conn->phase != PHASE_READY)
		return;
	if (conn->peer.role == CONN_MEMNODE)
		conns->n_nodes--;
	if (!conn->detached)
		conns->opts.ops->on_close(conns->opts.ctx, conn);
}

static void conn_free(struct conn *conn)
{
	conn_part(conn);
	timed_queue_remove(&conn->link);
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

static void conn_turn_away(struct conn *conn, const char *why)
{
	log_warn("drop connection of pid %u: %s", conn->peer.process.pid, why);
	conn_drop(conn);
}

/* Drops the oldest connection of the queue, if possible one that has not begun to authenticate: a
   flood of new ones must not evict those that have. False: the queue is empty. */
static bool drop_oldest(struct conns *conns, enum conn_queue number)
{
	struct timed_link *oldest = conns->queues[number].first;

	while (oldest && (conn_of(oldest)->phase == PHASE_AUTH ||
			  stream_tls_has_spoken(&conn_of(oldest)->flow.stream)))
		oldest = oldest->next;
	if (!oldest)
		oldest = conns->queues[number].first;
	if (!oldest)
		return false;
	if (number == QUEUE_LAST_WORDS)
		conn_drop(conn_of(oldest));
	else
		conn_turn_away(conn_of(oldest),
			       "it has not proved the token, and newer connections need its place");
	return true;
}

static void bound_queue(struct conns *conns, enum conn_queue number)
{
	if (conns->queues[number].n > QUEUE_MAX)
		(void)drop_oldest(conns, number);
}

/* Lets a refused connection linger: pending output is sent unless the stream is broken, further
   input is discarded, until the peer closes it or its time limit passes. */
static void last_words(struct conn *conn, bool broken)
{
	conn_part(conn);
	conn->phase = PHASE_LAST_WORDS;
	queue_up(conn, QUEUE_LAST_WORDS);
	flow_linger(&conn->flow, broken);
	bound_queue(conn->conns, QUEUE_LAST_WORDS);
}

static void on_sweep(evutil_socket_t fd, short what, void *arg)
{
	struct conns *conns = arg;

	(void)fd;
	(void)what;
	for (int i = 0; i < QUEUES; i++) {
		struct timed_link *ended;

		while ((ended = timed_queue_ended(&conns->queues[i])) != NULL)
			if (i == QUEUE_LAST_WORDS)
				conn_drop(conn_of(ended));
			else
				conn_turn_away(conn_of(ended), "no proof of the token in time");
	}
	timed_queue_schedule(conns->queues, QUEUES, conns->sweep);
}

int conn_detach(struct conn *conn, struct channel *ch_out)
{
	struct stream stream;

	if (evbuffer_get_length(conn->flow.out) || evbuffer_get_length(conn->flow.in))
		return error_set(-EPROTO,
				 "connection: it sent a request before its first was answered");
	stream = flow_detach(&conn->flow);
	conn->detached = true;
	channel_init(ch_out, stream);
	ch_out->term = conn->conns->opts.term;
	conn_drop(conn);
	return 0;
}

/* -------- answers -------- */

/* True if further requests of the peer may be read: it was not refused, reads its answers, and has
   fewer than OWED_MAX requests pending. */
static bool may_ask(const struct conn *conn)
{
	return conn->phase != PHASE_LAST_WORDS && conn->owed < OWED_MAX &&
	       !flow_is_full(&conn->flow);
}

static void on_drained(void *ctx)
{
	struct conn *conn = ctx;

	if (conn->flow.paused && may_ask(conn))
		flow_resume(&conn->flow);
}

void conn_answer(struct conn *conn, const struct frame_header *head,
		 const ProtobufCMessage *message)
{
	struct frame_header out = {
		.type = (uint16_t)(head->type | FRAME_ANSWER),
		.request_id = head->request_id,
		.term = conn->conns->opts.term,
	};
	size_t len = protobuf_c_message_get_packed_size(message);
	uint8_t *bytes = mem_alloc(FRAME_HEADER_BYTES + len);
	int ret = bytes ? 0 : error_set(-ENOMEM, "cannot allocate an answer of %zu bytes", len);

	out.length = (uint32_t)len;
	if (ret == 0 && !flow_has_room(&conn->flow, len))
		ret = error_set(-EOVERFLOW, "it does not read its answers");
	if (ret == 0)
		ret = frame_encode(&out, bytes);
	if (ret) {
		mem_free(bytes);
		conn_turn_away(conn, error_last());
		return;
	}
	protobuf_c_message_pack(message, bytes + FRAME_HEADER_BYTES);
	flow_write(&conn->flow, bytes, FRAME_HEADER_BYTES + len);
	mem_free(bytes);
	if (conn->owed)
		conn->owed--;
	if (!conn->busy)
		on_drained(conn);
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

void conn_refuse(struct conn *conn, const struct frame_header *head, int code)
{
	log_warn("refuse pid %u: %s", conn->peer.process.pid, error_last());
	conn_answer_status(conn, head, code);
	if (!conn->dropped)
		last_words(conn, false);
}

void conns_set_epoch(struct conns *conns, uint32_t epoch)
{
	conns->opts.epoch = epoch;
	for (int i = 0; i < QUEUES; i++) {
		struct timed_link *next = i == QUEUE_LAST_WORDS ? NULL : conns->queues[i].first;

		while (next) {
			struct conn *conn = conn_of(next);

			next = next->next;
			if (conn->dropped || token_check_epoch(&conn->peer.token, epoch) == 0)
				continue;
			log_info("cut pid %u: %s", conn->peer.process.pid, error_last());
			last_words(conn, false);
		}
	}
}

/* -------- hello, auth -------- */

static int take_hello(struct conn *conn, const struct channel_frame *frame)
{
	const struct conns_opts *opts = &conn->conns->opts;
	Relive__HelloRequest *hello;
	Relive__HelloReply reply = RELIVE__HELLO_REPLY__INIT;
	Relive__Status status = RELIVE__STATUS__INIT;
	uint8_t proof[AUTH_PROOF_BYTES];
	int ret;

	if (frame->head.type != RELIVE__TYPE__TYPE_HELLO)
		return error_set(-EPROTO, "frame of type %u: the first one must be HELLO",
				 frame->head.type);
	hello = (Relive__HelloRequest *)channel_unpack(&relive__hello_request__descriptor, frame);
	if (!hello)
		return -EPROTO;
	ret = hello_take(hello, &conn->flow.stream, opts->epoch, &conn->peer);
	if (ret == 0)
		memcpy(conn->nonces.dialler, hello->nonce.data, AUTH_NONCE_BYTES);
	relive__hello_request__free_unpacked(hello, NULL);
	if (ret == 0)
		ret = auth_nonce(conn->nonces.listener);
	if (ret == 0)
		ret = token_derive(opts->token, &conn->peer.token, conn->token);
	if (ret == 0)
		ret = auth_prove(AUTH_LISTENER, conn->token, &conn->nonces, proof);
	if (ret)
		return ret;
	reply.status = &status;
	reply.nonce = (ProtobufCBinaryData){ AUTH_NONCE_BYTES, conn->nonces.listener };
	reply.proof = (ProtobufCBinaryData){ sizeof(proof), proof };
	reply.format_major = REGION_FORMAT_MAJOR;
	reply.software = (char *)SERVER_VERSION;
	reply.store_uuid = (ProtobufCBinaryData){ 16, (uint8_t *)opts->store_uuid };
	reply.store_name = (char *)opts->store_name;
	conn_answer(conn, &frame->head, &reply.base);
	conn->phase = PHASE_AUTH;
	return 0;
}

static int check_auth(struct conn *conn, const struct channel_frame *frame)
{
	Relive__AuthRequest *request = NULL;
	uint8_t proof[AUTH_PROOF_BYTES];
	int ret = auth_prove(AUTH_DIALLER, conn->token, &conn->nonces, proof);

	if (ret)
		return ret;
	if (frame->head.type == RELIVE__TYPE__TYPE_AUTH)
		request = (Relive__AuthRequest *)channel_unpack(&relive__auth_request__descriptor,
								frame);
	if (!request)
		return error_set(-EPROTO, "no proof of the token");
	if (!auth_is_proof(proof, request->proof.data, request->proof.len))
		ret = error_set(-EACCES, "token: the proof is wrong");
	else if (request->secret.len == AUTH_SECRET_BYTES)
		memcpy(conn->peer.secret, request->secret.data, AUTH_SECRET_BYTES);
	else if (request->secret.len)
		ret = error_set(-EPROTO, "auth: secret of %zu bytes", request->secret.len);
	relive__auth_request__free_unpacked(request, NULL);
	return ret;
}

/* -EUSERS: no room for one more ready connection. Part of max_conns is reserved for the unix
   socket; memory nodes have READY_NODES_MAX places of their own. */
static int find_room(const struct conn *conn)
{
	const struct conns *conns = conn->conns;
	uint32_t n = conns->queues[QUEUE_READY].n - conns->n_nodes;
	uint32_t most = conns->opts.max_conns;

	if (conn->peer.role == CONN_MEMNODE)
		return conns->n_nodes < READY_NODES_MAX
			       ? 0
			       : error_set(-EUSERS, "%u memory nodes register just now",
					   conns->n_nodes);
	if (!conn->peer.local)
		most -= (uint32_t)min_u64(most / 8, RESERVED_MAX);
	if (n < most)
		return 0;
	return error_set(-EUSERS,
			 "the server has %u clients, and takes %u%s: end some, or start it with "
			 "a higher --max-conns",
			 n, most, conn->peer.local ? "" : " over TCP");
}

static int take_auth(struct conn *conn, const struct channel_frame *frame)
{
	const struct conns_opts *opts = &conn->conns->opts;
	Relive__AuthReply reply = RELIVE__AUTH_REPLY__INIT;
	Relive__Status status = RELIVE__STATUS__INIT;
	struct conn_lease lease = { 0 };
	int ret = check_auth(conn, frame);

	if (ret == 0)
		ret = find_room(conn);
	if (ret == 0)
		ret = opts->ops->on_ready(opts->ctx, conn, &lease);
	if (ret)
		return ret;
	status.message = (char *)"";
	reply.status = &status;
	reply.client_id = lease.client_id;
	reply.lease_ns = lease.lease_ns;
	if (lease.client_id)
		reply.secret = (ProtobufCBinaryData){ sizeof(lease.secret), lease.secret };
	conn->phase = PHASE_READY;
	queue_up(conn, QUEUE_READY);
	if (conn->peer.role == CONN_MEMNODE)
		conn->conns->n_nodes++;
	if (!conn->peer.local)
		tcp_keep_alive(conn->flow.stream.fd);
	conn_answer(conn, &frame->head, &reply.base);
	return 0;
}

/* -------- reading -------- */

/* Takes a frame from the input and serves it. 0: it was served or refused; -EAGAIN: incomplete
   frame; else conn must be dropped. */
static int read_frame(struct conn *conn)
{
	struct evbuffer *in = conn->flow.in;
	uint8_t bytes[FRAME_HEADER_BYTES];
	ssize_t n = evbuffer_copyout(in, bytes, sizeof(bytes));
	struct channel_frame frame;
	uint8_t *all;
	int ret = frame_decode(bytes, n < 0 ? 0 : (size_t)n, &frame.head);

	if (ret == -EAGAIN)
		return ret;
	if (ret == 0 && frame.head.type & FRAME_ANSWER)
		ret = error_set(-EPROTO, "an answer without a request");
	else if (ret == 0 && conn->phase != PHASE_READY && frame.head.length > AUTH_BODY_MAX)
		ret = error_set(-EPROTO, "it sent %u bytes before the proof of the token",
				frame.head.length);
	if (ret) {
		/* Type and request id have the same place in each version, so a peer of another
		   version gets an answer. */
		memcpy(&frame.head, bytes, sizeof(frame.head));
		frame.head.type &= (uint16_t)~FRAME_ANSWER;
		conn_refuse(conn, &frame.head, ret);
		return 0;
	}
	if (evbuffer_get_length(in) < FRAME_HEADER_BYTES + (size_t)frame.head.length)
		return -EAGAIN;
	all = mem_alloc(FRAME_HEADER_BYTES + (size_t)frame.head.length);
	if (!all)
		return error_set(-ENOMEM, "cannot allocate a frame of %u bytes", frame.head.length);
	evbuffer_remove(in, all, FRAME_HEADER_BYTES + (size_t)frame.head.length);
	frame.body = all + FRAME_HEADER_BYTES;
	if (conn->phase == PHASE_READY) {
		conn->owed++;
		conn->conns->opts.ops->on_frame(conn->conns->opts.ctx, conn, &frame);
	} else {
		ret = conn->phase == PHASE_HELLO ? take_hello(conn, &frame)
						 : take_auth(conn, &frame);
		if (ret)
			conn_refuse(conn, &frame.head, ret);
	}
	mem_free(all);
	return 0;
}

static void on_read(void *ctx)
{
	struct conn *conn = ctx;
	int ret = 0;

	conn->busy = true;
	while (ret == 0 && !conn->dropped && may_ask(conn))
		ret = read_frame(conn);
	if (ret && ret != -EAGAIN && !conn->dropped)
		conn_turn_away(conn, error_last());
	else if (!conn->dropped && conn->phase == PHASE_READY && !may_ask(conn))
		flow_pause(&conn->flow);
	conn->busy = false;
	if (conn->dropped)
		conn_free(conn);
}

/* The stream ended. A peer that hung up or was refused is dropped without a log line; after a
   timeout, or once ready, with one; a peer that TLS refused gets the alert, then lingers. */
static void on_end(void *ctx, int code)
{
	struct conn *conn = ctx;

	if (code == -ECONNRESET || conn->phase == PHASE_LAST_WORDS) {
		conn_drop(conn);
	} else if (code == -ETIMEDOUT || conn->phase == PHASE_READY) {
		conn_turn_away(conn, error_last());
	} else {
		log_warn("refuse pid %u: %s", conn->peer.process.pid, error_last());
		last_words(conn, true);
	}
}

static const struct flow_ops flow_ops = {
	.on_read = on_read,
	.on_drained = on_drained,
	.on_end = on_end,
};

/* -------- accepting -------- */

/* Begins a connection, queued until it has proved the token. The kernel identifies peers of a unix
   socket; other connections use TLS. ACCEPTS_MAX accepts pause accepting until on_again. */
static void on_accept(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *address,
		      int len, void *arg)
{
	const struct timeval soon = { .tv_sec = 0 };
	struct conn *conn = mem_zalloc(sizeof(*conn));
	struct ucred cred = { .pid = 0 };
	socklen_t cred_len = sizeof(cred);
	struct conns *conns = arg;
	struct stream stream;
	int ret = 0;

	(void)listener;
	(void)len;
	if (++conns->accepted >= ACCEPTS_MAX) {
		for (uint32_t i = 0; i < conns->n_listeners; i++)
			(void)evconnlistener_disable(conns->listeners[i]);
		(void)evtimer_add(conns->again, &soon);
	}
	if (!conn) {
		close(fd);
		return;
	}
	conn->conns = conns;
	conn->peer.local = address->sa_family == AF_UNIX;
	conn->flow.ops = &flow_ops;
	conn->flow.ctx = conn;
	if (!conn->peer.local) {
		tcp_set_no_delay(fd);
		ret = stream_init_tls(&stream, fd, conns->tls);
	} else {
		if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &cred_len) == 0 && cred.pid > 0)
			conn->peer.process.pid = (uint32_t)cred.pid;
		stream = stream_socket(fd);
	}
	if (ret == 0)
		ret = flow_open(&conn->flow, conns->opts.base, &stream);
	if (ret) {
		log_warn("accept: %s", error_last());
		mem_free(conn);
		return;
	}
	queue_up(conn, conn->peer.local ? QUEUE_LOCAL : QUEUE_TCP);
	bound_queue(conns, conn->peer.local ? QUEUE_LOCAL : QUEUE_TCP);
}

/* Resumes accepting, after the events that were ready, so that accepted connections are served
   first. */
static void on_again(evutil_socket_t fd, short what, void *arg)
{
	struct conns *conns = arg;

	(void)fd;
	(void)what;
	conns->accepted = 0;
	for (uint32_t i = 0; i < conns->n_listeners; i++)
		(void)evconnlistener_enable(conns->listeners[i]);
}

/* Usually out of descriptors: drops an unauthenticated connection, or sleeps 10 ms if there is
   none, so that the loop does not spin. */
static void on_accept_error(struct evconnlistener *listener, void *arg)
{
	struct conns *conns = arg;

	(void)listener;
	log_error("accept: %s", strerror(errno));
	for (int i = 0; i < QUEUE_READY; i++)
		if (drop_oldest(conns, (enum conn_queue)i))
			return;
	usleep(10 * 1000);
}

/* Listens on the bound socket fd; owns fd, and closes it on failure. */
static int add_listener(struct conns *conns, int fd)
{
	struct evconnlistener *listener =
		evconnlistener_new(conns->opts.base, on_accept, conns,
				   LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC, BACKLOG, fd);

	if (!listener) {
		int ret = error_set(-errno, "listen: %s", strerror(errno));

		close(fd);
		return ret;
	}
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
	/* The caller holds the lock of the name: the socket's former owner is gone. */
	(void)unlink(path);
	mask = umask(0177);
	ret = bind(fd, (struct sockaddr *)&address, sizeof(address)) ? -errno : 0;
	umask(mask);
	if (ret) {
		close(fd);
		return error_set(ret, "bind %s: %s", path, strerror(-ret));
	}
	ret = add_listener(conns, fd);
	if (ret == 0)
		snprintf(conns->socket_path, sizeof(conns->socket_path), "%s", path);
	return ret;
}

int conns_listen_tcp(struct conns *conns, const char *host, uint16_t port, uint16_t *port_out)
{
	const struct tls_opts opts = {
		.server = true,
		.token = conns->opts.token,
		.files = conns->opts.tls,
	};
	int fd = -1, ret = conns->tls ? 0 : tls_open(&opts, &conns->tls);

	if (ret == 0)
		ret = tcp_bind(host, port, &fd, port_out);
	return ret ? ret : add_listener(conns, fd);
}

int conns_open(const struct conns_opts *opts, struct conns **conns_out)
{
	struct conns *conns = mem_zalloc(sizeof(*conns));

	if (!conns)
		return error_set(-ENOMEM, "connections: cannot allocate memory");
	conns->opts = *opts;
	conns->queues[QUEUE_TCP].limit_ns = CONN_AUTH_SECONDS * CLOCK_NS_PER_S;
	conns->queues[QUEUE_LOCAL].limit_ns = CONN_AUTH_SECONDS * CLOCK_NS_PER_S;
	conns->queues[QUEUE_LAST_WORDS].limit_ns = CONN_LAST_WORDS_SECONDS * CLOCK_NS_PER_S;
	conns->sweep = evtimer_new(opts->base, on_sweep, conns);
	conns->again = evtimer_new(opts->base, on_again, conns);
	if (!conns->sweep || !conns->again) {
		conns_close(&conns);
		return error_set(-ENOMEM, "connections: cannot allocate memory");
	}
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
	for (int i = 0; i < QUEUES; i++)
		while (conns->queues[i].first)
			conn_free(conn_of(conns->queues[i].first));
	if (conns->sweep)
		event_free(conns->sweep);
	if (conns->again)
		event_free(conns->again);
	if (conns->socket_path[0])
		(void)unlink(conns->socket_path);
	tls_close(&conns->tls);
	mem_free(conns);
	*conns_ptr = NULL;
}
