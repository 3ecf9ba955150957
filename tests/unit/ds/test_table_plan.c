#include "ds/replay/shard.h"

#include "tests/support/test.h"

#include <errno.h>
#include <string.h>

static struct table_desc desc;
static const struct table_plan_opts defaults;
static const uint16_t eights[] = { 8, 0 };
static const struct table_plan_opts by_eights = { .fanout = eights };

static void set_column(uint32_t c, const char *name, uint16_t dtype, uint16_t role)
{
	struct column_desc *col = &desc.columns[c];

	memset(col, 0, sizeof(*col));
	strcpy(col->name, name);
	col->dtype = dtype;
	col->role = role;
	col->bytes = dtype_bytes(dtype);
}

static void set_vector(uint32_t c, uint32_t n)
{
	desc.columns[c].ndim = 1;
	desc.columns[c].shape[0] = n;
	desc.columns[c].bytes = n * dtype_bytes(desc.columns[c].dtype);
}

/* A CartPole: 4 floats of observation, action, reward; one view of single transitions. */
static int setup(void **state)
{
	(void)state;
	memset(&desc, 0, sizeof(desc));
	strcpy(desc.name, "replay");
	desc.capacity = 1 << 20;
	desc.n_shards = 1;
	desc.max_writers = 4;
	desc.max_clients = 64;
	desc.n_columns = 3;
	set_column(0, "obs", DTYPE_F32, ROLE_OBS);
	set_vector(0, 4);
	set_column(1, "action", DTYPE_I64, ROLE_PLAIN);
	set_column(2, "reward", DTYPE_F32, ROLE_REWARD);
	desc.n_views = 1;
	desc.views[0].alpha = 0.6;
	desc.views[0].limit = (struct limit_desc){ 1, 0, INT64_MIN, INT64_MAX };
	return 0;
}

static void assert_plans(void)
{
	if (table_plan(&desc, &defaults))
		fail_msg("refused: %s", error_last());
	assert_int_equal(table_desc_check(&desc), 0);
}

/* Refused, with both words in the message and the descriptor untouched. */
static void assert_refuses(const struct table_plan_opts *opts, const char *one, const char *two)
{
	struct table_desc before = desc;

	assert_int_equal(table_plan(&desc, opts), -EINVAL);
	if (!strstr(error_last(), one) || !strstr(error_last(), two))
		fail_msg("\"%s\" lacks \"%s\" or \"%s\"", error_last(), one, two);
	assert_memory_equal(&before, &desc, sizeof(desc));
}

#define CASE(name) TEST_WITH(name, setup, NULL)

/* -------- sizes -------- */

CASE(table_plan__default_block_and_slack_by_hand)
{
	assert_plans();
	assert_int_equal(desc.views[0].window, 2);
	assert_int_equal(desc.views[0].future, 1);
	assert_int_equal(desc.window_max, 2);
	assert_int_equal(desc.block, 256);
	/* 4113 blocks of 255 new rows hold 2^20; 2 more for each of 4 streams. */
	assert_int_equal(desc.blocks, 4113 + 8);
	assert_int_equal(desc.slots, 4121 * 256);
	assert_int_equal(desc.tree.leaves, desc.slots);
}

CASE(table_plan__row_by_hand)
{
	assert_plans();
	assert_int_equal(desc.columns[0].offset, 0);
	assert_int_equal(desc.columns[1].offset, 16);
	assert_int_equal(desc.columns[2].offset, 24);
	assert_int_equal(desc.tail_off, 32);
	assert_int_equal(desc.row_bytes, 56);
	assert_int_equal(desc.rows_bytes, 4096 + 4121ull * 256 * 56);
}

CASE(table_plan__columns_at_their_natural_alignment)
{
	desc.n_columns = 5;
	set_column(0, "a", DTYPE_U8, ROLE_PLAIN);
	set_column(1, "b", DTYPE_F64, ROLE_PLAIN);
	set_column(2, "c", DTYPE_U16, ROLE_PLAIN);
	set_column(3, "d", DTYPE_F32, ROLE_PLAIN);
	set_column(4, "e", DTYPE_BOOL, ROLE_PLAIN);
	assert_plans();
	assert_int_equal(desc.columns[1].offset, 8);
	assert_int_equal(desc.columns[2].offset, 16);
	assert_int_equal(desc.columns[3].offset, 20);
	assert_int_equal(desc.columns[4].offset, 24);
	assert_int_equal(desc.tail_off, 32);
	assert_int_equal(desc.row_bytes, 56);
}

