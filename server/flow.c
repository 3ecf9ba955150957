#include "server/flow.h"

#include <errno.h>
#include <poll.h>

#include <event2/buffer.h>
#include <event2/event.h>

#define READ_BYTES 16384 /* a record of TLS, so that the stream keeps nothing back */
#define READS_MAX 4      /* then others have their turn */

/* -------- writing -------- */

static void expect_writable(struct flow *flow)
{
	if (!event_pending(flow->writable, EV_WRITE, NULL))
		(void)event_add(flow->writable, &flow->write_limit);
}

void flow_write(struct flow *flow, const void *bytes, size_t len)
{
	if (evbuffer_add(flow->out, bytes, len) == 0)
		expect_writable(flow);
}

/* 0, -EAGAIN, or the end. */
static int write_some(struct flow *flow)
{
	struct evbuffer_iovec part;
	short events = POLLOUT;
	int ret = 0;

	while (ret == 0 && evbuffer_peek(flow->out, -1, NULL, &part, 1) > 0) {
		size_t n = 0;

		ret = flow->stream.ops->write(&flow->stream, part.iov_base, part.iov_len, &n,
					      &events);
		if (ret == 0)
			evbuffer_drain(flow->out, n);
	}
	if (ret == -EAGAIN && events == POLLOUT)
		expect_writable(flow);
	return ret;
}

void flow_push(struct flow *flow)
{
	(void)!write_some(flow);
}

/* -------- reading -------- */

static int read_some(struct flow *flow, size_t *n_out)
{
	uint8_t bytes[READ_BYTES];
	short events = POLLIN;
	int ret = 0;

	for (int i = 0; ret == 0 && i < READS_MAX; i++) {
		size_t n = 0;

		ret = flow->stream.ops->read(&flow->stream, bytes, sizeof(bytes), &n, &events);
		if (ret == 0 && evbuffer_add(flow->in, bytes, n))
			ret = error_set(-ENOMEM, "connection: no memory");
		*n_out += n;
	}
	if (ret == -EAGAIN && events == POLLOUT)
		expect_writable(flow);
	return ret == -EAGAIN ? 0 : ret;
}

/* What came before the end is taken first: the end is told at the next turn. */
static void go_on(struct flow *flow)
{
	size_t n = 0;
	int ret = write_some(flow);

	if (ret == 0 || ret == -EAGAIN)
		ret = read_some(flow, &n);
	if (n)
		flow->ops->on_read(flow->ctx);
	else if (ret)
		flow->ops->on_end(flow->ctx, ret);
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
	struct flow *flow = arg;

	(void)fd;
	if (what & EV_TIMEOUT)
		flow->ops->on_end(flow->ctx, error_set(-ETIMEDOUT, "no hello in time"));
	else
		go_on(flow);
}

static void on_writable(evutil_socket_t fd, short what, void *arg)
{
	struct flow *flow = arg;

	(void)fd;
	if (what & EV_TIMEOUT)
		flow->ops->on_end(flow->ctx, error_set(-ETIMEDOUT, "it does not read"));
	else
		go_on(flow);
}

/* -------- open, close -------- */

int flow_open(struct flow *flow, struct event_base *base, const struct stream *stream,
	      const struct timeval *limit)
{
	flow->stream = *stream;
	flow->write_limit = *limit;
	flow->in = evbuffer_new();
	flow->out = evbuffer_new();
	flow->readable = event_new(base, stream->fd, EV_READ | EV_PERSIST, on_readable, flow);
	flow->writable = event_new(base, stream->fd, EV_WRITE, on_writable, flow);
	if (flow->in && flow->out && flow->readable && flow->writable &&
	    event_add(flow->readable, limit) == 0)
		return 0;
	flow_close(flow);
	return error_set(-ENOMEM, "connection: no memory");
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

	stream.ops->close(&stream);
}

void flow_set_write_limit(struct flow *flow, const struct timeval *write_limit)
{
	flow->write_limit = *write_limit;
	(void)event_remove_timer(flow->readable);
}
