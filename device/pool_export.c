#include "device/pool_export.h"

#include "base/bits.h"

#include "device/pool_chunk.h"

/* From the first extent that a block is in to the last, which are mapped in a row. */
static int export_block(struct pool *pool, const struct block *block, int *fd_out,
			uint64_t *off_out)
{
	const struct pool_chunk *chunk = (const struct pool_chunk *)block->chunk;
	const struct backend_ops *ops = pool->backend->ops;
	uint64_t extent = pool->opts.extent_bytes, at = block->va - chunk->chunk.va;
	uint64_t first = at / extent, end = div_up(at + block->bytes, extent);
	int ret = 0;

	for (uint64_t i = first; i < end && ret == 0; i++) {
		pool->stats.backend_calls++;
		ret = ops->extent_expose(pool->backend,
					 pool->extents[chunk->refs[i].extent].handle);
	}
	if (ret)
		return ret;
	pool->stats.backend_calls++;
	ret = ops->dmabuf_export(pool->backend, chunk->chunk.va + first * extent,
				 (end - first) * extent, fd_out, off_out);
	if (ret == 0)
		*off_out += at - first * extent;
	return ret;
}

int pool_export(struct pool *pool, uint32_t job, uint64_t va, int *fd_out, uint64_t *off_out)
{
	struct block **link;
	int ret;

	lock_acquire(&pool->lock, &pool_role);
	ret = pool_find(pool, job, va, &link);
	if (ret == 0)
		ret = pool_check_parked(pool, job);
	if (ret == 0)
		ret = export_block(pool, *link, fd_out, off_out);
	pool->exported[job] += ret == 0;
	lock_release(&pool->lock, &pool_role);
	return ret;
}

void pool_export_end(struct pool *pool, uint32_t job)
{
	lock_acquire(&pool->lock, &pool_role);
	pool->exported[job]--;
	lock_release(&pool->lock, &pool_role);
}
