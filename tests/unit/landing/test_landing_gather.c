/*
 * Batches whose large columns the device gathers from the table's own memory, against batches of the same draws
 * that land by a copy.
 */
#include "tests/support/fixture/gather_fixture.h"
#include "tests/support/test.h"

#include "relive/scan.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/os/clock.h"
#include "base/rng.h"
#include "transport/barrier.h"

/* -------- what lands -------- */

static void compare_batches(uint32_t layout, uint32_t n_step)
{
	struct rlv_sampler *copy = gather_sampler(gather_fx.copies, layout);
	struct rlv_sampler *gather = gather_sampler(gather_fx.gathers, layout);
	struct rlv_sample_opts later = RLV_SAMPLE_OPTS_INIT;
	uint64_t before = gather_bytes(gather_fx.gathers);
	bool differ = false;

	later.n_step = 1;
	for (int round = 0; round < 4; round++) {
		uint32_t n = round == 1 ? GATHER_ITEMS / 4 + 1 : GATHER_ITEMS;
		const struct rlv_batch *want, *batch;

		gather_ok(rlv_sampler_sample(copy, n, 0, &want));
		gather_ok(rlv_sampler_sample(gather, n, 0, &batch));
		gather_expect_same(gather_fx.gathers, batch, want);
		gather_expect_weights(gather_fx.gathers, batch, want->weight);
		for (uint32_t i = 1; i < n; i++)
			differ |= want->weight[i] != want->weight[0];
		rlv_batch_release(copy, want);
		rlv_batch_release(gather, batch);
		if (round == 2 && n_step > 1) {
			gather_ok(rlv_sampler_set_opts(copy, &later));
			gather_ok(rlv_sampler_set_opts(gather, &later));
		}
	}
	assert_true(differ);
	assert_true(gather_bytes(gather_fx.gathers) > before);
	assert_int_equal(gather_bytes(gather_fx.copies), 0);
	gather_ok(rlv_sampler_close(&copy));
	gather_ok(rlv_sampler_close(&gather));
}

static void compare_tables(void)
{
	struct rng rng;

	rng_seed(&rng, test_seed("landing_gather", 3), 0);
	for (uint32_t stack = 1; stack <= 4; stack += stack < 2 ? 1 : 2) {
		for (uint32_t n_step = 1; n_step <= 5; n_step += 2) {
			for (int has_next = 0; has_next < 2; has_next++) {
				gather_table_open(stack, n_step, has_next);
				gather_append_episodes(&rng);
				compare_batches(RLV_DENSE, n_step);
				if (!has_next)
					compare_batches(RLV_WINDOW, n_step);
				gather_table_close();
			}
		}
	}
}

static struct rlv_landing_info info_of(struct rlv_landing *landing)
{
	struct rlv_landing_info info = RLV_LANDING_INFO_INIT;

	gather_ok(rlv_landing_info(landing, &info));
	return info;
}

TEST_WITH(sample__gathered_is_what_a_copy_brings, gather_begin, gather_end)
{
	assert_int_equal(info_of(gather_fx.gathers).path, RLV_LANDING_GATHER);
	compare_tables();
	assert_int_equal(info_of(gather_fx.gathers).graphs, 0);
}

/* A graph for each whole batch of a buffer; smaller batches and those of one step have their own, or none. */
TEST_WITH(sample__gathered_by_a_graph_is_what_a_copy_brings, gather_begin_graphs, gather_end)
{
	struct rlv_landing_info info;

	compare_tables();
	info = info_of(gather_fx.gathers);
	assert_true(info.graphs > 0);
	assert_true(info.graph_launches > info.graphs);
	assert_true(info.graph_launches < info.batches);
}

TEST_WITH(sample__takes_one_copy_of_lists_and_a_launch_for_each_size, gather_begin, gather_end)
{
	struct rlv_sampler *sampler;
	const struct rlv_batch *batch;

	if (!gather_fx.fake)
		skip();
	gather_table_open(4, 1, false);
	gather_append(200, 0);
	sampler = gather_sampler(gather_fx.gathers, RLV_DENSE);
	gather_fx.fake->reset();
	gather_ok(rlv_sampler_sample(sampler, GATHER_ITEMS, 0, &batch));
	assert_int_equal(gather_fx.fake->calls("cuLaunchKernel"),
			 3); /* frame with next_frame; wide; weights */
	assert_int_equal(gather_fx.fake->calls("cuMemcpyAsync"), 2); /* lists; small columns */
	assert_int_equal(gather_fx.fake->calls("cuStreamWriteValue64"), 2);
	assert_int_equal(gather_bytes(gather_fx.gathers),
			 GATHER_ITEMS * (8 * GATHER_FRAME + GATHER_WIDE));
	rlv_batch_release(sampler, batch);
	gather_ok(rlv_sampler_close(&sampler));
	gather_table_close();
}

