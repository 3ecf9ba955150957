#include "wire/control/channel.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "wire/control/tls.h"

#include "base/mem/alloc.h"

/* -------- stream -------- */

static int channel_moved(ssize_t n, size_t *n_out, short want, short *events_out)
{
	if (n > 0) {
		*n_out = (size_t)n;
		return 0;
	}
	if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
		*events_out = want;
		return -EAGAIN;
	}
	return error_set(-ECONNRESET, "connection: %s",
			 n == 0 ? "closed by the peer" : strerror(errno));
}

int stream_read(struct stream *stream, void *dst, size_t len, size_t *n_out, short *events_out)
{
	if (stream->tls)
		return tls_read(stream->tls, dst, len, n_out, events_out);
	return channel_moved(recv(stream->fd, dst, len, 0), n_out, POLLIN, events_out);
}

int stream_write(struct stream *stream, const void *src, size_t len, size_t *n_out,
		 short *events_out)
{
	if (stream->tls)
		return tls_write(stream->tls, src, len, n_out, events_out);
	return channel_moved(send(stream->fd, src, len, MSG_NOSIGNAL), n_out, POLLOUT, events_out);
}

void stream_close(struct stream *stream)
{
	tls_end(stream->tls);
	stream->tls = NULL;
	if (stream->fd >= 0)
		close(stream->fd);
	stream->fd = -1;
}

struct stream stream_socket(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	if (flags >= 0)
		(void)fcntl(fd, F_SETFL, flags | O_NONBLOCK);
	return (struct stream){ .fd = fd };
}

/* -------- channel -------- */

void channel_init(struct channel *ch, struct stream stream)
{
	*ch = (struct channel){ .stream = stream, .clock = clock_monotonic() };
}

void channel_fini(struct channel *ch)
{
	stream_close(&ch->stream);
	mem_free(ch->body);
	ch->body = NULL;
	ch->room = 0;
}

static int wait_for(struct channel *ch, short events, uint64_t deadline_ns)
{
	struct pollfd ready = { .fd = ch->stream.fd, .events = events };
	int n;

	do
		n = poll(&ready, 1, deadline_left_ms(ch->clock, deadline_ns));
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return error_set(-errno, "poll: %s", strerror(errno));
	return n == 0 ? error_set(-ETIMEDOUT, "connection: no answer in time") : 0;
}

bool channel_is_readable(const struct channel *ch)
{
	struct pollfd ready = { .fd = ch->stream.fd, .events = POLLIN };

	return tls_has_bytes(ch->stream.tls) || poll(&ready, 1, 0) > 0;
}

/*
 * -ETIMEDOUT after the deadline. It covers the whole transfer: single bytes that arrive do not
 * extend it.
 */
static int check_time(const struct channel *ch, uint64_t deadline_ns)
{
	return deadline_expired(ch->clock, deadline_ns)
		       ? error_set(-ETIMEDOUT,
				   "connection: the answer did not arrive whole in time")
		       : 0;
}

int channel_send(struct channel *ch, uint16_t type, uint64_t request_id,
		 const ProtobufCMessage *message, uint64_t deadline_ns)
{
	size_t len = protobuf_c_message_get_packed_size(message), sent = 0, n = 0;
	struct frame_header head = { .type = type, .request_id = request_id, .term = ch->term };
	uint8_t *bytes;
	int ret;

	if (len > FRAME_BODY_MAX)
		return error_set(-EOVERFLOW, "message of type %u: %zu bytes, at most %u", type, len,
				 FRAME_BODY_MAX);
	bytes = mem_alloc(FRAME_HEADER_BYTES + len);
	if (!bytes)
		return error_set(-ENOMEM, "cannot allocate a message of %zu bytes", len);
	head.length = (uint32_t)len;
	ret = frame_encode(&head, bytes);
	protobuf_c_message_pack(message, bytes + FRAME_HEADER_BYTES);
	for (len += FRAME_HEADER_BYTES; ret == 0 && sent < len; sent += n, n = 0) {
		short events = POLLOUT;

		ret = stream_write(&ch->stream, bytes + sent, len - sent, &n, &events);
		if (ret == -EAGAIN)
			ret = wait_for(ch, events, deadline_ns);
		if (ret == 0 && sent + n < len)
			ret = check_time(ch, deadline_ns);
	}
	mem_free(bytes);
	return ret;
}

