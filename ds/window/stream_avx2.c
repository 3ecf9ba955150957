#include "ds/window/stream.h"

#if WINDOW_STREAM

#include <immintrin.h>

void window_stream_avx2(uint8_t *dst, const uint8_t *src, size_t n)
{
	size_t done = window_stream_ends(dst, src, window_stream_head(dst, n));

	for (; n - done >= WIRE_LINE; done += WIRE_LINE) {
		const __m256i *from = (const void *)(src + done);
		__m256i *to = (void *)(dst + done);
		__m256i a = _mm256_loadu_si256(from), b = _mm256_loadu_si256(from + 1);

		_mm256_stream_si256(to, a);
		_mm256_stream_si256(to + 1, b);
	}
	window_stream_ends(dst + done, src + done, n - done);
}

#else

typedef int window_stream_avx2_unused;

#endif
