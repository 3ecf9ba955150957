/*
 * A pool of a CUDA device: over the fake driver, in broker and jobs, or over the machine's own if RLV_TEST_GPU is
 * set. Bytes of the device are seen through copies.
 */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "relive/kv.h"
#include "relive/landing.h"

#include "base/bits.h"
#include "base/os/clock.h"
#include "client/pool/pool.h"
#include "device/cuda/backend_cuda.h"
#include "device/cuda/calls.h"
#include "tests/support/fake/fake_cuda.h"
#include "tests/support/fixture/poold_fixture.h"
#include "tests/support/fixture/raw_job.h"
#include "tests/support/fixture/replay_fixture.h"
#include "tests/support/must.h"

#define EXTENT ((uint64_t)2 << 20)

static struct poold_fixture fx;
static const struct fakecuda_control *fake; /* NULL: the machine's driver */
static const struct cuda_calls *cu;

static void driver_open(void)
{
	struct cu_context *context;
	int device;

	assert_int_equal(cuda_calls_load(&cu), 0);
	assert_int_equal(cu->device_get(&device, 0), CU_OK);
	assert_int_equal(cu->context_retain(&context, device), CU_OK);
	assert_int_equal(cu->context_set(context), CU_OK);
}

static int begin(void **state)
{
	const char *const options[] = { "--device", "cuda:0:16M", "--extent", "2M", NULL };

	(void)state;
	fake = getenv("RLV_TEST_GPU") ? NULL : fake_cuda_open();
	if (fake)
		fake->reset();
	poold_start_as(&fx, options);
	return 0;
}

static int end(void **state)
{
	char text[128] = "";

	(void)state;
	poold_stop(&fx);
	if (fake && fake->violations(text, sizeof(text)))
		fail_msg("broken rule: %s", text);
	return 0;
}

/* As if the device wrote no marks. */
static int begin_events(void **state)
{
	int ret;

	assert_int_equal(setenv(CUDA_EVENTS_ENV, "1", 1), 0);
	ret = begin(state);
	assert_int_equal(unsetenv(CUDA_EVENTS_ENV), 0);
	return ret;
}

static int begin_strict(void **state)
{
	const char *const options[] = {
		"--device", "cuda:0:16M", "--extent", "2M", "--strict", NULL
	};

	(void)state;
	fake = getenv("RLV_TEST_GPU") ? NULL : fake_cuda_open();
	if (fake)
		fake->reset();
	poold_start_as(&fx, options);
	return 0;
}

static struct rlv_pool *join_in(const char *name, struct rlv_store *store, const char *heap)
{
	struct rlv_pool_opts opts = RLV_POOL_OPTS_INIT;
	struct rlv_pool *pool;

	opts.store = store;
	opts.heap = heap;

	opts.persistent_bytes = 2 * EXTENT;
	opts.iteration_bytes = 2 * EXTENT;
	opts.timeout_ns = POOLD_SOON;
	must(rlv_pool_open("test", name, &opts, &pool), "rlv_pool_open");
	return pool;
}

static struct rlv_pool *join(const char *name)
{
	return join_in(name, NULL, NULL);
}

static void *tensor(struct rlv_pool *pool, enum rlv_pool_class tensor_class, uint64_t bytes,
		    uint32_t stream, uint8_t value)
{
	void *ptr;

	must(rlv_pool_alloc(pool, tensor_class, bytes, stream, &ptr), "rlv_pool_alloc");
	assert_int_equal(cu->fill((cu_u64)(uintptr_t)ptr, value, bytes, NULL), CU_OK);
	return ptr;
}

static void expect_bytes(const void *ptr, uint64_t bytes, uint8_t value)
{
	uint8_t *seen = malloc(bytes);

	assert_non_null(seen);
	assert_int_equal(cu->copy((cu_u64)(uintptr_t)seen, (cu_u64)(uintptr_t)ptr, bytes, NULL),
			 CU_OK);
	assert_int_equal(cu->stream_wait(NULL), CU_OK);
	for (uint64_t i = 0; i < bytes; i++)
		assert_int_equal(seen[i], value);
	free(seen);
}

static bool holds(uint64_t bytes)
{
	uint64_t deadline = deadline_after(clock_monotonic(), POOLD_SOON);

	while (poold_status().held_bytes != bytes) {
		if (deadline_expired(clock_monotonic(), deadline))
			return false;
		processes_sleep_ns(2 * CLOCK_NS_PER_MS);
	}
	return true;
}

