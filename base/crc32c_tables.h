/*
 * crc32c_tables.h - private to base/crc32c*.c: the two variants, without the outer inversions.
 */
#ifndef RLV_BASE_CRC32C_TABLES_H
#define RLV_BASE_CRC32C_TABLES_H

#include "base/crc32c.h"

#include <stddef.h>
#include <stdbool.h>
#include <stdint.h>

#define CRC32C_POLY UINT32_C(0x82F63B78)

uint32_t crc32c_raw_table(uint32_t crc, const unsigned char *ptr, size_t len);
uint32_t crc32c_raw_sse42(uint32_t crc, const unsigned char *ptr, size_t len);
uint32_t crc32c_raw_runs_sse42(uint32_t crc, const struct crc32c_run *runs, size_t n);
/* Copies and checksums at least four blocks of 64 bytes; needs cpu_has_vpclmul. past: the cache; then dst is
   aligned to 64. */
uint32_t crc32c_raw_copy_avx512(uint32_t crc, unsigned char *dst, const unsigned char *src,
				size_t blocks, bool past);

#endif
