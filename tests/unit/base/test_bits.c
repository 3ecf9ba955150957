#include "base/bits.h"

#include "tests/support/test.h"

TEST(bits_is_pow2__edges)
{
	assert_false(bits_is_pow2(0));
	assert_true(bits_is_pow2(1));
	assert_true(bits_is_pow2(2));
	assert_false(bits_is_pow2(3));
	assert_true(bits_is_pow2(UINT64_C(1) << 63));
	assert_false(bits_is_pow2(UINT64_MAX));
}

TEST(bits_log2__floor_around_powers)
{
	assert_int_equal(bits_log2_floor(1), 0);
	for (unsigned i = 2; i < 64; i++) {
		uint64_t power = UINT64_C(1) << i;

		assert_int_equal(bits_log2_floor(power - 1), i - 1);
		assert_int_equal(bits_log2_floor(power), i);
		assert_int_equal(bits_log2_floor(power + 1), i);
	}
	assert_int_equal(bits_log2_floor(UINT64_MAX), 63);
}

TEST(bits_counts__zero_and_all)
{
	assert_int_equal(bits_ctz(0), 64);
	assert_int_equal(bits_ctz(UINT64_C(1) << 63), 63);
	assert_int_equal(bits_popcount(0), 0);
	assert_int_equal(bits_popcount(UINT64_MAX), 64);
}

TEST(bits_mask__all_widths)
{
	assert_true(bits_mask(0) == 0);
	assert_true(bits_mask(1) == 1);
	assert_true(bits_mask(63) == UINT64_MAX >> 1);
	assert_true(bits_mask(64) == UINT64_MAX);
}

TEST(align_up__already_aligned_stays)
{
	assert_true(align_up(0, 64) == 0);
	assert_true(align_up(1, 64) == 64);
	assert_true(align_up(64, 64) == 64);
	assert_true(align_up(65, 64) == 128);
	assert_true(align_down(63, 64) == 0);
	assert_true(align_down(64, 64) == 64);
	assert_true(is_aligned(128, 64));
	assert_false(is_aligned(130, 64));
}

TEST(div_up__does_not_overflow)
{
	assert_true(div_up(0, 7) == 0);
	assert_true(div_up(7, 7) == 1);
	assert_true(div_up(8, 7) == 2);
	assert_true(div_up(UINT64_MAX, 2) == UINT64_C(1) << 63);
	assert_true(div_up(UINT64_MAX, 1) == UINT64_MAX);
	assert_true(round_up(15, 7) == 21);
	assert_true(round_up(14, 7) == 14);
}

TEST(checked_add__overflow_leaves_out)
{
	uint64_t out = 5;

	assert_false(checked_add_u64(UINT64_MAX, 1, &out));
	assert_true(out == 5);
	assert_true(checked_add_u64(UINT64_MAX, 0, &out));
	assert_true(out == UINT64_MAX);
}

TEST(checked_mul__overflow_leaves_out)
{
	uint64_t out = 5;

	assert_false(checked_mul_u64(UINT64_C(1) << 32, UINT64_C(1) << 32, &out));
	assert_true(out == 5);
	assert_true(checked_mul_u64(UINT64_C(1) << 32, UINT32_MAX, &out));
	assert_true(out == (uint64_t)UINT32_MAX << 32);
}

TEST(checked_align_up__overflow_leaves_out)
{
	uint64_t out = 5;

	assert_false(checked_align_up_u64(UINT64_MAX - 62, 64, &out));
	assert_true(out == 5);
	assert_true(checked_align_up_u64(UINT64_MAX - 63, 64, &out));
	assert_true(out == UINT64_MAX - 63);
}

TEST(min_max__unsigned)
{
	assert_true(min_u64(1, UINT64_MAX) == 1);
	assert_true(max_u64(1, UINT64_MAX) == UINT64_MAX);
}

int main(void)
{
	return test_run(NULL, NULL);
}
