/*
 * The kernels beside the CPU's loops, element by element over random plans: launched through the
 * fake driver, or with RLV_TEST_GPU on the machine's GPU. Rows come from pinned memory of the host, and
 * from memory of the device.
 */
#include "tests/support/test.h"

#include <string.h>
#include <sys/mman.h>

#include "base/rng.h"
#include "device/cuda/backend_cuda.h"
#include "device/cuda/gather.h"
#include "tests/support/fake/fake_cuda.h"

#define SOURCE_BYTES ((size_t)1 << 20)
#define TARGET_BYTES ((size_t)1 << 20)
#define ROWS 4096u
#define UNTOUCHED 0xee

static struct {
	const struct cuda_calls *calls;
	struct backend *dev;
	struct cuda_gather gather;
	struct cu_stream *stream;
	uint8_t *source;             /* of the host, pinned: rows, then their table */
	cu_u64 source_at, device_at; /* of the same bytes as the device sees them; of its copy */
	cu_u64 target_at;
	_Alignas(16) uint8_t seen[TARGET_BYTES], expected[TARGET_BYTES];
} all;

static void call(const char *name, unsigned result)
{
	if (cuda_result(all.calls, name, result))
		fail_msg("%s", error_last());
}

static void copy(cu_u64 to, cu_u64 from, size_t bytes)
{
	call("cuMemcpyAsync", all.calls->copy(to, from, bytes, all.stream));
	call("cuStreamSynchronize", all.calls->stream_wait(all.stream));
}

static cu_u64 device_memory(size_t bytes)
{
	struct backend_info info;
	uint64_t va, handle, size;

	all.dev->ops->info(all.dev, &info);
	size = (bytes + info.granularity - 1) / info.granularity * info.granularity;
	assert_int_equal(all.dev->ops->reserve(all.dev, size, &va), 0);
	assert_int_equal(all.dev->ops->extent_create(all.dev, size, &handle), 0);
	assert_int_equal(all.dev->ops->map(all.dev, va, size, handle), 0);
	assert_int_equal(all.dev->ops->set_access(all.dev, va, size, BACKEND_ACCESS_READ_WRITE), 0);
	return va;
}

static int setup(void **state)
{
	size_t bytes = SOURCE_BYTES + ROWS * sizeof(struct gather_row);
	struct cu_context *context;
	void *memory;

	(void)state;
	if (!getenv("RLV_TEST_GPU"))
		fake_cuda_open()->reset();
	if (cuda_calls_load(&all.calls) ||
	    backend_cuda_open(&(struct backend_cuda_opts){ 0 }, &all.dev))
		fail_msg("%s", error_last());
	call("cuDevicePrimaryCtxRetain", all.calls->context_retain(&context, 0));
	call("cuCtxSetCurrent", all.calls->context_set(context));
	call("cuStreamCreateWithPriority",
	     all.calls->stream_create(&all.stream, CU_STREAM_NON_BLOCKING_FLAG, 0));
	if (cuda_gather_open(all.calls, &all.gather))
		fail_msg("%s", error_last());
	memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(memory, MAP_FAILED);
	call("cuMemHostRegister", all.calls->host_register(memory, bytes, CU_HOST_DEVICEMAP));
	call("cuMemHostGetDevicePointer",
	     all.calls->host_device_pointer(&all.source_at, memory, 0));
	all.source = memory;
	for (size_t i = 0; i < SOURCE_BYTES; i++)
		all.source[i] = (uint8_t)(i * 131 + i / 251);
	all.device_at = device_memory(SOURCE_BYTES);
	all.target_at = device_memory(TARGET_BYTES);
	copy(all.device_at, all.source_at, SOURCE_BYTES);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	cuda_gather_close(&all.gather);
	call("cuStreamDestroy", all.calls->stream_destroy(all.stream));
	call("cuMemHostUnregister", all.calls->host_unregister(all.source));
	(void)munmap(all.source, SOURCE_BYTES + ROWS * sizeof(struct gather_row));
	all.dev->ops->close(all.dev);
	call("cuDevicePrimaryCtxRelease", all.calls->context_release(0));
	return 0;
}