CASE(table_plan__regions_by_hand)
{
	uint64_t inner, off;

	desc.max_clients = 2;
	desc.n_views = 2;
	desc.views[1] = desc.views[0];
	desc.views[1].max_times_sampled = 3;
	assert_plans();
	inner = (desc.tree.inner_bytes + 63) / 64 * 64;
	off = 4096 + 34816;
	assert_int_equal(desc.words_off, off);
	assert_int_equal(desc.views[0].words_off, off += 256);
	assert_int_equal(desc.views[0].inner_off[0], off += 128);
	assert_int_equal(desc.views[0].inner_off[1], off += inner);
	assert_int_equal(desc.views[0].leaves_off, off += inner);
	assert_int_equal(desc.views[0].counts_off, 0);
	assert_int_equal(desc.views[1].words_off, off += desc.slots * 8ull);
	off += 128 + 2 * inner;
	assert_int_equal(desc.views[1].leaves_off, off);
	assert_int_equal(desc.views[1].counts_off, off += desc.slots * 8ull);
	assert_int_equal(desc.headers_off, off += desc.slots * 8ull);
	assert_int_equal(desc.tree_bytes, (off + desc.blocks * 8ull + 63) / 64 * 64);
	assert_int_equal(desc.slots_off, 4096);
	assert_int_equal(desc.slots_bytes, 4096 + 2 * 64);
	assert_int_equal(desc.pages_bytes, 4096 + 4096 + 2 * 4096);
}

CASE(table_plan__every_array_begins_a_line)
{
	desc.n_views = 3;
	desc.capacity = 12345;
	desc.max_clients = 7;
	desc.views[1] = desc.views[2] = desc.views[0];
	assert_plans();
	for (uint32_t v = 0; v < 3; v++) {
		assert_int_equal(desc.views[v].words_off % 64, 0);
		assert_int_equal(desc.views[v].inner_off[0] % 64, 0);
		assert_int_equal(desc.views[v].inner_off[1] % 64, 0);
		assert_int_equal(desc.views[v].leaves_off % 64, 0);
	}
	assert_int_equal(desc.headers_off % 64, 0);
	assert_int_equal(desc.slots_off % 64, 0);
}

CASE(table_plan__overhead_at_most_12_bytes_per_step)
{
	uint64_t bytes;

	desc.views[0].stack = 4;
	assert_plans();
	bytes = sumtree_leaf_bytes(&desc.tree) + 2 * desc.tree.inner_bytes;
	assert_true(bytes <= 12 * desc.capacity);
}

CASE(table_plan__atari_keeps_a_frame_once)
{
	set_column(0, "obs", DTYPE_U8, ROLE_OBS);
	desc.columns[0].ndim = 2;
	desc.columns[0].shape[0] = desc.columns[0].shape[1] = 84;
	desc.columns[0].bytes = 7056;
	desc.views[0].stack = 4;
	assert_plans();
	assert_int_equal(desc.views[0].window, 5);
	assert_int_equal(desc.views[0].future, 1);
	assert_true((double)desc.rows_bytes <= 1.06 * 7056 * (double)desc.capacity);
}

CASE(table_plan__stored_next_observation_needs_no_later_row)
{
	set_column(0, "obs", DTYPE_F32, ROLE_PLAIN);
	set_vector(0, 4);
	desc.views[0].n_step = 3;
	assert_plans();
	assert_int_equal(desc.views[0].window, 3);
	assert_int_equal(desc.views[0].future, 2);
}

CASE(table_plan__many_streams_get_small_blocks)
{
	desc.capacity = 16384;
	desc.max_writers = 64;
	assert_plans();
	assert_int_equal(desc.block, 16); /* 16384 / (16 x 64) */
	assert_true(desc.max_writers * (uint64_t)desc.block * 8 <= desc.slots);
}

CASE(table_plan__shards_share_the_capacity)
{
	desc.n_shards = 3;
	assert_plans();
	assert_true(3ull * (desc.blocks - 8) * 255 >= 1 << 20);
	assert_true(3ull * (desc.blocks - 9) * 255 < 1 << 20);
}

CASE(table_plan__block_wish_is_rounded_to_leaf_groups)
{
	struct table_plan_opts opts = { .block = 1001 };

	assert_int_equal(table_plan(&desc, &opts), 0);
	assert_true(desc.block >= 1001);
	assert_int_equal(desc.block % desc.tree.fanout[0], 0);
}

CASE(table_plan__zeros_of_a_view_mean_the_defaults)
{
	assert_plans();
	assert_int_equal(desc.views[0].stack, 1);
	assert_int_equal(desc.views[0].n_step, 1);
	assert_int_equal(desc.views[0].period, 1);
	assert_int_equal(desc.views[0].scale, 1 << 20);
	assert_int_equal(desc.views[0].max_prio, sumtree_max_prio(desc.slots));
}