/* First: this process has not looked for a driver yet. */

static int without_driver(void *ctx)
{
	struct rlv_pool *pool = NULL;

	(void)ctx;
	assert_int_equal(setenv("RLV_CUDA_LIBRARY", "/nowhere/libcuda.so.1", 1), 0);
	expect(rlv_pool_open("test", "lost", NULL, &pool), -ENOTSUP);
	assert_non_null(strstr(rlv_last_error(), "install the NVIDIA driver"));
	return 0;
}

TEST_WITH(job__without_a_driver_is_told_and_leaves, begin, end)
{
	pid_t child;

	if (!fake)
		skip();
	child = processes_fork(&fx.ps, without_driver, NULL);
	assert_int_equal(processes_wait(&fx.ps, child, PROCESSES_WAIT_MS), 0);
	assert_int_equal(poold_status().jobs, 0);
}

static int victim(void *ctx)
{
	struct rlv_pool *pool = join("victim");
	uint32_t stream;

	(void)ctx;
	driver_open();
	must(rlv_pool_stream(pool, NULL, &stream), "stream");
	must(rlv_pool_iteration_begin(pool, POOLD_SOON), "begin");
	(void)tensor(pool, RLV_POOL_ITERATION, 2 * EXTENT, stream, 9);
	processes_sleep_ns(100 * (int64_t)POOLD_SECOND);
	return 0;
}

TEST_WITH(job__killed_gives_all_back_and_harms_nobody, begin, end)
{
	pid_t child;
	struct rlv_pool *pool;
	uint32_t stream;
	void *ours;

	/* forked before this process has opened a device, which a child could not use */
	child = processes_fork(&fx.ps, victim, NULL);
	assert_true(holds(2 * EXTENT));
	pool = join("a");
	driver_open();
	must(rlv_pool_stream(pool, NULL, &stream), "stream");
	ours = tensor(pool, RLV_POOL_PERSISTENT, EXTENT, stream, 3);
	assert_int_equal(kill(child, SIGKILL), 0);
	assert_true(holds(EXTENT));
	assert_int_equal(poold_status().deaths, 1);
	expect_bytes(ours, EXTENT, 3);
	must(rlv_pool_close(&pool), "close");
}

TEST_WITH(job__has_memory_of_the_device, begin, end)
{
	struct rlv_pool *pool = join("a");
	uint32_t stream;
	void *first, *second;

	driver_open();
	must(rlv_pool_stream(pool, NULL, &stream), "stream");
	first = tensor(pool, RLV_POOL_PERSISTENT, EXTENT, stream, 1);
	must(rlv_pool_iteration_begin(pool, POOLD_SOON), "begin");
	second = tensor(pool, RLV_POOL_ITERATION, EXTENT / 2, stream, 2);
	expect_bytes(first, EXTENT, 1);
	expect_bytes(second, EXTENT / 2, 2);
	assert_int_equal(poold_status().held_bytes, 2 * EXTENT);
	must(rlv_pool_free(pool, second, 0), "free");
	must(rlv_pool_iteration_end(pool), "end");
	must(rlv_pool_close(&pool), "close");
	assert_true(holds(0));
}

/* Memory that the default stream still uses stays with the job. */
TEST_WITH(stream__null_is_the_default_stream, begin, end)
{
	struct rlv_pool *pool = join("a");
	_Atomic uint64_t *gate = aligned_alloc(4096, 4096);
	uint32_t stream;
	cu_u64 gate_at;
	void *ours;

	assert_non_null(gate);
	atomic_init(gate, 0);
	driver_open();
	assert_int_equal(cu->host_register(gate, 4096, CU_HOST_PORTABLE | CU_HOST_DEVICEMAP),
			 CU_OK);
	assert_int_equal(cu->host_device_pointer(&gate_at, gate, 0), CU_OK);
	must(rlv_pool_stream(pool, NULL, &stream), "stream");
	must(rlv_pool_iteration_begin(pool, POOLD_SOON), "begin");
	must(rlv_pool_alloc(pool, RLV_POOL_ITERATION, EXTENT, stream, &ours), "alloc");
	assert_int_equal(cu->stream_wait_value(NULL, gate_at, 1, CU_WAIT_GEQ), CU_OK);
	assert_int_equal(cu->fill((cu_u64)(uintptr_t)ours, 5, EXTENT, NULL), CU_OK);
	must(rlv_pool_free(pool, ours, 0), "free");
	must(rlv_pool_iteration_end(pool), "end");
	must(rlv_pool_park(pool, POOLD_SOON), "park");
	assert_int_equal(poold_status().held_bytes, EXTENT);
	atomic_store(gate, 1);
	must(rlv_pool_close(&pool), "close");
	assert_true(holds(0));
	assert_int_equal(cu->host_unregister(gate), CU_OK);
	free(gate);
}

