#include "wire/control/dial.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "wire/control/announce.h"
#include "wire/region.h"

#include "base/os/process.h"

#define ANNOUNCE_POLL_NS (50 * CLOCK_NS_PER_MS)
#define QUEUE_POLL_NS CLOCK_NS_PER_MS

/* -------- connect -------- */

static int connect_to(const struct sockaddr *address, socklen_t len, uint64_t deadline_ns,
		      int *fd_out)
{
	int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct pollfd ready = { .fd = fd, .events = POLLOUT };
	socklen_t error_len = sizeof(int);
	int error = 0, n = 1, ret = 0;

	if (fd < 0)
		return -errno;
	if (connect(fd, address, len))
		ret = -errno;
	if (ret == -EINPROGRESS) {
		do
			n = poll(&ready, 1, deadline_left_ms(clock_monotonic(), deadline_ns));
		while (n < 0 && errno == EINTR);
		if (n < 0 || getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &error_len))
			ret = -errno;
		else
			ret = n == 0 ? -ETIMEDOUT : -error;
	}
	if (ret) {
		close(fd);
		return ret;
	}
	*fd_out = fd;
	return 0;
}

/* A socket whose queue is full cannot be polled for a place: it is tried again until the deadline. */
static int connect_socket(const struct dial_opts *opts, int *fd_out)
{
	const struct timespec pause = { .tv_nsec = QUEUE_POLL_NS };
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int ret;

	if (strlen(opts->socket) >= sizeof(address.sun_path))
		return error_set(-ENAMETOOLONG, "socket %s: name too long", opts->socket);
	memcpy(address.sun_path, opts->socket, strlen(opts->socket) + 1);
	while ((ret = connect_to((const struct sockaddr *)&address, sizeof(address),
				 opts->deadline_ns, fd_out)) == -EAGAIN) {
		if (deadline_expired(clock_monotonic(), opts->deadline_ns))
			return error_set(-ECONNREFUSED, "connect %s: its queue is full",
					 opts->socket);
		(void)nanosleep(&pause, NULL);
	}
	return ret ? error_set(ret, "connect %s: %s", opts->socket, strerror(-ret)) : 0;
}

static int connect_host(const struct dial_opts *opts, int *fd_out)
{
	struct addrinfo wanted = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM };
	struct addrinfo *found = NULL;
	const int one = 1;
	char port[8];
	int ret;

	snprintf(port, sizeof(port), "%u", opts->port);
	ret = getaddrinfo(opts->host, port, &wanted, &found);
	if (ret)
		return error_set(-EHOSTUNREACH, "host %s: %s", opts->host, gai_strerror(ret));
	ret = -EHOSTUNREACH;
	for (const struct addrinfo *at = found; at && ret; at = at->ai_next)
		ret = connect_to(at->ai_addr, at->ai_addrlen, opts->deadline_ns, fd_out);
	freeaddrinfo(found);
	if (ret)
		return error_set(ret, "connect %s:%u: %s", opts->host, opts->port, strerror(-ret));
	(void)setsockopt(*fd_out, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return 0;
}

/*
 * Connects as the file announces, and sets host, port, and token if it is "". A file that is missing,
 * or left by a server that was killed, is read again until the deadline.
 */
static int connect_announced(struct dial_opts *opts, struct announcement *news, int *fd_out)
{
	const char *path = announce_path(opts->host);
	const struct timespec pause = { .tv_nsec = ANNOUNCE_POLL_NS };
	int ret;

	for (;;) {
		ret = announce_read(path, news);
		if (ret == 0) {
			opts->host = news->host;
			opts->port = news->port;
			ret = connect_host(opts, fd_out);
		}
		if (ret != -ENOENT && ret != -ECONNREFUSED && ret != -EHOSTUNREACH)
			break;
		if (deadline_expired(clock_monotonic(), opts->deadline_ns))
			return error_prefix(ret, "@%s: ", path);
		(void)nanosleep(&pause, NULL);
	}
	if (ret == 0 && !opts->token[0])
		opts->token = news->token;
	return ret;
}

/* -------- hello, auth -------- */

int dial_status(const Relive__Status *status)
{
	if (!status)
		return error_set(-EPROTO, "answer without a status");
	if (status->code == 0)
		return 0;
	if (!error_is_code(status->code))
		return error_set(-EPROTO, "answer with status %d", status->code);
	return error_set(status->code, "%s", status->message);
}

struct handshake {
	const struct dial_opts *opts;
	struct channel *ch;
	struct auth_nonces nonces;
	struct dial_peer peer;
};

static int read_hello(struct handshake *hs, const Relive__HelloReply *reply)
{
	uint8_t proof[AUTH_PROOF_BYTES];
	int ret = dial_status(reply->status);

	if (ret)
		return ret;
	if (reply->format_major != REGION_FORMAT_MAJOR)
		return error_set(-EPROTO, "format %u: this program speaks %d", reply->format_major,
				 REGION_FORMAT_MAJOR);
	if (reply->nonce.len != AUTH_NONCE_BYTES || reply->store_uuid.len != 16)
		return error_set(-EPROTO, "hello: nonce of %zu bytes, uuid of %zu",
				 reply->nonce.len, reply->store_uuid.len);
	memcpy(hs->nonces.listener, reply->nonce.data, AUTH_NONCE_BYTES);
	memcpy(hs->peer.store_uuid, reply->store_uuid.data, 16);
	snprintf(hs->peer.store, sizeof(hs->peer.store), "%s", reply->store_name);
	snprintf(hs->peer.software, sizeof(hs->peer.software), "%s", reply->software);
	ret = auth_prove(AUTH_LISTENER, hs->opts->token, &hs->nonces, proof);
	if (ret)
		return ret;
	if (!auth_is_proof(proof, reply->proof.data, reply->proof.len))
		return error_set(
			-EACCES,
			"token: the server has another token, or is the server of another store");
	return 0;
}

