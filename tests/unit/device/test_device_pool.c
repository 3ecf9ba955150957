#include "device/pool.h"

#include <errno.h>
#include <string.h>

#include "device/host/backend_host.h"
#include "tests/support/test.h"

#define EXTENT ((uint64_t)64 << 10)
#define DEVICE 8u /* extents */
#define BUDGET 6u

static struct backend *dev;
static struct pool *pool;
static uint32_t one, two, stream, other, stream_two;

static void begin_mode(bool strict)
{
	const struct backend_host_opts host = { .device_bytes = DEVICE * EXTENT };
	struct pool_opts opts = { .extent_bytes = EXTENT,
				  .budget = BUDGET * EXTENT,
				  .strict = strict };

	assert_int_equal(backend_host_open(&host, &dev), 0);
	opts.backend = dev;
	assert_int_equal(pool_open(&opts, &pool), 0);
	assert_int_equal(pool_attach(pool, &(struct pool_job){ .name = "one" }, &one), 0);
	assert_int_equal(pool_attach(pool, &(struct pool_job){ .name = "two" }, &two), 0);
	assert_int_equal(pool_stream(pool, one, NULL, &stream), 0);
	assert_int_equal(pool_stream(pool, one, NULL, &other), 0);
	assert_int_equal(pool_stream(pool, two, NULL, &stream_two), 0);
}

static int begin(void **state)
{
	(void)state;
	begin_mode(false);
	return 0;
}

static int begin_strict(void **state)
{
	(void)state;
	begin_mode(true);
	return 0;
}

static void detach(uint32_t job)
{
	for (int i = 0; i < 4 && pool_detach(pool, job) == -EAGAIN; i++)
		backend_host_advance(dev, 1000000);
}

static int end(void **state)
{
	struct pool_stats stats;

	(void)state;
	detach(one);
	detach(two);
	pool_stats(pool, &stats);
	assert_int_equal(stats.held, 0);
	assert_int_equal(pool_check(pool), 0);
	assert_int_equal(pool_close(&pool), 0);
	assert_null(pool);
	dev->ops->close(dev);
	return 0;
}

static int take(uint32_t job, uint32_t on, uint64_t bytes, uint64_t *va_out)
{
	const struct pool_tensor tensor = { job, on, TENSOR_ITERATION, bytes };

	return pool_alloc(pool, &tensor, va_out);
}

static struct pool_stats stats_now(void)
{
	struct pool_stats stats;

	pool_stats(pool, &stats);
	return stats;
}

TEST_WITH(pool_alloc__memory_can_be_written, begin, end)
{
	uint64_t va;

	assert_int_equal(take(one, stream, 3 * EXTENT, &va), 0);
	memset((void *)(uintptr_t)va, 1, 3 * EXTENT);
	assert_int_equal(pool_room(pool, one), 3 * EXTENT);
	assert_int_equal(stats_now().used, 3 * EXTENT);
}

TEST_WITH(pool_free__other_job_waits_for_the_device, begin, end)
{
	uint64_t va, next;

	assert_int_equal(take(one, stream, BUDGET * EXTENT, &va), 0);
	assert_int_equal(backend_host_work(dev, stream, 100, NULL, NULL), 0);
	assert_int_equal(pool_free(pool, one, va), 0);
	assert_int_equal(take(two, stream_two, EXTENT, &next), -EAGAIN);
	backend_host_advance(dev, 99);
	assert_int_equal(take(two, stream_two, EXTENT, &next), -EAGAIN);
	backend_host_advance(dev, 1);
	assert_int_equal(take(two, stream_two, EXTENT, &next), 0);
	assert_int_equal(next, va);
}

TEST_WITH(pool_free__same_stream_does_not_wait, begin, end)
{
	uint64_t va, next;

	assert_int_equal(take(one, stream, BUDGET * EXTENT, &va), 0);
	assert_int_equal(backend_host_work(dev, stream, 100, NULL, NULL), 0);
	assert_int_equal(pool_free(pool, one, va), 0);
	assert_int_equal(take(one, stream, BUDGET * EXTENT, &next), 0);
	assert_int_equal(next, va);
}

TEST_WITH(pool_use__other_stream_is_waited_for, begin, end)
{
	uint64_t wall, va, next;

	assert_int_equal(take(one, stream, (BUDGET - 1) * EXTENT, &wall), 0);
	assert_int_equal(take(one, stream, EXTENT, &va), 0);
	assert_int_equal(pool_use(pool, one, va, other), 0);
	assert_int_equal(backend_host_work(dev, other, 100, NULL, NULL), 0);
	assert_int_equal(pool_free(pool, one, va), 0);
	assert_int_equal(take(one, stream, EXTENT, &next), -EAGAIN);
	backend_host_advance(dev, 100);
	assert_int_equal(take(one, stream, EXTENT, &next), 0);
	assert_int_equal(next, va);
}

