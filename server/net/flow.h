/*
 * Flow: a stream on the event loop, with buffers for what came and for what is to go.
 *
 * Output is bounded: an owner that sees flow_is_full() pauses reading until on_drained. Output that
 * stands for FLOW_WRITE_SECONDS, or is not back below the mark by then, ends the flow.
 */
#ifndef RLV_SERVER_NET_FLOW_H
#define RLV_SERVER_NET_FLOW_H

#include <stddef.h>
#include <stdint.h>

#include "wire/channel.h"

#include "base/error.h"

#define FLOW_WRITE_SECONDS 10

struct evbuffer;
struct event;
struct event_base;

struct flow_ops {
	/* More bytes are in flow->in, or reading was resumed. May close the flow. */
	void (*on_read)(void *ctx);
	/* Reading is paused, and there is room for answers again. */
	void (*on_drained)(void *ctx);
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
	uint64_t full_since; /* of clock_monotonic(); 0 = it is not */
	uint32_t dropped;    /* bytes, while it lingers */
	bool paused;
	bool resumed; /* on_read is to look at what is there already */
	bool lingers;
	bool shut; /* our side of the connection has ended */
	const struct flow_ops *ops;
	void *ctx;
};

/* Owns the stream, also when it fails. ops and ctx are set before. -ENOMEM. */
RLV_MUST_CHECK int flow_open(struct flow *flow, struct event_base *base,
			     const struct stream *stream);
void flow_close(struct flow *flow);

/* Sent when the loop gets to it. */
void flow_write(struct flow *flow, const void *bytes, size_t len);

/* True if output is above the mark: do not read more requests before the peer has read its answers. */
bool flow_is_full(const struct flow *flow);
/* True if an answer of len bytes fits below the output cap. */
bool flow_has_room(const struct flow *flow, size_t len);
/* Nothing is read until flow_resume, which calls on_read at the loop's next turn. */
void flow_pause(struct flow *flow);
void flow_resume(struct flow *flow);

/*
 * The last words: sends what is left to send, ends our side, and drops what the peer still sends, so
 * that the kernel does not throw those words away. on_end comes when the peer has ended its side.
 * broken: nothing can be sent by the stream.
 */
void flow_linger(struct flow *flow, bool broken);

/* Gives the stream away; the flow is closed. */
struct stream flow_detach(struct flow *flow);

#endif