CASE(table_plan__many_sizes_keep_the_promises)
{
	for (uint64_t capacity = 600; capacity < 3000000; capacity = capacity * 17 / 13) {
		setup(state);
		desc.capacity = capacity;
		desc.views[0].stack = (uint16_t)(1 + capacity % 4);
		desc.max_writers = 1 + (uint32_t)capacity % 3;
		assert_plans();
		assert_true((desc.blocks - 2ull * desc.max_writers) *
				    (desc.block - desc.window_max + 1) >=
			    capacity);
		assert_true(8ull * desc.max_writers <= desc.blocks);
		assert_true(desc.block >= 2 * desc.window_max);
	}
}

/* -------- refusals -------- */

CASE(table_plan__capacity_0)
{
	desc.capacity = 0;
	assert_refuses(&defaults, "capacity 0", "at least 1");
}

CASE(table_plan__too_small_names_the_numbers)
{
	desc.capacity = 100;
	/* 24 blocks of 8 rows, 7 of them new: one step more than 23 of them hold. */
	assert_refuses(&by_eights, "capacity 100", "at least 162 steps");
	desc.capacity = 161;
	assert_refuses(&by_eights, "capacity 161", "4 writers");
	desc.capacity = 162;
	assert_int_equal(table_plan(&desc, &by_eights), 0);
	assert_int_equal(desc.blocks, 24 + 8);
}

CASE(table_plan__block_too_large_for_the_streams)
{
	struct table_plan_opts opts = { .block = 65536 };

	assert_refuses(&opts, "blocks of 65536 rows", "1507306 steps");
}

CASE(table_plan__block_under_two_windows)
{
	struct table_plan_opts opts = { .block = 8, .fanout = eights };

	desc.views[0].stack = 4;
	assert_refuses(&opts, "block 8", "16 rows");
}

CASE(table_plan__too_many_leaves_says_how_many_shards)
{
	desc.capacity = 100000000;
	/* 65536 blocks of 256, less 8: 65528 x 255 steps in a shard at most. */
	assert_refuses(&defaults, "capacity 100000000", "6 shards are needed");
	desc.n_shards = 6;
	assert_plans();
}

CASE(table_plan__not_representable)
{
	desc.capacity = UINT64_MAX;
	assert_refuses(&defaults, "18446744073709551615", "not representable");
	desc.n_shards = 1024;
	assert_refuses(&defaults, "18446744073709551615", "not representable");
}

CASE(table_plan__rows_beyond_a_region_need_more_shards)
{
	set_vector(0, 1 << 20);
	desc.columns[0].bytes = 4 << 20;
	assert_refuses(&defaults, "capacity 1048576", "shards are needed");
}

CASE(table_plan__item_too_large)
{
	set_vector(0, 1 << 26);
	desc.columns[0].bytes = 1 << 28;
	desc.views[0].stack = 4;
	assert_refuses(&defaults, "window of 5 rows", "an item");
}

/* -------- over a wire -------- */

/* Levels that a draw reads below the top. */
static uint32_t remote_levels(uint64_t capacity)
{
	const struct table_plan_opts opts = { .remote = true };
	uint64_t nodes;

	desc.capacity = capacity;
	if (table_plan(&desc, &opts))
		fail_msg("capacity %llu refused: %s", (unsigned long long)capacity, error_last());
	assert_int_equal(table_desc_check(&desc), 0);
	nodes = desc.slots;
	for (uint32_t l = 0; l < desc.tree.levels; l++) {
		assert_true(desc.tree.fanout[l] <= 256);
		nodes = (nodes + desc.tree.fanout[l] - 1) / desc.tree.fanout[l];
	}
	assert_true(nodes <= (desc.n_shards < 16 ? 1024 / desc.n_shards : 64));
	return desc.tree.levels;
}

CASE(table_plan__remote_needs_few_levels)
{
	assert_int_equal(remote_levels(1000), 1);
	assert_int_equal(desc.tree.fanout[0], 8);
	setup(state);
	assert_int_equal(remote_levels(50000), 1);
	setup(state);
	assert_int_equal(remote_levels(1 << 20), 2);
	assert_int_equal(desc.tree.fanout[0], 32);
	assert_int_equal(desc.tree.fanout[1], 40);
	assert_int_equal(desc.block, 1024);
	setup(state);
	assert_int_equal(remote_levels((1 << 24) - (1 << 18)), 2);
	setup(state);
	desc.n_shards = 16; /* whose tops share the nodes that a draw reads */
	assert_int_equal(remote_levels((1 << 27)), 3);
}

