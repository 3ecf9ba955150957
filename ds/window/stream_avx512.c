#include "ds/window/stream.h"

#if WINDOW_STREAM

#include <immintrin.h>

void window_stream_avx512(uint8_t *dst, const uint8_t *src, size_t n)
{
	size_t done = window_stream_ends(dst, src, window_stream_head(dst, n));

	for (; n - done >= WIRE_LINE; done += WIRE_LINE) {
		__m512i line = _mm512_loadu_si512(src + done);

		_mm512_stream_si512((void *)(dst + done), line);
	}
	window_stream_ends(dst + done, src + done, n - done);
}

#else

typedef int window_stream_avx512_unused;

#endif
