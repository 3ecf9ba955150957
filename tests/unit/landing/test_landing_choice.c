/*
 * Which path a sampler takes by itself, by opts.path, opts.avoid and opts.strict, over a transport that reaches memory of
 * the device. The linker hands the library's transport_open to us (cmake/tests.cmake).
 */
#include "tests/support/fake/wire_transport.h"
#include "tests/support/fixture/gather_fixture.h"
#include "tests/support/test.h"
#include "tests/support/wrap_open.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"

static bool in_place; /* transports are not wrapped */

static int put_on_a_wire(struct transport **tr)
{
	if (!in_place)
		*tr = wire_wrap(*tr);
	return 0;
}

WRAP_TRANSPORT_OPEN(put_on_a_wire)

enum {
	NO_DMABUF = 1 << RLV_LANDING_DMABUF,
	NO_PEERMEM = 1 << RLV_LANDING_PEERMEM,
};

static struct rlv_landing *landing;

static void landing_open(uint32_t path, uint32_t avoid, bool strict)
{
	struct rlv_landing_opts opts = RLV_LANDING_OPTS_INIT;

	opts.path = path;
	opts.avoid = avoid;
	opts.strict = strict;
	gather_ok(rlv_landing_open(&opts, &landing));
}

static int begin(void **state)
{
	wire_reach = (struct wire_reach){ 0 };
	in_place = false;
	return gather_begin(state);
}

static int end(void **state)
{
	gather_ok(rlv_landing_close(&landing));
	return gather_end(state);
}

static struct rlv_landing_info info(void)
{
	struct rlv_landing_info info = RLV_LANDING_INFO_INIT;

	gather_ok(rlv_landing_info(landing, &info));
	return info;
}

static void table_open(uint32_t stack)
{
	gather_table_open(stack, 1, false);
	gather_append(200, 0);
}

/* The path of one batch, and bytes that were read for it. */
static uint32_t path_of_batch(struct rlv_sampler *sampler, uint64_t *read_bytes_out)
{
	struct rlv_stats stats = { .size = sizeof(stats) };
	uint64_t before;
	const struct rlv_batch *batch;
	uint32_t path;

	gather_ok(rlv_sampler_stats(sampler, &stats));
	before = stats.read_bytes;
	gather_ok(rlv_sampler_sample(sampler, GATHER_ITEMS, 0, &batch));
	path = rlv_batch_path(batch);
	rlv_batch_release(sampler, batch);
	gather_ok(rlv_sampler_stats(sampler, &stats));
	*read_bytes_out = stats.read_bytes - before;
	return path;
}

static uint32_t path_of_sampler(uint32_t layout)
{
	struct rlv_sampler *sampler = gather_sampler(landing, layout);
	uint64_t bytes;
	uint32_t path = path_of_batch(sampler, &bytes);

	gather_ok(rlv_sampler_close(&sampler));
	return path;
}

/* -------- by itself -------- */

TEST_WITH(choice__is_the_best_that_is_there, begin, end)
{
	static const struct {
		bool in_place;
		int dmabuf_code, address_code;
		uint32_t avoid, got;
		const char *reason;
	} cases[] = {
		{ false, 0, -EFAULT, 0, RLV_LANDING_DMABUF, "" },
		{ false, 0, 0, NO_DMABUF, RLV_LANDING_PEERMEM, "" },
		{ false, -ENOTSUP, 0, 0, RLV_LANDING_PEERMEM, "as a dma-buf: a device without" },
		{ false, -ENOTSUP, 0, NO_PEERMEM, RLV_LANDING_PINNED, "as a dma-buf: a device" },
		{ false, -ENOTSUP, -EFAULT, 0, RLV_LANDING_PINNED, "by its address: a device" },
		{ false, 0, 0, NO_DMABUF | NO_PEERMEM, RLV_LANDING_PINNED, "" },
		{ true, 0, 0, 0, RLV_LANDING_PINNED, "rows do not come by RDMA" },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		in_place = cases[i].in_place;
		wire_reach = (struct wire_reach){ cases[i].dmabuf_code, cases[i].address_code, 0 };
		table_open(1);
		landing_open(0, cases[i].avoid, false);
		assert_int_equal(path_of_sampler(RLV_DENSE), cases[i].got);
		assert_int_equal(info().path, cases[i].got);
		assert_non_null(strstr(info().reason, cases[i].reason));
		assert_int_equal(!*info().reason, !*cases[i].reason);
		assert_int_equal(info().direct_bytes > 0, cases[i].got != RLV_LANDING_PINNED);
		gather_ok(rlv_landing_close(&landing));
		gather_table_close();
	}
}

