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

/* Work in its order; all zero: none. */
struct op_list {
	struct op *first, *last;
};

/* Adds a copy. NULL: no memory. */
struct op *op_list_add(struct op_list *list, const struct op *op);
void op_list_free(struct op_list *list);

/* Gives the op to the stream (NULL: the default one). A stream that records only notes it. */
unsigned stream_submit(struct cu_stream *stream, const struct op *op);

/* From now on the stream records. */
unsigned stream_record(struct cu_stream *stream);
/* It does no longer; ops gets what it has recorded. */
unsigned stream_recorded(struct cu_stream *stream, struct op_list *ops_out);

#endif