/*
 * Where the device cannot write marks: a job gives back memory while another stream of it still works, and does not
 * call the library again. The broker asks the event behind the job's last mark.
 */
TEST_WITH(give__is_free_when_the_event_of_a_job_is_done, begin_events, end)
{
	_Atomic uint64_t *gate;
	struct cu_stream *natives[2];
	struct rlv_pool *pool, *other;
	uint32_t first, second;
	void *ours, *busy;
	cu_u64 gate_at;

	gate = aligned_alloc(4096, 4096);
	assert_non_null(gate);
	atomic_init(gate, 0);
	assert_int_equal(setenv(CUDA_EVENTS_ENV, "1", 1), 0);
	pool = join("a");
	assert_int_equal(unsetenv(CUDA_EVENTS_ENV), 0);
	other = join("b");
	driver_open();
	assert_int_equal(cu->host_register(gate, 4096, CU_HOST_PORTABLE | CU_HOST_DEVICEMAP),
			 CU_OK);
	assert_int_equal(cu->host_device_pointer(&gate_at, gate, 0), CU_OK);
	for (int i = 0; i < 2; i++)
		assert_int_equal(cu->stream_create(&natives[i], CU_STREAM_NON_BLOCKING_FLAG, 0),
				 CU_OK);
	must(rlv_pool_stream(pool, natives[0], &first), "stream");
	must(rlv_pool_stream(pool, natives[1], &second), "stream");
	must(rlv_pool_iteration_begin(pool, POOLD_SOON), "begin");
	must(rlv_pool_alloc(pool, RLV_POOL_ITERATION, EXTENT, first, &ours), "alloc");
	must(rlv_pool_alloc(pool, RLV_POOL_ITERATION, EXTENT, second, &busy), "alloc");
	assert_int_equal(cu->stream_wait_value(natives[1], gate_at, 1, CU_WAIT_GEQ), CU_OK);
	must(rlv_pool_free(pool, busy, 0), "free");
	must(rlv_pool_free(pool, ours, 0), "free");
	assert_int_equal(cu->stream_wait(natives[0]), CU_OK);
	must(rlv_pool_iteration_end(pool), "end");
	assert_int_equal(poold_status().held_bytes, 2 * EXTENT);
	atomic_store(gate, 1);
	assert_true(holds(EXTENT)); /* the job has not looked at the end of the other one's work */
	must(rlv_pool_close(&other), "close");
	must(rlv_pool_close(&pool), "close");
	assert_true(holds(0));
	for (int i = 0; i < 2; i++)
		assert_int_equal(cu->stream_destroy(natives[i]), CU_OK);
	assert_int_equal(cu->host_unregister(gate), CU_OK);
	free(gate);
}

/* What a job writes on its page in place of an event frees nothing, and the broker goes on. */
TEST_WITH(give__is_not_free_by_an_event_that_is_none, begin_events, end)
{
	struct backend_progress *page;
	struct raw_job a, b;

	if (!fake)
		skip(); /* a driver may crash on such a handle */
	raw_job_connect(&a);
	raw_job_connect(&b);
	page = (struct backend_progress *)(uintptr_t)a.page;
	must(raw_job_hello(&a, "a", 0), "hello");
	must(raw_job_hello(&b, "b", 0), "hello");
	must(raw_job_take(&a, 8), "take");
	memset(page->events[0].handle, 'x', sizeof(page->events[0].handle));
	page->events[0].made = 1;
	must(raw_job_give(&a, 4, 7), "give");
	expect(raw_job_take(&b, 4), -EAGAIN);
	atomic_store(&page->reached[0], 7);
	must(raw_job_take(&b, 4), "take");
	raw_job_close(&a);
	raw_job_close(&b);
}

