/*
 * Importance weights that the device computes behind the copy of a batch, against those of batches of the same draws whose
 * weights the CPU computes: over the fake driver, or over the machine's own if RLV_TEST_GPU is set.
 */
#include "tests/support/fixture/gather_fixture.h"
#include "tests/support/test.h"

#include "relive/scan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "ds/replay/priority.h"

static struct rlv_landing *landing;

static int landing_try(uint32_t path, uint32_t weights)
{
	struct rlv_landing_opts opts = RLV_LANDING_OPTS_INIT;

	opts.path = path;
	opts.weights = weights;
	return rlv_landing_open(&opts, &landing);
}

static int begin(void **state)
{
	int ret = gather_begin(state);
	struct rng rng;

	rng_seed(&rng, test_seed("landing_weights", 5), 0);
	gather_table_open(1, 1, false);
	gather_append_episodes(&rng);
	return ret;
}

static int end(void **state)
{
	gather_ok(rlv_landing_close(&landing));
	gather_table_close();
	return gather_end(state);
}

static struct rlv_landing_info info(void)
{
	struct rlv_landing_info info = RLV_LANDING_INFO_INIT;

	gather_ok(rlv_landing_info(landing, &info));
	return info;
}

static struct rlv_sampler *sampler_of(struct rlv_landing *dest, double beta, uint32_t weights)
{
	struct rlv_sampler_opts opts = RLV_SAMPLER_OPTS_INIT;
	struct rlv_sampler *sampler;

	opts.batch_size = GATHER_ITEMS;
	opts.seed = 99;
	opts.beta = beta;
	opts.weights = weights;
	opts.dest = dest;
	gather_ok(rlv_sampler_open(gather_fx.table, &opts, &sampler));
	return sampler;
}

/* Both sides of a batch have these weights, that of the host after a fetch. */
static void expect_both_sides(const struct rlv_batch *batch, const float *want)
{
	size_t bytes = batch->n * sizeof(*want);

	gather_expect_weights(landing, batch, want);
	gather_ok(rlv_landing_fetch(landing, batch->weight, bytes));
	assert_memory_equal(batch->weight, want, bytes);
}

/* Whole batches and smaller ones. */
static void compare_weights(double beta, uint32_t weights)
{
	static const uint32_t sizes[] = { GATHER_ITEMS, 5, 1, GATHER_ITEMS };
	struct rlv_sampler *of_cpu = sampler_of(gather_fx.copies, beta, weights);
	struct rlv_sampler *of_device = sampler_of(landing, beta, weights);
	bool differ = false;

	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		const struct rlv_batch *want, *batch;

		gather_ok(rlv_sampler_sample(of_cpu, sizes[i], 0, &want));
		gather_ok(rlv_sampler_sample(of_device, sizes[i], 0, &batch));
		memset((void *)(uintptr_t)batch->weight, 0xee, sizes[i] * sizeof(float));
		gather_expect_same(landing, batch, want);
		expect_both_sides(batch, want->weight);
		for (uint32_t k = 1; k < want->n; k++)
			differ |= want->weight[k] != want->weight[0];
		rlv_batch_release(of_cpu, want);
		rlv_batch_release(of_device, batch);
	}
	assert_int_equal(differ, beta >= 0); /* negative: all are 1 */
	gather_ok(rlv_sampler_close(&of_cpu));
	gather_ok(rlv_sampler_close(&of_device));
}

TEST_WITH(weights__have_the_bits_of_the_cpu_for_each_beta, begin, end)
{
	static const double betas[] = { -1, 0, 0x1p-10, 0.25, 0.4, 0.5, 2.0 / 3, 1, 1.7, 2, 8 };

	gather_ok(landing_try(RLV_LANDING_PINNED, 0));
	assert_int_equal(info().weights, RLV_LANDING_WEIGHTS_DEVICE);
	for (size_t i = 0; i < ARRAY_LEN(betas); i++) {
		compare_weights(betas[i], RLV_WEIGHTS_BATCH);
		compare_weights(betas[i], RLV_WEIGHTS_RAW);
	}
	assert_int_equal(info().weighed, info().batches);
	assert_int_equal(info().path, RLV_LANDING_PINNED);
}

