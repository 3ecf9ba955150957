/*
 * torch.c - memory of a pool for PyTorch, by the two functions that its pluggable allocator calls.
 *
 * They have no context, so the pool is bound to the process. A stream of torch is a number of the pool's, looked
 * up by its handle.
 */
#include "client/pool/pool.h"

#include <errno.h>
#include <stddef.h>

#include "base/error.h"
#include "base/os/lock.h"

#define TORCH_STREAMS 63 /* a pool has one more, of its own */
#define TORCH_POOLS 8    /* that were bound, and live */

static LOCK_ROLE(torch_role, "pool of torch", LOCK_RANK_PROCESS);

struct torch_pool {
	struct rlv_pool *pool; /* NULL: the place is free */
	void *native[TORCH_STREAMS];
	uint32_t numbers[TORCH_STREAMS], n_streams;
};

static struct {
	struct lock lock;
	struct torch_pool pools[TORCH_POOLS] LOCK_GUARDED_BY(torch_role);
	struct torch_pool *bound LOCK_GUARDED_BY(torch_role);
	enum rlv_pool_class tensor_class LOCK_GUARDED_BY(torch_role);
} torch = { .lock = LOCK_INIT(&torch_role) };

static struct torch_pool *torch_place(const struct rlv_pool *pool) LOCK_REQUIRES(torch_role)
{
	for (size_t i = 0; i < TORCH_POOLS; i++) {
		if (torch.pools[i].pool == pool)
			return &torch.pools[i];
	}
	return NULL;
}

int rlv_pool_bind_torch(struct rlv_pool *pool, enum rlv_pool_class tensor_class)
{
	struct torch_pool *place = NULL;
	int ret = 0;

	if (tensor_class > RLV_POOL_STAGING)
		return error_set(-EINVAL, "tensor_class %d: want one of enum rlv_pool_class",
				 (int)tensor_class);
	if (pool && pool_cuda_device(pool) < 0)
		return error_set(
			-EINVAL,
			"pool: its device is memory of the host, which torch.cuda does not use");
	lock_acquire(&torch.lock, &torch_role);
	if (pool) {
		place = torch_place(pool);
		place = place ? place : torch_place(NULL);
		if (!place)
			ret = error_set(-ENOSPC, "torch: %d pools are bound: close one",
					TORCH_POOLS);
		else
			place->pool = pool;
	}
	if (ret == 0) {
		torch.bound = place;
		torch.tensor_class = tensor_class;
	}
	lock_release(&torch.lock, &torch_role);
	return ret;
}

void pool_leaves_torch(const struct rlv_pool *pool)
{
	struct torch_pool *place;

	lock_acquire(&torch.lock, &torch_role);
	place = torch_place(pool);
	if (place && torch.bound == place)
		torch.bound = NULL;
	if (place)
		*place = (struct torch_pool){ .pool = NULL };
	lock_release(&torch.lock, &torch_role);
}

static int torch_stream(struct torch_pool *place, void *stream, uint32_t *number_out)
	LOCK_REQUIRES(torch_role)
{
	uint32_t n = place->n_streams;
	int ret;

	for (uint32_t i = 0; i < n; i++) {
		if (place->native[i] == stream) {
			*number_out = place->numbers[i];
			return 0;
		}
	}
	if (n == TORCH_STREAMS)
		return error_set(-ENOSPC, "torch: %d streams use the pool already", TORCH_STREAMS);
	ret = rlv_pool_stream(place->pool, stream, &place->numbers[n]);
	if (ret)
		return ret;
	place->native[n] = stream;
	place->n_streams++;
	*number_out = place->numbers[n];
	return 0;
}

void *rlv_torch_alloc(int64_t bytes, int device, void *stream)
{
	enum rlv_pool_class tensor_class;
	struct rlv_pool *pool = NULL;
	uint32_t number = 0;
	void *ptr = NULL;
	int ret = 0;

	if (bytes <= 0)
		return NULL;
	lock_acquire(&torch.lock, &torch_role);
	tensor_class = torch.tensor_class;
	if (!torch.bound || pool_cuda_device(torch.bound->pool) != device) {
		ret = error_set(-ENOENT, "torch: no pool of cuda:%d is bound: rlv_pool_bind_torch",
				device);
	} else {
		pool = torch.bound->pool;
		ret = torch_stream(torch.bound, stream, &number);
	}
	lock_release(&torch.lock, &torch_role);
	if (ret == 0) /* it may wait for other jobs: without the lock */
		ret = rlv_pool_alloc(pool, tensor_class, (uint64_t)bytes, number, &ptr);
	return ret ? NULL : ptr;
}

void rlv_torch_free(void *ptr, int64_t bytes, int device, void *stream)
{
	struct error_kept kept;

	(void)device;
	(void)bytes;
	if (!ptr)
		return;
	error_keep(&kept);
	lock_acquire(&torch.lock, &torch_role);
	for (size_t i = 0; i < TORCH_POOLS; i++) {
		struct torch_pool *place = &torch.pools[i];
		uint32_t number;

		if (!place->pool || torch_stream(place, stream, &number) ||
		    rlv_pool_use(place->pool, ptr, number))
			continue; /* another pool's */
		if (rlv_pool_free(place->pool, ptr, 0) == 0)
			break;
	}
	lock_release(&torch.lock, &torch_role);
	error_restore(&kept);
}