static void sample_and_release(struct rlv_sampler *sampler, uint32_t n)
{
	const struct rlv_batch *batch;

	gather_ok(rlv_sampler_sample(sampler, n, 0, &batch));
	gather_expect_whole(gather_fx.gathers, batch, 1);
	rlv_batch_release(sampler, batch);
}

/* In place of a copy and two launches; the marks stay outside. */
TEST_WITH(sample__by_a_graph_takes_one_call, gather_begin_graphs, gather_end)
{
	struct rlv_sampler_opts opts = RLV_SAMPLER_OPTS_INIT;
	struct rlv_sampler *sampler;
	const struct rlv_batch *batch;

	if (!gather_fx.fake)
		skip();
	gather_table_open(4, 1, false);
	gather_append(200, 0);
	opts.batch_size = GATHER_ITEMS;
	opts.batches = 1;
	opts.dest = gather_fx.gathers;
	gather_ok(rlv_sampler_open(gather_fx.table, &opts, &sampler));
	sample_and_release(sampler, GATHER_ITEMS);
	sample_and_release(sampler, GATHER_ITEMS / 4); /* leaves the graph alone */
	assert_int_equal(info_of(gather_fx.gathers).graphs, 1);
	gather_fx.fake->reset();
	gather_ok(rlv_sampler_sample(sampler, GATHER_ITEMS, 0, &batch));
	assert_int_equal(gather_fx.fake->calls("cuGraphLaunch"), 1);
	assert_int_equal(gather_fx.fake->calls("cuLaunchKernel"),
			 1); /* weights: their factor changes */
	assert_int_equal(gather_fx.fake->calls("cuMemcpyAsync"), 1); /* small columns */
	assert_int_equal(gather_fx.fake->calls("cuStreamWriteValue64"), 2);
	assert_int_equal(gather_fx.fake->calls("cuStreamBeginCapture"), 0);
	gather_expect_whole(gather_fx.gathers, batch, 1);
	rlv_batch_release(sampler, batch);
	assert_int_equal(info_of(gather_fx.gathers).graph_launches, 2);
	gather_ok(rlv_sampler_close(&sampler));
	assert_int_equal(gather_fx.fake->graphs(), 0);
	gather_table_close();
}

/* -------- which way -------- */

static struct rlv_landing_path_info path_of(struct rlv_landing *landing, uint32_t path)
{
	struct rlv_landing_path_info all[8];
	size_t n = ARRAY_LEN(all);

	gather_ok(rlv_landing_paths(landing, all, sizeof(all[0]), &n));
	assert_int_equal(n, 6);
	for (size_t i = 0; i < n; i++)
		if (all[i].path == path)
			return all[i];
	fail_msg("no path %u", path);
	return all[0];
}

TEST_WITH(paths__tell_what_is_taken_and_why_not, gather_begin, gather_end)
{
	struct rlv_landing_path_info way = path_of(gather_fx.copies, RLV_LANDING_GATHER);
	uint64_t key;
	const struct rlv_batch *batch;
	struct rlv_sampler *sampler;

	assert_int_equal(way.possible, 1);
	assert_non_null(strstr(way.why, "a wish"));
	assert_int_equal(path_of(gather_fx.copies, RLV_LANDING_PINNED).why[0], 0);
	way = path_of(gather_fx.gathers, RLV_LANDING_IN_PLACE);
	assert_int_equal(way.possible, 0);
	assert_string_equal(way.why, "the device has memory of its own");
	gather_table_open(1, 1, false);
	gather_append(200, 0);
	sampler = gather_sampler(gather_fx.gathers, RLV_DENSE);
	gather_ok(rlv_sampler_sample(sampler, GATHER_ITEMS, 0, &batch));
	assert_int_equal(rlv_batch_path(batch), RLV_LANDING_GATHER);
	assert_string_equal(rlv_landing_path_name(rlv_batch_path(batch)), "gather");
	key = batch->key[0];
	rlv_batch_release(sampler, batch);
	gather_ok(rlv_sampler_gather(sampler, &key, 1, 0, &batch)); /* by keys: by a copy */
	assert_int_equal(rlv_batch_path(batch), RLV_LANDING_PINNED);
	rlv_batch_release(sampler, batch);
	assert_int_equal(path_of(gather_fx.gathers, RLV_LANDING_GATHER).batches, 1);
	assert_int_equal(path_of(gather_fx.gathers, RLV_LANDING_PINNED).batches, 1);
	assert_int_equal(path_of(gather_fx.gathers, RLV_LANDING_PINNED).why[0], 0);
	gather_ok(rlv_sampler_close(&sampler));
	gather_table_close();
	assert_int_equal(rlv_batch_path(NULL), 0);
	assert_string_equal(rlv_landing_path_name(0), "none");
	assert_string_equal(rlv_landing_path_name(99), "none");
}

