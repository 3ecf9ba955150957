/*
 * Landings: memory of a device in which batches of samplers arrive.
 *
 *   rlv_landing_open ─> opts.dest of samplers ─> rlv_sampler_sample
 *     each batch: rlv_landing_device ─> work of streams, rlv_landing_use ─> rlv_batch_release
 *   rlv_sampler_close ─> rlv_landing_close
 *
 * A batch buffer has two sides: on the host, where a sampler gathers rows, and on the device. A sample ends
 * when the device has the batch, so that any stream may read it at once (but see opts.unwaited); the host's
 * side stays readable, too, except for what was gathered, came by RDMA, or was computed by the device.
 * How a batch comes to the device is the landing's path, which rlv_landing_info tells:
 *
 *   RLV_LANDING_IN_PLACE   the device's memory is the host's (a pool of memory of the host): no copy
 *   RLV_LANDING_PINNED     page-locked memory of the host, then one copy by the device
 *   RLV_LANDING_PLAIN      the same from other memory of the host, where the driver locks none
 *   RLV_LANDING_DMABUF     values of 512 bytes and more come from a table over verbs by RDMA READs straight to the device
 *                          (GPUDirect RDMA), whose memory is registered as a dma-buf; the rest as above
 *   RLV_LANDING_PEERMEM    the same, registered by its address (nvidia-peermem)
 *   RLV_LANDING_GATHER     values of 512 bytes and more (frames) are read by the device where the table has them,
 *                          in memory that is mapped here (embed:, shm:); the rest as above
 *
 * Each sampler takes the best path that its table and the device allow. opts.path asks for one, opts.avoid excludes
 * some, and opts.strict turns what is lacking into an error. rlv_batch_path tells how a batch came, info.reason why
 * it came no better way.
 *
 * By RDMA, RLV_LANDING_DMABUF comes first, then RLV_LANDING_PEERMEM, then a copy. Large columns come so if they are
 * multiples of 8 bytes at multiples of 8 in the row. A sample costs 1 round trip more, and a READ for each value; with
 * RLV_WINDOW a frame comes once. Where stacked frames would cross the wire more often than their rows (RLV_DENSE),
 * batches come so only if opts.path asks for it. With a pool RLV_LANDING_DMABUF alone, and until the samplers are closed
 * the pool's job is not parked.
 *
 * A gather frees the sampler's CPU of the copies, at a price: the whole of the table's rows is page-locked, so
 * that memory which no row has filled yet is taken, too. So it is done only if opts.path asks for it.
 *
 * After both, the host's side of those arrays is filled by rlv_landing_fetch alone. These land by a copy, as a whole: rows with
 * checksums that are verified, batches of views that consume, short batches, scans and reads by key; rows over a wire
 * instead of a gather, and rows that are mapped here instead of RDMA.
 *
 * A CUDA device computes the importance weights of every batch, behind its copy, with the CPU's bits: one launch of a
 * kernel for each batch. The host's side of rlv_batch.weight is then filled by rlv_landing_fetch alone. With
 * RLV_LANDING_WEIGHTS_HOST as opts.weights, or where the driver does not load the kernel, the CPU computes them and both sides
 * have them; info.weights tells, and rlv_landing_paths why the kernel does not load (RLV_LANDING_GATHER has the same one).
 *
 * With a pool (relive/pool.h) the device's side is tensors of class RLV_POOL_STAGING, which count in the
 * pool's ledger. Without one it is memory of a CUDA device, taken from its driver.
 *
 * Conventions and errors are as in relive/relive.h. Of the codes: -ENODEV the device is lost, -ENOTSUP there
 * is no driver, -ECHILD the landing was opened before fork(). Thread: any, except rlv_landing_close. Nothing
 * here makes a round trip.
 */
#ifndef RELIVE_LANDING_H
#define RELIVE_LANDING_H

