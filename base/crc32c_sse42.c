/*
 * crc32c_sse42.c - by the crc32 instruction, which has a latency of three cycles and may start
 * every cycle: long buffers are cut in three lanes that run side by side.
 *
 *   crc(a | b | c) = shift(shift(crc(a)) ^ crc0(b)) ^ crc0(c)
 *
 * where crc0 starts at 0 and shift appends as many zero bytes as a lane has. The shift is linear
 * over bits, so it is four table look-ups, one per byte of the checksum.
 */
#include "base/crc32c_tables.h"

#if defined(__x86_64__)

#include <nmmintrin.h>
#include <pthread.h>
#include <string.h>

#define LONG_LANE 1024
#define SHORT_LANE 128

struct shift {
	uint32_t by_byte[4][256];
};

static struct shift shift_long, shift_short;
static pthread_once_t shifts_once = PTHREAD_ONCE_INIT;

/* The checksum after len zero bytes; len a multiple of 8. */
__attribute__((target("sse4.2"))) static uint32_t append_zeros(uint32_t crc, size_t len)
{
	uint64_t wide = crc;

	for (; len > 0; len -= 8)
		wide = _mm_crc32_u64(wide, 0);
	return (uint32_t)wide;
}

static void make_shift(struct shift *shift, size_t lane)
{
	uint32_t by_bit[32];

	for (int bit = 0; bit < 32; bit++)
		by_bit[bit] = append_zeros(UINT32_C(1) << bit, lane);
	for (int byte = 0; byte < 4; byte++)
		for (unsigned value = 0; value < 256; value++) {
			uint32_t sum = 0;

			for (int bit = 0; bit < 8; bit++)
				if (value >> bit & 1)
					sum ^= by_bit[8 * byte + bit];
			shift->by_byte[byte][value] = sum;
		}
}

static void make_shifts(void)
{
	make_shift(&shift_long, LONG_LANE);
	make_shift(&shift_short, SHORT_LANE);
}

static inline uint32_t apply_shift(const struct shift *shift, uint32_t crc)
{
	return shift->by_byte[0][crc & 0xff] ^ shift->by_byte[1][crc >> 8 & 0xff] ^
	       shift->by_byte[2][crc >> 16 & 0xff] ^ shift->by_byte[3][crc >> 24];
}

static inline uint64_t load_u64(const unsigned char *ptr)
{
	uint64_t word;

	memcpy(&word, ptr, sizeof(word));
	return word;
}

static inline uint32_t load_u32(const unsigned char *ptr)
{
	uint32_t word;

	memcpy(&word, ptr, sizeof(word));
	return word;
}

/* Three lanes of lane bytes each, from ptr on. */
__attribute__((target("sse4.2"))) static inline uint32_t
three_lanes(uint32_t crc, const unsigned char *ptr, size_t lane, const struct shift *shift)
{
	uint64_t a = crc, b = 0, c = 0;

	for (size_t i = 0; i < lane; i += 8) {
		a = _mm_crc32_u64(a, load_u64(ptr + i));
		b = _mm_crc32_u64(b, load_u64(ptr + lane + i));
		c = _mm_crc32_u64(c, load_u64(ptr + 2 * lane + i));
	}
	return apply_shift(shift, apply_shift(shift, (uint32_t)a) ^ (uint32_t)b) ^ (uint32_t)c;
}

/* The bytes behind the lanes. */
__attribute__((target("sse4.2"))) static inline uint32_t
one_lane(uint32_t crc, const unsigned char *ptr, size_t len)
{
	uint64_t wide = crc;

	for (; len >= 8; ptr += 8, len -= 8)
		wide = _mm_crc32_u64(wide, load_u64(ptr));
	crc = (uint32_t)wide;
	if (len & 4) {
		crc = _mm_crc32_u32(crc, load_u32(ptr));
		ptr += 4;
	}
	for (len &= 3; len > 0; ptr++, len--)
		crc = _mm_crc32_u8(crc, *ptr);
	return crc;
}

__attribute__((target("sse4.2"))) uint32_t crc32c_raw_sse42(uint32_t crc, const unsigned char *ptr,
							    size_t len)
{
	if (len >= (size_t)3 * SHORT_LANE)
		pthread_once(&shifts_once, make_shifts);
	for (; len >= (size_t)3 * LONG_LANE; ptr += 3 * LONG_LANE, len -= (size_t)3 * LONG_LANE)
		crc = three_lanes(crc, ptr, LONG_LANE, &shift_long);
	for (; len >= (size_t)3 * SHORT_LANE; ptr += 3 * SHORT_LANE, len -= (size_t)3 * SHORT_LANE)
		crc = three_lanes(crc, ptr, SHORT_LANE, &shift_short);
	return one_lane(crc, ptr, len);
}

__attribute__((target("sse4.2"))) uint32_t
crc32c_raw_runs_sse42(uint32_t crc, const struct crc32c_run *runs, size_t n)
{
	for (size_t i = 0; i < n; i++)
		crc = one_lane(crc, runs[i].ptr, runs[i].len);
	return crc;
}

#endif