/* Every capacity that can be had locally in small can be had. */
CASE(table_plan__remote_of_any_size)
{
	for (uint64_t capacity = 600; capacity < 16000000; capacity += capacity / 3) {
		setup(state);
		remote_levels(capacity);
	}
}

/* Planning again with the resulting fan-outs as the wish gives the same plan. */
CASE(table_plan__remote_fanout_as_a_wish_is_the_same)
{
	struct table_plan_opts opts = { .remote = true };
	struct table_desc first;
	uint16_t fanout[TREE_MAX_LEVELS];

	assert_int_equal(table_plan(&desc, &opts), 0);
	first = desc;
	memcpy(fanout, desc.tree.fanout, sizeof(fanout));
	setup(state);
	opts = (struct table_plan_opts){ .fanout = fanout, .remote = true };
	assert_int_equal(table_plan(&desc, &opts), 0);
	assert_memory_equal(&desc, &first, sizeof(desc));
}

CASE(table_plan__fanout_is_refused_by_the_tree)
{
	static const uint16_t fanout[] = { 12, 0 };
	struct table_plan_opts opts = { .fanout = fanout };

	assert_refuses(&opts, "12", "");
}

CASE(table_plan__counts_of_things)
{
	desc.n_shards = 0;
	assert_refuses(&defaults, "shards 0", "1024");
	desc.n_shards = 1025;
	assert_refuses(&defaults, "shards 1025", "1024");
	setup(state);
	desc.max_writers = 0;
	assert_refuses(&defaults, "max_writers 0", "");
	setup(state);
	desc.max_clients = 1025;
	assert_refuses(&defaults, "max_clients 1025", "1024");
	setup(state);
	desc.n_columns = 0;
	assert_refuses(&defaults, "columns: 0", "256");
	desc.n_columns = 257;
	assert_refuses(&defaults, "columns: 257", "256");
	setup(state);
	desc.n_views = 9;
	assert_refuses(&defaults, "views: 9", "8");
	setup(state);
	desc.table_id = 256;
	assert_refuses(&defaults, "table id 256", "255");
	setup(state);
	desc.flags = 2;
	assert_refuses(&defaults, "flags 0x2", "");
}

CASE(table_plan__names)
{
	strcpy(desc.name, "a b");
	assert_refuses(&defaults, "table name", "");
	desc.name[0] = 0;
	assert_refuses(&defaults, "table name", "");
	memset(desc.name, 'x', sizeof(desc.name));
	assert_refuses(&defaults, "table name", "63");
	setup(state);
	strcpy(desc.columns[1].name, "a-tion");
	assert_refuses(&defaults, "column 1 name", "");
	strcpy(desc.columns[1].name, "0ction");
	assert_refuses(&defaults, "column 1 name", "");
	strcpy(desc.columns[1].name, "steps");
	assert_refuses(&defaults, "\"steps\"", "");
	memset(desc.columns[1].name, 0, TABLE_NAME_BYTES);
	strcpy(desc.columns[1].name, "reward");
	assert_refuses(&defaults, "\"reward\"", "two columns");
	desc.columns[1].name[60] = 'x';
	assert_refuses(&defaults, "column 1 name", "");
}

CASE(table_plan__next_observation_of_the_same_name)
{
	memset(desc.columns[1].name, 0, TABLE_NAME_BYTES);
	strcpy(desc.columns[1].name, "next_obs");
	assert_refuses(&defaults, "\"next_obs\"", "\"obs\"");
	desc.columns[0].role = ROLE_PLAIN;
	desc.columns[1].role = ROLE_NEXT;
	assert_plans();
}

CASE(table_plan__column_shapes)
{
	desc.columns[0].dtype = 14;
	assert_refuses(&defaults, "\"obs\" dtype 14", "");
	setup(state);
	desc.columns[0].role = 4;
	assert_refuses(&defaults, "\"obs\" role 4", "");
	setup(state);
	desc.columns[0].ndim = 7;
	assert_refuses(&defaults, "\"obs\" ndim 7", "6");
	setup(state);
	desc.columns[0].shape[0] = 0;
	assert_refuses(&defaults, "\"obs\" shape[0]", "");
	setup(state);
	desc.columns[0].shape[1] = 3;
	assert_refuses(&defaults, "\"obs\" shape[1]", "ndim 1");
	setup(state);
	desc.columns[0].bytes = 12;
	assert_refuses(&defaults, "\"obs\" bytes 12", "16");
	setup(state);
	desc.columns[0].ndim = 6;
	for (uint32_t d = 0; d < 6; d++)
		desc.columns[0].shape[d] = UINT32_MAX;
	assert_refuses(&defaults, "\"obs\" shape", "");
	setup(state);
	desc.columns[2].dtype = DTYPE_I32;
	assert_refuses(&defaults, "\"reward\"", "scalar");
	setup(state);
	desc.columns[2].dtype = DTYPE_BF16;
	desc.columns[2].bytes = 2;
	assert_refuses(&defaults, "\"reward\"", "scalar");
}

