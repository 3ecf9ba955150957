/*
 * Batches whose large columns the device gathers from the table's own memory, against batches of the same draws
 * that land by a copy: over the fake driver, or over the machine's own if RLV_TEST_GPU is set.
 */
#include "tests/support/test.h"

#include "relive/landing.h"
#include "relive/scan.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/mem/alloc.h"
#include "base/os/clock.h"
#include "base/rng.h"
#include "client/sampler/sampler.h"
#include "device/cuda/calls.h"
#include "tests/support/fake/fake_cuda.h"
#include "transport/barrier.h"

#define ITEMS 32
#define CAPACITY 512
#define FRAME 576
#define WIDE 640
#define WAIT_NS 10000000000

/* Next observations come from later rows, or are stored. */
static const struct rlv_column columns_of_rows[] = {
	{ .name = "frame", .dtype = RLV_U8, .role = RLV_OBS, .ndim = 2, .shape = { 24, 24 } },
	{ .name = "wide", .dtype = RLV_U8, .ndim = 1, .shape = { WIDE } },
	{ .name = "obs", .dtype = RLV_F32, .role = RLV_OBS, .ndim = 1, .shape = { 3 } },
	{ .name = "reward", .dtype = RLV_F32, .role = RLV_REWARD },
	{ .name = "id", .dtype = RLV_U64 },
};
static const struct rlv_column columns_with_next[] = {
	{ .name = "frame", .dtype = RLV_U8, .ndim = 2, .shape = { 24, 24 } },
	{ .name = "after", .dtype = RLV_U8, .role = RLV_NEXT, .ndim = 1, .shape = { WIDE } },
	{ .name = "obs", .dtype = RLV_F32, .ndim = 1, .shape = { 3 } },
	{ .name = "reward", .dtype = RLV_F32, .role = RLV_REWARD },
	{ .name = "id", .dtype = RLV_U64 },
};

static struct {
	const struct fakecuda_control *fake; /* NULL: the machine's driver */
	const struct cuda_calls *cu;
	struct cu_context *context;
	struct rlv_store *store;
	struct rlv_table *table;
	struct rlv_writer *writer;
	struct rlv_landing *copies, *gathers;
	uint64_t next_id;
} at;

/* -------- a table -------- */

static void ok(int ret)
{
	if (ret)
		fail_msg("%s: %s", rlv_error_name(ret), rlv_last_error());
}

static void append(uint32_t n, uint16_t last_flag)
{
	static uint8_t frame[CAPACITY][FRAME], wide[CAPACITY][WIDE];
	static float obs[CAPACITY][3], reward[CAPACITY];
	static uint64_t id[CAPACITY];
	static uint16_t flags[CAPACITY];
	const void *const columns[] = { frame, wide, obs, reward, id };
	struct rlv_steps steps = RLV_STEPS_INIT;

	assert_true(n && n <= CAPACITY);
	for (uint32_t i = 0; i < n; i++) {
		id[i] = at.next_id++;
		memset(frame[i], (int)(id[i] * 37 & 0xff), FRAME);
		memset(wide[i], (int)(id[i] * 91 & 0xff), WIDE);
		memcpy(frame[i], &id[i], sizeof(id[i]));
		memcpy(wide[i], &id[i], sizeof(id[i]));
		for (int c = 0; c < 3; c++)
			obs[i][c] = (float)(id[i] * 3 + (uint64_t)c);
		reward[i] = (float)id[i];
		flags[i] = i + 1 == n ? last_flag : 0;
	}
	steps.n = n;
	steps.columns = columns;
	steps.flags = flags;
	ok(rlv_writer_append(at.writer, 0, &steps, NULL));
}

