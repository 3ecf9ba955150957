#include "base/rng.h"

#include <string.h>

#include "base/bits.h"
#include "base/os/cpu.h"
#include "tests/support/test.h"

static int lift_limit(void **state)
{
	(void)state;
	cpu_level_limit(CPU_AVX512);
	return 0;
}

/* The vectors published with the paper's own implementation. */
TEST(rng_philox__gives_the_known_answers)
{
	static const struct {
		uint32_t counter[4], key[2], out[4];
	} known[] = {
		{ { 0, 0, 0, 0 }, { 0, 0 }, { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 } },
		{ { 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff },
		  { 0xffffffff, 0xffffffff },
		  { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd } },
		{ { 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344 },
		  { 0xa4093822, 0x299f31d0 },
		  { 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 } },
	};

	for (size_t i = 0; i < ARRAY_LEN(known); i++) {
		uint32_t out[4];

		rng_philox(known[i].counter, known[i].key, out);
		assert_memory_equal(out, known[i].out, sizeof(out));
	}
}

/* Golden: a seed gives the same numbers in every release. */
TEST(rng_next_u64__stream_is_philox_in_order)
{
	struct rng rng;
	uint32_t counter[4] = { 0, 0, 0x89abcdef, 0x01234567 };
	const uint32_t key[2] = { 0x76543210, 0xfedcba98 };

	rng_seed(&rng, UINT64_C(0xfedcba9876543210), UINT64_C(0x0123456789abcdef));
	for (counter[0] = 0; counter[0] < 5; counter[0]++) {
		uint32_t out[4];

		rng_philox(counter, key, out);
		assert_true(rng_next_u64(&rng) == (out[0] | (uint64_t)out[1] << 32));
		assert_true(rng_next_u64(&rng) == (out[2] | (uint64_t)out[3] << 32));
	}
}

/* A generator whose next word is word from->pos of its stream. */
static struct rng rng_at(const struct rng_state *from)
{
	struct rng rng = { .state = *from };
	uint64_t odd = from->pos & 1;

	rng.state.pos -= odd;
	if (odd)
		(void)rng_next_u64(&rng);
	return rng;
}

static void check_fill(const struct rng_state *from, size_t n)
{
	uint64_t bulk[200], guard = UINT64_C(0x5a5a5a5a5a5a5a5a);
	struct rng a = rng_at(from), b = rng_at(from);

	assert_true(n + 1 < ARRAY_LEN(bulk));
	bulk[n] = guard;
	rng_fill_u64(&a, bulk, n);
	for (size_t i = 0; i < n; i++)
		assert_true(bulk[i] == rng_next_u64(&b));
	assert_true(bulk[n] == guard);
	assert_memory_equal(&a.state, &b.state, sizeof(a.state));
	assert_true(rng_next_u64(&a) == rng_next_u64(&b));
}

TEST_WITH(rng_fill_u64__equals_single_draws_at_every_level, NULL, lift_limit)
{
	struct rng_state from = { .seed = UINT64_C(0x9e3779b97f4a7c15), .stream = 7 };

	for (int level = CPU_PLAIN; level <= CPU_AVX512; level++) {
		cpu_level_limit((enum cpu_level)level);
		for (size_t n = 0; n < 150; n++)
			for (from.pos = 0; from.pos < 4; from.pos++)
				check_fill(&from, n);
	}
}

TEST_WITH(rng_fill_u64__carries_into_the_high_counter_word, NULL, lift_limit)
{
	struct rng_state from = {
		.seed = 1,
		.stream = UINT64_MAX,
		.pos = (UINT64_C(1) << 33) - 21,
	};

	for (int level = CPU_PLAIN; level <= CPU_AVX512; level++) {
		cpu_level_limit((enum cpu_level)level);
		check_fill(&from, 120);
	}
}

TEST(rng_seed__seeds_and_streams_differ)
{
	struct rng rng;
	uint64_t first[64];

	for (unsigned i = 0; i < 64; i++) {
		rng_seed(&rng, i / 8, i % 8);
		first[i] = rng_next_u64(&rng);
		for (unsigned j = 0; j < i; j++)
			assert_true(first[i] != first[j]);
	}
}

