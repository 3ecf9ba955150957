/*
 * backend.h - a device under the pool: its physical extents, addresses, streams and copies.
 *
 *   pool core ──> struct backend_ops ──> host   memfds, addresses without access, queues as streams
 *                                        cuda   cuMemCreate and its kin, by dlopen
 *                                        fault  any other, whose n-th call fails
 *
 * An *extent* is physical memory of one size, named by a handle. Addresses are reserved once and
 * stay; what changes is the extent behind them:
 *
 *   reserve ─> (map ─> set_access ─> work on streams ─> unmap)* ─> unreserve
 *   extent_create ─> extent_export ─fd─> another process: extent_import ─> ... ─> extent_release
 *
 * A *stream* is a queue of the device: its work runs in order. stream_mark queues a write of a
 * number after all work submitted so far; stream_progress reads the last number written. Memory
 * that was used until mark s is free when progress >= s: the true end, as the device sees it.
 *
 * Contracts of all calls:
 *   - Sizes, addresses and offsets are in bytes. Sizes and addresses of reserve, extent_* and map
 *     are multiples of info.granularity; copies and fills have no alignment.
 *   - Return 0 or -errno, with a message that names the call of the driver (base/error.h). After a
 *     failure nothing has changed, except where it says otherwise. -EINVAL bad argument, -ENOMEM
 *     the device or the host has no memory, -ENOTSUP the device or its driver cannot do it,
 *     -ENODEV the device is lost: every later call fails alike, only release and close may be used.
 *   - No call waits for work on streams, except unmap and set_access where info says
 *     BACKEND_MAP_WAITS, and close.
 *   - Thread: one call at a time, except stream_mark, stream_progress and now_ns: any thread, one
 *     thread per stream. Handles, addresses and streams are of the backend that made them.
 *   - After a fork the child may not use a backend of its parent: -ECHILD.
 */
#ifndef RLV_DEVICE_BACKEND_H
#define RLV_DEVICE_BACKEND_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

#define BACKEND_NAME_BYTES 64
#define BACKEND_STREAMS 64 /* open streams of one backend, at most */

enum backend_caps {
	BACKEND_EXPORTS_FD = 1,       /* extent_export and extent_import work */
	BACKEND_EXPORTS_DMABUF = 2,   /* dmabuf_export works */
	BACKEND_MAP_WAITS = 4,        /* unmap and set_access may wait for work of the device */
	BACKEND_PROGRESS_PAGE = 8,    /* progress_export works: other processes read progress */
	BACKEND_CPU_ADDRESSABLE = 16, /* CPUs may read and write mapped addresses */
};

struct backend_info {
	char name[BACKEND_NAME_BYTES];   /* of the backend: "host", "cuda" */
	char device[BACKEND_NAME_BYTES]; /* as the device calls itself */
	uint64_t device_bytes;           /* of physical memory, whoever has it */
	uint64_t granularity;            /* power of two */
	uint32_t caps;                   /* enum backend_caps */
};

enum backend_access { BACKEND_ACCESS_NONE, BACKEND_ACCESS_READ, BACKEND_ACCESS_READ_WRITE };

/* A copy; either address may be of the device or of the host. */
struct backend_copy {
	uint64_t dst, src;
	uint64_t bytes;
};

/* A row of a gather: offsets in bytes. */
struct backend_row {
	uint64_t from, to;
};

/* `bytes` bytes for each of n rows: to[row.to ..] = from[row.from ..]. */
struct backend_gather {
	uint64_t to, from; /* addresses of the device */
	uint64_t rows;     /* the same, of n of struct backend_row */
	uint64_t n, bytes;
	uint64_t places; /* all offsets of the rows, joined by or: for their alignment, of up to 16 */
};

/* weights[i] = (probability[i] * factor)^power: f32 of n f64, at addresses of the device. */
struct backend_weights {
	uint64_t weights, probability;
	uint64_t n;
	double factor, power;
};

#define BACKEND_EVENT_BYTES 64

/*
 * The page of progress, as other processes map it. Where the device cannot write marks, `reached` is behind, and
 * each stream has an event behind its last mark, which event_ask asks.
 */
struct backend_progress {
	_Atomic uint64_t reached[BACKEND_STREAMS]; /* the number of the last mark */
	struct backend_event {
		uint64_t made; /* 1: the handle is one */
		uint8_t handle[BACKEND_EVENT_BYTES];
	} events[BACKEND_STREAMS];
};

struct backend;

struct backend_ops {
	/* Name, size and abilities. Never fails. */
	void (*info)(struct backend *backend, struct backend_info *info_out);

	/* Reserves addresses, which cannot be accessed until an extent is mapped there. */
	int (*reserve)(struct backend *backend, uint64_t bytes, uint64_t *va_out);
	/* Gives back a whole range of reserve. -EBUSY: an extent is mapped in it. */
	int (*unreserve)(struct backend *backend, uint64_t va, uint64_t bytes);

	/* Physical memory of its own; contents are undefined. Handle 0 is never given. */
	int (*extent_create)(struct backend *backend, uint64_t bytes, uint64_t *handle_out);
	/* A new fd for the same memory. The caller closes it; memory outlives its creator while a
	   handle, fd or mapping of it exists anywhere. */
	int (*extent_export)(struct backend *backend, uint64_t handle, int *fd_out);
	/* A handle for the memory of an fd of that size. The fd stays the caller's. */
	int (*extent_import)(struct backend *backend, int fd, uint64_t bytes, uint64_t *handle_out);
	/* Ends a handle. -EBUSY: this backend has it mapped. */
	int (*extent_release)(struct backend *backend, uint64_t handle);

