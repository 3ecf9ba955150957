/*
 * Landings that gather, where the driver, the device or memory fails.
 */
#include "tests/support/fixture/gather_fixture.h"
#include "tests/support/test.h"

#include <errno.h>
#include <string.h>

#include "base/bits.h"
#include "base/mem/alloc.h"
#include "client/sampler/sampler.h"

TEST_WITH(open__path_that_cannot_be, gather_begin, gather_end)
{
	struct rlv_landing_opts opts = RLV_LANDING_OPTS_INIT;
	struct rlv_landing *landing = NULL;

	for (uint32_t path = 1; path < 7; path += 5) {
		opts.path = path;
		assert_int_equal(rlv_landing_open(&opts, &landing), -EINVAL);
	}
	if (!gather_fx.fake)
		return;
	opts.path = RLV_LANDING_GATHER;
	gather_fx.fake->fail_call("cuModuleLoadData", 1, CU_UNSUPPORTED_PTX_VERSION);
	assert_int_equal(rlv_landing_open(&opts, &landing), -ENOTSUP);
	assert_null(landing);
}

TEST_WITH(open__driver_without_graphs, gather_begin, gather_end)
{
	static const char *const calls[] = {
		"cuStreamBeginCapture", "cuStreamEndCapture", "cuGraphInstantiateWithFlags",
		"cuGraphLaunch",        "cuGraphDestroy",     "cuGraphExecDestroy"
	};
	struct rlv_landing_opts opts = RLV_LANDING_OPTS_INIT;
	struct rlv_landing *landing = NULL;
	struct cuda_calls *table = (struct cuda_calls *)(uintptr_t)gather_fx.cu, kept = *table;
	void *const at[] = { &table->capture_begin,     &table->capture_end,
			     &table->graph_instantiate, &table->graph_launch,
			     &table->graph_destroy,     &table->graph_exec_destroy };

	opts.graph = 1;
	assert_int_equal(rlv_landing_open(&opts, &landing), -EINVAL); /* and no gather */
	opts.path = RLV_LANDING_GATHER;
	opts.graph = 2;
	assert_int_equal(rlv_landing_open(&opts, &landing), -EINVAL);
	opts.graph = 1;
	for (size_t i = 0; i < ARRAY_LEN(calls); i++) {
		*(void **)at[i] = NULL;
		assert_int_equal(rlv_landing_open(&opts, &landing), -ENOTSUP);
		assert_non_null(strstr(rlv_last_error(), calls[i]));
		assert_non_null(strstr(rlv_last_error(), "or do without graphs"));
		*table = kept;
	}
}

/* One life of a landing and a sampler; the first error of it. */
static int life(uint32_t graph, uint64_t *gathered_out, const void **rows_out)
{
	struct rlv_landing_opts how = RLV_LANDING_OPTS_INIT;
	struct rlv_sampler_opts opts = RLV_SAMPLER_OPTS_INIT;
	const struct rlv_batch *batch = NULL;
	struct rlv_landing *landing = NULL;
	struct rlv_sampler *sampler = NULL;
	int ret, closed;

	how.path = RLV_LANDING_GATHER;
	how.graph = graph;
	ret = rlv_landing_open(&how, &landing);
	opts.batch_size = GATHER_ITEMS;
	opts.batches = 1;
	opts.dest = landing;
	if (ret == 0)
		ret = rlv_sampler_open(gather_fx.table, &opts, &sampler);
	if (ret == 0) {
		*rows_out = sampler->apart.shared[0];
		ret = rlv_sampler_sample(sampler, GATHER_ITEMS, GATHER_WAIT_NS, &batch);
	}
	if (ret == 0)
		*gathered_out = gather_bytes(landing);
	if (batch)
		rlv_batch_release(sampler, batch);
	closed = rlv_sampler_close(&sampler);
	ret = ret ? ret : closed;
	closed = rlv_landing_close(&landing);
	return ret ? ret : closed;
}

static void each_call_fails_once(uint32_t graph)
{
	uint64_t n = 1, bytes = 0;
	const void *rows;
	bool all = false;

	gather_table_open(2, 1, false);
	gather_append(200, 0);
	for (; !all; n++) {
		int ret;

		bytes = 0;
		gather_fx.fake->reset();
		gather_fx.fake->fail_call(NULL, n, CU_OUT_OF_MEMORY);
		ret = life(graph, &bytes, &rows);
		if (ret && ret != -ENOMEM)
			fail_msg("call %d: %d: %s", (int)n, ret, rlv_last_error());
		all = gather_fx.fake->calls(NULL) < n;
	}
	assert_true(n > 40);
	assert_true(bytes > 0); /* and nothing of the lives before was left to the device */
	gather_fx.fake->reset();
	gather_table_close();
}

TEST_WITH(life__each_call_of_the_driver_fails_once, gather_begin, gather_end)
{
	if (!gather_fx.fake)
		skip();
	each_call_fails_once(0);
}

TEST_WITH(life__each_call_fails_once_with_graphs, gather_begin, gather_end)
{
	if (!gather_fx.fake)
		skip();
	each_call_fails_once(1);
}

/* Without memory for what gathers need, batches land by a copy, or the call fails. */
TEST_WITH(life__each_allocation_fails_once, gather_begin, gather_end)
{
	bool struck = true, refused = false;
	uint64_t bytes = 0;
	const void *rows;

	gather_table_open(2, 1, false);
	gather_append(200, 0);
	for (uint64_t n = 1; struck; n++) {
		int ret;

		bytes = 0;
		mem_fail_after(n);
		ret = life(1, &bytes, &rows);
		struck = mem_fail_fired();
		mem_fail_after(0);
		if (ret && ret != -ENOMEM)
			fail_msg("allocation %d: %d: %s", (int)n, ret, rlv_last_error());
		refused |= ret == 0 && bytes == 0;
	}
	assert_true(refused);
	assert_true(bytes > 0);
	gather_table_close();
}

TEST_WITH(life__device_is_lost_at_a_call, gather_begin, gather_end)
{
	static const char *const calls[] = { "cuMemHostRegister", "cuMemcpyAsync", "cuLaunchKernel",
					     "cuStreamWriteValue64", "cuGraphLaunch" };

	if (!gather_fx.fake)
		skip();
	for (size_t i = 0; i < ARRAY_LEN(calls); i++) {
		uint32_t graphs = i + 1 == ARRAY_LEN(calls);
		const void *rows = NULL;
		uint64_t bytes;

		gather_table_open(1, 1, false);
		gather_append(200, 0);
		gather_fx.fake->reset();
		gather_fx.fake->fail_call(calls[i], 1, CU_ILLEGAL_ADDRESS);
		assert_int_equal(life(graphs, &bytes, &rows), -ENODEV);
		assert_int_equal(gather_fx.fake->calls(calls[i]), 1);
		gather_fx.fake->reset();
		if (rows) /* of a driver whose device is lost nothing is taken back */
			assert_int_equal(gather_fx.cu->host_unregister((void *)(uintptr_t)rows),
					 CU_OK);
		gather_table_close();
	}
}

int main(void)
{
	return test_run(NULL, NULL);
}
