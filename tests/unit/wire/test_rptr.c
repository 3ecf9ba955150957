/*
 * Remote pointers: every field comes back, none reaches into another.
 */
#include "tests/support/test.h"

#include "wire/rptr.h"

TEST(rptr_make__gives_every_field_back)
{
	static const uint64_t offsets[] = { 0, 64, 4096, RPTR_MAX_OFFSET - 64 };
	static const uint32_t regions[] = { 1, 2, 2048, RPTR_MAX_REGION };
	static const uint16_t gens[] = { 0, 1, 0x8000, UINT16_MAX };

	for (int r = 0; r < 4; r++) {
		for (int o = 0; o < 4; o++) {
			for (int g = 0; g < 4; g++) {
				for (uint8_t f = 0; f < 16; f++) {
					struct rptr p =
						rptr_make(regions[r], offsets[o], gens[g], f);

					assert_int_equal(rptr_region(p), regions[r]);
					assert_int_equal(rptr_offset(p), offsets[o]);
					assert_int_equal(rptr_gen(p), gens[g]);
					assert_int_equal(rptr_flags(p), f);
					assert_false(rptr_is_null(p));
				}
			}
		}
	}
}

TEST(rptr_make__packs_as_documented)
{
	assert_true(rptr_make(1, 0, 0, 0).raw == (uint64_t)1 << 52);
	assert_true(rptr_make(0, 64, 0, 0).raw == 1u << 20);
	assert_true(rptr_make(0, 0, 1, 0).raw == 16);
	assert_true(rptr_make(0, 0, 0, 1).raw == 1);
	assert_true(rptr_make(0xfff, RPTR_MAX_OFFSET - 64, 0xffff, 0xf).raw == UINT64_MAX);
}

TEST(rptr_is_null__of_region_0)
{
	assert_true(rptr_is_null((struct rptr){ 0 }));
	assert_true(rptr_is_null(rptr_make(0, 64, 3, 1)));
}

int main(void)
{
	return test_run(NULL, NULL);
}