TEST_WITH(strict__another_job_sees_zeros, begin_strict, end)
{
	struct rlv_pool *a = join("a"), *b;
	uint32_t stream;
	void *ptr;

	driver_open();
	must(rlv_pool_stream(a, NULL, &stream), "stream");
	must(rlv_pool_alloc(a, RLV_POOL_PERSISTENT, 2 * EXTENT, stream, &ptr), "alloc");
	expect_bytes(ptr, 2 * EXTENT, 0);
	assert_int_equal(cu->fill((cu_u64)(uintptr_t)ptr, 7, 2 * EXTENT, NULL), CU_OK);
	must(rlv_pool_close(&a), "close a");
	assert_true(holds(0));

	b = join("b");
	must(rlv_pool_stream(b, NULL, &stream), "stream");
	must(rlv_pool_alloc(b, RLV_POOL_PERSISTENT, 2 * EXTENT, stream, &ptr), "alloc");
	expect_bytes(ptr, 2 * EXTENT, 0);
	assert_int_equal(poold_status().handovers, 2);
	must(rlv_pool_close(&b), "close b");
}

TEST_WITH(alloc__of_warm_memory_calls_no_driver, begin, end)
{
	struct rlv_pool *pool = join("a");
	uint32_t stream;
	void *ptr;

	must(rlv_pool_stream(pool, NULL, &stream), "stream");
	must(rlv_pool_alloc(pool, RLV_POOL_ITERATION, EXTENT / 4, stream, &ptr), "alloc");
	must(rlv_pool_free(pool, ptr, 0), "free");
	if (fake) {
		fake->reset();
		for (int i = 0; i < 100; i++) {
			must(rlv_pool_alloc(pool, RLV_POOL_ITERATION, EXTENT / 4, stream, &ptr),
			     "alloc");
			assert_int_equal(fake->calls(NULL), 2 * i); /* a mark of each free before */
			must(rlv_pool_free(pool, ptr, 0), "free");
			assert_true(fake->calls("cuMemMap") == 0 && fake->calls("cuMemUnmap") == 0);
		}
	}
	must(rlv_pool_close(&pool), "close");
}

TEST_WITH(park__tensors_of_the_device_come_back, begin, end)
{
	struct rlv_pool *pool = join("a");
	uint32_t stream;
	void *ours;

	driver_open();
	must(rlv_pool_stream(pool, (void *)1, &stream), "stream");
	ours = tensor(pool, RLV_POOL_PERSISTENT, 2 * EXTENT, stream, 4);
	must(rlv_pool_park(pool, POOLD_SOON), "park");
	assert_true(holds(0));
	must(rlv_pool_resume(pool, POOLD_SOON), "resume");
	expect_bytes(ours, 2 * EXTENT, 4);
	must(rlv_pool_close(&pool), "close");
}

TEST_WITH(park__tensors_of_the_device_come_back_from_a_store, begin, end)
{
	struct rlv_kv_walk walk = RLV_KV_WALK_INIT;
	struct rlv_store *store;
	struct rlv_pool *pool;
	struct rlv_kv *heap;
	uint32_t stream;
	void *ours;

	must(rlv_store_open("embed:", NULL, &store), "rlv_store_open");
	must(rlv_kv_create(store, "parked", NULL, &heap), "rlv_kv_create");
	pool = join_in("a", store, "parked");
	driver_open();
	must(rlv_pool_stream(pool, (void *)1, &stream), "stream");
	ours = tensor(pool, RLV_POOL_PERSISTENT, 2 * EXTENT, stream, 4);
	must(rlv_pool_park(pool, POOLD_SOON), "park");
	assert_true(holds(0));
	must(rlv_kv_next(heap, &walk), "rlv_kv_next");
	must(rlv_pool_resume(pool, POOLD_SOON), "resume");
	expect_bytes(ours, 2 * EXTENT, 4);
	must(rlv_pool_close(&pool), "close");
	must(rlv_kv_close(&heap), "rlv_kv_close");
	must(rlv_store_close(&store), "rlv_store_close");
}

/* Its extents are the broker's, imported here: the driver exports them all the same. */
TEST_WITH(dmabuf__of_tensors_of_one_extent_and_of_several, begin, end)
{
	const uint64_t bytes[] = { 4096, 2 * EXTENT };
	struct rlv_pool *pool = join("a");
	uint32_t stream;

	driver_open();
	must(rlv_pool_stream(pool, NULL, &stream), "stream");
	for (size_t i = 0; i < ARRAY_LEN(bytes); i++) {
		void *ours = tensor(pool, RLV_POOL_STAGING, bytes[i], stream, 6);
		uint64_t off;
		int fd;

		must(pool_tensor_dmabuf(pool, (uint64_t)(uintptr_t)ours, &fd, &off), "dmabuf");
		assert_true(fd >= 0 && off < EXTENT);
		expect(rlv_pool_park(pool, POOLD_SOON), -EBUSY);
		assert_int_equal(close(fd), 0);
		pool_tensor_dmabuf_end(pool);
		expect_bytes(ours, bytes[i], 6);
	}
	must(rlv_pool_close(&pool), "close");
}

