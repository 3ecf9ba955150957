#include "base/crc32c.h"

#include <string.h>

#include "base/bits.h"
#include "base/os/cpu.h"
#include "base/rng.h"
#include "tests/support/test.h"

static int lift_limit(void **state)
{
	(void)state;
	cpu_level_limit(CPU_AVX512);
	return 0;
}

/* Reference: one bit at a time, by the definition. */
static uint32_t crc32c_by_bits(uint32_t crc, const unsigned char *ptr, size_t len)
{
	crc = ~crc;
	for (size_t i = 0; i < len; i++) {
		crc ^= ptr[i];
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? UINT32_C(0x82F63B78) : 0);
	}
	return ~crc;
}

/* RFC 3720, appendix B.4; its words are in network byte order. */
static void check_rfc3720(void)
{
	static const unsigned char scsi_read[48] = {
		0x01, 0xc0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,    0, 0, 0, 0,
		0x14, 0,    0, 0, 0, 0, 4, 0, 0, 0, 0, 0x14, 0, 0, 0, 0x18,
		0x28, 0,    0, 0, 0, 0, 0, 0, 2, 0, 0, 0,    0, 0, 0, 0,
	};
	unsigned char bytes[32];

	memset(bytes, 0, sizeof(bytes));
	assert_int_equal(crc32c(0, bytes, sizeof(bytes)), 0x8A9136AA);
	memset(bytes, 0xff, sizeof(bytes));
	assert_int_equal(crc32c(0, bytes, sizeof(bytes)), 0x62A8AB43);
	for (unsigned i = 0; i < sizeof(bytes); i++)
		bytes[i] = (unsigned char)i;
	assert_int_equal(crc32c(0, bytes, sizeof(bytes)), 0x46DD794E);
	for (unsigned i = 0; i < sizeof(bytes); i++)
		bytes[i] = (unsigned char)(31 - i);
	assert_int_equal(crc32c(0, bytes, sizeof(bytes)), 0x113FDB5C);
	assert_int_equal(crc32c(0, scsi_read, sizeof(scsi_read)), 0xD9963A56);
	assert_int_equal(crc32c(0, "123456789", 9), 0xE3069283);
}

TEST(crc32c__known_values_by_instruction)
{
	if (!cpu_has_crc32())
		skip();
	check_rfc3720();
}

TEST_WITH(crc32c__known_values_by_table, NULL, lift_limit)
{
	cpu_level_limit(CPU_PLAIN);
	check_rfc3720();
}

TEST_WITH(crc32c__empty_is_the_start, NULL, lift_limit)
{
	assert_int_equal(crc32c(0, "", 0), 0);
	assert_int_equal(crc32c(0x1234, "", 0), 0x1234);
	cpu_level_limit(CPU_PLAIN);
	assert_int_equal(crc32c(0x1234, "", 0), 0x1234);
}

enum { BYTES = 20000 };

static void fill_bytes(unsigned char *bytes, uint64_t seed)
{
	struct rng rng;

	rng_seed(&rng, seed, 0);
	for (size_t i = 0; i < BYTES; i++)
		bytes[i] = (unsigned char)rng_next_u64(&rng);
}

/* Lengths around every boundary of the lanes, at every alignment, from any checksum. */
TEST_WITH(crc32c__variants_agree_with_the_definition, NULL, lift_limit)
{
	static const size_t around[] = { 0, 8, 64, 384, 768, 1152, 3072, 3456, 6144, 9600 };
	static unsigned char bytes[BYTES];
	uint32_t start = 0xdeadbeef;

	fill_bytes(bytes, test_seed(__func__, 21));
	for (size_t i = 0; i < ARRAY_LEN(around); i++)
		for (size_t k = 0; k < 32; k++) {
			size_t len = around[i] + k, align = k % 9;
			uint32_t expected = crc32c_by_bits(start, bytes + align, len);

			cpu_level_limit(CPU_PLAIN);
			assert_int_equal(crc32c(start, bytes + align, len), expected);
			cpu_level_limit(CPU_AVX512);
			assert_int_equal(crc32c(start, bytes + align, len), expected);
			start = expected;
		}
}