/* Reads on until `end` bytes of the frame have arrived. -EAGAIN: poll for *events_out first. */
static int read_to(struct channel *ch, uint8_t *bytes, size_t end, uint64_t deadline_ns,
		   short *events_out)
{
	while (ch->got < end) {
		size_t n = 0;
		int ret = stream_read(&ch->stream, bytes, end - ch->got, &n, events_out);

		if (ret)
			return ret;
		bytes += n;
		ch->got += n;
		if (ch->got < end && check_time(ch, deadline_ns))
			return -ETIMEDOUT;
	}
	return 0;
}

/* Reads a frame, or as many of its bytes as have arrived: -EAGAIN, poll for *events_out first. */
static int channel_read_frame(struct channel *ch, uint64_t deadline_ns, short *events_out,
			      struct channel_frame *frame_out)
{
	struct channel_frame frame;
	uint8_t *body;
	size_t got;
	int ret = ch->got < FRAME_HEADER_BYTES ? read_to(ch, ch->head + ch->got, FRAME_HEADER_BYTES,
							 deadline_ns, events_out)
					       : 0;

	if (ret == 0)
		ret = frame_decode(ch->head, FRAME_HEADER_BYTES, &frame.head);
	if (ret)
		return ret;
	if (frame.head.length > ch->room) {
		body = mem_resize(ch->body, frame.head.length);
		if (!body)
			return error_set(-ENOMEM, "message of %u bytes: no memory",
					 frame.head.length);
		ch->body = body;
		ch->room = frame.head.length;
	}
	got = ch->got - FRAME_HEADER_BYTES;
	if (got < frame.head.length)
		ret = read_to(ch, ch->body + got, FRAME_HEADER_BYTES + (size_t)frame.head.length,
			      deadline_ns, events_out);
	if (ret)
		return ret;
	ch->got = 0;
	frame.body = ch->body;
	*frame_out = frame;
	return 0;
}

int channel_take(struct channel *ch, struct channel_frame *frame_out)
{
	short events = 0;

	return channel_read_frame(ch, DEADLINE_NEVER, &events, frame_out);
}

int channel_receive(struct channel *ch, uint64_t deadline_ns, struct channel_frame *frame_out)
{
	short events = POLLIN;
	int ret = channel_read_frame(ch, deadline_ns, &events, frame_out);

	while (ret == -EAGAIN) {
		ret = wait_for(ch, events, deadline_ns);
		events = POLLIN;
		if (ret == 0)
			ret = channel_read_frame(ch, deadline_ns, &events, frame_out);
		if (ret == -EAGAIN && check_time(ch, deadline_ns))
			ret = -ETIMEDOUT;
	}
	return ret;
}

int channel_call(struct channel *ch, uint16_t type, const ProtobufCMessage *request,
		 uint64_t deadline_ns, struct channel_frame *frame_out)
{
	struct channel_frame frame;
	uint64_t id = ++ch->last_id;
	int ret = channel_send(ch, type, id, request, deadline_ns);

	if (ret == 0)
		ret = channel_receive(ch, deadline_ns, &frame);
	if (ret)
		return ret;
	if (frame.head.type != (type | FRAME_ANSWER) || frame.head.request_id != id)
		return error_set(-EPROTO, "answer of type %u to a request of type %u",
				 frame.head.type & ~FRAME_ANSWER, type);
	*frame_out = frame;
	return 0;
}

ProtobufCMessage *channel_unpack(const ProtobufCMessageDescriptor *kind,
				 const struct channel_frame *frame)
{
	static const uint8_t nothing[1];
	const uint8_t *body = frame->head.length ? frame->body : nothing;
	ProtobufCMessage *message = protobuf_c_message_unpack(kind, NULL, frame->head.length, body);

	if (!message)
		(void)error_set(-EPROTO, "frame type %u: its body is not a %s",
				frame->head.type & ~FRAME_ANSWER, kind->short_name);
	return message;
}