TEST_WITH(weights__of_items_by_key_are_1, begin, end)
{
	const float ones[3] = { 1, 1, 1 };
	struct rlv_sampler *sampler;
	const struct rlv_batch *batch;
	uint64_t keys[3];

	gather_ok(landing_try(0, RLV_LANDING_WEIGHTS_DEVICE));
	sampler = sampler_of(landing, 0, 0);
	gather_ok(rlv_sampler_sample(sampler, 3, 0, &batch));
	memcpy(keys, batch->key, sizeof(keys));
	rlv_batch_release(sampler, batch);
	gather_ok(rlv_sampler_gather(sampler, keys, 3, 0, &batch));
	expect_both_sides(batch, ones);
	rlv_batch_release(sampler, batch);
	gather_ok(rlv_sampler_close(&sampler));
}

/* One sample of a landing whose weights are the CPU's, on both sides without a fetch. */
static void expect_weights_of_cpu(void)
{
	struct rlv_sampler *sampler = sampler_of(landing, 0, 0);
	const struct rlv_batch *batch;

	assert_int_equal(info().weights, RLV_LANDING_WEIGHTS_HOST);
	gather_ok(rlv_sampler_sample(sampler, GATHER_ITEMS, 0, &batch));
	for (uint32_t i = 0; i < GATHER_ITEMS; i++)
		assert_true(batch->weight[i] > 0 && batch->weight[i] <= 1);
	gather_expect_weights(landing, batch, batch->weight);
	assert_int_equal(info().weighed, 0);
	rlv_batch_release(sampler, batch);
	gather_ok(rlv_sampler_close(&sampler));
}

TEST_WITH(weights__are_the_cpu_s_by_option, begin, end)
{
	static const uint32_t paths[] = { 0, RLV_LANDING_PINNED, RLV_LANDING_GATHER };

	for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
		gather_ok(landing_try(paths[i], RLV_LANDING_WEIGHTS_HOST));
		expect_weights_of_cpu();
		gather_ok(rlv_landing_close(&landing));
	}
	assert_int_equal(landing_try(0, 3), -EINVAL);
	assert_non_null(strstr(rlv_last_error(), "opts.weights 3"));
}

/* -------- drivers -------- */

static void call_fails(const char *call, unsigned result)
{
	if (gather_fx.fake)
		gather_fx.fake->fail_call(call, 1, result);
}

TEST_WITH(weights__are_the_cpu_s_where_the_kernel_does_not_load, begin, end)
{
	static const struct {
		const char *call;
		unsigned result;
	} cases[] = {
		{ "cuModuleLoadData", CU_UNSUPPORTED_PTX_VERSION },
		{ "cuModuleLoadData", CU_OUT_OF_MEMORY },
		{ "cuModuleGetFunction", CU_NOT_FOUND },
	};

	if (!gather_fx.fake)
		skip();
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		call_fails(cases[i].call, cases[i].result);
		assert_int_not_equal(landing_try(0, RLV_LANDING_WEIGHTS_DEVICE), 0);
		assert_non_null(strstr(rlv_last_error(), cases[i].call));
		assert_null(landing);
		call_fails(cases[i].call, cases[i].result);
		gather_ok(landing_try(0, 0));
		expect_weights_of_cpu();
		gather_ok(rlv_landing_close(&landing));
	}
	call_fails("cuModuleLoadData", CU_ILLEGAL_ADDRESS);
	assert_int_equal(landing_try(0, 0), -ENODEV); /* the device is lost */
	assert_null(landing);
	gather_fx.fake->reset();
}

