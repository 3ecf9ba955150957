/*
 * Batches whose large columns come to the device by READs, over a transport that reaches its memory, against batches of
 * the same draws that land by a copy. The linker hands the library's transport_open to us (cmake/tests.cmake).
 */
#include "tests/support/fake/wire_transport.h"
#include "tests/support/fixture/gather_fixture.h"
#include "tests/support/test.h"
#include "tests/support/wrap_open.h"

#include "relive/scan.h"

#include <errno.h>
#include <string.h>

#include "base/bits.h"
#include "base/mem/alloc.h"

static bool in_place; /* transports are not wrapped */

static int put_on_a_wire(struct transport **tr)
{
	if (!in_place)
		*tr = wire_wrap(*tr);
	return 0;
}

WRAP_TRANSPORT_OPEN(put_on_a_wire)

static struct rlv_landing *direct;

static void direct_open(uint32_t path)
{
	struct rlv_landing_opts opts = RLV_LANDING_OPTS_INIT;

	opts.path = path;
	gather_ok(rlv_landing_open(&opts, &direct));
}

static int begin(void **state)
{
	wire_reach = (struct wire_reach){ 0 };
	in_place = false;
	return gather_begin(state);
}

static int end(void **state)
{
	mem_fail_after(0);
	gather_ok(rlv_landing_close(&direct));
	return gather_end(state);
}

static struct rlv_landing_info info(void)
{
	struct rlv_landing_info info = RLV_LANDING_INFO_INIT;

	gather_ok(rlv_landing_info(direct, &info));
	return info;
}

/* -------- what lands -------- */

static void compare_batches(uint32_t layout, uint32_t n_step, uint32_t prefetch)
{
	struct rlv_sampler *copy = gather_sampler(gather_fx.copies, layout), *sampler;
	struct rlv_sampler_opts opts = RLV_SAMPLER_OPTS_INIT;
	struct rlv_sample_opts later = RLV_SAMPLE_OPTS_INIT;
	uint64_t before = info().direct_bytes;

	opts.batch_size = GATHER_ITEMS;
	opts.layout = layout;
	opts.seed = 99;
	opts.prefetch = prefetch;
	opts.dest = direct;
	gather_ok(rlv_sampler_open(gather_fx.table, &opts, &sampler));
	later.n_step = 1;
	for (int round = 0; round < 4; round++) {
		uint32_t n = round == 1 && !prefetch ? GATHER_ITEMS / 4 + 1 : GATHER_ITEMS;
		const struct rlv_batch *want, *batch;
		uint64_t keys[GATHER_ITEMS];

		gather_ok(rlv_sampler_sample(sampler, n, 0, &batch));
		for (uint32_t i = 0; i < n; i++)
			keys[i] = batch->key[i];
		/* of prefetched batches the draws are others */
		gather_ok(prefetch ? rlv_sampler_gather(copy, keys, n, 0, &want)
				   : rlv_sampler_sample(copy, n, 0, &want));
		gather_expect_same(direct, batch, want);
		if (!prefetch)
			gather_expect_weights(direct, batch, want->weight);
		rlv_batch_release(copy, want);
		rlv_batch_release(sampler, batch);
		if (round == 2 && n_step > 1) {
			gather_ok(rlv_sampler_set_opts(copy, &later));
			gather_ok(rlv_sampler_set_opts(sampler, &later));
		}
	}
	assert_true(info().direct_bytes > before);
	assert_int_equal(info().weighed, info().batches);
	gather_ok(rlv_sampler_close(&copy));
	gather_ok(rlv_sampler_close(&sampler));
}

TEST_WITH(sample__read_to_the_device_is_what_a_copy_brings, begin, end)
{
	struct rng rng;

	direct_open(RLV_LANDING_DMABUF);
	rng_seed(&rng, test_seed("landing_direct", 3), 0);
	for (uint32_t stack = 1; stack <= 4; stack += stack < 2 ? 1 : 2) {
		for (int has_next = 0; has_next < 2; has_next++) {
			uint32_t n_step = 5 - stack;

			gather_table_open(stack, n_step, has_next);
			gather_append_episodes(&rng);
			compare_batches(RLV_DENSE, n_step, 0);
			compare_batches(RLV_DENSE, n_step, 2);
			if (!has_next)
				compare_batches(RLV_WINDOW, n_step, 0);
			gather_table_close();
		}
	}
	assert_int_equal(info().path, RLV_LANDING_DMABUF);
	assert_string_equal(info().reason, "");
}

static struct rlv_stats stats_of(struct rlv_sampler *sampler)
{
	struct rlv_stats stats = { .size = sizeof(stats) };

	gather_ok(rlv_sampler_stats(sampler, &stats));
	return stats;
}

