#include "bench/replay/data.h"

#include <errno.h>
#include <string.h>

#include "tests/support/test.h"

#define SMALL_TRACE RLV_TEST_SOURCE_DIR "/tests/data/cartpole-small.rlvt"

TEST(replay_data_open__trace_keeps_rows_and_flags)
{
	struct replay_data data;
	uint64_t finals = 0;

	assert_int_equal(replay_data_open(SMALL_TRACE, NULL, 1, &data), 0);
	assert_int_equal(data.rows, 62);
	assert_int_equal(data.n_starts, 2);
	assert_int_equal(data.starts[0], 0);
	assert_string_equal(data.shape.columns[0].name, "obs");
	assert_int_equal(data.shape.columns[0].role, RLV_OBS);
	for (uint64_t i = 0; i < data.rows; i++) {
		finals += (data.flags[i] & RLV_FINAL) != 0;
		assert_int_equal(data.flags[i] & ~(RLV_TERMINATED | RLV_TRUNCATED | RLV_FINAL), 0);
		assert_true(data.td_error[i] >= 0);
	}
	assert_int_equal(finals, 2);
	assert_int_equal(data.flags[data.rows - 1], RLV_FINAL);
	replay_data_close(&data);
}

TEST(replay_data_open__made_up_rows_depend_on_the_seed_alone)
{
	struct replay_data a, b, c;
	size_t bytes;

	assert_int_equal(replay_data_open(NULL, "cartpole", 5, &a), 0);
	assert_int_equal(replay_data_open(NULL, "cartpole", 5, &b), 0);
	assert_int_equal(replay_data_open(NULL, "cartpole", 6, &c), 0);
	bytes = a.rows * a.shape.bytes[0];
	assert_memory_equal(a.column[0], b.column[0], bytes);
	assert_memory_not_equal(a.column[0], c.column[0], bytes);
	assert_memory_equal(a.td_error, b.td_error, a.rows * sizeof(double));
	replay_data_close(&a);
	replay_data_close(&b);
	replay_data_close(&c);
}

TEST(replay_data_open__missing_trace_is_enoent)
{
	struct replay_data data;

	assert_int_equal(replay_data_open("/nonexistent.rlvt", NULL, 1, &data), -ENOENT);
	assert_int_equal(replay_data_open(NULL, "nonsense", 1, &data), -EINVAL);
}

TEST(replay_data_vector__each_environment_follows_the_rows)
{
	struct replay_data data, vector;
	const uint32_t envs = 4;

	assert_int_equal(replay_data_open(NULL, "cartpole", 5, &data), 0);
	assert_int_equal(replay_data_vector(&data, envs, &vector), 0);
	assert_int_equal(vector.rows % envs, 0);
	for (uint32_t e = 0; e < envs; e++) {
		uint64_t start = data.starts[e * data.n_starts / envs];
		uint64_t last = vector.rows - envs + e;

		for (uint64_t t = 0; t < 300; t++) {
			uint64_t from = (start + t) % data.rows, to = t * envs + e;

			assert_memory_equal(vector.column[0] + to * 16, data.column[0] + from * 16,
					    16);
			assert_int_equal(vector.flags[to], data.flags[from]);
			assert_true(vector.td_error[to] == data.td_error[from]);
		}
		assert_true(vector.flags[last] & (RLV_FINAL | RLV_TRUNCATED));
	}
	replay_data_close(&vector);
	replay_data_close(&data);
}

int main(void)
{
	return test_run(NULL, NULL);
}
