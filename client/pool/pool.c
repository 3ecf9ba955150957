#include "relive/pool.h"

#include "client/pool/pool.h"
#include "client/pool/state.h"
#include "client/store/abi.h"
#include "device/cuda/backend_cuda.h"
#include "device/host/backend_host.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "base/mem/alloc.h"

int pool_enter(const struct rlv_pool *pool)
{
	if (!pool)
		return error_set(-EINVAL, "pool is NULL");
	if (getpid() != pool->pid)
		return error_set(-ECHILD, "job %s was opened before fork()", pool->name);
	return 0;
}

int pool_cuda_device(const struct rlv_pool *pool)
{
	return pool->backend->cuda;
}

void pool_advance(const struct rlv_pool *pool)
{
	if (pool->backend->cuda < 0)
		backend_host_advance(pool->inner, 0);
}

uint64_t pool_deadline(int64_t timeout_ns)
{
	return deadline_after(clock_monotonic(), timeout_ns);
}

bool pool_runs(const struct rlv_pool *pool)
{
	return atomic_load_explicit(&pool->runs, memory_order_relaxed);
}

int pool_enter_pause(const struct rlv_pool *pool)
{
	int ret = pool_enter(pool);

	if (ret == 0 && pool_runs(pool))
		ret = error_set(-EBUSY, "job %s: an iteration runs", pool->name);
	return ret;
}

/* -------- open and close -------- */

static int pool_read_opts(const char *pool, const char *name, const struct rlv_pool_opts *opts,
			  struct rlv_pool_opts *full)
{
	int ret = opts ? abi_read(full, sizeof(*full), opts, "opts.") : 0;

	if (ret)
		return ret;
	if (!pool || strlen(pool) >= LEASE_NAME_BYTES)
		return error_set(-EINVAL, "pool: want a name of 1 to 63 bytes");
	if (!name || !*name || strlen(name) >= LEASE_NAME_BYTES)
		return error_set(-EINVAL, "name: want 1 to 63 bytes");
	if (full->flags & ~(uint64_t)RLV_POOL_PARKS)
		return error_set(-EINVAL, "opts.flags: %#" PRIx64 ": want RLV_POOL_PARKS or 0",
				 full->flags);
	if (full->timeout_ns < 0 || full->duration_ns < 0)
		return error_set(-EINVAL, "opts.timeout_ns, opts.duration_ns: want 0 or more");
	return park_store_check(full);
}

/* The memory of this process: what the broker's extents are imported into. */
static int pool_open_device(struct rlv_pool *pool, const char *of, const struct lease_hello *hello)
{
	const struct backend_host_opts host = { .device_bytes = 0 };
	int ret = backend_host_open(&host, &pool->inner);

	if (ret)
		return ret;
	ret = backend_lease_open(of, hello, &pool->inner, &pool->backend);
	if (ret) {
		struct error_kept kept;

		error_keep(&kept);
		pool->inner->ops->close(pool->inner);
		error_restore(&kept);
		return ret;
	}
	pool->backend->timeout_ns = pool->timeout_ns;
	return 0;
}

static int pool_join(struct rlv_pool *pool)
{
	struct pool_opts opts = { .backend = &pool->backend->base,
				  .extent_bytes = pool->backend->extent_bytes };
	const struct pool_job job = { .name = pool->name, .uid = (uint32_t)getuid() };
	int ret = pool_open(&opts, &pool->pool);

	return ret ? ret : pool_attach(pool->pool, &job, &pool->job);
}

static void pool_leave(struct rlv_pool *pool)
{
	pool_abandon(&pool->pool);
	pool->backend->base.ops->close(&pool->backend->base);
}

int rlv_pool_open(const char *of, const char *name, const struct rlv_pool_opts *opts,
		  struct rlv_pool **pool_out)
{
	struct rlv_pool_opts full = RLV_POOL_OPTS_INIT;
	struct lease_hello hello = { .incarnation = 0 };
	struct rlv_pool *pool;
	int ret = pool_out ? pool_read_opts(of, name, opts, &full)
			   : error_set(-EINVAL, "pool_out is NULL");

