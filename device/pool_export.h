/*
 * pool_export.h - dma-bufs of tensors, for RDMA devices.
 *
 * A dma-buf, and a registration with an RDMA device that is made of it, hold on to the physical memory, whoever owns
 * its extents by then. READs of a queue pair that outlives its job may fill it at any time. So whoever has the
 * extents next gets other memory from the backend (extent_expose), and the job is not parked meanwhile.
 */
#ifndef RLV_DEVICE_POOL_EXPORT_H
#define RLV_DEVICE_POOL_EXPORT_H

#include "device/pool.h"

/*
 * A dma-buf of the whole extents that a tensor is in, and where in it the tensor begins. The caller closes it, and
 * calls pool_export_end when no RDMA device knows the tensor any more. For a pool with one job. -EINVAL: the job has
 * no tensor there; -EBUSY: it is parked; errors of extent_expose and dmabuf_export.
 */
RLV_MUST_CHECK int pool_export(struct pool *pool, uint32_t job, uint64_t va, int *fd_out,
			       uint64_t *off_out);
void pool_export_end(struct pool *pool, uint32_t job);

#endif
