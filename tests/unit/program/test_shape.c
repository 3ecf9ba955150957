#include "program/shape.h"

#include <errno.h>
#include <string.h>

#include "base/bits.h"
#include "tests/support/test.h"

TEST(shape_parse__columns_types_and_roles)
{
	struct shape shape;

	assert_int_equal(
		shape_parse("obs:u8[84x84],action:i32,reward:f32,next_obs:f32[3,2],done:bool",
			    &shape),
		0);
	assert_int_equal(shape.n_columns, 5);
	assert_string_equal(shape.columns[0].name, "obs");
	assert_int_equal(shape.columns[0].dtype, RLV_U8);
	assert_int_equal(shape.columns[0].role, RLV_OBS);
	assert_int_equal(shape.columns[0].ndim, 2);
	assert_int_equal(shape.columns[0].shape[1], 84);
	assert_int_equal(shape.bytes[0], 7056);
	assert_int_equal(shape.columns[1].role, RLV_PLAIN);
	assert_int_equal(shape.columns[2].role, RLV_REWARD);
	assert_int_equal(shape.columns[3].role, RLV_NEXT);
	assert_int_equal(shape.columns[3].shape[0], 3);
	assert_int_equal(shape.bytes[3], 24);
	assert_int_equal(shape.columns[4].dtype, RLV_BOOL);
	assert_int_equal(shape.row_bytes, 7056 + 4 + 4 + 24 + 1);
}

TEST(shape_parse__reward_that_cannot_be_summed_is_plain)
{
	struct shape shape;

	assert_int_equal(shape_parse("reward:i32,a:f32", &shape), 0);
	assert_int_equal(shape.columns[0].role, RLV_PLAIN);
	assert_int_equal(shape_parse("reward:f32[2]", &shape), 0);
	assert_int_equal(shape.columns[0].role, RLV_PLAIN);
}

TEST(shape_parse__ready_shapes)
{
	struct shape shape;

	assert_int_equal(shape_parse("cartpole", &shape), 0);
	assert_int_equal(shape.row_bytes, 29);
	assert_int_equal(shape_parse("atari", &shape), 0);
	assert_int_equal(shape.row_bytes, 7065);
	assert_int_equal(shape_parse("cartpole-next", &shape), 0);
	assert_int_equal(shape.columns[3].role, RLV_NEXT);
}

TEST(shape_parse__bad_text_is_einval_and_named)
{
	static const struct {
		const char *text;
		const char *word;
	} bad[] = {
		{ "", "cartpole" },
		{ "nothing", "cartpole" },
		{ "a:f31", "f31" },
		{ "a:f32[", "bad shape" },
		{ "a:f32[4", "without ]" },
		{ "a:f32[0]", "bad shape" },
		{ "a:f32[4]x", "after" },
		{ "a:f32,a:f32", "twice" },
		{ "a-b:f32", "'a-b'" },
		{ "a:f32,,b:u8", "a column" },
		{ "a:f32,", "a column" },
		{ ":f32", "a column" },
		{ "a:u8[999999999,999999999]", "does not fit" },
		{ "a:u8[1,1,1,1,1,1,1]", "bad shape" },
		{ "obs:f32[-1]", "bad shape" },
	};

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct shape shape;

		assert_int_equal(shape_parse(bad[i].text, &shape), -EINVAL);
		if (!strstr(error_last(), bad[i].word))
			fail_msg("'%s': message '%s' lacks '%s'", bad[i].text, error_last(),
				 bad[i].word);
	}
}

TEST(shape_parse__too_many_columns_is_einval)
{
	struct shape shape;
	char text[16 * (RLV_MAX_COLUMNS + 1)] = "";

	for (int i = 0; i < RLV_MAX_COLUMNS; i++)
		snprintf(text + strlen(text), sizeof(text) - strlen(text), "%sc%d:u8", i ? "," : "",
			 i);
	assert_int_equal(shape_parse(text, &shape), 0);
	snprintf(text + strlen(text), sizeof(text) - strlen(text), ",more:u8");
	assert_int_equal(shape_parse(text, &shape), -EINVAL);
}

TEST(shape_type_text__reads_as_it_is_written)
{
	char text[SHAPE_TYPE_BYTES];
	struct shape shape;

	assert_int_equal(shape_parse("a:f16[3,84,84],b:i64", &shape), 0);
	assert_string_equal(shape_type_text(&shape.columns[0], text), "f16[3,84,84]");
	assert_string_equal(shape_type_text(&shape.columns[1], text), "i64");
}

int main(void)
{
	return test_run(NULL, NULL);
}
