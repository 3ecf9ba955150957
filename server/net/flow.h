/*
 * Flow: a stream on the event loop with input and output buffers.
 *
 * Output is bounded: an owner that sees flow_is_full() pauses reading until on_drained. The flow
 * ends if output makes no progress for FLOW_WRITE_SECONDS, or is not back below the mark by then.
 */
#ifndef RLV_SERVER_NET_FLOW_H
#define RLV_SERVER_NET_FLOW_H

#include <stddef.h>
#include <stdint.h>

#include "wire/control/channel.h"

#include "base/error.h"

#define FLOW_WRITE_SECONDS 10

struct evbuffer;
struct event;
struct event_base;

struct flow_ops {
	/* flow->in has more bytes, or flow_resume was called. May close the flow. */
	void (*on_read)(void *ctx);
	/* Reading is paused, and output is not full: the owner may call flow_resume. */
	void (*on_drained)(void *ctx);
	/*
	 * The stream ended for the reason code, with error_last(); -ETIMEDOUT: the peer did not
	 * read output for FLOW_WRITE_SECONDS. Must close the flow or let it linger, or is called
	 * again.
	 */
	void (*on_end)(void *ctx, int code);
};

struct flow {
	struct stream stream;
	struct evbuffer *in; /* on_read consumes it; at most one frame waits in it */
	struct evbuffer *out;
	struct event *readable, *writable;
	uint64_t full_since; /* time of clock_monotonic(); 0 = not full */
	uint32_t dropped;    /* bytes discarded while lingering */
	bool paused;
	bool resumed; /* on_read is due for buffered input */
	bool lingers;
	bool shut; /* our sending side is closed */
	const struct flow_ops *ops;
	void *ctx;
};

/* Owns the stream from here on, and closes it on failure; reads it by events on base. The caller
   has set ops and ctx. -ENOMEM. */
RLV_MUST_CHECK int flow_open(struct flow *flow, struct event_base *base,
			     const struct stream *stream);
void flow_close(struct flow *flow);

/* Appends a copy of the bytes to the output, which is sent from the loop's next turn on. */
void flow_write(struct flow *flow, const void *bytes, size_t len);

/* True if unsent output has reached 256 KiB: read no more requests before the peer has read its
   answers. */
bool flow_is_full(const struct flow *flow);
/* True if an answer of len bytes fits: unsent output is at most 4 MiB with it. */
bool flow_has_room(const struct flow *flow, size_t len);
/* Pause reading until flow_resume, which calls on_read at the loop's next turn. */
void flow_pause(struct flow *flow);
void flow_resume(struct flow *flow);

/*
 * Lingering close: sends pending output (broken: drops it, the stream cannot send), then closes our
 * side, and discards further input, so that the kernel does not drop the output. on_end comes when
 * the peer has closed its side, or has sent 1 MiB more.
 */
void flow_linger(struct flow *flow, bool broken);

/* Takes the stream out of the flow and closes the flow; the stream stays open. */
struct stream flow_detach(struct flow *flow);

#endif
