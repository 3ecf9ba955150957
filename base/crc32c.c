/*
 * crc32c.c - the entry, and the table variant: eight bytes a step, one table for each of them
 * (Sarwate's table, sliced by eight). The tables are made by the first caller who needs them.
 */
#include "base/crc32c.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include "base/os/cpu.h"
#include "base/crc32c_tables.h"

#define FOLD_LEAST 256           /* bytes: of less, one at a time is as fast */
#define PIECE ((size_t)16 << 10) /* fits into the L1 cache twice */
#define PAST_LEAST ((size_t)4 << 10)
#define PAST_ALONE ((size_t)1 << 20) /* does not fit into the cache by itself */

static uint32_t tables[8][256];
static pthread_once_t tables_once = PTHREAD_ONCE_INIT;

static void make_tables(void)
{
	for (uint32_t byte = 0; byte < 256; byte++) {
		uint32_t crc = byte;

		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? CRC32C_POLY : 0);
		tables[0][byte] = crc;
	}
	for (uint32_t byte = 0; byte < 256; byte++)
		for (int i = 1; i < 8; i++)
			tables[i][byte] = tables[i - 1][byte] >> 8 ^
					  tables[0][tables[i - 1][byte] & 0xff];
}

/* Reads four bytes as a little-endian number, on any host. */
static uint32_t load_u32(const unsigned char *ptr)
{
	return ptr[0] | (uint32_t)ptr[1] << 8 | (uint32_t)ptr[2] << 16 | (uint32_t)ptr[3] << 24;
}

uint32_t crc32c_raw_table(uint32_t crc, const unsigned char *ptr, size_t len)
{
	pthread_once(&tables_once, make_tables);
	for (; len >= 8; ptr += 8, len -= 8) {
		uint32_t a = load_u32(ptr) ^ crc;
		uint32_t b = load_u32(ptr + 4);

		crc = tables[7][a & 0xff] ^ tables[6][a >> 8 & 0xff] ^ tables[5][a >> 16 & 0xff] ^
		      tables[4][a >> 24] ^ tables[3][b & 0xff] ^ tables[2][b >> 8 & 0xff] ^
		      tables[1][b >> 16 & 0xff] ^ tables[0][b >> 24];
	}
	for (; len > 0; ptr++, len--)
		crc = crc >> 8 ^ tables[0][(crc ^ *ptr) & 0xff];
	return crc;
}

uint32_t crc32c(uint32_t crc, const void *ptr, size_t len)
{
#if defined(__x86_64__)
	if (cpu_has_crc32())
		return ~crc32c_raw_sse42(~crc, ptr, len);
#endif
	return ~crc32c_raw_table(~crc, ptr, len);
}

uint32_t crc32c_runs(const struct crc32c_run *runs, size_t n)
{
	uint32_t crc = ~UINT32_C(0);

#if defined(__x86_64__)
	if (cpu_has_crc32())
		return ~crc32c_raw_runs_sse42(crc, runs, n);
#endif
	for (size_t i = 0; i < n; i++)
		crc = crc32c_raw_table(crc, runs[i].ptr, runs[i].len);
	return ~crc;
}

uint32_t crc32c_copy(uint32_t crc, void *dst, const void *src, size_t len)
{
	unsigned char *to = dst;
	const unsigned char *from = src;

#if defined(__x86_64__)
	if (len >= FOLD_LEAST && cpu_has_vpclmul()) {
		size_t folded = len & ~(size_t)63;
		bool past = len >= PAST_ALONE && (uintptr_t)to % 64 == 0;

		crc = ~crc32c_raw_copy_avx512(~crc, to, from, folded / 64, past);
		to += folded, from += folded, len -= folded;
	}
#endif
	for (size_t n; len > 0; to += n, from += n, len -= n) {
		n = len < PIECE ? len : PIECE;
		memcpy(to, from, n);
		crc = crc32c(crc, to, n);
	}
	return crc;
}

uint32_t crc32c_copy_past(uint32_t crc, void *dst, const void *src, size_t len)
{
#if defined(__x86_64__)
	if (len >= PAST_LEAST && cpu_has_vpclmul()) {
		size_t head = -(uintptr_t)dst % 64, folded = (len - head) & ~(size_t)63;

		crc = crc32c_copy(crc, dst, src, head);
		dst = (unsigned char *)dst + head;
		src = (const unsigned char *)src + head;
		crc = ~crc32c_raw_copy_avx512(~crc, dst, src, folded / 64, true);
		dst = (unsigned char *)dst + folded;
		src = (const unsigned char *)src + folded;
		len -= head + folded;
	}
#endif
	return crc32c_copy(crc, dst, src, len);
}
