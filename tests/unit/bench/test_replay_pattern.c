#include "bench/replay/pattern.h"

#include <math.h>
#include <string.h>

#include "base/mem/alloc.h"
#include "base/bits.h"
#include "tests/support/test.h"

#define ITEMS 4
#define STACK 3
#define N_STEP 3
#define GAMMA 0.9
#define OBS_BYTES 24

/* A batch as a sampler would gather it, from rows made here. */
struct fake {
	struct shape shape;
	struct pattern_view view;
	uint8_t obs[ITEMS][STACK][OBS_BYTES], next_obs[ITEMS][STACK][OBS_BYTES];
	uint8_t action[ITEMS][4];
	float reward[ITEMS];
	uint64_t seq[ITEMS];
	uint32_t steps[ITEMS];
	struct rlv_array arrays[6];
	struct rlv_batch batch;
	uint64_t classes[PATTERN_CLASSES];
	char why[PATTERN_WHY_BYTES];
};

static void read_row(const struct fake *f, uint64_t number, uint8_t *obs, uint8_t *action,
		     float *reward)
{
	uint8_t cell[4][OBS_BYTES];
	uint8_t *const out[] = { cell[0], cell[1], cell[2], cell[3] };

	pattern_fill(&f->shape, number, 1, out);
	memcpy(obs, cell[0], OBS_BYTES);
	memcpy(action, cell[1], 4);
	memcpy(reward, cell[2], 4);
}

static uint32_t episode_step(uint64_t number)
{
	return (uint32_t)((number - pattern_first(3)) % (PATTERN_EPISODE + 1));
}

static uint32_t steps_of(uint64_t number)
{
	uint32_t left = PATTERN_EPISODE - episode_step(number);

	return left < N_STEP ? left : N_STEP;
}

static void gather_stack(const struct fake *f, uint64_t number, uint8_t out[STACK][OBS_BYTES])
{
	uint64_t step = episode_step(number);
	uint8_t action[4];
	float reward;

	for (uint32_t s = 0; s < STACK; s++)
		read_row(f, number - min_u64(STACK - 1 - s, step), out[s], action, &reward);
}

static void gather_item(struct fake *f, uint32_t i, uint64_t number)
{
	uint8_t obs[OBS_BYTES], action[4];
	double sum = 0, power = 1;
	float reward;

	f->seq[i] = number;
	f->steps[i] = steps_of(number);
	for (uint32_t k = 0; k < f->steps[i]; k++) {
		read_row(f, number + k, obs, action, &reward);
		sum += power * (double)reward;
		power *= GAMMA;
	}
	f->reward[i] = (float)sum;
	read_row(f, number, obs, f->action[i], &reward);
	gather_stack(f, number, f->obs[i]);
	gather_stack(f, number + f->steps[i], f->next_obs[i]);
}

static void set_array(struct rlv_array *array, const char *name, void *data, int64_t stride)
{
	array->name = name;
	array->data = data;
	array->strides[0] = stride;
}

static int open_fake(void **state)
{
	static const uint64_t numbers[ITEMS] = { 0, 1, 100, 197 };
	struct fake *f = mem_zalloc(sizeof(*f));

	assert_non_null(f);
	assert_int_equal(shape_parse("obs:u8[24],action:i32,reward:f32", &f->shape), 0);
	assert_int_equal(pattern_shape(&f->shape), 0);
	f->view = (struct pattern_view){ &f->shape, STACK, N_STEP, GAMMA };
	set_array(&f->arrays[0], "obs", f->obs, sizeof(f->obs[0]));
	set_array(&f->arrays[1], "next_obs", f->next_obs, sizeof(f->next_obs[0]));
	set_array(&f->arrays[2], "action", f->action, 4);
	set_array(&f->arrays[3], "reward", f->reward, 4);
	set_array(&f->arrays[4], "seq", f->seq, 8);
	set_array(&f->arrays[5], "steps", f->steps, 4);
	f->batch.n = ITEMS;
	f->batch.n_arrays = 6;
	f->batch.arrays = f->arrays;
	for (uint32_t i = 0; i < ITEMS; i++)
		gather_item(f, i, pattern_first(3) + numbers[i]);
	*state = f;
	return 0;
}

static int close_fake(void **state)
{
	mem_free(*state);
	return 0;
}

static uint32_t check(struct fake *f)
{
	return pattern_check(&f->view, &f->batch, f->classes, f->why);
}

#define ON_FAKE(test) TEST_WITH(test, open_fake, close_fake)

ON_FAKE(pattern_check__right_batch_passes)
{
	struct fake *f = *state;

	assert_int_equal(check(f), 0);
	for (uint32_t i = 0; i < ITEMS; i++)
		assert_true(f->classes[pattern_class(f->seq[i])] > 0);
}

ON_FAKE(pattern_check__any_byte_counts)
{
	struct fake *f = *state;

	for (uint32_t byte = 0; byte < STACK * OBS_BYTES; byte++) {
		uint8_t *at = &f->obs[2][0][0] + byte;

		*at ^= 1;
		assert_int_equal(check(f), 1);
		assert_non_null(strstr(f->why, "wrong obs"));
		*at ^= 1;
	}
	f->next_obs[2][2][23] ^= 0x80;
	assert_int_equal(check(f), 1);
	assert_non_null(strstr(f->why, "wrong next_obs"));
}

ON_FAKE(pattern_check__row_of_another_item_is_seen)
{
	struct fake *f = *state;

	memcpy(f->action[1], f->action[2], 4);
	assert_int_equal(check(f), 1);
	assert_non_null(strstr(f->why, "wrong action"));
	f->reward[2] += 1;
	assert_int_equal(check(f), 2);
}

ON_FAKE(pattern_check__return_of_wrong_length_is_seen)
{
	struct fake *f = *state;

	f->steps[3]++;
	assert_int_equal(check(f), 1);
	assert_non_null(strstr(f->why, "wrong steps"));
}

ON_FAKE(pattern_check__final_observation_is_no_item)
{
	struct fake *f = *state;

	f->seq[0] = pattern_first(3) + PATTERN_EPISODE;
	assert_int_equal(check(f), 1);
	assert_non_null(strstr(f->why, "final"));
}

TEST(pattern_flags__episodes_end_and_begin)
{
	assert_int_equal(pattern_flags(pattern_first(1)), 0);
	assert_int_equal(pattern_flags(pattern_first(1) + PATTERN_EPISODE - 1), RLV_TERMINATED);
	assert_int_equal(pattern_flags(pattern_first(1) + PATTERN_EPISODE), RLV_FINAL);
	assert_int_equal(pattern_flags(pattern_first(1) + PATTERN_EPISODE + 1), 0);
}

/* Else the expected shares would not be the weights alone. */
TEST(pattern_class__is_balanced_over_items)
{
	uint32_t n[PATTERN_CLASSES] = { 0 };

	for (uint64_t i = 0; i < PATTERN_CLASSES * (PATTERN_EPISODE + 1); i++) {
		if (!(pattern_flags(i) & RLV_FINAL))
			n[pattern_class(i)]++;
	}
	for (uint32_t c = 0; c < PATTERN_CLASSES; c++)
		assert_int_equal(n[c], PATTERN_EPISODE);
}

ON_FAKE(pattern_update__follows_from_the_items)
{
	struct fake *f = *state;
	float td[ITEMS];

	pattern_update(&f->batch, td);
	for (uint32_t i = 0; i < ITEMS; i++)
		assert_true((double)td[i] == pattern_td(f->seq[i]));
}

int main(void)
{
	return test_run(NULL, NULL);
}
