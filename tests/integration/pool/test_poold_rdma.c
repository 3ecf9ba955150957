/*
 * Batches that come by READs into a pool of a CUDA device: over the fake driver, and a transport that reaches its
 * memory. The linker hands the library's transport_open to us (cmake/tests.cmake).
 */
#include "base/bits.h"
#include "tests/support/fake/wire_transport.h"
#include "tests/support/fixture/gather_fixture.h"
#include "tests/support/fixture/poold_fixture.h"
#include "tests/support/must.h"
#include "tests/support/wrap_open.h"

#include <errno.h>
#include <string.h>

#define EXTENT ((uint64_t)2 << 20)

static int put_on_a_wire(struct transport **tr)
{
	*tr = wire_wrap(*tr);
	return 0;
}

WRAP_TRANSPORT_OPEN(put_on_a_wire)

static struct poold_fixture fx;
static struct rlv_pool *pool;
static struct rlv_landing *landing;

static int begin(void **state)
{
	const char *const options[] = { "--device", "cuda:0:16M", "--extent", "2M", NULL };
	struct rlv_pool_opts opts = RLV_POOL_OPTS_INIT;

	wire_reach = (struct wire_reach){ 0 };
	(void)gather_begin(state);
	poold_start_as(&fx, options);
	opts.persistent_bytes = 4 * EXTENT;
	opts.timeout_ns = POOLD_SOON;
	must(rlv_pool_open("test", "learner", &opts, &pool), "rlv_pool_open");
	gather_table_open(1, 1, false);
	gather_append(200, 0);
	return 0;
}

static int end(void **state)
{
	gather_table_close();
	must(rlv_landing_close(&landing), "rlv_landing_close");
	must(rlv_pool_close(&pool), "rlv_pool_close");
	poold_stop(&fx);
	return gather_end(state);
}

static int opens(uint32_t path, uint32_t strict)
{
	struct rlv_landing_opts opts = RLV_LANDING_OPTS_INIT;

	opts.pool = pool;
	opts.path = path;
	opts.strict = strict;
	return rlv_landing_open(&opts, &landing);
}

static struct rlv_landing_info info(void)
{
	struct rlv_landing_info info = RLV_LANDING_INFO_INIT;

	must(rlv_landing_info(landing, &info), "rlv_landing_info");
	return info;
}

static const char *why(uint32_t path)
{
	static struct rlv_landing_path_info paths[8];
	size_t n = ARRAY_LEN(paths);

	must(rlv_landing_paths(landing, paths, sizeof(paths[0]), &n), "rlv_landing_paths");
	for (size_t i = 0; i < n; i++) {
		if (paths[i].path == path)
			return paths[i].why;
	}
	return "";
}

static void lands(uint32_t path)
{
	struct rlv_sampler *sampler = gather_sampler(landing, RLV_DENSE);
	struct rlv_sampler *copy = gather_sampler(gather_fx.copies, RLV_DENSE);
	const struct rlv_batch *batch, *want;

	for (int i = 0; i < 3; i++) {
		must(rlv_sampler_sample(sampler, GATHER_ITEMS, 0, &batch), "sample");
		must(rlv_sampler_sample(copy, GATHER_ITEMS, 0, &want), "sample");
		assert_int_equal(rlv_batch_path(batch), path);
		gather_expect_same(landing, batch, want);
		gather_expect_whole(landing, batch, 1);
		rlv_batch_release(copy, want);
		rlv_batch_release(sampler, batch);
	}
	must(rlv_sampler_close(&copy), "close");
	must(rlv_sampler_close(&sampler), "close");
}

TEST_WITH(sample__lands_by_reads_in_the_pool, begin, end)
{
	must(opens(0, 0), "rlv_landing_open");
	lands(RLV_LANDING_DMABUF);
	assert_true(info().direct_bytes > 0);
	assert_string_equal(info().reason, "");
	assert_true(wire_reach.calls > 0);
	assert_non_null(strstr(why(RLV_LANDING_PEERMEM), "as a dma-buf alone"));
}

TEST_WITH(park__waits_for_samplers_that_land_by_reads, begin, end)
{
	struct rlv_sampler *sampler;
	const struct rlv_batch *batch;

	must(opens(RLV_LANDING_DMABUF, 1), "rlv_landing_open");
	sampler = gather_sampler(landing, RLV_DENSE);
	must(rlv_sampler_sample(sampler, GATHER_ITEMS, 0, &batch), "sample");
	assert_int_equal(rlv_batch_path(batch), RLV_LANDING_DMABUF);
	rlv_batch_release(sampler, batch);
	expect(rlv_pool_park(pool, POOLD_SOON), -EBUSY);
	assert_non_null(strstr(rlv_last_error(), "close their samplers"));
	must(rlv_sampler_sample(sampler, GATHER_ITEMS, 0, &batch), "sample"); /* it is whole */
	gather_expect_whole(landing, batch, 1);
	rlv_batch_release(sampler, batch);
	must(rlv_sampler_close(&sampler), "close");
	must(rlv_pool_park(pool, POOLD_SOON), "rlv_pool_park");
	must(rlv_pool_resume(pool, POOLD_SOON), "rlv_pool_resume");
}

/* Neither its own driver nor a broker that is away stops a learner: batches are copied then. */
TEST_WITH(sample__is_copied_where_the_pool_lends_no_dmabuf, begin, end)
{
	must(opens(0, 0), "rlv_landing_open");
	gather_fx.fake->fail_call("cuMemGetHandleForAddressRange", 1, CU_INVALID_VALUE);
	lands(RLV_LANDING_PINNED);
	assert_int_equal(info().direct_bytes, 0);
	assert_non_null(strstr(info().reason, "cuMemGetHandleForAddressRange"));
	must(rlv_pool_park(pool, POOLD_SOON), "rlv_pool_park");
	must(rlv_pool_resume(pool, POOLD_SOON), "rlv_pool_resume");
}

TEST_WITH(sample__is_copied_where_the_rdma_device_takes_no_dmabuf, begin, end)
{
	wire_reach.dmabuf_code = -ENOTSUP; /* by its address the memory could be reached */
	must(opens(0, 0), "rlv_landing_open");
	lands(RLV_LANDING_PINNED);
	assert_int_equal(info().direct_bytes, 0);
	assert_string_equal(info().reason, "as a dma-buf: a device without this");
}

TEST_WITH(open__by_address_is_refused_where_it_must_be, begin, end)
{
	expect(opens(RLV_LANDING_PEERMEM, 1), -ENOTSUP);
	assert_non_null(strstr(rlv_last_error(), "peermem, opts.strict: RDMA reaches memory of a "
						 "pool as a dma-buf alone"));
	must(opens(RLV_LANDING_PEERMEM, 0), "rlv_landing_open");
	lands(RLV_LANDING_PINNED);
}

int main(void)
{
	if (test_skips_msan("libevent") || gather_skips_gpu())
		return TEST_EXIT_SKIP;
	return test_run(NULL, NULL);
}