CASE(table_plan__views)
{
	desc.views[0].selector = 4;
	assert_refuses(&defaults, "view 0 selector 4", "");
	setup(state);
	desc.views[0].alpha = (double)NAN;
	assert_refuses(&defaults, "view 0 alpha", "");
	desc.views[0].alpha = -1;
	assert_refuses(&defaults, "view 0 alpha -1", "");
	setup(state);
	desc.views[0].eps = (double)INFINITY;
	assert_refuses(&defaults, "view 0 eps", "");
	setup(state);
	desc.views[0].scale = 1ull << 41;
	assert_refuses(&defaults, "view 0 scale", "");
	setup(state);
	desc.views[0].limit.min_size = (1 << 20) + 1;
	assert_refuses(&defaults, "view 0: limiter min_size 1048577", "capacity 1048576");
}

/* -------- descriptors from elsewhere -------- */

CASE(table_desc_check__a_changed_byte_is_seen)
{
	uint8_t *bytes = (uint8_t *)&desc;

	assert_plans();
	for (size_t i = 0; i < sizeof(desc); i++) {
		bytes[i] ^= 1;
		assert_int_not_equal(table_desc_check(&desc), 0);
		bytes[i] ^= 1;
	}
}

/* Numbers that a liar could send with a right crc. */
static void assert_lie(const char *what, int code)
{
	table_desc_seal(&desc, desc.shard);
	if (table_desc_check(&desc) != code)
		fail_msg("%s: not %d", what, code);
	setup(NULL);
	assert_plans();
}

CASE(table_desc_check__lies_with_a_right_crc)
{
	assert_plans();
	desc.slots += desc.block;
	assert_lie("slots", -EPROTO);
	desc.tree.leaves += 8;
	assert_lie("leaves", -EPROTO);
	desc.block = 0;
	assert_lie("block 0", -EPROTO);
	desc.blocks = 0;
	assert_lie("blocks 0", -EPROTO);
	desc.row_bytes = 8;
	assert_lie("row bytes", -EPROTO);
	desc.columns[1].offset = 1 << 30;
	assert_lie("column offset", -EPROTO);
	desc.views[0].leaves_off = 0;
	assert_lie("leaves_off", -EPROTO);
	desc.views[0].counts_off = 64;
	assert_lie("counts_off", -EPROTO);
	desc.views[0].window = 200;
	assert_lie("window", -EPROTO);
	desc.views[0].max_prio = UINT64_MAX;
	assert_lie("max_prio", -EPROTO);
	desc.tree.fanout[0] = 0;
	assert_lie("fanout", -EPROTO);
	desc.reserved1[3] = 1;
	assert_lie("reserved", -EPROTO);
	desc.shard = TABLE_MAX_SHARDS;
	assert_lie("shard", -EPROTO);
	desc.tree_bytes = 1;
	assert_lie("tree_bytes", -EPROTO);
	desc.magic++;
	assert_lie("magic", -EPROTO);
}

CASE(table_desc_check__halved_blocks_are_under_two_windows)
{
	struct table_plan_opts opts = { .block = 16, .fanout = eights };

	desc.capacity = 4096;
	desc.views[0].stack = 4;
	assert_int_equal(table_plan(&desc, &opts), 0);
	desc.block /= 2;
	desc.blocks *= 2;
	desc.tree_bytes += (desc.blocks * 8 + 63) / 64 * 64 - (desc.blocks * 4 + 63) / 64 * 64;
	table_desc_seal(&desc, 0);
	assert_int_equal(table_desc_check(&desc), -EPROTO);
	assert_non_null(strstr(error_last(), "shorter than two windows"));
}

CASE(table_desc_same__ignores_only_identity)
{
	struct table_desc other;

	assert_plans();
	other = desc;
	other.table_id = 7;
	other.uuid[3] = 9;
	table_desc_seal(&other, 0);
	assert_true(table_desc_same(&desc, &other));
	other.views[0].alpha = 0.7;
	assert_false(table_desc_same(&desc, &other));
	other = desc;
	other.columns[1].name[0] = 'b';
	assert_false(table_desc_same(&desc, &other));
}

int main(void)
{
	return test_run(NULL, NULL);
}