/* Runs of any length, empty ones included. */
TEST_WITH(crc32c_runs__are_one_buffer, NULL, lift_limit)
{
	static unsigned char bytes[BYTES];

	fill_bytes(bytes, test_seed(__func__, 27));
	for (size_t a = 0; a < 20; a++)
		for (size_t b = 0; b < 600; b += 1 + b / 4) {
			const struct crc32c_run runs[] = { { bytes, a },
							   { bytes + a, b },
							   { bytes + a + b, 13 } };
			uint32_t expected = crc32c_by_bits(0, bytes, a + b + 13);

			cpu_level_limit(CPU_PLAIN);
			assert_int_equal(crc32c_runs(runs, ARRAY_LEN(runs)), expected);
			cpu_level_limit(CPU_AVX512);
			assert_int_equal(crc32c_runs(runs, ARRAY_LEN(runs)), expected);
		}
	assert_int_equal(crc32c_runs(NULL, 0), 0);
}

/* Pieces of any length and place, past the cache where they are long enough. */
TEST_WITH(crc32c_copy_past__is_the_same_copy, NULL, lift_limit)
{
	static const size_t lens[] = { 0, 1, 63, 4095, 4096, 4097, 4160, 5000, 8192 + 63 };
	static unsigned char bytes[BYTES], to[9000], copy[9000];

	fill_bytes(bytes, test_seed(__func__, 25));
	for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++)
		for (size_t align = 0; align < 130; align += 13)
			for (int level = CPU_PLAIN; level <= CPU_AVX512; level++) {
				cpu_level_limit((enum cpu_level)level);
				memset(to, 0xa5, sizeof(to));
				memset(copy, 0xa5, sizeof(copy));
				memcpy(copy + align, bytes + i, lens[i]);
				assert_int_equal(
					crc32c_copy_past(9, to + align, bytes + i, lens[i]),
					crc32c(9, bytes + i, lens[i]));
				assert_memory_equal(to, copy, sizeof(to));
			}
}

/* Beyond 1 MiB copies go past the cache, if dst is aligned. */
TEST_WITH(crc32c_copy__of_much, NULL, lift_limit)
{
	static _Alignas(64) unsigned char bytes[(1 << 20) + 200], to[(1 << 20) + 300];

	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (unsigned char)(i * 2654435761u >> 13);
	for (size_t align = 0; align <= 64; align += 32) {
		memset(to, 0xa5, sizeof(to));
		assert_int_equal(crc32c_copy(7, to + align, bytes, sizeof(bytes)),
				 crc32c(7, bytes, sizeof(bytes)));
		assert_memory_equal(to + align, bytes, sizeof(bytes));
		assert_int_equal(to[align + sizeof(bytes)], 0xa5);
	}
}

/* Both variants copy all bytes and no more, and give the checksum of what they copied. */
TEST_WITH(crc32c_copy__copies_and_agrees_with_the_definition, NULL, lift_limit)
{
	static unsigned char bytes[BYTES], to[BYTES], copy[BYTES];
	uint32_t start = 0x12345678;

	fill_bytes(bytes, test_seed(__func__, 23));
	for (size_t len = 0; len < 1500; len += len < 700 ? 1 : 7) {
		size_t align = len % 65;
		uint32_t expected = crc32c_by_bits(start, bytes + align, len);

		for (int level = CPU_PLAIN; level <= CPU_AVX512; level++) {
			cpu_level_limit((enum cpu_level)level);
			memset(to, 0xa5, sizeof(to));
			memset(copy, 0xa5, sizeof(copy));
			memcpy(copy + 3, bytes + align, len);
			assert_int_equal(crc32c_copy(start, to + 3, bytes + align, len), expected);
			assert_memory_equal(to, copy, 2048);
		}
		start = expected;
	}
}

TEST(crc32c__continues_at_any_split)
{
	static unsigned char bytes[BYTES];
	uint32_t whole;

	fill_bytes(bytes, test_seed(__func__, 22));
	whole = crc32c(0, bytes, 5000);
	for (size_t split = 0; split <= 5000; split += 37)
		assert_int_equal(crc32c(crc32c(0, bytes, split), bytes + split, 5000 - split),
				 whole);
}

TEST(crc32c__sees_every_flipped_bit)
{
	unsigned char bytes[512];
	uint32_t good;

	memset(bytes, 0x5a, sizeof(bytes));
	good = crc32c(0, bytes, sizeof(bytes));
	for (size_t bit = 0; bit < 8 * sizeof(bytes); bit++) {
		bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
		assert_int_not_equal(crc32c(0, bytes, sizeof(bytes)), good);
		bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
	}
}

int main(void)
{
	return test_run(NULL, NULL);
}