/* Large values cross the wire once and are no part of the copy. */
TEST_WITH(sample__costs_a_phase_more_and_no_copy_of_large_values, begin, end)
{
	struct rlv_stats before, copy, read;
	struct rlv_sampler *samplers[2];
	const struct rlv_batch *batch;
	uint64_t copied;

	direct_open(RLV_LANDING_DMABUF);
	gather_table_open(1, 1, false);
	gather_append(200, 0);
	samplers[0] = gather_sampler(gather_fx.copies, RLV_DENSE);
	samplers[1] = gather_sampler(direct, RLV_DENSE);
	before = stats_of(samplers[0]);
	gather_ok(rlv_sampler_sample(samplers[0], GATHER_ITEMS, 0, &batch));
	copy = stats_of(samplers[0]);
	rlv_batch_release(samplers[0], batch);
	copy.phases -= before.phases;
	copy.reads -= before.reads;
	copy.read_bytes -= before.read_bytes;
	before = stats_of(samplers[1]);
	copied = info().copied_bytes;
	gather_ok(rlv_sampler_sample(samplers[1], GATHER_ITEMS, 0, &batch));
	read = stats_of(samplers[1]);
	rlv_batch_release(samplers[1], batch);
	assert_int_equal(read.phases - before.phases, copy.phases + 1);
	/* two rows, of which one has a "wide" that nobody needs: a READ for what is between, one behind, three values */
	assert_int_equal(read.reads - before.reads, copy.reads + GATHER_ITEMS * (2 + 3 - 1));
	assert_int_equal(read.read_bytes - before.read_bytes,
			 copy.read_bytes - GATHER_ITEMS * GATHER_WIDE);
	assert_int_equal(info().direct_bytes, GATHER_ITEMS * (2 * GATHER_FRAME + GATHER_WIDE));
	assert_true(info().copied_bytes - copied < GATHER_ITEMS * GATHER_FRAME);
	gather_ok(rlv_sampler_close(&samplers[0]));
	gather_ok(rlv_sampler_close(&samplers[1]));
	gather_table_close();
}

/* -------- which path -------- */

/* One batch of a sampler that is opened for it. */
static void one_batch(const struct rlv_sampler_opts *how)
{
	struct rlv_sampler_opts opts = *how;
	const struct rlv_batch *batch;
	struct rlv_sampler *sampler;

	opts.batch_size = GATHER_ITEMS;
	opts.dest = direct;
	gather_ok(rlv_sampler_open(gather_fx.table, &opts, &sampler));
	gather_ok(rlv_sampler_sample(sampler, GATHER_ITEMS, 0, &batch));
	gather_expect_whole(direct, batch, 1);
	rlv_batch_release(sampler, batch);
	gather_ok(rlv_sampler_close(&sampler));
}

static const struct rlv_sampler_opts plain = RLV_SAMPLER_OPTS_INIT;

TEST_WITH(path__is_the_best_that_the_device_takes, begin, end)
{
	static const struct {
		uint32_t wish, got;
		int dmabuf_code, address_code;
		const char *reason;
	} cases[] = {
		{ RLV_LANDING_DMABUF, RLV_LANDING_DMABUF, 0, -EFAULT, "" },
		{ RLV_LANDING_PEERMEM, RLV_LANDING_PEERMEM, -EFAULT, 0, "" },
		{ RLV_LANDING_DMABUF, RLV_LANDING_PEERMEM, -ENOTSUP, 0,
		  "as a dma-buf: a device without this" },
		{ RLV_LANDING_DMABUF, RLV_LANDING_PINNED, -ENOTSUP, -EFAULT,
		  "as a dma-buf: a device without this; by its address: a device without this" },
	};

	gather_table_open(1, 1, false);
	gather_append(200, 0);
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		wire_reach = (struct wire_reach){ cases[i].dmabuf_code, cases[i].address_code, 0 };
		direct_open(cases[i].wish);
		one_batch(&plain);
		assert_int_equal(info().path, cases[i].got);
		assert_string_equal(info().reason, cases[i].reason);
		assert_int_equal(info().direct_bytes > 0, cases[i].got != RLV_LANDING_PINNED);
		wire_reach.calls = 0;
		one_batch(&plain); /* what has failed is not tried again */
		assert_true(wire_reach.calls == (cases[i].got != RLV_LANDING_PINNED));
		assert_int_equal(info().path, cases[i].got);
		gather_ok(rlv_landing_close(&direct));
	}
	gather_table_close();
}

/* The driver has no dma-bufs. */
TEST_WITH(path__is_by_the_address_without_a_dmabuf, begin, end)
{
	gather_table_open(1, 1, false);
	gather_append(200, 0);
	direct_open(RLV_LANDING_DMABUF);
	gather_fx.fake->fail_call("cuMemGetHandleForAddressRange", 1, CU_INVALID_VALUE);
	one_batch(&plain);
	assert_int_equal(info().path, RLV_LANDING_PEERMEM);
	assert_non_null(strstr(info().reason, "cuMemGetHandleForAddressRange"));
	gather_table_close();
}

