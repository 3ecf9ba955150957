#include "ds/window/stream.h"

#include "base/os/cpu.h"

#if WINDOW_STREAM

static void copy_sse2(uint8_t *dst, const uint8_t *src, size_t n)
{
	size_t done = window_stream_ends(dst, src, window_stream_head(dst, n));

	for (; n - done >= WIRE_LINE; done += WIRE_LINE) {
		const __m128i *from = (const void *)(src + done);
		__m128i *to = (void *)(dst + done);
		__m128i a = _mm_loadu_si128(from), b = _mm_loadu_si128(from + 1);
		__m128i c = _mm_loadu_si128(from + 2), d = _mm_loadu_si128(from + 3);

		_mm_stream_si128(to, a);
		_mm_stream_si128(to + 1, b);
		_mm_stream_si128(to + 2, c);
		_mm_stream_si128(to + 3, d);
	}
	window_stream_ends(dst + done, src + done, n - done);
}

window_copy_fn window_stream_copy(void)
{
	switch (cpu_level()) {
	case CPU_AVX512:
		return window_stream_avx512;
	case CPU_AVX2:
		return window_stream_avx2;
	default:
		return copy_sse2;
	}
}

void window_stream_end(void)
{
	_mm_sfence();
}

#else

static void copy_plain(uint8_t *dst, const uint8_t *src, size_t n)
{
	transport_copy_racy_bytes(dst, src, n);
}

window_copy_fn window_stream_copy(void)
{
	return copy_plain;
}

void window_stream_end(void)
{
}

#endif
