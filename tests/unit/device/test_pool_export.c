/* Dma-bufs of tensors, over the cuda backend and the fake driver: what they are of, and what is refused meanwhile. */
#include "device/pool_export.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/bits.h"
#include "device/backend_fault.h"
#include "device/cuda/backend_cuda.h"
#include "device/pool_park.h"
#include "tests/support/fake/fake_cuda.h"
#include "tests/support/must.h"

#define EXTENT ((uint64_t)2 << 20)

/* The cuda backend, whose extents are told of as one of several processes tells its broker. */
static struct {
	struct backend base;
	struct backend *cuda;
	struct backend_ops ops;
	uint64_t exposed[64];
	uint32_t n;
} told;

static const struct fakecuda_control *fake;
static struct backend_fault fault;
static struct pool *pool;
static uint32_t job, stream;

static int expose(struct backend *base, uint64_t handle)
{
	(void)base;
	assert_true(told.n < ARRAY_LEN(told.exposed));
	told.exposed[told.n++] = handle;
	return 0;
}

static int begin(void **state)
{
	const struct backend_cuda_opts cuda = { .device = 0 };
	struct pool_opts opts = { .extent_bytes = EXTENT, .budget = 16 * EXTENT };

	(void)state;
	fake = fake_cuda_open();
	fake->reset();
	memset(&told, 0, sizeof(told));
	must(backend_cuda_open(&cuda, &told.cuda), "backend_cuda_open");
	told.ops = *told.cuda->ops;
	told.ops.extent_expose = expose;
	told.cuda->ops = &told.ops;
	backend_fault_init(&fault, told.cuda, 0, -ENOMEM);
	opts.backend = &fault.base;
	must(pool_open(&opts, &pool), "pool_open");
	must(pool_attach(pool, &(struct pool_job){ .name = "a" }, &job), "pool_attach");
	must(pool_stream(pool, job, NULL, &stream), "pool_stream");
	return 0;
}

static int end(void **state)
{
	char text[128] = "";

	(void)state;
	while (pool_detach(pool, job) == -EAGAIN)
		;
	must(pool_close(&pool), "pool_close");
	told.cuda->ops->close(told.cuda);
	if (fake->violations(text, sizeof(text)))
		fail_msg("broken rule: %s", text);
	return 0;
}

static uint64_t take(uint64_t bytes)
{
	const struct pool_tensor tensor = { job, stream, TENSOR_STAGING, bytes };
	uint64_t va;

	must(pool_alloc(pool, &tensor, &va), "pool_alloc");
	return va;
}

/* Bytes that a registration of the dma-buf would write are the tensor's. */
static void expect_alias(int fd, uint64_t off, uint64_t va)
{
	uint8_t *file = mmap(NULL, EXTENT, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	volatile uint8_t *tensor = (volatile uint8_t *)(uintptr_t)va;

	assert_true(file != MAP_FAILED);
	file[off] = 1;
	assert_int_equal(tensor[0], 1);
	file[off] = 2;
	assert_int_equal(tensor[0], 2);
	assert_int_equal(munmap(file, EXTENT), 0);
}

/* The job's tensors are about to go. */
static void hold(void)
{
	int ret;

	while ((ret = pool_hold(pool, job)) == -EAGAIN)
		;
	must(ret, "pool_hold");
}

TEST_WITH(export__is_of_the_extents_that_a_tensor_is_in, begin, end)
{
	uint64_t first = take(4096), second = take(4096), off;
	int fd;

	must(pool_export(pool, job, first, &fd, &off), "pool_export");
	expect_alias(fd, off, first);
	(void)close(fd);
	must(pool_export(pool, job, second, &fd, &off), "pool_export");
	expect_alias(fd, off, second);
	assert_int_equal(off, 4096); /* they are neighbours in one extent */
	(void)close(fd);
	assert_int_equal(told.n, 2);
	assert_int_equal(told.exposed[0], told.exposed[1]);
	pool_export_end(pool, job);
	pool_export_end(pool, job);
}

TEST_WITH(export__of_several_extents_tells_of_each, begin, end)
{
	uint64_t va = take(2 * EXTENT + 4096), off;
	int fd;

	must(pool_export(pool, job, va, &fd, &off), "pool_export");
	(void)close(fd);
	assert_int_equal(off, 0);
	assert_int_equal(told.n, 3);
	for (uint32_t i = 0; i < 3; i++)
		assert_true(told.exposed[i] && told.exposed[i] != told.exposed[(i + 1) % 3]);
	pool_export_end(pool, job);
}

TEST_WITH(export__a_job_is_not_parked_until_it_ends, begin, end)
{
	uint64_t va = take(4096), off;
	int fd;

	must(pool_export(pool, job, va, &fd, &off), "pool_export");
	(void)close(fd);
	expect(pool_park(pool, job, UINT64_MAX), -EBUSY);
	assert_non_null(strstr(error_last(), "job a: batches land by RDMA in 1 of its tensors"));
	expect(pool_hold(pool, job), -EBUSY);
	assert_int_equal(pool_parked(pool, job), 0);
	pool_export_end(pool, job);
	hold();
	expect(pool_export(pool, job, va, &fd, &off), -EBUSY); /* and the other way round */
	must(pool_unpark(pool, job), "pool_unpark");
	must(pool_export(pool, job, va, &fd, &off), "pool_export");
	(void)close(fd);
	pool_export_end(pool, job);
}

TEST_WITH(export__of_no_tensor_is_an_error, begin, end)
{
	uint64_t va = take(4096), off;
	int fd;

	expect(pool_export(pool, job, va + 512, &fd, &off), -EINVAL);
	expect(pool_export(pool, job + 1, va, &fd, &off), -EINVAL);
	assert_int_equal(told.n, 0);
}

/* Whichever call fails: extents may have been told of, and the job can be parked. */
TEST_WITH(export__that_fails_counts_nothing, begin, end)
{
	uint64_t va = take(3 * EXTENT), off, n = 1;
	int fd, ret;

	for (;; n++) {
		fault.calls = 0;
		fault.fail_at = n;
		ret = pool_export(pool, job, va, &fd, &off);
		fault.fail_at = 0;
		if (ret == 0)
			break;
		expect(ret, -ENOMEM);
		hold();
		must(pool_unpark(pool, job), "pool_unpark");
	}
	assert_int_equal(n, 5); /* three extents and the dma-buf */
	(void)close(fd);
	pool_export_end(pool, job);
}

int main(void)
{
	if (test_skips_msan("the fake driver"))
		return TEST_EXIT_SKIP;
	return test_run(NULL, NULL);
}
