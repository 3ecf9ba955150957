#include "server/net/flow.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

#include <event2/buffer.h>
#include <event2/event.h>

enum {
	READ_BYTES = 16384, /* a TLS record, so that the stream keeps nothing back */
	READS_MAX = 4,      /* reads per turn, for fairness */
	OUT_LOW = 64 << 10,
	OUT_HIGH = 256 << 10,
	OUT_MAX = 4 << 20,
	LINGER_BYTES = 1 << 20,
};

static const struct timeval write_limit = { .tv_sec = FLOW_WRITE_SECONDS };

/* -------- writing -------- */

static void expect_writable(struct flow *flow)
{
	if (!event_pending(flow->writable, EV_WRITE, NULL))
		(void)event_add(flow->writable, &write_limit);
}

bool flow_is_full(const struct flow *flow)
{
	return evbuffer_get_length(flow->out) >= OUT_HIGH;
}

bool flow_has_room(const struct flow *flow, size_t len)
{
	return evbuffer_get_length(flow->out) + len <= OUT_MAX;
}

void flow_write(struct flow *flow, const void *bytes, size_t len)
{
	if (evbuffer_add(flow->out, bytes, len) == 0)
		expect_writable(flow);
	if (!flow->full_since && flow_is_full(flow))
		flow->full_since = clock_now_ns(clock_monotonic());
}

/* Sends pending output. 0: all of it was sent; -EAGAIN: the stream takes no more now; else the
   stream has ended. */
static int write_some(struct flow *flow)
{
	struct evbuffer_iovec part;
	short events = POLLOUT;
	int ret = 0;

	while (ret == 0 && evbuffer_peek(flow->out, -1, NULL, &part, 1) > 0) {
		size_t n = 0;

		ret = stream_write(&flow->stream, part.iov_base, part.iov_len, &n, &events);
		if (ret == 0)
			evbuffer_drain(flow->out, n);
	}
	if (ret == -EAGAIN && events == POLLOUT)
		expect_writable(flow);
	if (evbuffer_get_length(flow->out) <= OUT_LOW)
		flow->full_since = 0;
	return ret;
}

/* -------- reading -------- */

void flow_pause(struct flow *flow)
{
	flow->paused = true;
	(void)event_del(flow->readable);
}

void flow_resume(struct flow *flow)
{
	flow->paused = false;
	flow->resumed = true;
	(void)event_add(flow->readable, NULL);
	event_active(flow->readable, EV_READ, 0);
}

static void go_on(struct flow *flow)
{
	uint8_t bytes[READ_BYTES];
	bool resumed = flow->resumed, any = false;
	short events = POLLIN;
	int ret = write_some(flow);

	if (ret && ret != -EAGAIN) {
		flow->ops->on_end(flow->ctx, ret);
		return;
	}
	if (flow->paused) {
		if (!flow->full_since)
			flow->ops->on_drained(flow->ctx);
		return;
	}
	ret = 0;
	for (int i = 0; ret == 0 && i < READS_MAX; i++) {
		size_t n = 0;

		ret = stream_read(&flow->stream, bytes, sizeof(bytes), &n, &events);
		if (ret == 0 && evbuffer_add(flow->in, bytes, n))
			ret = error_set(-ENOMEM, "connection: cannot allocate memory");
		any |= n > 0;
	}
	if (ret == -EAGAIN && events == POLLOUT)
		expect_writable(flow);
	/* Received bytes are delivered before the end: it follows at the next turn. */
	flow->resumed = false;
	if (any || resumed)
		flow->ops->on_read(flow->ctx);
	else if (ret && ret != -EAGAIN)
		flow->ops->on_end(flow->ctx, ret);
}

/* -------- lingering close -------- */

/* A turn of a lingering close: sends output, closes our side, discards input. Calls on_end when the
   peer has closed its side, has sent LINGER_BYTES, or the stream fails. */
static void linger_on(struct flow *flow)
{
	uint8_t bytes[READ_BYTES];
	ssize_t n = 1;
	int ret = write_some(flow);

	if (ret == 0 && !flow->shut) {
		flow->shut = true;
		(void)shutdown(flow->stream.fd, SHUT_WR);
	}
	for (int i = 0; (ret == 0 || ret == -EAGAIN) && i < READS_MAX && n > 0; i++) {
		n = recv(flow->stream.fd, bytes, sizeof(bytes), MSG_DONTWAIT);
		if (n > 0)
			flow->dropped += (uint32_t)n;
	}
	if (n == 0 && ret == -EAGAIN) /* it may still read: the end follows */
		(void)event_del(flow->readable);
	else if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR) ||
		 flow->dropped >= LINGER_BYTES)
		ret = -ECONNRESET;
	if (ret && ret != -EAGAIN)
		flow->ops->on_end(flow->ctx, ret);
}

void flow_linger(struct flow *flow, bool broken)
{
	flow->lingers = true;
	if (broken)
		evbuffer_drain(flow->out, evbuffer_get_length(flow->out));
	evbuffer_drain(flow->in, evbuffer_get_length(flow->in));
	(void)event_add(flow->readable, NULL);
	event_active(flow->readable, EV_READ, 0);
}

/* -------- events -------- */

static void on_ready(evutil_socket_t fd, short what, void *arg)
{
	const uint64_t limit_ns = FLOW_WRITE_SECONDS * (uint64_t)CLOCK_NS_PER_S;
	struct flow *flow = arg;
	bool too_slow = flow->full_since &&
			clock_now_ns(clock_monotonic()) - flow->full_since > limit_ns;

	(void)fd;
	if ((what & EV_TIMEOUT) || too_slow)
		flow->ops->on_end(flow->ctx, error_set(-ETIMEDOUT, "it does not read its answers"));
	else if (flow->lingers)
		linger_on(flow);
	else
		go_on(flow);
}

/* -------- open, close -------- */

int flow_open(struct flow *flow, struct event_base *base, const struct stream *stream)
{
	flow->stream = *stream;
	flow->in = evbuffer_new();
	flow->out = evbuffer_new();
	flow->readable = event_new(base, stream->fd, EV_READ | EV_PERSIST, on_ready, flow);
	flow->writable = event_new(base, stream->fd, EV_WRITE, on_ready, flow);
	if (flow->in && flow->out && flow->readable && flow->writable &&
	    event_add(flow->readable, NULL) == 0)
		return 0;
	flow_close(flow);
	return error_set(-ENOMEM, "connection: cannot allocate memory");
}

struct stream flow_detach(struct flow *flow)
{
	struct stream stream = flow->stream;

	if (flow->readable)
		event_free(flow->readable);
	if (flow->writable)
		event_free(flow->writable);
	if (flow->in)
		evbuffer_free(flow->in);
	if (flow->out)
		evbuffer_free(flow->out);
	flow->readable = NULL;
	flow->writable = NULL;
	flow->in = NULL;
	flow->out = NULL;
	return stream;
}

void flow_close(struct flow *flow)
{
	struct stream stream = flow_detach(flow);

	stream_close(&stream);
}