/* What comes by RDMA needs no kernel: the driver has none, and the host has the weights. */
TEST_WITH(sample__by_rdma_needs_no_kernel, begin, end)
{
	const struct rlv_batch *batch;
	struct rlv_sampler *sampler;

	gather_table_open(1, 1, false);
	gather_append(200, 0);
	gather_fx.fake->fail_call("cuModuleLoadData", 1, CU_UNSUPPORTED_PTX_VERSION);
	direct_open(RLV_LANDING_DMABUF);
	assert_int_equal(info().weights, RLV_LANDING_WEIGHTS_HOST);
	sampler = gather_sampler(direct, RLV_DENSE);
	gather_ok(rlv_sampler_sample(sampler, GATHER_ITEMS, 0, &batch));
	assert_int_equal(rlv_batch_path(batch), RLV_LANDING_DMABUF);
	assert_true(batch->weight[0] > 0);
	gather_expect_weights(direct, batch, batch->weight);
	rlv_batch_release(sampler, batch);
	gather_ok(rlv_sampler_close(&sampler));
	gather_table_close();
}

TEST_WITH(path__is_a_copy_where_the_cpu_needs_the_rows, begin, end)
{
	static const char *const small[] = { "wide", "id" };
	struct rlv_sampler_opts opts = RLV_SAMPLER_OPTS_INIT;

	gather_table_open(1, 1, false);
	gather_append(200, 0);
	direct_open(RLV_LANDING_DMABUF);
	opts.short_batch = 1;
	one_batch(&opts);
	assert_int_equal(info().path, RLV_LANDING_PINNED);
	assert_non_null(strstr(info().reason, "short batches"));
	opts.short_batch = 0;
	opts.columns = small;
	opts.n_columns = 2;
	one_batch(&opts); /* one large column of two */
	assert_int_equal(info().direct_bytes, GATHER_ITEMS * GATHER_WIDE);
	assert_int_equal(info().path, RLV_LANDING_DMABUF);
	assert_string_equal(info().reason, "");
	gather_table_close();
	in_place = true;
	gather_table_open(1, 1, false);
	gather_append(200, 0);
	one_batch(&plain);
	assert_int_equal(info().path, RLV_LANDING_PINNED);
	assert_string_equal(info().reason, "rows do not come by RDMA");
	assert_int_equal(info().direct_bytes, GATHER_ITEMS * GATHER_WIDE);
	gather_table_close();
}

/* -------- what fails -------- */

/* One life of a landing and a sampler, in which something may fail until `calm` is called. */
static int life(void (*calm)(void))
{
	struct rlv_landing_opts how = RLV_LANDING_OPTS_INIT;
	struct rlv_sampler_opts opts = RLV_SAMPLER_OPTS_INIT;
	struct rlv_sampler *sampler = NULL;
	const struct rlv_batch *batch;
	int ret, closed;

	how.path = RLV_LANDING_DMABUF;
	ret = rlv_landing_open(&how, &direct);
	opts.batch_size = GATHER_ITEMS;
	opts.batches = 1;
	opts.dest = direct;
	if (ret == 0)
		ret = rlv_sampler_open(gather_fx.table, &opts, &sampler);
	if (ret == 0)
		ret = rlv_sampler_sample(sampler, GATHER_ITEMS, GATHER_WAIT_NS, &batch);
	calm();
	if (ret == 0) {
		gather_expect_whole(direct, batch, 1);
		assert_true(info().direct_bytes > 0 || *info().reason);
	}
	closed = rlv_sampler_close(&sampler);
	ret = ret ? ret : closed;
	if (direct)
		gather_ok(rlv_landing_close(&direct));
	return ret;
}

static bool fired;
static uint64_t fails_at;

static void calm_memory(void)
{
	fired = mem_fail_fired();
	mem_fail_after(0);
}

TEST_WITH(life__each_allocation_fails_once, begin, end)
{
	uint64_t n = 0;

	gather_table_open(2, 1, false);
	gather_append(200, 0);
	do {
		int ret;

		mem_fail_after(++n);
		ret = life(calm_memory);
		if (ret && (ret != -ENOMEM || !fired))
			fail_msg("allocation %d: %d: %s", (int)n, ret, rlv_last_error());
	} while (fired);
	assert_true(n > 10);
	gather_table_close();
}

static void calm_driver(void)
{
	fired = gather_fx.fake->calls(NULL) >= fails_at;
	gather_fx.fake->fail_call(NULL, 0, CU_OK);
}

TEST_WITH(life__each_call_of_the_driver_fails_once, begin, end)
{
	gather_table_open(2, 1, false);
	gather_append(200, 0);
	fails_at = 0;
	do {
		int ret;

		gather_fx.fake->reset();
		gather_fx.fake->fail_call(NULL, ++fails_at, CU_OUT_OF_MEMORY);
		ret = life(calm_driver);
		if (ret && (ret != -ENOMEM || !fired))
			fail_msg("call %d: %d: %s", (int)fails_at, ret, rlv_last_error());
	} while (fired);
	assert_true(fails_at > 20);
	gather_fx.fake->reset();
	gather_table_close();
}

int main(void)
{
	return gather_skips_gpu() ? TEST_EXIT_SKIP : test_run(NULL, NULL);
}