/* A plan, whose rows go to the table; offsets and bytes are multiples of unit. */
static struct gather_work random_work(struct rng *rng, struct gather_row *rows)
{
	uint64_t unit = (uint64_t)1 << rng_uniform_u64(rng, 5), n = 1 + rng_uniform_u64(rng, ROWS);
	uint64_t bytes = unit * (1 + rng_uniform_u64(rng, TARGET_BYTES / n / unit));
	struct gather_work work = { NULL, NULL, NULL, n, bytes, 1, 0 };

	for (uint64_t i = 0; i < n; i++) {
		rows[i].to = (n - 1 - i) * bytes;
		rows[i].from = unit * rng_uniform_u64(rng, (SOURCE_BYTES - bytes) / unit + 1);
	}
	gather_fit(&work, rows);
	return work;
}

static void run_on_device(struct gather_work work, cu_u64 from)
{
	work.to = (gather_u8 *)(uintptr_t)all.target_at;
	work.from = (const gather_u8 *)(uintptr_t)from;
	work.rows = (const struct gather_row *)(uintptr_t)(all.source_at + SOURCE_BYTES);
	call("cuMemsetD8Async",
	     all.calls->fill(all.target_at, UNTOUCHED, TARGET_BYTES, all.stream));
	assert_int_equal(cuda_gather(&all.gather, all.stream, work), 0);
	copy((cu_u64)(uintptr_t)all.seen, all.target_at, TARGET_BYTES);
	assert_memory_equal(all.seen, all.expected, TARGET_BYTES);
}

TEST_WITH(gather__is_on_the_device_what_it_is_on_a_cpu, setup, teardown)
{
	struct gather_row *rows = (struct gather_row *)(void *)(all.source + SOURCE_BYTES);
	int rounds = getenv("RLV_TEST_GPU") ? 1000 : 40;
	unsigned units = 0;
	struct rng rng;

	rng_seed(&rng, test_seed("gather kernel", 11), 0);
	for (int round = 0; round < rounds; round++) {
		struct gather_work work = random_work(&rng, rows), on_cpu = work;

		units |= work.unit;
		on_cpu.to = all.expected;
		on_cpu.from = all.source;
		on_cpu.rows = rows;
		memset(all.expected, UNTOUCHED, TARGET_BYTES);
		gather_on_cpu(on_cpu);
		run_on_device(work, all.source_at);
		run_on_device(work, all.device_at);
	}
	assert_int_equal(units, 16 | 8 | 4 | 1); /* every loop ran */
	print_message("%d plans, from the host and from the device\n", rounds);
}

TEST_WITH(weights__have_the_bits_of_a_cpu, setup, teardown)
{
	enum { N = 4096 };
	double *probability = (double *)(void *)all.source;
	const float *seen = (const float *)(const void *)all.seen;
	static float expected[N];
	struct rng rng;

	rng_seed(&rng, test_seed("weights kernel", 12), 0);
	for (int round = 0; round < 40; round++) {
		struct weights_work work = { .to = expected,
					     .probability = probability,
					     .n = 1 + rng_uniform_u64(&rng, N),
					     .factor = (double)rng_uniform_u64(&rng, 1 << 20) + 1,
					     .power = -(double)round / 39 };

		for (gather_u64 i = 0; i < work.n; i++)
			probability[i] = (double)(rng_next_u64(&rng) >> 11 | 1) * 0x1p-53;
		weights_lanes(work, 0, 1);
		work.to = (float *)(uintptr_t)all.target_at;
		work.probability = (const double *)(uintptr_t)all.source_at;
		assert_int_equal(cuda_weights(&all.gather, all.stream, work), 0);
		copy((cu_u64)(uintptr_t)all.seen, all.target_at, work.n * sizeof(float));
		assert_memory_equal(seen, expected, work.n * sizeof(float));
	}
}

int main(void)
{
	return test_run(NULL, NULL);
}
