#include "client/pool/pool.h"
#include "client/pool/state.h"

#include "device/pool_export.h"

int pool_tensor_dmabuf(struct rlv_pool *pool, uint64_t va, int *fd_out, uint64_t *off_out)
{
	int ret = pool_enter(pool);

	return ret ? ret : pool_export(pool->pool, pool->job, va, fd_out, off_out);
}

void pool_tensor_dmabuf_end(struct rlv_pool *pool)
{
	if (pool_enter(pool) == 0)
		pool_export_end(pool->pool, pool->job);
}
