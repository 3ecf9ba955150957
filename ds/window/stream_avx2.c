#include "ds/window/stream.h"

#if WINDOW_STREAM

#include <immintrin.h>

static inline void copy_line(uint8_t *to, const uint8_t *from)
{
	__m256i a = _mm256_loadu_si256((const void *)from);
	__m256i b = _mm256_loadu_si256((const void *)(from + 32));

	_mm256_store_si256((void *)to, a);
	_mm256_store_si256((void *)(to + 32), b);
}

static inline void stream_line(uint8_t *to, const uint8_t *from)
{
	__m256i a = _mm256_loadu_si256((const void *)from);
	__m256i b = _mm256_loadu_si256((const void *)(from + 32));

	_mm256_stream_si256((void *)to, a);
	_mm256_stream_si256((void *)(to + 32), b);
}

void window_copy_avx2(uint8_t *dst, const uint8_t *src, size_t n, const uint8_t *next)
{
	window_copy_lines(dst, src, n, next, (struct window_lines){ copy_line, false });
}

void window_stream_avx2(uint8_t *dst, const uint8_t *src, size_t n, const uint8_t *next)
{
	window_copy_lines(dst, src, n, next, (struct window_lines){ stream_line, true });
}

#else

typedef int window_stream_avx2_unused;

#endif