TEST_WITH(sampler__two_share_the_rows, gather_begin, gather_end)
{
	struct rlv_sampler *first, *second;
	const struct rlv_batch *batch;
	uint64_t before;

	gather_table_open(1, 1, false);
	gather_append(200, 0);
	first = gather_sampler(gather_fx.gathers, RLV_DENSE);
	second = gather_sampler(gather_fx.gathers, RLV_DENSE);
	gather_ok(rlv_sampler_close(&first));
	before = gather_bytes(gather_fx.gathers);
	gather_ok(rlv_sampler_sample(second, GATHER_ITEMS, 0, &batch));
	assert_true(gather_bytes(gather_fx.gathers) > before);
	gather_expect_whole(gather_fx.gathers, batch, 1);
	rlv_batch_release(second, batch);
	gather_ok(rlv_sampler_close(&second));
	gather_table_close();
}

TEST_WITH(landing__two_have_the_rows_together, gather_begin, gather_end)
{
	struct rlv_landing_opts opts = RLV_LANDING_OPTS_INIT;
	struct rlv_landing *other;
	struct rlv_sampler *first, *second;
	const struct rlv_batch *batch;

	opts.path = RLV_LANDING_GATHER;
	opts.strict = 1; /* no copy will do */
	gather_ok(rlv_landing_open(&opts, &other));
	gather_table_open(1, 1, false);
	gather_append(200, 0);
	first = gather_sampler(gather_fx.gathers, RLV_DENSE);
	second = gather_sampler(other, RLV_DENSE);
	for (int i = 0; i < 2; i++) {
		gather_ok(rlv_sampler_sample(second, GATHER_ITEMS, 0, &batch));
		assert_int_equal(rlv_batch_path(batch), RLV_LANDING_GATHER);
		gather_expect_whole(other, batch, 1);
		rlv_batch_release(second, batch);
		if (i == 0)
			gather_ok(rlv_sampler_close(&first));
	}
	gather_ok(rlv_sampler_close(&second));
	gather_ok(rlv_landing_close(&other));
	gather_table_close();
}

TEST_WITH(fetch__brings_the_side_of_the_host, gather_begin, gather_end)
{
	struct rlv_sampler *sampler;
	const struct rlv_batch *batch;
	const struct rlv_array *wide;

	gather_table_open(1, 1, false);
	gather_append(200, 0);
	sampler = gather_sampler(gather_fx.gathers, RLV_DENSE);
	gather_ok(rlv_sampler_sample(sampler, GATHER_ITEMS, 0, &batch));
	wide = gather_array(batch, "wide");
	memset(wide->data, 0xee, GATHER_ITEMS * GATHER_WIDE);
	gather_ok(rlv_landing_fetch(gather_fx.gathers, wide->data, GATHER_ITEMS * GATHER_WIDE));
	for (uint32_t i = 0; i < GATHER_ITEMS; i++)
		assert_memory_equal((const uint8_t *)wide->data + (size_t)i * GATHER_WIDE,
				    (const uint64_t *)gather_array(batch, "id")->data + i,
				    sizeof(uint64_t));
	memset((void *)(uintptr_t)batch->weight, 0, GATHER_ITEMS * sizeof(*batch->weight));
	gather_ok(rlv_landing_fetch(gather_fx.gathers, batch->weight,
				    GATHER_ITEMS * sizeof(*batch->weight)));
	for (uint32_t i = 0; i < GATHER_ITEMS; i++)
		assert_true(batch->weight[i] > 0 && batch->weight[i] <= 1);
	assert_int_equal(rlv_landing_fetch(gather_fx.gathers, wide->data, SIZE_MAX), -EINVAL);
	assert_int_equal(rlv_landing_fetch(gather_fx.gathers, &batch, 1), -EINVAL);
	assert_int_equal(rlv_landing_fetch(gather_fx.copies, wide->data, 1), -EINVAL);
	rlv_batch_release(sampler, batch);
	gather_ok(rlv_sampler_close(&sampler));
	gather_table_close();
}

