/*
 * gather.h - rows from anywhere to anywhere in one launch: where a batch of small rows would need a copy
 * each. The kernel and gather_on_cpu() are the same loop (device/cuda/gather_lanes.h).
 */
#ifndef RLV_DEVICE_CUDA_GATHER_H
#define RLV_DEVICE_CUDA_GATHER_H

#include "device/cuda/calls.h"
#include "device/cuda/weights_lanes.h"

struct cuda_gather {
	const struct cuda_calls *calls;
	struct cu_module *module;
	struct cu_function *rows, *weights;
};

/* Loads the kernels into the current context. -ENOTSUP: the driver cannot compile them. Thread: setup. */
RLV_MUST_CHECK int cuda_gather_open(const struct cuda_calls *calls, struct cuda_gather *gather_out);
void cuda_gather_close(struct cuda_gather *gather);

/*
 * Sets unit and shift of the work from its addresses, its bytes and these rows, which may be another
 * copy of work->rows. Cost: one pass over the rows.
 */
void gather_fit(struct gather_work *work, const struct gather_row *rows);

/* The same for rows whose offsets, joined by or, are `places`. */
void gather_fit_places(struct gather_work *work, gather_u64 places);

/*
 * Queues the work on a stream. All its addresses are the device's; they, rows included, stay valid until
 * it is done. n 0 is allowed. Thread: any, one per stream.
 */
RLV_MUST_CHECK int cuda_gather(const struct cuda_gather *gather, struct cu_stream *stream,
			       struct gather_work work);

/* The same on a CPU, at once. All addresses are the CPU's. */
void gather_on_cpu(struct gather_work work);

/* Queues the computing of weights, as cuda_gather does rows. */
RLV_MUST_CHECK int cuda_weights(const struct cuda_gather *gather, struct cu_stream *stream,
				struct weights_work work);

#endif