/* A table whose large columns are all stacked. */
static void frames_open(uint32_t stack)
{
	static const struct rlv_column columns[] = {
		{ .name = "wide",
		  .dtype = RLV_U8,
		  .role = RLV_OBS,
		  .ndim = 1,
		  .shape = { GATHER_WIDE } },
		{ .name = "id", .dtype = RLV_U64 },
	};
	static uint8_t wide[200][GATHER_WIDE];
	static uint64_t id[200];
	const struct rlv_view view = { .selector = RLV_PRIORITIZED, .stack = stack, .alpha = 1 };
	struct rlv_store_opts store = RLV_STORE_OPTS_INIT;
	struct rlv_table_opts opts = RLV_TABLE_OPTS_INIT;
	struct rlv_steps steps = RLV_STEPS_INIT;

	store.pages = RLV_PAGES_SMALL;
	opts.columns = columns;
	opts.n_columns = ARRAY_LEN(columns);
	opts.capacity = GATHER_CAPACITY;
	opts.views = &view;
	opts.n_views = 1;
	gather_ok(rlv_store_open("embed:", &store, &gather_fx.store));
	gather_ok(rlv_table_create(gather_fx.store, "t", &opts, &gather_fx.table));
	gather_ok(rlv_writer_open(gather_fx.table, NULL, &gather_fx.writer));
	steps.n = 200;
	steps.columns = (const void *const[]){ wide, id };
	gather_ok(rlv_writer_append(gather_fx.writer, 0, &steps, NULL));
}

/* No choice reads more bytes than a copy of the same draws. */
TEST_WITH(choice__reads_no_more_bytes_than_a_copy, begin, end)
{
	static const struct {
		uint32_t stack, layout, got;
	} cases[] = {
		{ 1, RLV_DENSE, RLV_LANDING_DMABUF },
		{ 1, RLV_WINDOW, RLV_LANDING_DMABUF },
		{ 4, RLV_DENSE, RLV_LANDING_PINNED },
		{ 4, RLV_WINDOW, RLV_LANDING_DMABUF },
	};

	landing_open(0, 0, false);
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct rlv_sampler *sampler, *copies;
		uint64_t bytes, copied;

		frames_open(cases[i].stack);
		sampler = gather_sampler(landing, cases[i].layout);
		copies = gather_sampler(gather_fx.copies, cases[i].layout);
		assert_int_equal(path_of_batch(sampler, &bytes), cases[i].got);
		assert_int_equal(path_of_batch(copies, &copied), RLV_LANDING_PINNED);
		assert_true(bytes <= copied);
		assert_int_equal(strstr(info().reason, "more often") != NULL,
				 cases[i].got == RLV_LANDING_PINNED);
		gather_ok(rlv_sampler_close(&sampler));
		gather_ok(rlv_sampler_close(&copies));
		gather_table_close();
	}
	gather_ok(rlv_landing_close(&landing));
	landing_open(RLV_LANDING_DMABUF, 0, false); /* whatever it costs */
	frames_open(4);
	assert_int_equal(path_of_sampler(RLV_DENSE), RLV_LANDING_DMABUF);
	gather_table_close();
}

/* A driver that locks no memory of the host: RDMA needs none, and copies come from other memory. */
TEST_WITH(choice__without_locked_memory_is_rdma_or_a_plain_copy, begin, end)
{
	table_open(1);
	for (int i = 0; i < 2; i++) {
		uint32_t got = i ? RLV_LANDING_PLAIN : RLV_LANDING_DMABUF;

		wire_reach = (struct wire_reach){ i ? -ENOTSUP : 0, -EFAULT, 0 };
		gather_fx.fake->fail_call("cuMemHostRegister", 2, CU_NOT_SUPPORTED); /* 1: marks */
		landing_open(RLV_LANDING_DMABUF, 0, false);
		gather_fx.fake->reset();
		assert_int_equal(path_of_sampler(RLV_DENSE), got);
		assert_int_equal(gather_fx.fake->calls("cuMemHostRegister"), 0);
		gather_ok(rlv_landing_close(&landing));
	}
	gather_table_close();
}