TEST(rng_uniform_u64__stays_below_the_bound)
{
	static const uint64_t bounds[] = { 1, 2, 3, 7, 1000, UINT64_C(1) << 40, UINT64_MAX };
	struct rng rng;

	rng_seed(&rng, test_seed(__func__, 5), 0);
	assert_int_equal(rng_uniform_u64(&rng, 0), 0);
	for (size_t i = 0; i < ARRAY_LEN(bounds); i++)
		for (int j = 0; j < 1000; j++)
			assert_true(rng_uniform_u64(&rng, bounds[i]) < bounds[i]);
}

TEST(rng_uniform_u64__passes_chi_square)
{
	enum { BOUND = 97, DRAWS = 200000 };
	uint64_t seen[BOUND] = { 0 };
	double expected[BOUND];
	struct rng rng;

	rng_seed(&rng, test_seed(__func__, 42), 0);
	for (int i = 0; i < DRAWS; i++)
		seen[rng_uniform_u64(&rng, BOUND)]++;
	for (int i = 0; i < BOUND; i++)
		expected[i] = (double)DRAWS / BOUND;
	assert_true(test_chi_square_z(seen, expected, BOUND) < 5);
	assert_true(test_chi_square_z(seen, expected, BOUND) > -5); /* nor too even */
}

/* Neighbouring streams and both words of a block are independent: 8 x 8 cells of pairs. */
TEST(rng_next_u64__pairs_pass_chi_square)
{
	enum { CELLS = 64, DRAWS = 200000 };
	uint64_t words[CELLS] = { 0 }, streams[CELLS] = { 0 };
	double expected[CELLS];
	struct rng a, b;

	rng_seed(&a, test_seed(__func__, 43), 0);
	rng_seed(&b, a.state.seed, 1);
	for (int i = 0; i < DRAWS; i++) {
		uint64_t x = rng_next_u64(&a), y = rng_next_u64(&b);

		streams[(x >> 61) * 8 + (y >> 61)]++;
		words[(x & 7) * 8 + (rng_next_u64(&a) & 7)]++;
		(void)rng_next_u64(&b);
	}
	for (int i = 0; i < CELLS; i++)
		expected[i] = (double)DRAWS / CELLS;
	assert_true(test_chi_square_z(words, expected, CELLS) < 5);
	assert_true(test_chi_square_z(streams, expected, CELLS) < 5);
}

TEST(rng_next_u64__every_bit_is_balanced)
{
	enum { DRAWS = 100000 };
	int64_t ones[64] = { 0 };
	struct rng rng;

	rng_seed(&rng, test_seed(__func__, 44), 0);
	for (int i = 0; i < DRAWS; i++) {
		uint64_t word = rng_next_u64(&rng);

		for (int bit = 0; bit < 64; bit++)
			ones[bit] += (int64_t)(word >> bit & 1);
	}
	for (int bit = 0; bit < 64; bit++) /* sigma is 158 */
		assert_true(llabs(ones[bit] - DRAWS / 2) < 800);
}

TEST(rng_uniform_double__is_in_the_unit_interval)
{
	struct rng rng;
	double sum = 0;

	rng_seed(&rng, test_seed(__func__, 45), 0);
	for (int i = 0; i < 100000; i++) {
		double x = rng_uniform_double(&rng);

		assert_true(x >= 0 && x < 1);
		sum += x;
	}
	assert_true(fabs(sum / 100000 - 0.5) < 0.005); /* sigma is .0009 */
}

TEST_WITH(cpu_level_limit__caps_the_level, NULL, lift_limit)
{
	enum cpu_level best = cpu_level();

	cpu_level_limit(CPU_PLAIN);
	assert_int_equal(cpu_level(), CPU_PLAIN);
	assert_false(cpu_has_crc32());
	assert_string_equal(cpu_level_name(cpu_level()), "plain");
	cpu_level_limit(CPU_AVX2);
	assert_true(cpu_level() <= CPU_AVX2);
	cpu_level_limit(CPU_AVX512);
	assert_int_equal(cpu_level(), best);
	print_message("cpu level: %s\n", cpu_level_name(best));
}

int main(void)
{
	return test_run(NULL, NULL);
}