/* -------- rows that are overwritten -------- */

struct late_sample {
	struct rlv_sampler *sampler;
	const struct rlv_batch *batch;
	atomic_int ret; /* 1: not yet */
};

static void *late_main(void *ctx)
{
	struct late_sample *late = ctx;

	(void)gather_fx.cu->context_set(
		NULL); /* MSan does not know a thread's own memory of a library that was opened */
	atomic_store(&late->ret,
		     rlv_sampler_sample(late->sampler, GATHER_ITEMS, GATHER_WAIT_NS, &late->batch));
	return NULL;
}

/* The clock stands, so that the kernel of the first round reads rows of the writer's next lap. */
TEST_WITH(sample__rows_that_a_writer_overtakes_are_drawn_again, gather_begin, gather_end)
{
	struct late_sample late = { .ret = 1 };
	uint64_t until = clock_now_ns(clock_monotonic()) + GATHER_WAIT_NS, first;
	struct rlv_stats stats = { .size = sizeof(stats) };
	pthread_t thread;

	if (!gather_fx.fake)
		skip();
	gather_table_open(1, 1, false);
	gather_append(GATHER_CAPACITY, 0);
	late.sampler = gather_sampler(gather_fx.gathers, RLV_DENSE);
	gather_fx.fake->reset();
	gather_fx.fake->hold(1000000);
	assert_int_equal(pthread_create(&thread, NULL, late_main, &late), 0);
	while (gather_fx.fake->calls("cuStreamWriteValue64") == 0 &&
	       clock_now_ns(clock_monotonic()) < until)
		usleep(100);
	first = gather_fx.next_id;
	for (int lap = 0; lap < 2; lap++)
		gather_append(GATHER_CAPACITY, 0);
	while (atomic_load(&late.ret) == 1 && clock_now_ns(clock_monotonic()) < until) {
		gather_fx.fake->advance(1000000);
		usleep(100);
	}
	assert_int_equal(pthread_join(thread, NULL), 0);
	gather_fx.fake->hold(0);
	gather_ok(atomic_load(&late.ret));
	gather_ok(rlv_sampler_stats(late.sampler, &stats));
	assert_true(stats.redraws >= GATHER_ITEMS);
	gather_expect_whole(gather_fx.gathers, late.batch, first);
	rlv_batch_release(late.sampler, late.batch);
	gather_ok(rlv_sampler_close(&late.sampler));
	gather_table_close();
}

static void *writer_main(void *ctx)
{
	atomic_bool *stop = ctx;

	while (!atomic_load(stop))
		gather_append(GATHER_CAPACITY / 4, 0);
	return NULL;
}

/* In real time: until a writer has come between often enough, and without a wrong byte. */
TEST_WITH(sample__beside_a_writer_is_whole, gather_begin, gather_end)
{
	uint64_t until = clock_now_ns(clock_monotonic()) + 6 * GATHER_WAIT_NS;
	struct rlv_stats stats = { .size = sizeof(stats) };
	struct rlv_sampler *sampler;
	atomic_bool stop = false;
	pthread_t writer;

	if (BARRIER_TSAN) /* it does not know a device's loads */
		skip();
	gather_table_open(1, 1, false);
	gather_append(GATHER_CAPACITY, 0);
	sampler = gather_sampler(gather_fx.gathers, RLV_DENSE);
	assert_int_equal(pthread_create(&writer, NULL, writer_main, &stop), 0);
	while ((stats.redraws < 50 || stats.calls < 50) &&
	       clock_now_ns(clock_monotonic()) < until) {
		const struct rlv_batch *batch;

		gather_ok(rlv_sampler_sample(sampler, GATHER_ITEMS, GATHER_WAIT_NS, &batch));
		gather_expect_whole(gather_fx.gathers, batch, 1);
		rlv_batch_release(sampler, batch);
		gather_ok(rlv_sampler_stats(sampler, &stats));
	}
	atomic_store(&stop, true);
	assert_int_equal(pthread_join(writer, NULL), 0);
	assert_true(stats.redraws >= 50);
	assert_true(gather_bytes(gather_fx.gathers) >=
		    stats.items * (2 * GATHER_FRAME + GATHER_WIDE));
	gather_ok(rlv_sampler_close(&sampler));
	gather_table_close();
}