TEST_WITH(pool_use__limbo_beside_a_used_block, begin, end)
{
	uint64_t half[2], next;

	assert_int_equal(pool_limit(pool, EXTENT), 0);
	for (int i = 0; i < 2; i++)
		assert_int_equal(take(one, stream, EXTENT / 2, &half[i]), 0);
	assert_int_equal(pool_use(pool, one, half[0], other), 0);
	assert_int_equal(backend_host_work(dev, other, 100, NULL, NULL), 0);
	assert_int_equal(pool_free(pool, one, half[0]), 0);
	assert_int_equal(take(one, stream, EXTENT / 2, &next), -EAGAIN);
	backend_host_advance(dev, 100);
	assert_int_equal(take(one, stream, EXTENT / 2, &next), 0);
	assert_int_equal(next, half[0]);
}

TEST_WITH(pool_alloc__trusted_hand_over_calls_no_backend, begin, end)
{
	struct pool_stats before;
	uint64_t va;

	assert_int_equal(take(one, stream, EXTENT, &va), 0);
	assert_int_equal(pool_free(pool, one, va), 0);
	backend_host_advance(dev, 1);
	assert_int_equal(pool_poll(pool), 0);
	before = stats_now();
	assert_int_equal(take(two, stream_two, EXTENT, &va), 0);
	assert_int_equal(stats_now().handovers, before.handovers + 1);
	assert_int_equal(stats_now().backend_calls, before.backend_calls);
}

TEST_WITH(pool_alloc__strict_hand_over_is_scrubbed, begin_strict, end)
{
	uint64_t va, next;

	assert_int_equal(take(one, stream, EXTENT, &va), 0);
	memset((void *)(uintptr_t)va, 0xee, EXTENT);
	assert_int_equal(pool_free(pool, one, va), 0);
	for (int i = 0; i < 3; i++) {
		backend_host_advance(dev, 1);
		assert_int_equal(pool_poll(pool), 0);
	}
	assert_int_equal(stats_now().held, 0);
	assert_int_equal(take(two, stream_two, EXTENT, &next), 0);
	assert_int_equal(next, va);
	for (uint64_t i = 0; i < EXTENT; i++)
		assert_int_equal(((const uint8_t *)(uintptr_t)va)[i], 0);
}

TEST_WITH(pool_alloc__scattered_extents_are_mapped_in_a_row, begin, end)
{
	uint64_t va[BUDGET], large;

	assert_int_equal(pool_limit(pool, DEVICE * EXTENT), 0);
	for (uint32_t i = 0; i < BUDGET; i++)
		assert_int_equal(take(one, stream, EXTENT, &va[i]), 0);
	assert_int_equal(take(two, stream_two, 2 * EXTENT, &large), 0);
	assert_int_equal(pool_free(pool, one, va[1]), 0);
	assert_int_equal(pool_free(pool, one, va[3]), 0);
	assert_int_equal(pool_free(pool, one, va[5]), 0);
	backend_host_advance(dev, 1);
	assert_int_equal(take(two, stream_two, 3 * EXTENT, &large), 0);
	memset((void *)(uintptr_t)large, 7, 3 * EXTENT);
	assert_int_equal(((const uint8_t *)(uintptr_t)va[3])[0], 7);
	assert_int_equal(pool_free(pool, two, large), 0);
	backend_host_advance(dev, 1);
	assert_int_equal(pool_poll(pool), 0);
	assert_int_equal(pool_room(pool, one), 3 * EXTENT);
}

TEST_WITH(pool_alloc__classes_do_not_share_an_extent, begin, end)
{
	struct pool_tensor tensor = { one, stream, TENSOR_PERSISTENT, 512 };
	uint64_t va[TENSOR_CLASSES];

	for (uint32_t i = 0; i < TENSOR_CLASSES; i++) {
		tensor.class = (enum tensor_class)i;
		assert_int_equal(pool_alloc(pool, &tensor, &va[i]), 0);
	}
	assert_int_equal(stats_now().held, TENSOR_CLASSES * EXTENT);
}