	/* An RDMA device may learn of the extent from now on: what it still reads after this process has ended
	   may not reach another process's bytes. So no other process gets this physical memory. */
	int (*extent_expose)(struct backend *backend, uint64_t handle);

	/* Puts the whole extent at a reserved range without one; no access yet. -EBUSY: range taken.
	   One handle may be mapped at several ranges. */
	int (*map)(struct backend *backend, uint64_t va, uint64_t bytes, uint64_t handle);
	/* Of a range that consists of whole mapped extents. */
	int (*set_access)(struct backend *backend, uint64_t va, uint64_t bytes,
			  enum backend_access access);
	/* Takes whole extents away from a range: access there is a fault from now on. The caller
	   knows that no work of any stream uses it. */
	int (*unmap)(struct backend *backend, uint64_t va, uint64_t bytes);

	/* Opens a stream: native is a stream of the device's own API (a CUstream), borrowed until
	   stream_close; NULL makes one. Streams are small numbers, below BACKEND_STREAMS. -ENOSPC. */
	int (*stream_open)(struct backend *backend, void *native, uint32_t *stream_out);
	/* -EBUSY: a mark is outstanding. */
	int (*stream_close)(struct backend *backend, uint32_t stream);
	/* Queues a write of seq, which must rise, behind all work of the stream. Does not wait. */
	int (*stream_mark)(struct backend *backend, uint32_t stream, uint64_t seq);
	/* The last seq that the device wrote, 0 at first. Never above the last mark. Acquires: bytes
	   that work before the mark wrote are visible to the reader. */
	int (*stream_progress)(struct backend *backend, uint32_t stream, uint64_t *seq_out);
	/* A fd of the page from which other processes read progress, a struct backend_progress. The caller
	   closes it. */
	int (*progress_export)(struct backend *backend, int *fd_out);
	/* Whether the work before an event of another process is done: 0, or -EAGAIN. handle: of its page of
	   progress, whatever that process wrote there. */
	int (*event_ask)(struct backend *backend, const uint8_t handle[BACKEND_EVENT_BYTES]);

	/* Queues n copies on a stream, in no order among themselves. Addresses stay valid until a
	   mark behind them is reached. After a failure some of them may be queued. */
	int (*copy_batch)(struct backend *backend, uint32_t stream,
			  const struct backend_copy *copies, size_t n);
	/* Queues a fill of a mapped range, to scrub it. */
	int (*fill)(struct backend *backend, uint32_t stream, uint64_t va, uint64_t bytes,
		    uint8_t value);

	/* Makes whole pages of the host memory that copies read and write without a copy on their way, until
	   host_unregister, which takes the same address. Pages are registered once. */
	int (*host_register)(struct backend *backend, void *memory, uint64_t bytes);
	int (*host_unregister)(struct backend *backend, void *memory);
	/* The same for gathers, which read it at *va_out on; the process may have it mapped for reading alone.
	   The pages that it lacks are made. */
	int (*host_share)(struct backend *backend, void *memory, uint64_t bytes, uint64_t *va_out);

	/* Queues a gather, whose rows and addresses stay valid until a mark behind it is reached. n 0: only
	   says whether there are gathers, and makes them ready. */
	int (*gather)(struct backend *backend, uint32_t stream, const struct backend_gather *work);
	/* Queues the computing of importance weights, where there are gathers. n 0 is allowed. */
	int (*weigh)(struct backend *backend, uint32_t stream, const struct backend_weights *work);

	/* From graph_begin to graph_end, copies, gathers and weights of the stream are recorded, not run; no marks. Then
	   graph_launch queues all of them by one call, as often as it is called: addresses and numbers are
	   those that were recorded, bytes are those of then. graph_out NULL: forgets what was recorded.
	   Graph 0 is never given; its launch only says whether there are graphs. Other streams may work
	   meanwhile. */
	int (*graph_begin)(struct backend *backend, uint32_t stream);
	int (*graph_end)(struct backend *backend, uint32_t stream, uint64_t *graph_out);
	int (*graph_launch)(struct backend *backend, uint32_t stream, uint64_t graph);
	/* Launches that are queued still run. 0: a no-op. */
	int (*graph_drop)(struct backend *backend, uint64_t graph);

	/* A dma-buf of a range that is mapped as a whole; a new one is needed when the extents
	   behind it change. The caller closes the fd; *off_out is where in it the range begins. */
	int (*dmabuf_export)(struct backend *backend, uint64_t va, uint64_t bytes, int *fd_out,
			     uint64_t *off_out);

	/* Time of the backend's clock in ns; never goes back. */
	uint64_t (*now_ns)(struct backend *backend);

	/* Waits for work of its own streams, and until marks of others are reached; then ends the backend and
	   all that it still has. */
	void (*close)(struct backend *backend);
};

/* The first member of each backend. Calls that a backend lacks return -ENOTSUP, none is NULL. */
struct backend {
	const struct backend_ops *ops;
};

/* extent_expose of backends whose extents no other process gets by themselves. */
static inline int backend_expose_nothing(struct backend *backend, uint64_t handle)
{
	(void)backend;
	(void)handle;
	return 0;
}

#endif