static void table_open(uint32_t stack, uint32_t n_step, bool has_next)
{
	const struct rlv_view view = {
		.selector = RLV_PRIORITIZED, .stack = stack, .n_step = n_step, .alpha = 1
	};
	struct rlv_store_opts store = RLV_STORE_OPTS_INIT;
	struct rlv_table_opts opts = RLV_TABLE_OPTS_INIT;

	store.pages = RLV_PAGES_SMALL;
	opts.columns = has_next ? columns_with_next : columns_of_rows;
	opts.n_columns = 5;
	opts.capacity = CAPACITY;
	opts.n_views = 1;
	opts.views = &view;
	at.next_id = 1;
	ok(rlv_store_open("embed:", &store, &at.store));
	ok(rlv_table_create(at.store, "t", &opts, &at.table));
	ok(rlv_writer_open(at.table, NULL, &at.writer));
}

static void table_close(void)
{
	ok(rlv_writer_close(&at.writer));
	ok(rlv_table_close(&at.table));
	ok(rlv_store_close(&at.store));
}

/* Episodes of random length that end in each way. */
static void append_episodes(struct rng *rng)
{
	for (int episode = 0; episode < 24; episode++) {
		uint32_t n = 1 + (uint32_t)rng_uniform_u64(rng, 20);
		uint64_t how = rng_uniform_u64(rng, 4);

		append(n, how == 0 ? RLV_TERMINATED : how == 1 ? RLV_TRUNCATED : 0);
		if (how == 1)
			append(1, RLV_FINAL);
		if (how == 2)
			ok(rlv_writer_end_episode(at.writer, 0, NULL));
	}
}

/* -------- a device -------- */

static void landing_open(struct rlv_landing **landing, uint32_t path)
{
	struct rlv_landing_opts opts = RLV_LANDING_OPTS_INIT;

	opts.path = path;
	ok(rlv_landing_open(&opts, landing));
}

static int begin(void **state)
{
	int device;

	(void)state;
	at.fake = getenv("RLV_TEST_GPU") ? NULL : fake_cuda_open();
	if (at.fake)
		at.fake->reset();
	assert_int_equal(cuda_calls_load(&at.cu), 0);
	assert_int_equal(at.cu->device_get(&device, 0), CU_OK);
	assert_int_equal(at.cu->context_retain(&at.context, device), CU_OK);
	assert_int_equal(at.cu->context_set(at.context), CU_OK);
	landing_open(&at.copies, RLV_LANDING_PINNED);
	landing_open(&at.gathers, RLV_LANDING_GATHER);
	return 0;
}

static int end(void **state)
{
	char text[128] = "";

	(void)state;
	ok(rlv_landing_close(&at.copies));
	ok(rlv_landing_close(&at.gathers));
	if (at.fake && at.fake->violations(text, sizeof(text)))
		fail_msg("broken rule: %s", text);
	if (at.fake)
		assert_int_equal(at.fake->created_bytes() + at.fake->mapped_bytes(), 0);
	return 0;
}

static struct rlv_sampler *sampler_of(struct rlv_landing *landing, uint32_t layout)
{
	struct rlv_sampler_opts opts = RLV_SAMPLER_OPTS_INIT;
	struct rlv_sampler *sampler;

	opts.batch_size = ITEMS;
	opts.layout = layout;
	opts.seed = 99;
	opts.dest = landing;
	ok(rlv_sampler_open(at.table, &opts, &sampler));
	return sampler;
}

static uint64_t gathered(struct rlv_landing *landing)
{
	struct rlv_landing_info info = RLV_LANDING_INFO_INIT;

	ok(rlv_landing_info(landing, &info));
	return info.gathered_bytes;
}

/* -------- comparing -------- */

/* Bytes of the device, at the address of a host's side. */
static void *on_device(struct rlv_landing *landing, const void *host, size_t bytes)
{
	uint64_t address;
	void *copy = malloc(bytes);

	assert_non_null(copy);
	ok(rlv_landing_device(landing, host, &address));
	assert_int_equal(at.cu->copy((cu_u64)(uintptr_t)copy, address, bytes, NULL), CU_OK);
	assert_int_equal(at.cu->stream_wait(NULL), CU_OK);
	return copy;
}

