/*
 * pool.h - what other parts of the library ask of a job of a pool (relive/pool.h).
 */
#ifndef RLV_CLIENT_POOL_POOL_H
#define RLV_CLIENT_POOL_POOL_H

#include "relive/pool.h"

#include "base/error.h"

/* The CUDA device whose memory the pool shares, by its number in this process; -1: memory of the host. */
int pool_cuda_device(const struct rlv_pool *pool);

/*
 * A dma-buf for RDMA devices that write a tensor, and where in it the tensor begins. From the call until
 * pool_tensor_dmabuf_end, which comes when no RDMA device knows the tensor any more, the job is not parked. The caller
 * closes it. Errors as of pool_export (device/pool_export.h), and of the broker. Cost: a message for each extent.
 */
RLV_MUST_CHECK int pool_tensor_dmabuf(struct rlv_pool *pool, uint64_t va, int *fd_out,
				      uint64_t *off_out);
void pool_tensor_dmabuf_end(struct rlv_pool *pool);

/* The pool is about to end: torch gets and gives back nothing more of it. */
void pool_leaves_torch(const struct rlv_pool *pool);

#endif