/* -------- batches land in the pool -------- */

static struct replay_fixture table;

/* A sampler of 16 items that land in the pool. */
static struct rlv_sampler *landed(struct rlv_pool *pool, struct rlv_landing **landing_out)
{
	struct rlv_sampler_opts opts = RLV_SAMPLER_OPTS_INIT;
	struct rlv_landing_opts where = RLV_LANDING_OPTS_INIT;
	struct rlv_writer *writer;

	replay_open(&table, &(struct rlv_table_opts){ 0 });
	writer = replay_writer(&table, 1);
	replay_append_plain(&table, writer, 0, 100);
	replay_writer_done(&writer);
	where.pool = pool;
	must(rlv_landing_open(&where, landing_out), "rlv_landing_open");
	opts.dest = *landing_out;
	opts.batch_size = 16;
	return replay_sampler(&table, &opts);
}

static void landed_end(struct rlv_pool **pool, struct rlv_landing **landing,
		       struct rlv_sampler **sampler)
{
	replay_sampler_done(sampler);
	must(rlv_landing_close(landing), "rlv_landing_close");
	replay_close(&table);
	must(rlv_pool_close(pool), "close");
}

TEST_WITH(landing__batches_are_tensors_of_the_pool, begin, end)
{
	struct rlv_landing_info info = RLV_LANDING_INFO_INIT;
	struct rlv_pool *pool = join("learner");
	struct rlv_landing *landing;
	struct rlv_sampler *sampler = landed(pool, &landing);
	const struct rlv_batch *batch = replay_sample(sampler, 16);
	uint64_t address;
	float weight[16];

	driver_open();
	must(rlv_landing_info(landing, &info), "rlv_landing_info");
	assert_int_equal(info.path, RLV_LANDING_PINNED);
	assert_int_equal(info.device, 0);
	assert_int_equal(poold_job("learner").held_bytes, EXTENT);
	must(rlv_landing_device(landing, batch->weight, &address), "rlv_landing_device");
	assert_int_equal(cu->copy((cu_u64)(uintptr_t)weight, address, sizeof(weight), NULL), CU_OK);
	assert_int_equal(cu->stream_wait(NULL), CU_OK);
	for (int i = 0; i < 16; i++)
		assert_true(weight[i] == 1); /* all have one priority */
	assert_int_equal(info.weighed, 1);
	rlv_batch_release(sampler, batch);
	landed_end(&pool, &landing, &sampler);
	assert_true(holds(0));
}

TEST_WITH(landing__in_a_pool_the_device_gathers, begin, end)
{
	enum { N = 16, FRAME = 600 };
	static const struct rlv_column frames = {
		.name = "frame", .role = RLV_OBS, .dtype = RLV_U8, .ndim = 1, .shape = { FRAME }
	};
	static const uint8_t rows[8 * N][FRAME];
	struct rlv_landing_info info = RLV_LANDING_INFO_INIT;
	struct rlv_landing_opts where = RLV_LANDING_OPTS_INIT;
	struct rlv_sampler_opts opts = RLV_SAMPLER_OPTS_INIT;
	struct rlv_steps steps = RLV_STEPS_INIT;
	struct rlv_pool *pool = join("learner");
	struct rlv_landing *landing;
	struct rlv_sampler *sampler;
	struct rlv_writer *writer;
	const struct rlv_batch *batch;

	replay_open(&table, &(struct rlv_table_opts){ .columns = &frames, .n_columns = 1 });
	must(rlv_writer_open(table.table, NULL, &writer), "rlv_writer_open");
	steps.n = 8 * N;
	steps.columns = &(const void *){ rows };
	must(rlv_writer_append(writer, 0, &steps, NULL), "rlv_writer_append");
	replay_writer_done(&writer);
	where.pool = pool;
	where.path = RLV_LANDING_GATHER;
	must(rlv_landing_open(&where, &landing), "rlv_landing_open");
	opts.dest = landing;
	opts.batch_size = N;
	sampler = replay_sampler(&table, &opts);
	batch = replay_sample(sampler, N);
	must(rlv_landing_info(landing, &info), "rlv_landing_info");
	assert_int_equal(info.gathered_bytes, 2 * N * FRAME); /* and the next ones */
	must(rlv_landing_fetch(landing, batch->weight, N * sizeof(float)), "rlv_landing_fetch");
	for (int i = 0; i < N; i++)
		assert_true(batch->weight[i] == 1); /* all have one priority */
	rlv_batch_release(sampler, batch);
	landed_end(&pool, &landing, &sampler);
}