TEST_WITH(pool_free__bad_pointers_name_the_job, begin, end)
{
	uint64_t va;

	assert_int_equal(take(one, stream, EXTENT, &va), 0);
	assert_int_equal(pool_free(pool, two, va), -EINVAL);
	assert_non_null(strstr(error_last(), "job two: the tensor at 0x"));
	assert_non_null(strstr(error_last(), "is of job one"));
	assert_int_equal(pool_free(pool, one, va + 512), -EINVAL);
	assert_int_equal(pool_free(pool, one, va), 0);
	assert_int_equal(pool_free(pool, one, va), -EINVAL);
	assert_non_null(strstr(error_last(), "job one: no tensor at 0x"));
	assert_int_equal(pool_free(pool, 9, va), -EINVAL);
}

TEST_WITH(pool_alloc__bad_arguments, begin, end)
{
	uint64_t va;
	struct pool_tensor tensor = { one, stream, TENSOR_STAGING, 0 };

	assert_int_equal(pool_alloc(pool, &tensor, &va), -EINVAL);
	tensor.bytes = UINT64_MAX;
	assert_int_equal(pool_alloc(pool, &tensor, &va), -EINVAL);
	tensor.bytes = DEVICE * EXTENT + 1;
	assert_int_equal(pool_alloc(pool, &tensor, &va), -ENOSPC);
	tensor.bytes = DEVICE * EXTENT;
	assert_int_equal(pool_alloc(pool, &tensor, &va), -ENOSPC);
	tensor.bytes = 1;
	tensor.stream = stream_two;
	assert_int_equal(pool_alloc(pool, &tensor, &va), -EINVAL);
	tensor.stream = stream;
	tensor.class = (enum tensor_class)TENSOR_CLASSES;
	assert_int_equal(pool_alloc(pool, &tensor, &va), -EINVAL);
	tensor.job = 1000;
	assert_int_equal(pool_alloc(pool, &tensor, &va), -EINVAL);
}

TEST_WITH(pool_attach__trusted_pool_is_of_one_user, begin, end)
{
	const struct pool_job job = { .name = "three", .uid = 7 };
	uint32_t three;

	assert_int_equal(pool_attach(pool, &job, &three), -EACCES);
	assert_non_null(strstr(error_last(), "strict mode"));
}

TEST_WITH(pool_limit__lower_budget_gives_memory_back, begin, end)
{
	uint64_t va;

	assert_int_equal(take(one, stream, 4 * EXTENT, &va), 0);
	assert_int_equal(pool_limit(pool, 2 * EXTENT), 0);
	assert_int_equal(stats_now().created, 4 * EXTENT);
	assert_int_equal(pool_room(pool, two), 0);
	assert_int_equal(pool_free(pool, one, va), 0);
	backend_host_advance(dev, 1);
	assert_int_equal(pool_poll(pool), 0);
	assert_int_equal(stats_now().created, 2 * EXTENT);
	assert_int_equal(pool_limit(pool, EXTENT - 1), -EINVAL);
}

TEST_WITH(pool_detach__waits_for_the_device, begin, end)
{
	uint64_t va;
	uint32_t three, on;

	assert_int_equal(pool_attach(pool, &(struct pool_job){ .name = "three" }, &three), 0);
	assert_int_equal(pool_stream(pool, three, NULL, &on), 0);
	assert_int_equal(take(three, on, EXTENT, &va), 0);
	assert_int_equal(backend_host_work(dev, on, 100, NULL, NULL), 0);
	assert_int_equal(pool_detach(pool, three), -EAGAIN);
	assert_int_equal(take(three, on, EXTENT, &va), -EINVAL);
	backend_host_advance(dev, 100);
	assert_int_equal(pool_detach(pool, three), 0);
	assert_int_equal(pool_detach(pool, three), -EINVAL);
	assert_int_equal(pool_close(&pool), -EBUSY);
}

TEST_WITH(pool_job__keeps_quiet_memory_until_others_lack_it, begin, end)
{
	const struct pool_job job = { .name = "keeps", .keep = 2 * EXTENT };
	uint64_t va;
	uint32_t keeper, on;

	assert_int_equal(pool_attach(pool, &job, &keeper), 0);
	assert_int_equal(pool_stream(pool, keeper, NULL, &on), 0);
	assert_int_equal(take(keeper, on, EXTENT, &va), 0);
	assert_int_equal(pool_free(pool, keeper, va), 0);
	backend_host_advance(dev, 1);
	assert_int_equal(pool_poll(pool), 0);
	assert_int_equal(stats_now().held, EXTENT);
	assert_int_equal(take(one, stream, BUDGET * EXTENT, &va), 0);
	assert_int_equal(stats_now().held, BUDGET * EXTENT);
	detach(keeper);
}

int main(void)
{
	return test_run(NULL, NULL);
}