static size_t item_bytes(const struct rlv_array *array)
{
	return (size_t)(array->ndim > 1 ? array->strides[1] * array->shape[1] : array->strides[0]);
}

static void *array_on_device(struct rlv_landing *landing, const struct rlv_array *array, uint32_t n)
{
	return on_device(landing, array->data,
			 (size_t)array->strides[0] * (n - 1) + item_bytes(array));
}

/* The device has the same items as the batch that the host has. */
static void expect_same(struct rlv_landing *landing, const struct rlv_batch *batch,
			const struct rlv_batch *want)
{
	assert_int_equal(batch->n, want->n);
	assert_memory_equal(batch->key, want->key, want->n * sizeof(*want->key));
	for (uint32_t a = 0; a < want->n_arrays; a++) {
		const struct rlv_array *array = &batch->arrays[a];
		const uint8_t *expected = want->arrays[a].data;
		uint8_t *seen = array_on_device(landing, array, batch->n);

		assert_string_equal(array->name, want->arrays[a].name);
		for (uint32_t i = 0; i < batch->n; i++) {
			size_t off = i * (size_t)array->strides[0];

			assert_memory_equal(seen + off, expected + off, item_bytes(array));
		}
		free(seen);
	}
}

static const struct rlv_array *array_of(const struct rlv_batch *batch, const char *name)
{
	for (uint32_t a = 0; a < batch->n_arrays; a++) {
		if (!strcmp(batch->arrays[a].name, name))
			return &batch->arrays[a];
	}
	fail_msg("no array %s", name);
	return NULL;
}

/* Each item's large values are of the row that its id names. */
static void expect_whole(struct rlv_landing *landing, const struct rlv_batch *batch, uint64_t first)
{
	const uint64_t *id = array_of(batch, "id")->data;
	uint8_t *wide = array_on_device(landing, array_of(batch, "wide"), batch->n);

	for (uint32_t i = 0; i < batch->n; i++) {
		uint8_t row[WIDE];

		memset(row, (int)(id[i] * 91 & 0xff), WIDE);
		memcpy(row, &id[i], sizeof(id[i]));
		assert_true(id[i] >= first);
		assert_memory_equal(wide + (size_t)i * WIDE, row, WIDE);
	}
	free(wide);
}

/* -------- what lands -------- */

static void compare_batches(uint32_t layout, uint32_t n_step)
{
	struct rlv_sampler *copy = sampler_of(at.copies, layout);
	struct rlv_sampler *gather = sampler_of(at.gathers, layout);
	struct rlv_sample_opts later = RLV_SAMPLE_OPTS_INIT;
	uint64_t before = gathered(at.gathers);

	later.n_step = 1;
	for (int round = 0; round < 4; round++) {
		uint32_t n = round == 1 ? ITEMS / 4 + 1 : ITEMS;
		const struct rlv_batch *want, *batch;

		ok(rlv_sampler_sample(copy, n, 0, &want));
		ok(rlv_sampler_sample(gather, n, 0, &batch));
		expect_same(at.gathers, batch, want);
		rlv_batch_release(copy, want);
		rlv_batch_release(gather, batch);
		if (round == 2 && n_step > 1) {
			ok(rlv_sampler_set_opts(copy, &later));
			ok(rlv_sampler_set_opts(gather, &later));
		}
	}
	assert_true(gathered(at.gathers) > before);
	assert_int_equal(gathered(at.copies), 0);
	ok(rlv_sampler_close(&copy));
	ok(rlv_sampler_close(&gather));
}