/* The driver would tell of memory that is taken back from a kernel. */
TEST_WITH(close__leaves_rows_to_a_kernel_that_does_not_end, gather_begin, gather_end)
{
	struct rlv_landing_opts opts = RLV_LANDING_OPTS_INIT;
	struct rlv_landing *landing;
	struct rlv_sampler *sampler;
	const struct rlv_batch *batch;

	if (!gather_fx.fake)
		skip();
	opts.path = RLV_LANDING_GATHER;
	opts.timeout_ns = 20000000;
	gather_ok(rlv_landing_open(&opts, &landing));
	gather_table_open(1, 1, false);
	gather_append(200, 0);
	sampler = gather_sampler(landing, RLV_DENSE);
	gather_fx.fake->hold(1000000);
	assert_int_equal(rlv_sampler_sample(sampler, GATHER_ITEMS, 0, &batch), -ETIMEDOUT);
	gather_ok(rlv_sampler_close(&sampler));
	gather_fx.fake->hold(0);
	assert_int_equal(gather_fx.cu->context_wait(), CU_OK);
	sampler = gather_sampler(landing, RLV_DENSE); /* the rows are taken back first */
	gather_ok(rlv_sampler_sample(sampler, GATHER_ITEMS, 0, &batch));
	assert_true(gather_bytes(landing) >=
		    2 * (uint64_t)GATHER_ITEMS * (2 * GATHER_FRAME + GATHER_WIDE));
	rlv_batch_release(sampler, batch);
	gather_ok(rlv_sampler_close(&sampler));
	gather_ok(rlv_landing_close(&landing));
	gather_table_close();
}

/* -------- what lands by a copy -------- */

TEST_WITH(gather__by_keys_lands_by_a_copy, gather_begin, gather_end)
{
	struct rlv_sampler *sampler;
	const struct rlv_batch *drawn, *batch;
	uint64_t before, keys[GATHER_ITEMS];

	gather_table_open(2, 1, false);
	gather_append(200, 0);
	sampler = gather_sampler(gather_fx.gathers, RLV_DENSE);
	gather_ok(rlv_sampler_sample(sampler, GATHER_ITEMS, 0, &drawn));
	before = gather_bytes(gather_fx.gathers);
	for (uint32_t i = 0; i < GATHER_ITEMS; i++)
		keys[i] = drawn->key[GATHER_ITEMS - 1 - i];
	rlv_batch_release(sampler, drawn);
	gather_ok(rlv_sampler_gather(sampler, keys, GATHER_ITEMS, 0, &batch));
	assert_ptr_equal(batch, drawn); /* the same buffer */
	assert_int_equal(gather_bytes(gather_fx.gathers), before);
	gather_expect_same(gather_fx.gathers, batch, batch);
	gather_expect_whole(gather_fx.gathers, batch, 1);
	rlv_batch_release(sampler, batch);
	gather_ok(rlv_sampler_close(&sampler));
	gather_table_close();
}

TEST_WITH(sampler__what_cannot_be_gathered_is_copied, gather_begin, gather_end)
{
	struct rlv_sampler_opts opts = RLV_SAMPLER_OPTS_INIT;
	static const char *const small[] = { "obs", "id" };
	struct rlv_sampler *sampler;

	opts.batch_size = GATHER_ITEMS;
	opts.dest = gather_fx.gathers;
	gather_table_open(1, 1, false);
	gather_append(200, 0);
	for (int way = 0; way < (gather_fx.fake ? 3 : 2); way++) {
		const struct rlv_batch *batch;

		opts.short_batch = way == 0;
		opts.columns = way == 1 ? small : NULL;
		opts.n_columns = way == 1 ? 2 : 0;
		if (way == 2) /* the driver does not take the rows */
			gather_fx.fake->fail_call("cuMemHostRegister", 1, CU_OPERATING_SYSTEM);
		gather_ok(rlv_sampler_open(gather_fx.table, &opts, &sampler));
		gather_ok(rlv_sampler_sample(sampler, GATHER_ITEMS, 0, &batch));
		gather_expect_same(gather_fx.gathers, batch, batch);
		rlv_batch_release(sampler, batch);
		gather_ok(rlv_sampler_close(&sampler));
	}
	assert_int_equal(gather_bytes(gather_fx.gathers), 0);
	gather_table_close();
}

int main(void)
{
	return test_run(NULL, NULL);
}
