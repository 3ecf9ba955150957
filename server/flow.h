/*
 * Flow: a stream on the event loop, with buffers for what came and for what is to go.
 */
#ifndef RLV_SERVER_FLOW_H
#define RLV_SERVER_FLOW_H

#include <sys/time.h>

#include "wire/channel.h"

#include "base/error.h"

struct evbuffer;
struct event;
struct event_base;

struct flow_ops {
	/* More bytes are in flow->in. May close the flow. */
	void (*on_read)(void *ctx);
	/*
	 * The stream ended: error_last() says why. -ETIMEDOUT: a limit passed. Closes the flow, or
	 * it is told again.
	 */
	void (*on_end)(void *ctx, int code);
};

struct flow {
	struct stream stream;
	struct evbuffer *in; /* on_read takes from it; not more than one frame waits in it */
	struct evbuffer *out;
	struct event *readable, *writable;
	struct timeval write_limit;
	const struct flow_ops *ops;
	void *ctx;
};

/*
 * Owns the stream, also when it fails. ops and ctx are set before. limit: of silence, and of output
 * that stands. -ENOMEM.
 */
RLV_MUST_CHECK int flow_open(struct flow *flow, struct event_base *base,
			     const struct stream *stream, const struct timeval *limit);
void flow_close(struct flow *flow);

/* From now on silence is no end, and output may stand for write_limit. */
void flow_set_write_limit(struct flow *flow, const struct timeval *write_limit);

/* Sent when the loop gets to it. */
void flow_write(struct flow *flow, const void *bytes, size_t len);
/* Sends now as much as can be sent without waiting. */
void flow_push(struct flow *flow);

/* Gives the stream away; the flow is closed. */
struct stream flow_detach(struct flow *flow);

#endif