TEST_WITH(sample__gathered_is_what_a_copy_brings, begin, end)
{
	struct rlv_landing_info info = RLV_LANDING_INFO_INIT;
	struct rng rng;

	ok(rlv_landing_info(at.gathers, &info));
	assert_int_equal(info.path, RLV_LANDING_GATHER);
	rng_seed(&rng, test_seed("landing_gather", 3), 0);
	for (uint32_t stack = 1; stack <= 4; stack += stack < 2 ? 1 : 2) {
		for (uint32_t n_step = 1; n_step <= 5; n_step += 2) {
			for (int has_next = 0; has_next < 2; has_next++) {
				table_open(stack, n_step, has_next);
				append_episodes(&rng);
				compare_batches(RLV_DENSE, n_step);
				if (!has_next)
					compare_batches(RLV_WINDOW, n_step);
				table_close();
			}
		}
	}
}

TEST_WITH(sample__takes_one_copy_of_lists_and_a_launch_for_each_size, begin, end)
{
	struct rlv_sampler *sampler;
	const struct rlv_batch *batch;

	if (!at.fake)
		skip();
	table_open(4, 1, false);
	append(200, 0);
	sampler = sampler_of(at.gathers, RLV_DENSE);
	at.fake->reset();
	ok(rlv_sampler_sample(sampler, ITEMS, 0, &batch));
	assert_int_equal(at.fake->calls("cuLaunchKernel"), 2); /* frame with next_frame; wide */
	assert_int_equal(at.fake->calls("cuMemcpyAsync"), 2);  /* lists; small columns */
	assert_int_equal(at.fake->calls("cuStreamWriteValue64"), 2);
	assert_int_equal(gathered(at.gathers), ITEMS * (8 * FRAME + WIDE));
	rlv_batch_release(sampler, batch);
	ok(rlv_sampler_close(&sampler));
	table_close();
}

TEST_WITH(sampler__two_share_the_rows, begin, end)
{
	struct rlv_sampler *first, *second;
	const struct rlv_batch *batch;
	uint64_t before;

	table_open(1, 1, false);
	append(200, 0);
	first = sampler_of(at.gathers, RLV_DENSE);
	second = sampler_of(at.gathers, RLV_DENSE);
	ok(rlv_sampler_close(&first));
	before = gathered(at.gathers);
	ok(rlv_sampler_sample(second, ITEMS, 0, &batch));
	assert_true(gathered(at.gathers) > before);
	expect_whole(at.gathers, batch, 1);
	rlv_batch_release(second, batch);
	ok(rlv_sampler_close(&second));
	table_close();
}

TEST_WITH(fetch__brings_the_side_of_the_host, begin, end)
{
	struct rlv_sampler *sampler;
	const struct rlv_batch *batch;
	const struct rlv_array *wide;

	table_open(1, 1, false);
	append(200, 0);
	sampler = sampler_of(at.gathers, RLV_DENSE);
	ok(rlv_sampler_sample(sampler, ITEMS, 0, &batch));
	wide = array_of(batch, "wide");
	memset(wide->data, 0xee, ITEMS * WIDE);
	ok(rlv_landing_fetch(at.gathers, wide->data, ITEMS * WIDE));
	for (uint32_t i = 0; i < ITEMS; i++)
		assert_memory_equal((const uint8_t *)wide->data + (size_t)i * WIDE,
				    (const uint64_t *)array_of(batch, "id")->data + i,
				    sizeof(uint64_t));
	assert_int_equal(rlv_landing_fetch(at.gathers, wide->data, SIZE_MAX), -EINVAL);
	assert_int_equal(rlv_landing_fetch(at.gathers, &batch, 1), -EINVAL);
	assert_int_equal(rlv_landing_fetch(at.copies, wide->data, 1), -EINVAL);
	rlv_batch_release(sampler, batch);
	ok(rlv_sampler_close(&sampler));
	table_close();
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

	(void)at.cu->context_set(
		NULL); /* MSan does not know a thread's own memory of a library that was opened */
	atomic_store(&late->ret, rlv_sampler_sample(late->sampler, ITEMS, WAIT_NS, &late->batch));
	return NULL;
}

