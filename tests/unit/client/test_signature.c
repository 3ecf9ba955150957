#include "tests/support/fixture/replay_fixture.h"
#include "tests/support/test.h"

#include "client/table/signature.h"

#include <errno.h>
#include <string.h>

static struct rlv_table_opts usual(void)
{
	struct rlv_table_opts opts = RLV_TABLE_OPTS_INIT;

	opts.columns = replay_obs_columns;
	opts.n_columns = REPLAY_COLUMNS;
	opts.capacity = 1000;
	return opts;
}

TEST(dtype_bytes__of_all)
{
	static const uint32_t want[] = { 0, 1, 1, 1, 2, 2, 4, 4, 8, 8, 2, 4, 8, 2, 0 };

	for (uint32_t dtype = 0; dtype <= RLV_BF16 + 1; dtype++)
		assert_int_equal(dtype_bytes(dtype), want[dtype]);
	assert_int_equal(dtype_bytes(UINT32_MAX), 0);
}

TEST(signature_encode__decodes_to_the_same)
{
	const struct rlv_view view = { .stack = 3,
				       .n_step = 2,
				       .selector = RLV_UNIFORM,
				       .period = 4,
				       .max_times_sampled = 5,
				       .max_staleness = 6,
				       .limiter = rlv_limiter_queue(77) };
	struct rlv_table_opts opts = usual();
	struct rlv_table_info info = { 0 };
	struct table_desc desc;

	opts.views = &view;
	opts.n_views = 1;
	assert_int_equal(signature_encode("t", &opts, false, &desc), 0);
	signature_decode(&desc, &info);
	assert_int_equal(info.n_columns, REPLAY_COLUMNS);
	for (uint32_t c = 0; c < REPLAY_COLUMNS; c++) {
		assert_string_equal(info.columns[c].name, replay_obs_columns[c].name);
		assert_int_equal(info.columns[c].dtype, replay_obs_columns[c].dtype);
		assert_int_equal(info.columns[c].role, replay_obs_columns[c].role);
		assert_int_equal(info.columns[c].ndim, replay_obs_columns[c].ndim);
	}
	assert_int_equal(info.views[0].view.stack, 3);
	assert_int_equal(info.views[0].view.n_step, 2);
	assert_int_equal(info.views[0].view.period, 4);
	assert_int_equal(info.views[0].view.max_times_sampled, 5);
	assert_int_equal(info.views[0].view.max_staleness, 6);
	assert_true(info.views[0].view.limiter.max_diff == 77);
	assert_true(info.views[0].view.limiter.min_diff == 0);
}

TEST(signature_encode__without_bounds_decodes_to_infinite_ones)
{
	struct rlv_table_opts opts = usual();
	struct rlv_table_info info = { 0 };
	struct table_desc desc;

	assert_int_equal(signature_encode("t", &opts, false, &desc), 0);
	signature_decode(&desc, &info);
	assert_true(info.views[0].view.limiter.min_diff == (double)-INFINITY);
	assert_true(info.views[0].view.limiter.max_diff == (double)INFINITY);
	assert_int_equal(info.views[0].view.limiter.min_size, 1);
}

TEST(signature_encode__rows_of_files_carry_a_crc)
{
	struct rlv_table_opts opts = usual();
	struct table_desc desc;

	for (uint32_t wish = 0; wish <= 2; wish++)
		for (uint32_t file = 0; file <= 1; file++) {
			bool want = wish == 1 || (wish == 0 && file);

			opts.row_crc = wish;
			assert_int_equal(signature_encode("t", &opts, file != 0, &desc), 0);
			assert_int_equal((desc.flags & TABLE_ROW_CRC) != 0, want);
		}
}

TEST(signature_encode__fifo_wants_one_shard)
{
	const struct rlv_view view = { .selector = RLV_FIFO };
	struct rlv_table_opts opts = usual();
	struct table_desc desc;

	opts.views = &view;
	opts.n_views = 1;
	opts.shards = 2;
	replay_expect(signature_encode("t", &opts, false, &desc), -EINVAL, "views[0]");
}

int main(void)
{
	return test_run(NULL, NULL);
}
