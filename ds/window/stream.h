/*
 * Copies large columns by non-temporal stores, for batches that would evict tree and rows from
 * the cache. Private to ds/window/.
 */
#ifndef RLV_DS_WINDOW_STREAM_H
#define RLV_DS_WINDOW_STREAM_H

#include <stddef.h>
#include <stdint.h>

#include "transport/barrier.h"

/* TSan does not see vector intrinsics: with it all copies use transport_copy_racy_bytes. */
#if defined(__x86_64__) && !BARRIER_TSAN
#define WINDOW_STREAM 1
#else
#define WINDOW_STREAM 0
#endif

typedef void (*window_copy_fn)(uint8_t *dst, const uint8_t *src, size_t n);

/*
 * Returns the copy with the widest non-temporal stores of this CPU; where the build has none, an
 * ordinary copy.
 */
window_copy_fn window_stream_copy(void);

/* Orders the non-temporal stores before later stores. Call after the last copy. */
void window_stream_end(void);

#if WINDOW_STREAM
void window_stream_avx2(uint8_t *dst, const uint8_t *src, size_t n);
void window_stream_avx512(uint8_t *dst, const uint8_t *src, size_t n);

#include <emmintrin.h>

/*
 * Copies n bytes of a partial line, at one end of a copy: in 16-byte pieces where dst is aligned,
 * else byte by byte. Returns n. The copy of the next row fills the rest of the line while it is
 * still being combined.
 */
static inline size_t window_stream_ends(uint8_t *dst, const uint8_t *src, size_t n)
{
	size_t done = 0;

	for (; ((uintptr_t)(dst + done) & 15) == 0 && n - done >= 16; done += 16)
		_mm_stream_si128((__m128i *)(void *)(dst + done),
				 _mm_loadu_si128((const __m128i *)(const void *)(src + done)));
	for (; done < n; done++)
		dst[done] = src[done];
	return n;
}

/* Returns the bytes from dst to the next beginning of a line, 0 if dst is at one; at most n. */
static inline size_t window_stream_head(const uint8_t *dst, size_t n)
{
	size_t head = (WIRE_LINE - ((uintptr_t)dst & (WIRE_LINE - 1))) & (WIRE_LINE - 1);

	return head < n ? head : n;
}
#endif

#endif
