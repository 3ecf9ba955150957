/* Zeros over new memory of the fake driver: what they cost, failures at every call, a device that is busy. */
#include "tests/support/test.h"

#include <errno.h>

#include "device/cuda/backend_cuda.h"
#include "device/cuda/calls.h"
#include "server/poold/scrub.h"
#include "tests/support/fake/fake_cuda.h"
#include "tests/support/must_internal.h"

#define EXTENT ((uint64_t)2 << 20)
#define N 3u
#define PATIENCE_NS (10 * CLOCK_NS_PER_S)

static const struct fakecuda_control *fake;
static const struct cuda_calls *cu;
static struct backend *dev;
static struct scrub scrub;
static uint64_t handles[N];

static int begin(void **state)
{
	const struct backend_cuda_opts opts = { .device = 0 };
	struct cu_context *context;

	(void)state;
	fake = fake_cuda_open();
	fake->reset();
	must(backend_cuda_open(&opts, &dev));
	assert_int_equal(cuda_calls_load(&cu), 0);
	assert_int_equal(cu->context_retain(&context, 0), CU_OK);
	assert_int_equal(cu->context_set(context), CU_OK);
	must(scrub_open(dev, EXTENT, N, &scrub));
	for (uint32_t i = 0; i < N; i++)
		must(dev->ops->extent_create(dev, EXTENT, &handles[i]));
	return 0;
}

static int end(void **state)
{
	char text[128] = "";

	(void)state;
	scrub_close(&scrub);
	scrub_close(&scrub); /* a no-op */
	for (uint32_t i = 0; i < N; i++)
		must(dev->ops->extent_release(dev, handles[i]));
	assert_int_equal(cu->context_release(0), CU_OK);
	dev->ops->close(dev);
	if (fake->violations(text, sizeof(text)))
		fail_msg("broken rule: %s", text);
	assert_int_equal(fake->created_bytes() + fake->mapped_bytes(), 0);
	fake->reset();
	return 0;
}

/* Whether an extent's first and last bytes, which are somebody's at first, are zeros. */
static bool zeros(uint64_t handle)
{
	uint64_t va, seen[2] = { 1, 1 };

	must(dev->ops->reserve(dev, EXTENT, &va));
	must(dev->ops->map(dev, va, EXTENT, handle));
	must(dev->ops->set_access(dev, va, EXTENT, BACKEND_ACCESS_READ_WRITE));
	assert_int_equal(cu->copy((cu_u64)(uintptr_t)&seen[0], va, 8, NULL), CU_OK);
	assert_int_equal(cu->copy((cu_u64)(uintptr_t)&seen[1], va + EXTENT - 64, 8, NULL), CU_OK);
	assert_int_equal(cu->stream_wait(NULL), CU_OK);
	must(dev->ops->unmap(dev, va, EXTENT));
	must(dev->ops->unreserve(dev, va, EXTENT));
	return !seen[0] && !seen[1];
}

static int scrub_all(int64_t within_ns)
{
	return scrub_extents(&scrub, handles, N, clock_monotonic(),
			     deadline_after(clock_monotonic(), within_ns));
}

TEST_WITH(scrub__costs_three_calls_an_extent_and_two, begin, end)
{
	uint64_t before = fake->calls(NULL);

	assert_false(zeros(handles[0]));
	before = fake->calls(NULL);
	must(scrub_all(PATIENCE_NS));
	assert_int_equal(fake->calls(NULL) - before, 2 * (3 * N + 2)); /* 2 of the driver each */
	for (uint32_t i = 0; i < N; i++)
		assert_true(zeros(handles[i]));
}

TEST_WITH(scrub__each_call_fails_once, begin, end)
{
	uint64_t n = 1;
	int ret;

	do {
		fake->fail_call(NULL, n, CU_OUT_OF_MEMORY);
		ret = scrub_all(PATIENCE_NS);
		fake->fail_call(NULL, 0, CU_OK);
		assert_true(ret == 0 || ret == -ENOMEM);
		must(scrub_all(PATIENCE_NS));
		assert_int_equal(scrub.mapped, 0);
		n++;
	} while (ret);
	assert_true(n > 2 * (3 * N + 2));
	assert_true(zeros(handles[N - 1]));
}

TEST_WITH(scrub__of_a_busy_device_is_finished_later, begin, end)
{
	fake->hold(1000);
	assert_int_equal(scrub_all(0), -EAGAIN);
	assert_int_equal(scrub_all(0), -EAGAIN);
	assert_int_equal(scrub.mapped, N);
	assert_int_equal(dev->ops->extent_release(dev, handles[0]), -EBUSY);
	fake->advance(10000);
	must(scrub_settle(&scrub));
	assert_int_equal(scrub.mapped, 0);
	fake->hold(0);
	for (uint32_t i = 0; i < N; i++)
		assert_true(zeros(handles[i]));
}

int main(void)
{
	if (test_skips_msan("the fake driver"))
		return TEST_EXIT_SKIP;
	return test_run(NULL, NULL);
}