static int begin_host(void **state)
{
	(void)state;
	poold_start(&fx, NULL, NULL);
	return 0;
}

TEST_WITH(landing__in_memory_of_the_host_is_no_copy, begin_host, end)
{
	struct rlv_landing_info info = RLV_LANDING_INFO_INIT;
	struct rlv_pool *pool = poold_join("learner", 2, 2);
	struct rlv_landing_opts where = RLV_LANDING_OPTS_INIT;
	struct rlv_landing *landing, *none = NULL;
	struct rlv_sampler *sampler = landed(pool, &landing);
	const struct rlv_batch *batch;
	uint64_t address;

	for (int i = 0; i < 20; i++) {
		batch = replay_sample(sampler, 16);
		must(rlv_landing_device(landing, batch->key, &address), "rlv_landing_device");
		assert_int_equal(address, (uintptr_t)batch->key);
		must(rlv_landing_use(landing, batch->key, NULL), "rlv_landing_use");
		must(rlv_sampler_update_device(sampler, batch->key, (uintptr_t)batch->weight, 16,
					       NULL),
		     "rlv_sampler_update_device");
		rlv_batch_release(sampler, batch);
	}
	must(rlv_landing_info(landing, &info), "rlv_landing_info");
	assert_int_equal(info.path, RLV_LANDING_IN_PLACE);
	assert_int_equal(info.device, -1);
	assert_int_equal(info.batches, 20);
	assert_int_equal(info.weights, RLV_LANDING_WEIGHTS_HOST);
	where.pool = pool;
	where.weights = RLV_LANDING_WEIGHTS_DEVICE;
	assert_int_equal(rlv_landing_open(&where, &none), -ENOTSUP);
	assert_non_null(strstr(rlv_last_error(), "the device's memory is the host's"));
	assert_int_equal(info.copied_bytes, 0);
	assert_int_equal(poold_job("learner").held_bytes, POOLD_EXTENT);
	landed_end(&pool, &landing, &sampler);
	assert_true(poold_holds(0, POOLD_SOON));
}

/* -------- torch's allocator -------- */

TEST_WITH(torch__gets_memory_of_the_bound_pool, begin, end)
{
	struct rlv_pool *pool = join("torch");
	void *first, *second;

	driver_open();
	assert_null(rlv_torch_alloc(EXTENT, 0, NULL));
	must(rlv_pool_bind_torch(pool, RLV_POOL_ITERATION), "bind");
	assert_int_equal(rlv_pool_bind_torch(pool, (enum rlv_pool_class)9), -EINVAL);
	assert_null(rlv_torch_alloc(EXTENT, 1, NULL));
	assert_null(rlv_torch_alloc(0, 0, NULL));
	first = rlv_torch_alloc((int64_t)EXTENT, 0, NULL);
	assert_non_null(first);
	assert_int_equal(cu->fill((cu_u64)(uintptr_t)first, 5, EXTENT, NULL), CU_OK);
	expect_bytes(first, EXTENT, 5);
	second = rlv_torch_alloc((int64_t)EXTENT, 0, NULL);
	assert_ptr_not_equal(second, first);
	rlv_torch_free(first, (int64_t)EXTENT, 0, NULL);
	rlv_torch_free(first, (int64_t)EXTENT, 0, NULL); /* not its own any more: ignored */
	rlv_torch_free(&first, 8, 0, NULL);
	assert_null(rlv_torch_alloc((int64_t)(100 * EXTENT), 0, NULL));
	assert_non_null(strstr(rlv_last_error(), "a tensor of 209715200 bytes"));
	must(rlv_pool_bind_torch(NULL, RLV_POOL_ITERATION), "unbind");
	assert_null(rlv_torch_alloc((int64_t)EXTENT, 0, NULL));
	rlv_torch_free(second, (int64_t)EXTENT, 0, NULL);
	must(rlv_pool_close(&pool), "close");
	rlv_torch_free(second, (int64_t)EXTENT, 0, NULL);
	assert_true(holds(0));
}

int main(void)
{
	if (test_skips_msan("libevent"))
		return TEST_EXIT_SKIP;
	return test_run(NULL, NULL);
}