/* The clock stands, so that the kernel of the first round reads rows of the writer's next lap. */
TEST_WITH(sample__rows_that_a_writer_overtakes_are_drawn_again, begin, end)
{
	struct late_sample late = { .ret = 1 };
	uint64_t until = clock_now_ns(clock_monotonic()) + WAIT_NS, first;
	struct rlv_stats stats = { .size = sizeof(stats) };
	pthread_t thread;

	if (!at.fake)
		skip();
	table_open(1, 1, false);
	append(CAPACITY, 0);
	late.sampler = sampler_of(at.gathers, RLV_DENSE);
	at.fake->reset();
	at.fake->hold(1000000);
	assert_int_equal(pthread_create(&thread, NULL, late_main, &late), 0);
	while (at.fake->calls("cuStreamWriteValue64") == 0 &&
	       clock_now_ns(clock_monotonic()) < until)
		usleep(100);
	first = at.next_id;
	for (int lap = 0; lap < 2; lap++)
		append(CAPACITY, 0);
	while (atomic_load(&late.ret) == 1 && clock_now_ns(clock_monotonic()) < until) {
		at.fake->advance(1000000);
		usleep(100);
	}
	assert_int_equal(pthread_join(thread, NULL), 0);
	at.fake->hold(0);
	ok(atomic_load(&late.ret));
	ok(rlv_sampler_stats(late.sampler, &stats));
	assert_true(stats.redraws >= ITEMS);
	expect_whole(at.gathers, late.batch, first);
	rlv_batch_release(late.sampler, late.batch);
	ok(rlv_sampler_close(&late.sampler));
	table_close();
}

static void *writer_main(void *ctx)
{
	atomic_bool *stop = ctx;

	while (!atomic_load(stop))
		append(CAPACITY / 4, 0);
	return NULL;
}

/* In real time: until a writer has come between often enough, and without a wrong byte. */
TEST_WITH(sample__beside_a_writer_is_whole, begin, end)
{
	uint64_t until = clock_now_ns(clock_monotonic()) + WAIT_NS;
	struct rlv_stats stats = { .size = sizeof(stats) };
	struct rlv_sampler *sampler;
	atomic_bool stop = false;
	pthread_t writer;

	if (BARRIER_TSAN) /* it does not know a device's loads */
		skip();
	table_open(1, 1, false);
	append(CAPACITY, 0);
	sampler = sampler_of(at.gathers, RLV_DENSE);
	assert_int_equal(pthread_create(&writer, NULL, writer_main, &stop), 0);
	while ((stats.redraws < 50 || stats.calls < 50) &&
	       clock_now_ns(clock_monotonic()) < until) {
		const struct rlv_batch *batch;

		ok(rlv_sampler_sample(sampler, ITEMS, WAIT_NS, &batch));
		expect_whole(at.gathers, batch, 1);
		rlv_batch_release(sampler, batch);
		ok(rlv_sampler_stats(sampler, &stats));
	}
	atomic_store(&stop, true);
	assert_int_equal(pthread_join(writer, NULL), 0);
	assert_true(stats.redraws >= 50);
	assert_true(gathered(at.gathers) >= stats.items * (2 * FRAME + WIDE));
	ok(rlv_sampler_close(&sampler));
	table_close();
}

