/*
 * link.c - connects, asks, and hangs up.
 */
#include "transport/ofi/link.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/log.h"
#include "base/os/random.h"

/* -------- waiting -------- */

int ofi_link_wait(struct ofi_link *link, short events, uint64_t deadline_ns)
{
	struct pollfd ready = { .fd = link->stream.sock, .events = events };

	for (;;) {
		int n = poll(&ready, 1, deadline_left_ms(link->clock, deadline_ns));

		if (n > 0)
			return 0;
		if (n < 0 && errno != EINTR)
			return error_set(-EIO, "poll: %s", strerror(errno));
		if (deadline_expired(link->clock, deadline_ns))
			return error_set(-ETIMEDOUT, "the memory node did not answer in time");
	}
}

static int link_take(struct ofi_link *link, union ofi_any *message_out, uint64_t deadline)
{
	int ret;

	while ((ret = ofi_stream_take(&link->stream, message_out)) == -EAGAIN) {
		ret = ofi_link_wait(link, POLLIN, deadline);
		if (ret)
			return ret;
	}
	return ret;
}

static int link_send(struct ofi_link *link, union ofi_any *message, enum ofi_message type,
		     uint64_t deadline)
{
	int ret;

	while ((ret = ofi_stream_send(&link->stream, message, type)) == -EAGAIN) {
		ret = ofi_link_wait(link, POLLOUT, deadline);
		if (ret)
			return ret;
	}
	return ret;
}

int ofi_link_check(struct ofi_link *link)
{
	char byte;
	ssize_t n;

	if (link->cut)
		return error_set(-ECONNRESET, "the connection to the memory node was lost earlier");
	n = recv(link->stream.sock, &byte, 1, MSG_PEEK);
	if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)))
		return 0;
	return error_set(-ECONNRESET, "the memory node has hung up");
}

/* -------- opening -------- */

static int connect_to(struct ofi_link *link, const struct addrinfo *at, uint64_t deadline)
{
	socklen_t bytes = sizeof(int);
	int ret, code = 0;

	link->stream.sock = socket(at->ai_family, at->ai_socktype, at->ai_protocol);
	if (link->stream.sock < 0)
		return error_set(-errno, "socket: %s", strerror(errno));
	ret = ofi_stream_set(link->stream.sock);
	if (ret)
		return ret;
	if (connect(link->stream.sock, at->ai_addr, at->ai_addrlen) && errno != EINPROGRESS)
		return error_set(-errno, "connect: %s", strerror(errno));
	ret = ofi_link_wait(link, POLLOUT, deadline);
	if (ret)
		return ret;
	if (getsockopt(link->stream.sock, SOL_SOCKET, SO_ERROR, &code, &bytes) || code)
		return error_set(-code, "connect: %s", strerror(code));
	return 0;
}

/* Connects to one of the addresses; host_out: that one, as digits. */
static int connect_any(struct ofi_link *link, const struct ofi_link_opts *opts,
		       char host_out[NI_MAXHOST], uint64_t deadline)
{
	const struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM };
	struct addrinfo *list = NULL;
	int unknown = getaddrinfo(opts->host, opts->port, &hints, &list), ret = -ENOENT;

	if (unknown)
		return error_set(-ENOENT, "%s port %s: %s", opts->host, opts->port,
				 gai_strerror(unknown));
	for (const struct addrinfo *at = list; ret && at; at = at->ai_next) {
		if (link->stream.sock >= 0)
			close(link->stream.sock);
		ret = connect_to(link, at, deadline);
		if (ret == 0)
			(void)getnameinfo(at->ai_addr, at->ai_addrlen, host_out, NI_MAXHOST, NULL,
					  0, NI_NUMERICHOST);
	}
	freeaddrinfo(list);
	return ret;
}

static int greet(struct ofi_link *link, const struct ofi_link_opts *opts, uint64_t deadline)
{
	union ofi_any message = { .hello = { .client_id = opts->client_id,
					     .link = link->number,
					     .replaces = opts->replaces } };
	int ret = link_send(link, &message, OFI_HELLO, deadline);

	if (ret == 0)
		ret = link_take(link, &message, deadline);
	if (ret)
		return ret;
	if (message.head.type == OFI_REFUSAL)
		return error_set(message.refusal.status, "memory node: %s", message.refusal.text);
	if (message.head.type != OFI_WELCOME)
		return error_set(-EPROTO, "message of type %u came, not a WELCOME",
				 message.head.type);
	link->welcome = message.welcome;
	return 0;
}

int ofi_link_open(const struct ofi_link_opts *opts, struct ofi_link *link)
{
	uint64_t deadline =
		deadline_after(opts->clock, (int64_t)min_u64(opts->timeout_ns, INT64_MAX));
	struct ofi_port_opts port = { .provider = link->welcome.provider };
	char host[NI_MAXHOST] = "";
	int ret = 0;

	link->stream.sock = -1;
	link->clock = opts->clock;
	while (ret == 0 && link->number == 0)
		ret = random_fill(&link->number, sizeof(link->number));
	if (ret == 0)
		ret = connect_any(link, opts, host, deadline);
	if (ret == 0)
		ret = greet(link, opts, deadline);
	port.host = host;
	if (ret == 0 && *port.provider)
		ret = ofi_port_open(&port, &link->port);
	if (ret)
		return error_prefix(ret, "ofi:%s:%s: ", opts->host, opts->port);
	log_info("link to %s%s%s", host, *port.provider ? " with libfabric provider " : "",
		 port.provider);
	return 0;
}

/* -------- asking -------- */

/* Keeps the name of the target's endpoint that an answer brings; it never changes. */
static int learn_endpoint(struct ofi_link *link, const struct ofi_attached *answer)
{
	int ret;

	if (link->endpoint_bytes == answer->endpoint_bytes &&
	    memcmp(link->endpoint, answer->endpoint, sizeof(link->endpoint)) == 0)
		return 0;
	if (link->endpoint_bytes || !link->port.calls)
		return error_set(-EPROTO, "the memory node's endpoint has changed");
	ret = ofi_port_add(&link->port, answer->endpoint, answer->endpoint_bytes, &link->peer);
	if (ret)
		return ret;
	memcpy(link->endpoint, answer->endpoint, sizeof(link->endpoint));
	link->endpoint_bytes = answer->endpoint_bytes;
	return 0;
}

int ofi_link_ask(struct ofi_link *link, union ofi_any *request, enum ofi_message type,
		 struct ofi_attached *answer_out, uint64_t deadline_ns)
{
	union ofi_any message;
	int ret = link_send(link, request, type, deadline_ns);

	if (ret || !answer_out)
		return ret;
	ret = link_take(link, &message, deadline_ns);
	if (ret)
		return ret;
	if (message.head.type != OFI_ATTACHED ||
	    message.attached.request != request->attach.request)
		return error_set(-EPROTO, "the memory node answered with type %u to request %u",
				 message.head.type, request->attach.request);
	*answer_out = message.attached;
	return answer_out->status ? 0 : learn_endpoint(link, answer_out);
}

/* -------- hanging up -------- */

void ofi_link_cut(struct ofi_link *link)
{
	if (link->cut)
		return;
	link->cut = true;
	if (link->port.calls && ofi_port_close(&link->port))
		log_error("close a link: %s", error_last());
	if (link->stream.sock >= 0)
		close(link->stream.sock);
	link->stream.sock = -1;
}

void ofi_link_close(struct ofi_link *link, bool forked)
{
	if (!forked)
		ofi_link_cut(link);
	else if (link->stream.sock >= 0)
		close(link->stream.sock);
}
