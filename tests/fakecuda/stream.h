/*
 * stream.h - queues of the fake driver: what a stream is asked to do, and events.
 */
#ifndef RLV_TESTS_FAKECUDA_STREAM_H
#define RLV_TESTS_FAKECUDA_STREAM_H

#include <stdatomic.h>

#include "device/cuda/weights_lanes.h"
#include "tests/fakecuda/fake.h"

enum op_kind {
	OP_COPY,
	OP_FILL,
	OP_WRITE,
	OP_WAIT_VALUE,
	OP_RECORD,
	OP_WAIT_EVENT,
	OP_GATHER,
	OP_WEIGHTS,
	OP_SPIN
};

/* Recordings submitted and done; in shared memory for an event that goes to other processes. */
struct event_state {
	_Atomic uint64_t recorded, done;
};

struct op {
	struct op *next;
	enum op_kind kind;
	cu_u64 to, from; /* 0: none */
	size_t bytes;
	uint64_t value;
	struct event_state *event;
	struct gather_work work;
	struct weights_work weights;
	uint64_t ns, ends_at; /* how long it takes, and when it ends by the clock */
};

/* Gives the op to the stream (NULL: the default one). */
unsigned stream_submit(struct cu_stream *stream, const struct op *op);

#endif
