#include "ds/window/stream.h"

#include "base/os/cpu.h"

#if WINDOW_STREAM

static void copy_line(uint8_t *to, const uint8_t *from)
{
	memcpy(to, from, WIRE_LINE);
}

static void stream_line(uint8_t *to, const uint8_t *from)
{
	for (int i = 0; i < WIRE_LINE; i += 16)
		_mm_stream_si128((__m128i *)(void *)(to + i),
				 _mm_loadu_si128((const __m128i *)(const void *)(from + i)));
}

static void copy_sse2(uint8_t *dst, const uint8_t *src, size_t n, const uint8_t *next)
{
	window_copy_lines(dst, src, n, next, (struct window_lines){ copy_line, false });
}

static void stream_sse2(uint8_t *dst, const uint8_t *src, size_t n, const uint8_t *next)
{
	window_copy_lines(dst, src, n, next, (struct window_lines){ stream_line, true });
}

window_copy_fn window_copy_of(bool stream)
{
	switch (cpu_level()) {
	case CPU_AVX512:
		return stream ? window_stream_avx512 : window_copy_avx512;
	case CPU_AVX2:
		return stream ? window_stream_avx2 : window_copy_avx2;
	default:
		return stream ? stream_sse2 : copy_sse2;
	}
}

void window_stream_end(void)
{
	_mm_sfence();
}

#else

static void copy_plain(uint8_t *dst, const uint8_t *src, size_t n, const uint8_t *next)
{
	(void)next;
	transport_copy_racy_bytes(dst, src, n);
}

window_copy_fn window_copy_of(bool stream)
{
	(void)stream;
	return copy_plain;
}

void window_stream_end(void)
{
}

#endif
