/*
 * Channel: frames over one connected stream, sent and received with a deadline. Used by diallers
 * (clients, memory nodes) and by the metadata server towards its nodes.
 *
 * After any error except -EOVERFLOW (message too long) the channel is dead: requests already sent
 * may or may not have been executed.
 */
#ifndef RLV_WIRE_CHANNEL_H
#define RLV_WIRE_CHANNEL_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>

#include "wire/control/frame.h"

#include "base/os/clock.h"

struct tls_state;

/* A connected socket, plain or with TLS (wire/control/tls.h). May be moved by copying. */
struct stream {
	int fd;                /* does not block; -1 = closed */
	struct tls_state *tls; /* NULL: a plain socket */
};

/* Makes a plain stream, without TLS, of a socket; owns fd, which is made non-blocking. */
struct stream stream_socket(int fd);

/*
 * Tries once to read or write, without blocking. 0: *n_out > 0 bytes were moved. -EAGAIN: poll fd
 * for *events_out first. -ECONNRESET: the peer is gone. With TLS also the errors of the handshake
 * (stream_init_tls).
 */
RLV_MUST_CHECK int stream_read(struct stream *stream, void *dst, size_t len, size_t *n_out,
			       short *events_out);
RLV_MUST_CHECK int stream_write(struct stream *stream, const void *src, size_t len, size_t *n_out,
				short *events_out);
/* Closes the socket and frees its TLS state; a second call is a no-op. */
void stream_close(struct stream *stream);

struct channel {
	struct stream stream;
	const struct clock *clock;
	uint64_t last_id; /* id of the last request sent */
	uint64_t term;    /* sent in every header */
	uint8_t *body;    /* of the last frame received; grows */
	size_t room;
	uint8_t head[FRAME_HEADER_BYTES]; /* header of the frame being received */
	size_t got;                       /* bytes of that frame so far, header included */
};

struct channel_frame {
	struct frame_header head;
	const uint8_t *body; /* borrowed until the next receive */
};

/* Makes a channel over the stream, which it owns from now on. Thread: owner, for all channel_*. */
void channel_init(struct channel *ch, struct stream stream);
void channel_fini(struct channel *ch);

/*
 * Sends message as a frame; an answer has type | FRAME_ANSWER. -ETIMEDOUT: not sent whole by
 * deadline_ns; -ECONNRESET; -ENOMEM; -EOVERFLOW: longer than FRAME_BODY_MAX.
 */
RLV_MUST_CHECK int channel_send(struct channel *ch, uint16_t type, uint64_t request_id,
				const ProtobufCMessage *message, uint64_t deadline_ns);

/*
 * Receives a frame; waits for it until deadline_ns. -EPROTO: not our framing; -EACCES: over TLS,
 * the peer refused us; else -ETIMEDOUT, -ECONNRESET, -ENOMEM.
 */
RLV_MUST_CHECK int channel_receive(struct channel *ch, uint64_t deadline_ns,
				   struct channel_frame *frame_out);

/*
 * Receives a frame without waiting. -EAGAIN: the frame is incomplete, and its received bytes are
 * kept for the next call; else the errors of channel_receive.
 */
RLV_MUST_CHECK int channel_take(struct channel *ch, struct channel_frame *frame_out);

/*
 * Sends a request and waits for its answer, of that type and id. frame_out->head.term is the peer's
 * term. -EPROTO: another frame came; errors of channel_send and channel_receive.
 */
RLV_MUST_CHECK int channel_call(struct channel *ch, uint16_t type, const ProtobufCMessage *request,
				uint64_t deadline_ns, struct channel_frame *frame_out);

/* True if a receive would not block: bytes are there, or the connection has ended. */
bool channel_is_readable(const struct channel *ch);

/*
 * Unpacks the body of a frame. NULL, with an error message: it is malformed. The caller frees it by
 * protobuf_c_message_free_unpacked.
 */
ProtobufCMessage *channel_unpack(const ProtobufCMessageDescriptor *kind,
				 const struct channel_frame *frame);

#endif
