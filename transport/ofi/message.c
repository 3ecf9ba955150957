/*
 * message.c - sizes and checks of each message, and the bytes of a connection.
 */
#include "transport/ofi/message.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

#include "base/bits.h"

#include "transport/message_body.h"

#include "wire/message_head.h"

enum { SILENT_S = 60, PROBE_S = 5 };

/* -------- messages -------- */

size_t ofi_message_size(uint16_t type)
{
	static const size_t sizes[] = {
		[OFI_HELLO] = sizeof(struct ofi_hello),
		[OFI_WELCOME] = sizeof(struct ofi_welcome),
		[OFI_REFUSAL] = sizeof(struct ofi_refusal),
		[OFI_ATTACH] = sizeof(struct ofi_attach),
		[OFI_ATTACHED] = sizeof(struct ofi_attached),
		[OFI_DETACH] = sizeof(struct ofi_detach),
	};

	return type < ARRAY_LEN(sizes) ? sizes[type] : 0;
}

static const struct message_family family = { "ofi transport", OFI_MAGIC, OFI_VERSION,
					      ofi_message_size };

void ofi_message_seal(union ofi_any *message, enum ofi_message type)
{
	message_head_seal(&message->head, &family, (uint16_t)type);
}

static bool attached_is_sound(const struct ofi_attached *a)
{
	if (!error_is_code(a->status) || !message_text_ends(a->text, sizeof(a->text)) ||
	    a->opening >= OFI_OPENINGS_MAX)
		return false;
	if (a->endpoint_bytes > OFI_ENDPOINT_BYTES ||
	    !bits_all_zero(a->endpoint + a->endpoint_bytes, OFI_ENDPOINT_BYTES - a->endpoint_bytes))
		return false;
	return a->status || message_range_is_sound(a->region, a->rights, a->address, a->size);
}

static bool body_is_sound(const union ofi_any *m)
{
	switch (m->head.type) {
	case OFI_HELLO:
		return m->hello.link && m->hello.replaces != m->hello.link;
	case OFI_WELCOME:
		return message_text_ends(m->welcome.provider, sizeof(m->welcome.provider));
	case OFI_REFUSAL:
		return m->refusal.status && error_is_code(m->refusal.status) &&
		       message_text_ends(m->refusal.text, sizeof(m->refusal.text));
	case OFI_ATTACH:
		return message_grant_is_sound(m->attach.grant, m->attach.grant_bytes,
					      OFI_GRANT_BYTES);
	case OFI_ATTACHED:
		return attached_is_sound(&m->attached);
	case OFI_DETACH:
		return m->detach.region && m->detach.request;
	}
	return false;
}

int ofi_message_check(union ofi_any *message_out, const void *bytes, size_t n)
{
	union ofi_any message = { .bytes = { 0 } };
	int ret;

	if (n)
		memcpy(message.bytes, bytes, min_u64(n, sizeof(message)));
	ret = message_head_check(&message.head, n, &family);
	if (ret)
		return ret;
	if (!body_is_sound(&message))
		return error_set(-EPROTO, "message of type %u: a field is out of its range",
				 message.head.type);
	memcpy(message_out->bytes, message.bytes, n);
	return 0;
}

/* -------- a connection -------- */

int ofi_stream_set(int sock)
{
	const int on = 1, idle = PROBE_S, count = SILENT_S / PROBE_S;
	const unsigned silent_ms = SILENT_S * 1000;

	if (fcntl(sock, F_SETFL, O_NONBLOCK) || fcntl(sock, F_SETFD, FD_CLOEXEC) ||
	    setsockopt(sock, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) ||
	    setsockopt(sock, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on)) ||
	    setsockopt(sock, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle)) ||
	    setsockopt(sock, IPPROTO_TCP, TCP_KEEPINTVL, &idle, sizeof(idle)) ||
	    setsockopt(sock, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count)) ||
	    setsockopt(sock, IPPROTO_TCP, TCP_USER_TIMEOUT, &silent_ms, sizeof(silent_ms)))
		return error_set(-errno, "options of a connection: %s", strerror(errno));
	return 0;
}

/* Receives until stream->in has `want` bytes. */
static int stream_fill(struct ofi_stream *stream, size_t want)
{
	while (stream->have < want) {
		ssize_t n =
			recv(stream->sock, stream->in.bytes + stream->have, want - stream->have, 0);

		if (n > 0)
			stream->have += (uint32_t)n;
		else if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return -EAGAIN;
		else
			return error_set(-ECONNRESET, "the other side has hung up%s%s",
					 n ? ": " : "", n ? strerror(errno) : "");
	}
	return 0;
}

int ofi_stream_take(struct ofi_stream *stream, union ofi_any *message_out)
{
	int ret = stream_fill(stream, sizeof(stream->in.head));
	size_t want = stream->in.head.bytes;

	if (ret)
		return ret;
	if (want < sizeof(stream->in.head) || want > sizeof(stream->in))
		return error_set(-EPROTO, "message of %zu bytes: no message is that long", want);
	ret = stream_fill(stream, want);
	if (ret)
		return ret;
	stream->have = 0;
	return ofi_message_check(message_out, stream->in.bytes, want);
}

int ofi_stream_send(struct ofi_stream *stream, union ofi_any *message, enum ofi_message type)
{
	ssize_t n;

	ofi_message_seal(message, type);
	n = send(stream->sock, message->bytes, message->head.bytes, MSG_NOSIGNAL);
	if (n == (ssize_t)message->head.bytes)
		return 0;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return -EAGAIN;
	return error_set(-ECONNRESET, "send: %s",
			 n < 0 ? strerror(errno) : "the other side reads nothing");
}