#include "relive/pool.h"
#include "relive/relive.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Who computes importance weights. Those of the device have the bits of the CPU's. */
enum rlv_landing_weights {
	RLV_LANDING_WEIGHTS_AUTO = 0, /* a CUDA device that loads the kernel; else the CPU */
	RLV_LANDING_WEIGHTS_HOST = 1,
	RLV_LANDING_WEIGHTS_DEVICE = 2,
};

struct rlv_landing_opts {
	uint32_t size;
	int32_t device; /* CUDA device, as CUDA_VISIBLE_DEVICES leaves them; not with a pool */
	struct rlv_pool *pool; /* borrowed until rlv_landing_close; NULL = none */
	int64_t timeout_ns;    /* of each wait for the device; 0 = 30 s */
	uint32_t unwaited; /* 1: samples end when their copy is queued, and rlv_landing_wait waits for it:
				  so that the next batch is gathered meanwhile. Gathers are awaited always */
	uint32_t path; /* 0 = the best but RLV_LANDING_GATHER; RLV_LANDING_PINNED: always copies; RLV_LANDING_GATHER:
			  -ENOTSUP if the driver cannot; RLV_LANDING_DMABUF, RLV_LANDING_PEERMEM. A pool of the host's memory is in place always */
	uint32_t graph; /* 1, with RLV_LANDING_GATHER: what the device is asked for each batch is recorded once, as
			   a CUDA graph, and launched by one call. -ENOTSUP: the driver has no graphs */
	uint32_t strict; /* 1: opts.path or none. What it lacks is -ENOTSUP, of rlv_landing_open, rlv_sampler_open or
			    rlv_sampler_sample. Scans and reads by key are still copied */
	uint32_t avoid; /* bits 1 << RLV_LANDING_DMABUF, 1 << RLV_LANDING_PEERMEM: not these */
	uint32_t weights; /* enum rlv_landing_weights. RLV_LANDING_WEIGHTS_DEVICE: -ENOTSUP if the device cannot */
};
#define RLV_LANDING_OPTS_INIT RLV_SIZED(struct rlv_landing_opts)

/* Opens a landing. -ENOTSUP: no driver of the device, or one that cannot do it, or opts.strict; -ENODEV: no such
   device; -EINVAL; -ENOMEM. Thread: setup. */
RLV_CHECKED int rlv_landing_open(const struct rlv_landing_opts *opts,
				 struct rlv_landing **landing_out);

/* Sets *landing to NULL; NULL is a no-op. -EBUSY: buffers are left, of an open sampler: nothing was done.
   Thread: owner. */
RLV_CHECKED int rlv_landing_close(struct rlv_landing **landing);

enum rlv_landing_path {
	RLV_LANDING_IN_PLACE = 1,
	RLV_LANDING_PINNED = 2,
	RLV_LANDING_GATHER = 3,
	RLV_LANDING_DMABUF = 4,
	RLV_LANDING_PEERMEM = 5,
	RLV_LANDING_PLAIN = 6,
};

struct rlv_landing_info {
	uint32_t size;
	uint32_t path;    /* enum rlv_landing_path: of the last batch; before it, what is known */
	int32_t device;   /* number of the CUDA device; -1 = the host */
	uint32_t buffers; /* now */
	char name[64];    /* as the device calls itself */
	uint64_t bytes;   /* of the device, in buffers */
	uint64_t batches; /* landed so far */
	uint64_t copied_bytes;
	uint64_t waited_ns; /* for copies */
	uint64_t gathered_bytes; /* that the device read where a table has them, also of rows drawn again */
	uint64_t graphs;         /* recorded */
	uint64_t graph_launches;
	uint64_t direct_bytes; /* that came to the device by RDMA, also of rows drawn again */
	char reason[256]; /* why batches come by a copy, or not as opts.path asks; "" = nothing is lacking, or no sampler tried */
	uint64_t weighed; /* batches whose importance weights the device computed */
	uint32_t weights; /* who computes them: RLV_LANDING_WEIGHTS_HOST or RLV_LANDING_WEIGHTS_DEVICE */
};
#define RLV_LANDING_INFO_INIT RLV_SIZED(struct rlv_landing_info)