/* Batches that are prefetched come as they were begun. */
TEST_WITH(batch__tells_its_own_path_beside_others, begin, end)
{
	static const char *const small[] = { "id" };
	struct rlv_sampler_opts opts = RLV_SAMPLER_OPTS_INIT;
	struct rlv_sampler *large, *little;

	table_open(1);
	landing_open(0, 0, false);
	opts.batch_size = GATHER_ITEMS;
	opts.prefetch = 2;
	opts.dest = landing;
	gather_ok(rlv_sampler_open(gather_fx.table, &opts, &large));
	opts.columns = small;
	opts.n_columns = 1;
	gather_ok(rlv_sampler_open(gather_fx.table, &opts, &little));
	for (int i = 0; i < 6; i++) {
		const struct rlv_batch *batch;

		gather_ok(rlv_sampler_sample(large, GATHER_ITEMS, 0, &batch));
		assert_int_equal(rlv_batch_path(batch), RLV_LANDING_DMABUF);
		gather_expect_whole(landing, batch, 1);
		rlv_batch_release(large, batch);
		gather_ok(rlv_sampler_sample(little, GATHER_ITEMS, 0, &batch));
		assert_int_equal(rlv_batch_path(batch), RLV_LANDING_PINNED);
		rlv_batch_release(little, batch);
	}
	gather_ok(rlv_sampler_close(&large));
	gather_ok(rlv_sampler_close(&little));
	gather_table_close();
}

/* -------- a path that must be -------- */

TEST_WITH(strict__open_says_what_the_device_lacks, begin, end)
{
	struct rlv_landing_opts opts = RLV_LANDING_OPTS_INIT;

	opts.strict = 1;
	assert_int_equal(rlv_landing_open(&opts, &landing), -EINVAL); /* of which path? */
	opts.path = RLV_LANDING_DMABUF;
	opts.strict = 2;
	assert_int_equal(rlv_landing_open(&opts, &landing), -EINVAL);
	opts.strict = 1;
	opts.avoid = NO_DMABUF;
	assert_int_equal(rlv_landing_open(&opts, &landing), -EINVAL);
	opts.avoid = 1u << RLV_LANDING_PINNED;
	assert_int_equal(rlv_landing_open(&opts, &landing), -EINVAL);
	if (!gather_fx.fake)
		return;
	opts.avoid = 0;
	gather_fx.fake->attribute(CU_ATTR_DMA_BUF, 0);
	assert_int_equal(rlv_landing_open(&opts, &landing), -ENOTSUP);
	assert_non_null(strstr(rlv_last_error(), "dmabuf, opts.strict: the device exports no"));
	assert_null(landing);
}

TEST_WITH(strict__sampler_says_what_it_or_its_table_lacks, begin, end)
{
	static const char *const small[] = { "id" };
	static const struct {
		uint32_t path;
		bool in_place, short_batch, is_small;
		const char *text;
	} cases[] = {
		{ RLV_LANDING_DMABUF, true, false, false, "dmabuf, which is strict: rows do not" },
		{ RLV_LANDING_PEERMEM, false, true, false, "peermem, which is strict: gaps of" },
		{ RLV_LANDING_DMABUF, false, false, true, "no large columns" },
		{ RLV_LANDING_GATHER, false, false, false,
		  "gather, which is strict: rows are not" },
		{ RLV_LANDING_GATHER, true, false, true, "no large columns" },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct rlv_sampler_opts opts = RLV_SAMPLER_OPTS_INIT;
		struct rlv_sampler *sampler = NULL;

		in_place = cases[i].in_place;
		table_open(1);
		landing_open(cases[i].path, 0, true);
		opts.dest = landing;
		opts.short_batch = cases[i].short_batch;
		opts.columns = cases[i].is_small ? small : NULL;
		opts.n_columns = cases[i].is_small;
		assert_int_equal(rlv_sampler_open(gather_fx.table, &opts, &sampler), -ENOTSUP);
		assert_non_null(strstr(rlv_last_error(), cases[i].text));
		assert_null(sampler);
		gather_ok(rlv_landing_close(&landing));
		gather_table_close();
	}
}

