/*
 * backend_cuda.h - a CUDA device, through libcuda.so.1 opened at run time.
 *
 * Extents are cuMemCreate's, exported as descriptors. Marks are cuStreamWriteValue64 to a page of a
 * memfd that other processes map, so progress is read without a call of the driver. Where the device or
 * its driver cannot write marks, they are events (events.c), which stream_progress asks; readers of a page that was
 * given at open ask one IPC event for each stream, where the device has such. The device's primary context is used, which is also that of the CUDA runtime and of PyTorch.
 *
 * Calls of the driver, where the primary context is the thread's: 0 for stream_progress, info and
 * now_ns; 2 for every other one, n + 1 for a copy_batch of n where the driver has no batches; 4 for event_ask. Where
 * marks are events: 2 for a stream_mark, 3 on a page that was given, and up to 3 more while its events are made; for a
 * stream_progress one for each mark that is outstanding and seen, and 1.
 */
#ifndef RLV_DEVICE_CUDA_BACKEND_CUDA_H
#define RLV_DEVICE_CUDA_BACKEND_CUDA_H

#include <stdbool.h>

#include "device/backend.h"

#define CUDA_DEFAULT_STREAM ((void *)1)   /* CU_STREAM_LEGACY, which a driver also means by NULL */
#define CUDA_EVENTS_ENV "RLV_CUDA_EVENTS" /* set: as backend_cuda_opts.events, for tests */

struct backend_cuda_opts {
	int device;  /* its number, as CUDA_VISIBLE_DEVICES leaves them */
	bool events; /* marks are events, also where the device can write them */
	int page_fd; /* page of progress, as of progress_export, which is borrowed; 0 = one of its own */
};

/*
 * -ENOTSUP: no driver, or one that cannot do it; -ENODEV: no such device; -ENOMEM. The message names the
 * call and the remedy. Thread: setup.
 */
RLV_MUST_CHECK int backend_cuda_open(const struct backend_cuda_opts *opts,
				     struct backend **backend_out);

#endif