static int say_hello(struct handshake *hs)
{
	Relive__HelloRequest request = RELIVE__HELLO_REQUEST__INIT;
	Relive__HelloReply *reply;
	struct channel_frame frame;
	struct process_id self;
	struct token_id id;
	char identity[TOKEN_IDENTITY_BYTES];
	int ret = token_parse("token", hs->opts->token, &id);

	if (ret == 0)
		ret = process_self(&self);
	if (ret == 0)
		ret = auth_nonce(hs->nonces.dialler);
	if (ret)
		return ret;
	request.format_major = REGION_FORMAT_MAJOR;
	request.software = (char *)hs->opts->software;
	request.role = (char *)hs->opts->role;
	request.pid = self.pid;
	request.start_time = self.start_time;
	request.boot_id = (ProtobufCBinaryData){ sizeof(self.boot_id), self.boot_id };
	request.client_id = hs->opts->client_id;
	request.nonce = (ProtobufCBinaryData){ AUTH_NONCE_BYTES, hs->nonces.dialler };
	token_identity(&id, identity);
	request.identity = identity;
	ret = channel_call(hs->ch, RELIVE__TYPE__TYPE_HELLO, &request.base, hs->opts->deadline_ns,
			   &frame);
	if (ret)
		return ret;
	reply = (Relive__HelloReply *)channel_unpack(&relive__hello_reply__descriptor, &frame);
	if (!reply)
		return -EPROTO;
	ret = read_hello(hs, reply);
	relive__hello_reply__free_unpacked(reply, NULL);
	return ret;
}

static int dial_prove(struct handshake *hs)
{
	Relive__AuthRequest request = RELIVE__AUTH_REQUEST__INIT;
	uint8_t proof[AUTH_PROOF_BYTES];
	Relive__AuthReply *reply;
	struct channel_frame frame;
	int ret = auth_prove(AUTH_DIALLER, hs->opts->token, &hs->nonces, proof);

	if (ret)
		return ret;
	request.proof = (ProtobufCBinaryData){ sizeof(proof), proof };
	if (hs->opts->client_id && hs->opts->secret)
		request.secret =
			(ProtobufCBinaryData){ AUTH_SECRET_BYTES, (uint8_t *)hs->opts->secret };
	ret = channel_call(hs->ch, RELIVE__TYPE__TYPE_AUTH, &request.base, hs->opts->deadline_ns,
			   &frame);
	if (ret)
		return ret;
	reply = (Relive__AuthReply *)channel_unpack(&relive__auth_reply__descriptor, &frame);
	if (!reply)
		return -EPROTO;
	hs->peer.term = frame.head.term;
	hs->peer.client_id = reply->client_id;
	hs->peer.lease_ns = reply->lease_ns;
	ret = dial_status(reply->status);
	if (ret == 0 && reply->secret.len == AUTH_SECRET_BYTES)
		memcpy(hs->peer.secret, reply->secret.data, AUTH_SECRET_BYTES);
	else if (ret == 0 && reply->secret.len != 0)
		ret = error_set(-EPROTO, "auth: secret of %zu bytes", reply->secret.len);
	relive__auth_reply__free_unpacked(reply, NULL);
	return ret;
}

/* Connects over TCP, with opts->host and opts->token as announced; *tls_out is set after errors, too. */
static int connect_tls(struct dial_opts *opts, struct announcement *news, struct stream *stream,
		       struct tls **tls_out)
{
	struct tls_opts tls = { .files = opts->tls };
	int fd = -1, ret = 0;

	if (announce_path(opts->host))
		ret = connect_announced(opts, news, &fd);
	tls.token = opts->token;
	tls.host = opts->host;
	if (ret == 0)
		ret = tls_open(&tls, tls_out);
	if (ret == 0 && fd < 0)
		ret = connect_host(opts, &fd);
	if (ret == 0)
		return stream_init_tls(stream, fd, *tls_out);
	if (fd >= 0)
		close(fd);
	return ret;
}

int dial_open(const struct dial_opts *opts, struct channel *ch_out, struct dial_peer *peer_out)
{
	struct dial_opts full = *opts;
	struct announcement news;
	struct channel ch;
	struct handshake hs = { .opts = &full, .ch = &ch };
	struct tls *tls = NULL;
	struct stream stream = { .fd = -1 };
	int fd = -1, ret;

	if (opts->socket) {
		ret = connect_socket(opts, &fd);
		stream = stream_socket(fd);
	} else {
		ret = connect_tls(&full, &news, &stream, &tls);
	}
	if (ret == 0) {
		channel_init(&ch, stream);
		ret = say_hello(&hs);
		if (ret == 0)
			ret = dial_prove(&hs);
		if (ret)
			channel_fini(&ch);
	}
	tls_close(&tls);
	if (ret)
		return ret;
	ch.term = hs.peer.term;
	*ch_out = ch;
	*peer_out = hs.peer;
	return 0;
}
