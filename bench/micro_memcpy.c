/*
 * Copies of several sizes: memcpy, a loop of 8-byte words, and non-temporal stores. The last pay
 * off if the destination is not read soon: many batches in flight.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/harness/micro.h"

#include "transport/barrier.h"

#include "base/mem/alloc.h"
#include "base/bits.h"

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#define POOL_BYTES ((size_t)256 << 20)
#define CASES_MAX 64u

struct copy {
	const char *name;
	void (*run)(uint8_t *dst, const uint8_t *src, size_t n);
};

static void copy_memcpy(uint8_t *dst, const uint8_t *src, size_t n)
{
	memcpy(dst, src, n);
}

/* Row copy of builds that must show races: relaxed atomic words. */
static void copy_words(uint8_t *dst, const uint8_t *src, size_t n)
{
	for (size_t i = 0; i < n; i += 8) {
		const struct rword64 *from = (const struct rword64 *)(const void *)(src + i);

		*(uint64_t *)(void *)(dst + i) = rword64_load_relaxed(from);
	}
}

#if defined(__x86_64__)
static void copy_streamed(uint8_t *dst, const uint8_t *src, size_t n)
{
	for (size_t i = 0; i < n; i += 64) {
		const __m128i *from = (const __m128i *)(const void *)(src + i);
		__m128i *to = (__m128i *)(void *)(dst + i);

		for (int k = 0; k < 4; k++)
			_mm_stream_si128(to + k, _mm_loadu_si128(from + k));
	}
	_mm_sfence();
}
#endif

static const struct copy copies[] = {
	{ "memcpy", copy_memcpy },
	{ "words", copy_words },
#if defined(__x86_64__)
	{ "streamed", copy_streamed },
#endif
};

struct copy_case {
	const struct copy *copy;
	size_t bytes;  /* of each copy */
	bool rotating; /* over the whole pool, or always the same place */
	struct series windows;
};

struct run {
	struct micro b;
	struct pages src, dst;
	struct copy_case cases[CASES_MAX];
	uint32_t n_cases;
	struct series line, gbps;
};

static struct result result_of(const struct copy_case *c, struct param params[3])
{
	params[0] = (struct param){ .key = "copy", .text = c->copy->name };
	params[1] = (struct param){ .key = "bytes", .number = c->bytes };
	params[2] = (struct param){ .key = "rotating", .number = c->rotating, .kind = PARAM_FLAG };
	return (struct result){ "copy_gbps", "GB/s", true, params, 3 };
}

static void run_case(struct run *r, struct copy_case *c)
{
	const uint8_t *src = r->src.ptr;
	uint8_t *dst = r->dst.ptr;
	uint64_t start = time_wall_ns(), cpu = time_cpu_ns();
	size_t done = 0, at = 0;

	for (; done < (size_t)64 << 20; done += c->bytes) {
		c->copy->run(dst + at, src + at, c->bytes);
		at = c->rotating ? (at + c->bytes) % (POOL_BYTES - c->bytes) & ~(size_t)63 : 0;
	}
	start = time_wall_ns() - start;
	yardstick_use(dst);
	series_add(&c->windows, (double)done / (double)start);
	c->windows.cpu_ns += (double)(time_cpu_ns() - cpu);
	c->windows.wall_ns += (double)start;
}

/* Yardsticks first, then the copies. */
static int run_window(void *ctx, uint32_t index)
{
	struct run *r = ctx;

	if (index > 0) {
		run_case(r, &r->cases[index - 1]);
		return 0;
	}
	series_add(&r->line, yardstick_line_ns(r->src.ptr, POOL_BYTES, r->b.seed + r->line.n));
	series_add(&r->gbps, micro_memcpy_gbps(&r->b));
	return 0;
}

static void add_cases(struct run *r)
{
	static const size_t usual[] = { 64, 4096, 65536, 1 << 20, 8 << 20 };
	static const size_t all[] = { 32,    64,    256,    1024,    4096,    7104,
				      16384, 65536, 262144, 1 << 20, 4 << 20, 8 << 20 };
	size_t n = r->b.full ? ARRAY_LEN(all) : ARRAY_LEN(usual);

	for (size_t i = 0; i < n * ARRAY_LEN(copies); i++) {
		struct copy_case c = { .copy = &copies[i % ARRAY_LEN(copies)] };
		struct param params[3];
		struct result what;

		c.bytes = (r->b.full ? all : usual)[i / ARRAY_LEN(copies)];
		if (c.bytes < 64 && c.copy->run != copy_memcpy)
			continue;
		for (int rotating = 0; rotating < 2 && r->n_cases < CASES_MAX; rotating++) {
			c.rotating = rotating;
			what = result_of(&c, params);
			if (micro_wants(&r->b, &what))
				r->cases[r->n_cases++] = c;
		}
	}
}

static void print_all(struct run *r)
{
	const struct result line = { "calib_line_ns", "ns", false, NULL, 0 };
	const struct result gbps = { "memcpy_gbps", "GB/s", true, NULL, 0 };

	micro_print(&r->b, &line, &r->line);
	micro_print(&r->b, &gbps, &r->gbps);
	for (uint32_t i = 0; i < r->n_cases; i++) {
		struct param params[3];
		struct result what = result_of(&r->cases[i], params);

		micro_print(&r->b, &what, &r->cases[i].windows);
	}
}

int main(int argc, char **argv)
{
	static struct run r = {
		.b = { .name = "micro_memcpy",
		       .help = "Copies of several sizes, into the same place and into rotating "
			       "ones, in GB/s." },
	};
	struct micro_cases cases = { .what = "copies", .run = run_window, .ctx = &r };
	int status;
	bool ok;

	if (!micro_init(&r.b, argc, argv, &status))
		return status;
	if (pages_alloc(POOL_BYTES, PAGE_THP, &r.src) ||
	    pages_alloc(POOL_BYTES, PAGE_THP, &r.dst)) {
		fprintf(stderr, "micro_memcpy: %s\n", error_last());
		return EXIT_FAILURE;
	}
	memset(r.src.ptr, 1, POOL_BYTES);
	memset(r.dst.ptr, 2, POOL_BYTES);
	add_cases(&r);
	cases.n = r.n_cases + 1;
	ok = micro_run(&r.b, &cases) == 0;
	if (ok)
		print_all(&r);
	pages_free(&r.src);
	pages_free(&r.dst);
	return micro_finish(&r.b, ok);
}