	if (ret)
		return ret;
	pool = mem_zalloc(sizeof(*pool));
	if (!pool)
		return error_set(-ENOMEM, "pool: cannot allocate memory");
	memcpy(pool->name, name, strlen(name) + 1);
	memcpy(hello.name, pool->name, sizeof(hello.name));
	hello.persistent = full.persistent_bytes;
	hello.peak = full.iteration_bytes;
	hello.quota = full.quota_bytes;
	hello.duration_ns = (uint64_t)full.duration_ns;
	hello.weight = full.weight ? full.weight : 1000;
	hello.priority = full.priority;
	hello.device = full.device;
	hello.flags = full.flags & RLV_POOL_PARKS ? LEASE_PARKS : 0;
	pool->pid = getpid();
	pool->timeout_ns = full.timeout_ns ? full.timeout_ns : 30 * CLOCK_NS_PER_S;
	pool->keep = full.keep_bytes;
	atomic_init(&pool->measures, 1);
	lock_init(&pool->lock, &profile_role);
	ret = pool_open_device(pool, of, &hello);
	if (ret == 0) {
		ret = pool_join(pool);
		if (ret)
			pool_leave(pool);
	}
	if (ret) {
		lock_fini(&pool->lock);
		mem_free(pool);
		return ret;
	}
	ret = park_store_open(&pool->park, &full, of, name);
	if (ret) {
		struct error_kept kept;

		error_keep(&kept);
		(void)!rlv_pool_close(&pool);
		error_restore(&kept);
		return ret;
	}
	*pool_out = pool;
	return 0;
}

int rlv_pool_device(const struct rlv_pool *pool, uint32_t *device_out)
{
	int ret = pool_enter(pool);

	if (ret == 0 && !device_out)
		ret = error_set(-EINVAL, "device_out is NULL");
	if (ret == 0)
		*device_out = pool->backend->device;
	return ret;
}

int rlv_pool_cuda(const struct rlv_pool *pool, int32_t *cuda_out)
{
	int ret = pool_enter(pool);

	if (ret == 0 && !cuda_out)
		ret = error_set(-EINVAL, "cuda_out is NULL");
	if (ret == 0)
		*cuda_out = pool->backend->cuda;
	return ret;
}

/* Waits for the device, at most until the deadline. */
static int pool_finish(struct rlv_pool *pool, uint64_t deadline_ns)
{
	int ret;

	while ((ret = pool_detach(pool->pool, pool->job)) == -EAGAIN &&
	       !deadline_expired(clock_monotonic(), deadline_ns)) {
		pool_advance(pool);
		lease_wait(&pool->backend->lease, deadline_ns);
	}
	return ret;
}

int rlv_pool_close(struct rlv_pool **pool_inout)
{
	struct rlv_pool *pool = pool_inout ? *pool_inout : NULL;
	struct lease_message message = { .n_fds = 0 };
	uint64_t deadline;
	int ret;

	if (!pool)
		return 0;
	*pool_inout = NULL;
	ret = pool_enter(pool);
	if (ret)
		return ret; /* the parent's: it is not touched */
	pool_leaves_torch(pool);
	park_store_close(&pool->park);
	deadline = pool_deadline(pool->timeout_ns);
	pool_advance(pool);
	ret = pool_finish(pool, deadline);
	if (ret == 0)
		ret = pool_close(&pool->pool);
	if (ret == 0)
		ret = backend_lease_flush(pool->backend);
	backend_lease_marks(pool->backend, message.refs.marks);
	if (ret == 0)
		ret = lease_request(&pool->backend->lease, &message, LEASE_BYE, deadline);
	pool_leave(pool);
	lock_fini(&pool->lock);
	mem_free(pool);
	return ret;
}

/* -------- tensors -------- */

int rlv_pool_stream(struct rlv_pool *pool, void *native, uint32_t *stream_out)
{
	int ret = pool_enter(pool);

	if (ret == 0 && !stream_out)
		ret = error_set(-EINVAL, "stream_out is NULL");
	if (ret)
		return ret;
	if (!native && pool_cuda_device(pool) >= 0)
		native = CUDA_DEFAULT_STREAM;
	return pool_stream(pool->pool, pool->job, native, stream_out);
}

int pool_give(struct rlv_pool *pool, uint64_t keep)
{
	int ret;

	pool_advance(pool);
	ret = pool_trim(pool->pool, keep);
	return ret ? ret : backend_lease_flush(pool->backend);
}

void pool_give_up(struct rlv_pool *pool)
{
	struct lease_message message = { .n_fds = 0 };
	struct error_kept kept;

	error_keep(&kept);
	if (lease_request(&pool->backend->lease, &message, LEASE_CANCEL, 0) == 0)
		lease_close_fds(&message);
	error_restore(&kept);
}