/* The driver would tell of memory that is taken back from a kernel. */
TEST_WITH(close__leaves_rows_to_a_kernel_that_does_not_end, begin, end)
{
	struct rlv_landing_opts opts = RLV_LANDING_OPTS_INIT;
	struct rlv_landing *landing;
	struct rlv_sampler *sampler;
	const struct rlv_batch *batch;

	if (!at.fake)
		skip();
	opts.path = RLV_LANDING_GATHER;
	opts.timeout_ns = 20000000;
	ok(rlv_landing_open(&opts, &landing));
	table_open(1, 1, false);
	append(200, 0);
	sampler = sampler_of(landing, RLV_DENSE);
	at.fake->hold(1000000);
	assert_int_equal(rlv_sampler_sample(sampler, ITEMS, 0, &batch), -ETIMEDOUT);
	ok(rlv_sampler_close(&sampler));
	at.fake->hold(0);
	assert_int_equal(at.cu->context_wait(), CU_OK);
	sampler = sampler_of(landing, RLV_DENSE); /* the rows are taken back first */
	ok(rlv_sampler_sample(sampler, ITEMS, 0, &batch));
	assert_true(gathered(landing) >= 2 * (uint64_t)ITEMS * (2 * FRAME + WIDE));
	rlv_batch_release(sampler, batch);
	ok(rlv_sampler_close(&sampler));
	ok(rlv_landing_close(&landing));
	table_close();
}

/* -------- what lands by a copy -------- */

TEST_WITH(gather__by_keys_lands_by_a_copy, begin, end)
{
	struct rlv_sampler *sampler;
	const struct rlv_batch *drawn, *batch;
	uint64_t before, keys[ITEMS];

	table_open(2, 1, false);
	append(200, 0);
	sampler = sampler_of(at.gathers, RLV_DENSE);
	ok(rlv_sampler_sample(sampler, ITEMS, 0, &drawn));
	before = gathered(at.gathers);
	for (uint32_t i = 0; i < ITEMS; i++)
		keys[i] = drawn->key[ITEMS - 1 - i];
	rlv_batch_release(sampler, drawn);
	ok(rlv_sampler_gather(sampler, keys, ITEMS, 0, &batch));
	assert_ptr_equal(batch, drawn); /* the same buffer */
	assert_int_equal(gathered(at.gathers), before);
	expect_same(at.gathers, batch, batch);
	expect_whole(at.gathers, batch, 1);
	rlv_batch_release(sampler, batch);
	ok(rlv_sampler_close(&sampler));
	table_close();
}

TEST_WITH(sampler__what_cannot_be_gathered_is_copied, begin, end)
{
	struct rlv_sampler_opts opts = RLV_SAMPLER_OPTS_INIT;
	static const char *const small[] = { "obs", "id" };
	struct rlv_sampler *sampler;

	opts.batch_size = ITEMS;
	opts.dest = at.gathers;
	table_open(1, 1, false);
	append(200, 0);
	for (int way = 0; way < (at.fake ? 3 : 2); way++) {
		const struct rlv_batch *batch;

		opts.short_batch = way == 0;
		opts.columns = way == 1 ? small : NULL;
		opts.n_columns = way == 1 ? 2 : 0;
		if (way == 2) /* the driver does not take the rows */
			at.fake->fail_call("cuMemHostRegister", 1, CU_OPERATING_SYSTEM);
		ok(rlv_sampler_open(at.table, &opts, &sampler));
		ok(rlv_sampler_sample(sampler, ITEMS, 0, &batch));
		expect_same(at.gathers, batch, batch);
		rlv_batch_release(sampler, batch);
		ok(rlv_sampler_close(&sampler));
	}
	assert_int_equal(gathered(at.gathers), 0);
	table_close();
}

/* -------- bad input and faults -------- */

TEST_WITH(open__path_that_cannot_be, begin, end)
{
	struct rlv_landing_opts opts = RLV_LANDING_OPTS_INIT;
	struct rlv_landing *landing = NULL;

	for (uint32_t path = 1; path < 5; path += 3) {
		opts.path = path;
		assert_int_equal(rlv_landing_open(&opts, &landing), -EINVAL);
	}
	if (!at.fake)
		return;
	opts.path = RLV_LANDING_GATHER;
	at.fake->fail_call("cuModuleLoadData", 1, CU_UNSUPPORTED_PTX_VERSION);
	assert_int_equal(rlv_landing_open(&opts, &landing), -ENOTSUP);
	assert_null(landing);
}

