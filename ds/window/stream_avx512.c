#include "ds/window/stream.h"

#if WINDOW_STREAM

#include <immintrin.h>

static inline void copy_line(uint8_t *to, const uint8_t *from)
{
	_mm512_store_si512((void *)to, _mm512_loadu_si512(from));
}

static inline void stream_line(uint8_t *to, const uint8_t *from)
{
	_mm512_stream_si512((void *)to, _mm512_loadu_si512(from));
}

void window_copy_avx512(uint8_t *dst, const uint8_t *src, size_t n, const uint8_t *next)
{
	window_copy_lines(dst, src, n, next, (struct window_lines){ copy_line, false });
}

void window_stream_avx512(uint8_t *dst, const uint8_t *src, size_t n, const uint8_t *next)
{
	window_copy_lines(dst, src, n, next, (struct window_lines){ stream_line, true });
}

#else

typedef int window_stream_avx512_unused;

#endif