static int pool_take_tensor(struct rlv_pool *pool, const struct pool_tensor *tensor,
			    uint64_t deadline_ns, uint64_t *va_out)
{
	uint64_t extent = pool->backend->extent_bytes;
	uint64_t n = tensor->bytes / extent + (tensor->bytes % extent != 0);
	int ret;

	for (;;) {
		pool_advance(pool);
		/* relaxed: a hint, of whichever thread is last */
		atomic_store_explicit(&pool->backend->want, (uint32_t)(n > UINT32_MAX ? 1 : n),
				      memory_order_relaxed);
		ret = pool_alloc(pool->pool, tensor, va_out);
		if (ret != -EAGAIN)
			return ret;
		if (deadline_expired(clock_monotonic(), deadline_ns))
			break;
		/* Extents that do not suffice are not kept from others meanwhile. */
		ret = pool_give(pool, 0);
		if (ret)
			return ret;
		lease_wait(&pool->backend->lease, deadline_ns);
	}
	pool_give_up(pool);
	return error_set(-ETIMEDOUT, "job %s: %" PRIu64 " bytes: %s", pool->name, tensor->bytes,
			 error_last());
}

int rlv_pool_alloc(struct rlv_pool *pool, enum rlv_pool_class tensor_class, uint64_t bytes,
		   uint32_t stream, void **ptr_out)
{
	struct pool_tensor tensor = { .stream = stream,
				      .class = (enum tensor_class)tensor_class,
				      .bytes = bytes };
	uint64_t va;
	int ret = pool_enter(pool);

	if (ret == 0 && !ptr_out)
		ret = error_set(-EINVAL, "ptr_out is NULL");
	if (ret == 0 && tensor_class == RLV_POOL_STAGING &&
	    pool->backend->lease.hello.flags & LEASE_PARKS)
		ret = error_set(-EINVAL,
				"job %s: staging tensors are used between iterations: the pool "
				"may not park it (RLV_POOL_PARKS)",
				pool->name);
	if (ret)
		return ret;
	tensor.job = pool->job;
	ret = pool_take_tensor(pool, &tensor, pool_deadline(pool->timeout_ns), &va);
	if (ret)
		return ret;
	*ptr_out = (void *)(uintptr_t)va;
	return pool_measure_held(pool);
}

int rlv_pool_use(struct rlv_pool *pool, const void *ptr, uint32_t stream)
{
	int ret = pool_enter(pool);

	return ret ? ret : pool_use(pool->pool, pool->job, (uint64_t)(uintptr_t)ptr, stream);
}

int rlv_pool_free(struct rlv_pool *pool, void *ptr, uint64_t bytes)
{
	uint64_t va = (uint64_t)(uintptr_t)ptr, has;
	int ret = pool_enter(pool);

	if (ret == 0 && bytes)
		ret = pool_size(pool->pool, pool->job, va, &has);
	if (ret == 0 && bytes && (bytes > has || has - bytes >= REGION_ALIGN))
		ret = error_set(-EINVAL,
				"job %s: the tensor at %p has %" PRIu64 " bytes, not %" PRIu64,
				pool->name, ptr, has, bytes);
	return ret ? ret : pool_free(pool->pool, pool->job, va);
}

/* -------- requests -------- */

int pool_ask(struct rlv_pool *pool, enum lease_type type, struct lease_message *message)
{
	memset(message, 0, sizeof(*message));
	return lease_request(&pool->backend->lease, message, type, pool_deadline(pool->timeout_ns));
}

int pool_ask_until(struct rlv_pool *pool, enum lease_type type, uint64_t deadline_ns)
{
	struct lease_message message;
	int ret;

	while ((ret = pool_ask(pool, type, &message)) == -EAGAIN &&
	       !deadline_expired(clock_monotonic(), deadline_ns)) {
		/* Memory that it kept while it was alone may be what the one before it waits for. */
		int given = type == LEASE_BEGIN ? pool_give(pool, pool->keep) : 0;

		if (given)
			return given;
		lease_wait(&pool->backend->lease, deadline_ns);
	}
	if (ret != -EAGAIN)
		return ret;
	pool_give_up(pool);
	return error_set(-ETIMEDOUT, "%s, %" PRIu32 " before it", error_last(),
			 message.answer.position);
}

int rlv_pool_free_bytes(struct rlv_pool *pool, uint64_t *bytes_out)
{
	struct lease_message message;
	struct pool_stats stats;
	int ret = pool_enter(pool);

	if (ret == 0 && !bytes_out)
		ret = error_set(-EINVAL, "bytes_out is NULL");
	if (ret == 0)
		ret = pool_ask(pool, LEASE_ROOM, &message);
	if (ret)
		return ret;
	pool_stats(pool->pool, &stats);
	*bytes_out =
		message.answer.room + (stats.created > stats.held ? stats.created - stats.held : 0);
	return 0;
}