RLV_CHECKED int rlv_landing_info(struct rlv_landing *landing, struct rlv_landing_info *info_out);

/* What the host and the device have for one path. */
struct rlv_landing_path_info {
	uint32_t path; /* enum rlv_landing_path */
	uint32_t possible; /* 0: something is lacking. Of paths by RDMA: as far as sysfs and the driver tell */
	uint64_t batches; /* that came so */
	char why[192]; /* what is lacking, or why no batch came so; "": it is the landing's path, or one came */
};

/*
 * Lists all paths, the best first: paths[0..*n_inout), size = sizeof(*paths); *n_inout becomes their number.
 * The first call looks, which loads a kernel; later ones only count. -EINVAL, -ENOMEM.
 */
RLV_CHECKED int rlv_landing_paths(struct rlv_landing *landing, struct rlv_landing_path_info *paths,
				  size_t size, size_t *n_inout);

/* How this batch came (enum rlv_landing_path); 0: its sampler has no opts.dest. A gather, or RDMA, of its large
   values: small ones are copied. Until the batch is released. Thread: any. */
RLV_API uint32_t rlv_batch_path(const struct rlv_batch *batch);

/* "pinned", "gather", ...; "none" for 0 and for other numbers. Thread: any. */
RLV_API const char *rlv_landing_path_name(uint32_t path);

/*
 * A buffer with both sides; *buffer_out is the host's. Samplers with opts.dest make their own: this is for
 * opts.memory, where buffers must outlive the sampler. align: a power of two, at most 4096. -ENOSPC,
 * -ETIMEDOUT: the pool has no room; -ENOMEM, -EINVAL.
 */
RLV_CHECKED int rlv_landing_alloc(struct rlv_landing *landing, size_t align, size_t bytes,
				  void **buffer_out);

/* Frees it when the device is done with it; NULL is a no-op. What the device still uses after timeout_ns is not
   freed, which is logged. */
RLV_API void rlv_landing_free(struct rlv_landing *landing, void *buffer, size_t bytes);

/* Waits until the device has the batch that was landed last in the buffer at ptr. -EINVAL (ptr), -ETIMEDOUT,
   -ENODEV. */
RLV_CHECKED int rlv_landing_wait(struct rlv_landing *landing, const void *ptr);

/* Brings bytes at ptr of a buffer from the device to the host's side, which a gather has left out, and waits for
   them; in place there is nothing to bring. Not behind work of other streams. -EINVAL: they are in no buffer;
   -ETIMEDOUT, -ENODEV. */
RLV_CHECKED int rlv_landing_fetch(struct rlv_landing *landing, const void *ptr, size_t bytes);

/* Where the device has the byte at ptr of a buffer. -EINVAL: ptr is in no buffer of the landing. */
RLV_CHECKED int rlv_landing_device(struct rlv_landing *landing, const void *ptr,
				   uint64_t *address_out);

/*
 * Work of a stream uses the buffer at ptr: all that is queued until the batch is released, or the buffer
 * freed. It is not filled again before that work is done. native: a stream of the device's own API (a CUstream);
 * NULL is CUDA's default stream. It lives until its work is done and the buffer is released. -EINVAL (ptr),
 * -ENOSPC: 15 streams are known already.
 */
RLV_CHECKED int rlv_landing_use(struct rlv_landing *landing, const void *ptr, void *native);

/*
 * As rlv_sampler_update, of n TD errors (f32) at `address` of the device of opts.dest, which work of the stream
 * `native` writes: queues their way back and returns. A later sample, poll, update, flush or close of the
 * sampler sets the priorities, in order; only flush and close wait for the device. The keys are read at once.
 * A TD error that is no number of 0 or more makes that call fail with -EINVAL, and its update is dropped.
 * -EBUSY: four updates are on their way. Thread: owner of the sampler.
 */
RLV_CHECKED int rlv_sampler_update_device(struct rlv_sampler *sampler, const uint64_t *keys,
					  uint64_t address, uint32_t n, void *native);

#ifdef __cplusplus
}
#endif

#endif