/* One life of a landing and a sampler; the first error of it. */
static int life(uint64_t *gathered_out, const void **rows_out)
{
	struct rlv_landing_opts how = RLV_LANDING_OPTS_INIT;
	struct rlv_sampler_opts opts = RLV_SAMPLER_OPTS_INIT;
	const struct rlv_batch *batch = NULL;
	struct rlv_landing *landing = NULL;
	struct rlv_sampler *sampler = NULL;
	int ret, closed;

	how.path = RLV_LANDING_GATHER;
	ret = rlv_landing_open(&how, &landing);
	opts.batch_size = ITEMS;
	opts.batches = 1;
	opts.dest = landing;
	if (ret == 0)
		ret = rlv_sampler_open(at.table, &opts, &sampler);
	if (ret == 0) {
		*rows_out = sampler->apart.shared[0];
		ret = rlv_sampler_sample(sampler, ITEMS, 1000000000, &batch);
	}
	if (ret == 0)
		*gathered_out = gathered(landing);
	if (batch)
		rlv_batch_release(sampler, batch);
	closed = rlv_sampler_close(&sampler);
	ret = ret ? ret : closed;
	closed = rlv_landing_close(&landing);
	return ret ? ret : closed;
}

TEST_WITH(life__each_call_of_the_driver_fails_once, begin, end)
{
	uint64_t n = 1, bytes = 0;
	const void *rows;
	bool all = false;

	if (!at.fake)
		skip();
	table_open(2, 1, false);
	append(200, 0);
	for (; !all; n++) {
		int ret;

		bytes = 0;
		at.fake->reset();
		at.fake->fail_call(NULL, n, CU_OUT_OF_MEMORY);
		ret = life(&bytes, &rows);
		if (ret && ret != -ENOMEM)
			fail_msg("call %d: %d: %s", (int)n, ret, rlv_last_error());
		all = at.fake->calls(NULL) < n;
	}
	assert_true(n > 40);
	assert_true(bytes > 0); /* and nothing of the lives before was left to the device */
	at.fake->reset();
	table_close();
}

/* Without memory for what gathers need, batches land by a copy, or the call fails. */
TEST_WITH(life__each_allocation_fails_once, begin, end)
{
	bool struck = true, refused = false;
	uint64_t bytes = 0;
	const void *rows;

	table_open(2, 1, false);
	append(200, 0);
	for (uint64_t n = 1; struck; n++) {
		int ret;

		bytes = 0;
		mem_fail_after(n);
		ret = life(&bytes, &rows);
		struck = mem_fail_fired();
		mem_fail_after(0);
		if (ret && ret != -ENOMEM)
			fail_msg("allocation %d: %d: %s", (int)n, ret, rlv_last_error());
		refused |= ret == 0 && bytes == 0;
	}
	assert_true(refused);
	assert_true(bytes > 0);
	table_close();
}

TEST_WITH(life__device_is_lost_at_a_call, begin, end)
{
	static const char *const calls[] = { "cuMemHostRegister", "cuMemcpyAsync", "cuLaunchKernel",
					     "cuStreamWriteValue64" };

	if (!at.fake)
		skip();
	for (size_t i = 0; i < ARRAY_LEN(calls); i++) {
		const void *rows = NULL;
		uint64_t bytes;

		table_open(1, 1, false);
		append(200, 0);
		at.fake->reset();
		at.fake->fail_call(calls[i], 1, CU_ILLEGAL_ADDRESS);
		assert_int_equal(life(&bytes, &rows), -ENODEV);
		assert_int_equal(at.fake->calls(calls[i]), 1);
		at.fake->reset();
		if (rows) /* of a driver whose device is lost nothing is taken back */
			assert_int_equal(at.cu->host_unregister((void *)(uintptr_t)rows), CU_OK);
		table_close();
	}
}

int main(void)
{
	return test_run(NULL, NULL);
}