TEST_WITH(strict__sample_says_what_the_rdma_device_lacks, begin, end)
{
	static const uint32_t paths[] = { RLV_LANDING_DMABUF, RLV_LANDING_PEERMEM };

	table_open(1);
	for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
		bool dmabuf = paths[i] == RLV_LANDING_DMABUF;
		struct rlv_sampler_opts opts = RLV_SAMPLER_OPTS_INIT;
		struct rlv_sampler *sampler;
		const struct rlv_batch *batch;

		wire_reach = (struct wire_reach){ dmabuf ? -ENOTSUP : 0, dmabuf ? 0 : -EFAULT, 0 };
		landing_open(paths[i], 0, true);
		opts.batch_size = GATHER_ITEMS;
		opts.dest = landing;
		opts.prefetch = 1;
		gather_ok(rlv_sampler_open(gather_fx.table, &opts, &sampler));
		for (int again = 0; again < 2; again++) {
			assert_int_equal(rlv_sampler_sample(sampler, GATHER_ITEMS, 0, &batch),
					 -ENOTSUP);
			assert_non_null(strstr(rlv_last_error(), "no RDMA to the device: "));
			assert_non_null(strstr(rlv_last_error(), "a device without this"));
		}
		assert_int_equal(wire_reach.calls, 1);
		assert_int_equal(info().batches, 0);
		gather_ok(rlv_sampler_close(&sampler));
		gather_ok(rlv_landing_close(&landing));
		wire_reach = (struct wire_reach){ dmabuf ? 0 : -EFAULT, dmabuf ? -EFAULT : 0, 0 };
		landing_open(paths[i], 0, true);
		assert_int_equal(path_of_sampler(RLV_DENSE), paths[i]);
		gather_ok(rlv_landing_close(&landing));
	}
	gather_table_close();
}

/* -------- buffers that streams use -------- */

/* READs fill a buffer again when the stream that reads it is done with it, and not before. */
TEST_WITH(release__reads_wait_for_the_stream_that_uses_the_buffer, begin, end)
{
	struct rlv_sampler_opts opts = RLV_SAMPLER_OPTS_INIT;
	struct rlv_sampler *sampler;
	const struct rlv_batch *batch;
	struct cu_stream *stream;
	uint8_t *before, *after;
	uint64_t address;
	cu_u64 seen;

	table_open(1);
	landing_open(0, 0, false);
	opts.batch_size = GATHER_ITEMS;
	opts.batches = 1;
	opts.dest = landing;
	gather_ok(rlv_sampler_open(gather_fx.table, &opts, &sampler));
	gather_ok(rlv_sampler_sample(sampler, GATHER_ITEMS, 0, &batch));
	assert_int_equal(rlv_batch_path(batch), RLV_LANDING_DMABUF);
	before = gather_on_device(landing, gather_array(batch, "wide"), GATHER_ITEMS);
	after = malloc((size_t)GATHER_ITEMS * GATHER_WIDE);
	assert_non_null(after);
	gather_ok(rlv_landing_device(landing, gather_array(batch, "wide")->data, &address));
	assert_int_equal(gather_fx.cu->stream_create(&stream, CU_STREAM_NON_BLOCKING_FLAG, 0),
			 CU_OK);
	gather_ok(rlv_landing_use(landing, batch->weight, stream));
	gather_fx.fake->hold(1000000); /* the clock stands: its copy is late */
	seen = (cu_u64)(uintptr_t)after;
	assert_int_equal(gather_fx.cu->copy(seen, address, GATHER_ITEMS * GATHER_WIDE, stream),
			 CU_OK);
	rlv_batch_release(sampler, batch);
	assert_int_equal(rlv_sampler_sample(sampler, GATHER_ITEMS, 20000000, &batch), -ETIMEDOUT);
	assert_non_null(strstr(rlv_last_error(), "the device still uses"));
	gather_fx.fake->hold(0);
	gather_ok(rlv_sampler_sample(sampler, GATHER_ITEMS, GATHER_WAIT_NS, &batch));
	assert_int_equal(gather_fx.cu->stream_wait(stream), CU_OK);
	assert_memory_equal(after, before, (size_t)GATHER_ITEMS * GATHER_WIDE);
	rlv_batch_release(sampler, batch);
	free(before);
	free(after);
	gather_fx.fake->reset();
	gather_ok(rlv_sampler_close(&sampler));
	assert_int_equal(gather_fx.cu->stream_destroy(stream), CU_OK);
	gather_table_close();
}

int main(void)
{
	return gather_skips_gpu() ? TEST_EXIT_SKIP : test_run(NULL, NULL);
}
