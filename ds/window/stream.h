/*
 * Copies of large columns, line by line: by ordinary stores, or by non-temporal ones, which keep what
 * will not be read soon out of the cache. A copy meanwhile fetches the source of the next copy: the
 * hardware prefetchers stop at the end of a row.
 */
#ifndef RLV_DS_WINDOW_STREAM_H
#define RLV_DS_WINDOW_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "transport/barrier.h"

/* TSan does not see vector intrinsics: with it all copies use transport_copy_racy_bytes. */
#if defined(__x86_64__) && !BARRIER_TSAN
#define WINDOW_STREAM 1
#else
#define WINDOW_STREAM 0
#endif

/* next: the source of the next copy, of as many bytes; or src. */
typedef void (*window_copy_fn)(uint8_t *dst, const uint8_t *src, size_t n, const uint8_t *next);

/* Returns the copy with the widest vectors of this CPU; stream: by non-temporal stores, where the
   build has them. */
window_copy_fn window_copy_of(bool stream);

/* Orders the non-temporal stores before later stores. Call after the last copy. */
void window_stream_end(void);

/* Returns the bytes from dst to the next beginning of a line, 0 if dst is at one; at most n. */
static inline size_t window_line_head(const uint8_t *dst, size_t n)
{
	size_t head = (WIRE_LINE - ((uintptr_t)dst & (WIRE_LINE - 1))) & (WIRE_LINE - 1);

	return head < n ? head : n;
}

#if WINDOW_STREAM
void window_copy_avx2(uint8_t *dst, const uint8_t *src, size_t n, const uint8_t *next);
void window_stream_avx2(uint8_t *dst, const uint8_t *src, size_t n, const uint8_t *next);
void window_copy_avx512(uint8_t *dst, const uint8_t *src, size_t n, const uint8_t *next);
void window_stream_avx512(uint8_t *dst, const uint8_t *src, size_t n, const uint8_t *next);

#include <emmintrin.h>
#include <string.h>

#define WINDOW_AHEAD 4096 /* bytes from what is copied to what is fetched */

/*
 * Copies n bytes of a partial line, at one end of a copy. stream: in 16-byte pieces where dst is
 * aligned, else byte by byte. Returns n. The copy of the next row fills the rest of the line while
 * it is still being combined.
 */
static inline size_t window_copy_end(uint8_t *dst, const uint8_t *src, size_t n, bool stream)
{
	size_t done = 0;

	if (!stream) {
		memcpy(dst, src, n);
		return n;
	}
	for (; ((uintptr_t)(dst + done) & 15) == 0 && n - done >= 16; done += 16)
		_mm_stream_si128((__m128i *)(void *)(dst + done),
				 _mm_loadu_si128((const __m128i *)(const void *)(src + done)));
	for (; done < n; done++)
		dst[done] = src[done];
	return n;
}

/* How lines are copied: `line` copies one to an aligned place. */
struct window_lines {
	void (*line)(uint8_t *to, const uint8_t *from);
	bool stream;
};

/* The loop of every copy, instantiated for each struct window_lines. */
static inline __attribute__((always_inline)) void window_copy_lines(uint8_t *dst,
								    const uint8_t *src, size_t n,
								    const uint8_t *next,
								    const struct window_lines how)
{
	size_t done = window_copy_end(dst, src, window_line_head(dst, n), how.stream);
	size_t ahead = n < WINDOW_AHEAD ? n : WINDOW_AHEAD;

	for (; n - done >= WIRE_LINE; done += WIRE_LINE) {
		size_t later = done + ahead;

		_mm_prefetch((const char *)(later < n ? src + later : next + (later - n)),
			     _MM_HINT_T1);
		how.line(dst + done, src + done);
	}
	window_copy_end(dst + done, src + done, n - done, how.stream);
}
#endif

#endif