/* Calls of the driver for a batch. */
static uint64_t calls_of_sample(uint32_t weights)
{
	struct rlv_sampler *sampler;
	const struct rlv_batch *batch;
	uint64_t calls;

	gather_ok(landing_try(RLV_LANDING_PINNED, weights));
	sampler = sampler_of(landing, 0, 0);
	gather_fx.fake->reset();
	gather_ok(rlv_sampler_sample(sampler, GATHER_ITEMS, 0, &batch));
	calls = gather_fx.fake->calls(NULL);
	assert_int_equal(gather_fx.fake->calls("cuMemcpyAsync"), 1);
	assert_int_equal(gather_fx.fake->calls("cuStreamWriteValue64"), 1);
	assert_int_equal(gather_fx.fake->calls("cuLaunchKernel"),
			 weights == RLV_LANDING_WEIGHTS_DEVICE);
	assert_int_equal(gather_fx.fake->calls("cuModuleLoadData"), 0);
	rlv_batch_release(sampler, batch);
	gather_ok(rlv_sampler_close(&sampler));
	gather_ok(rlv_landing_close(&landing));
	return calls;
}

TEST_WITH(weights__cost_a_launch, begin, end)
{
	if (!gather_fx.fake)
		skip();
	/* each with a look at the thread's context */
	assert_int_equal(calls_of_sample(RLV_LANDING_WEIGHTS_HOST), 4);
	assert_int_equal(calls_of_sample(RLV_LANDING_WEIGHTS_DEVICE), 6);
}

/* The clock stands, so that copy, launch and mark end one after the other. */
TEST_WITH(weights__are_there_when_the_batch_is, begin, end)
{
	struct rlv_landing_opts opts = RLV_LANDING_OPTS_INIT;
	struct rlv_sampler *sampler;
	const struct rlv_batch *batch;
	float want[GATHER_ITEMS];
	uint64_t address;
	int steps = 0;

	if (!gather_fx.fake)
		skip();
	opts.unwaited = 1;
	opts.timeout_ns = 1000000;
	gather_ok(rlv_landing_open(&opts, &landing));
	sampler = sampler_of(landing, 0.4, 0);
	gather_fx.fake->hold(1000000);
	gather_ok(rlv_sampler_sample(sampler, GATHER_ITEMS, 0, &batch));
	for (; rlv_landing_wait(landing, batch->key) == -ETIMEDOUT && steps < 10; steps++)
		gather_fx.fake->advance(1000000);
	assert_int_equal(steps, 3);
	gather_ok(rlv_landing_device(landing, batch->weight, &address));
	priority_weights(batch->probability, GATHER_ITEMS, 0, 0.4, want);
	assert_memory_equal((const void *)(uintptr_t)address, want, sizeof(want));
	gather_fx.fake->hold(0);
	rlv_batch_release(sampler, batch);
	gather_ok(rlv_sampler_close(&sampler));
}

TEST_WITH(weights__launch_that_fails_fails_the_sample, begin, end)
{
	struct rlv_sampler *sampler;
	const struct rlv_batch *batch;

	if (!gather_fx.fake)
		skip();
	gather_ok(landing_try(RLV_LANDING_PINNED, 0));
	sampler = sampler_of(landing, 0, 0);
	call_fails("cuLaunchKernel", CU_OUT_OF_MEMORY);
	assert_int_equal(rlv_sampler_sample(sampler, GATHER_ITEMS, 0, &batch), -ENOMEM);
	assert_int_equal(info().batches + info().weighed, 0);
	gather_ok(rlv_sampler_sample(sampler, GATHER_ITEMS, 0, &batch));
	assert_int_equal(info().batches, 1);
	assert_int_equal(info().weighed, 1);
	rlv_batch_release(sampler, batch);
	gather_ok(rlv_sampler_close(&sampler));
}

int main(void)
{
	return test_run(NULL, NULL);
}
