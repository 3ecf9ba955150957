/*
 * Copies of several sizes: memcpy and non-temporal stores. The last pay
 * off if the destination is not read soon: many batches in flight. And
 * batches of rows drawn at random, the most that any sampler can reach.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/harness/micro.h"

#include "base/mem/alloc.h"
#include "base/bits.h"
#include "base/rng.h"

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#define POOL_BYTES ((size_t)256 << 20)
#define BATCH 256u

struct copy {
	const char *name;
	void (*run)(uint8_t *dst, const uint8_t *src, size_t n);
};

static void copy_memcpy(uint8_t *dst, const uint8_t *src, size_t n)
{
	memcpy(dst, src, n);
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
#if defined(__x86_64__)
	{ "streamed", copy_streamed },
#endif
};

struct copy_case {
	const struct copy *copy;
	size_t bytes;  /* of each copy */
	bool rotating; /* over the whole pool, or always the same place */
	bool drawn;    /* from random places, into one batch */
};

static struct pages src, dst;
static struct rng rng;

static int run_case(struct micro_case *at)
{
	const struct copy_case *c = at->ctx;
	uint8_t *to = dst.ptr;
	const uint8_t *from = src.ptr;
	uint64_t start = time_wall_ns();
	size_t done = 0, off = 0;

	for (; done < (size_t)64 << 20; done += c->bytes) {
		c->copy->run(to + off, from + off, c->bytes);
		off = c->rotating ? (off + c->bytes) % (POOL_BYTES - c->bytes) & ~(size_t)63 : 0;
	}
	yardstick_use(to);
	series_add(&at->result.series, (double)done / (double)(time_wall_ns() - start));
	return 0;
}

static int run_drawn(struct micro_case *at)
{
	const struct copy_case *c = at->ctx;
	const uint64_t rows = POOL_BYTES / c->bytes;
	const uint8_t *from[BATCH];
	uint64_t ns = 0;
	size_t done = 0;

	while (done < (size_t)64 << 20) {
		uint64_t start;

		for (uint32_t i = 0; i < BATCH; i++)
			from[i] = (const uint8_t *)src.ptr + rng_uniform_u64(&rng, rows) * c->bytes;
		start = time_wall_ns();
		for (uint32_t i = 0; i < BATCH; i++)
			c->copy->run((uint8_t *)dst.ptr + i * c->bytes, from[i], c->bytes);
		ns += time_wall_ns() - start;
		yardstick_use(dst.ptr);
		done += BATCH * c->bytes;
	}
	series_add(&at->result.series, (double)done / (double)ns);
	return 0;
}

static void add_case(struct micro *b, struct micro_case *shown, struct copy_case *c)
{
	shown->run = c->drawn ? run_drawn : run_case;
	shown->ctx = c;
	shown->result.params[0] = (struct param){ .key = "copy", .text = c->copy->name };
	shown->result.params[1] = (struct param){ .key = "bytes", .number = c->bytes };
	shown->result.params[2] = (struct param){ .key = c->drawn ? "drawn" : "rotating",
						  .number = c->drawn || c->rotating,
						  .kind = PARAM_FLAG };
	micro_add(b, shown);
}

/* Rows of a vector, of tokens, and of an image of 3x84x84. */
static void add_drawn(struct micro *b, struct micro_case *shown)
{
	static struct copy_case cases[] = {
		{ .bytes = 64 },
		{ .bytes = 4096 },
		{ .bytes = 16384 },
		{ .bytes = 21168 },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		cases[i].copy = &copies[0];
		cases[i].drawn = true;
		add_case(b, shown, &cases[i]);
	}
}

int main(int argc, char **argv)
{
	static const size_t sizes[] = { 64, 4096, 65536, 1 << 20, 8 << 20, /* usual */
					32, 256,  1024,  7104,    16384,   262144, 4 << 20 };
	static struct copy_case cases[ARRAY_LEN(sizes) * ARRAY_LEN(copies) * 2], *c = cases;
	static struct micro b = {
		.name = "micro_memcpy",
		.help = "Copies of several sizes, into the same place, into rotating ones, and of "
			"batches of rows that are drawn, in GB/s.",
	};
	struct micro_case shown = {
		.result = { .metric = "copy_gbps", .unit = "GB/s", .higher = true },
	};
	int status;
	bool ok;

	if (!micro_init(&b, argc, argv, &status))
		return status;
	if (pages_alloc(POOL_BYTES, PAGE_THP, &src) || pages_alloc(POOL_BYTES, PAGE_THP, &dst)) {
		fprintf(stderr, "micro_memcpy: %s\n", error_last());
		return EXIT_FAILURE;
	}
	rng_seed(&rng, b.seed, 0);
	memset(src.ptr, 1, POOL_BYTES);
	memset(dst.ptr, 2, POOL_BYTES);
	micro_add_yardsticks(&b, src.ptr, POOL_BYTES, &(const struct param){ .key = NULL });
	for (size_t i = 0; i < (b.full ? ARRAY_LEN(cases) : 10 * ARRAY_LEN(copies)); i++, c++) {
		*c = (struct copy_case){ .copy = &copies[i / 2 % ARRAY_LEN(copies)],
					 .bytes = sizes[i / 2 / ARRAY_LEN(copies)],
					 .rotating = i % 2 };
		if (c->bytes < 64 && c->copy->run != copy_memcpy)
			continue;
		add_case(&b, &shown, c);
	}
	add_drawn(&b, &shown);
	ok = micro_run(&b, "copies") == 0;
	pages_free(&src);
	pages_free(&dst);
	return micro_finish(&b, ok);
}
