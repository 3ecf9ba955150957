/*
 * Deltas of arrays of all element sizes, random lengths, addresses and densities, by each kernel,
 * against a naive sum and a naive reader of the format.
 */
#include "tests/support/test.h"

#include "ds/weights/delta.h"

#include "base/bits.h"
#include "base/os/cpu.h"
#include "base/rng.h"

#include <errno.h>
#include <string.h>

#define MOST_BYTES (300u * 1024)
#define GUARD 64u
#define ROUNDS 40u
#define NOISES 3000u

static const enum cpu_level levels[] = { CPU_PLAIN, CPU_AVX2, CPU_AVX512 };

/* Bytes at an odd address, with a guard on each side. */
struct guarded {
	uint8_t *block, *bytes;
	uint64_t n;
};

struct scene {
	struct rng rng;
	struct delta_array array;
	uint64_t bytes;
	struct guarded old, now, copy;
	struct delta_out out;
	struct guarded delta;
};

static struct scene scene;

static void guarded_open(struct guarded *g, uint64_t n, uint64_t skew)
{
	g->block = malloc(n + 2 * GUARD + 8);
	assert_non_null(g->block);
	memset(g->block, 0xa5, n + 2 * GUARD + 8);
	g->bytes = g->block + GUARD + skew;
	g->n = n;
}

static void guarded_close(struct guarded *g)
{
	for (uint8_t *at = g->block; at < g->bytes; at++)
		assert_int_equal(*at, 0xa5);
	for (uint32_t i = 0; i < GUARD; i++)
		assert_int_equal(g->bytes[g->n + i], 0xa5);
	free(g->block);
}

static uint64_t below(struct scene *s, uint64_t bound)
{
	return rng_uniform_u64(&s->rng, bound);
}

static uint64_t naive_sum(const struct delta_array *array, const uint8_t *bytes, uint64_t n)
{
	uint64_t sum = 0;

	for (uint64_t at = 0; at < n; at++)
		sum += ((uint64_t)bytes[at] << at % 4 * 8) * DELTA_KEY(at % DELTA_RUN / 4) *
		       delta_run_key(array->key, at / DELTA_RUN);
	return sum;
}

/* Arrays that differ in about one element of `apart`; 0 = in none. */
static void scene_open(struct scene *s, uint64_t elements, uint32_t element_bytes, uint64_t apart)
{
	uint64_t n = elements * element_bytes;

	s->array = (struct delta_array){ elements, element_bytes, below(s, UINT64_MAX) };
	s->bytes = n;
	guarded_open(&s->old, n, below(s, 8));
	guarded_open(&s->now, n, below(s, 8));
	guarded_open(&s->copy, n, below(s, 8));
	for (uint64_t i = 0; i < n; i++)
		s->old.bytes[i] = (uint8_t)below(s, 256);
	memcpy(s->now.bytes, s->old.bytes, n);
	for (uint64_t i = 0; apart && i < elements; i++)
		if (below(s, apart) == 0)
			s->now.bytes[i * element_bytes + below(s, element_bytes)] ^=
				(uint8_t)(1 + below(s, 255));
	guarded_open(&s->delta, align_up(delta_room(&s->array, elements), 8), 0);
	s->out = (struct delta_out){ .at = s->delta.bytes, .room = s->delta.n };
}

static void scene_close(struct scene *s)
{
	guarded_close(&s->old);
	guarded_close(&s->now);
	guarded_close(&s->copy);
	guarded_close(&s->delta);
}

static struct delta_copy fresh_copy(struct scene *s)
{
	memcpy(s->copy.bytes, s->old.bytes, s->bytes);
	return (struct delta_copy){ s->copy.bytes, naive_sum(&s->array, s->old.bytes, s->bytes) };
}

static void expect_is_now(const struct scene *s, const struct delta_copy *copy)
{
	assert_memory_equal(copy->bytes, s->now.bytes, s->bytes);
	assert_int_equal(copy->sum, naive_sum(&s->array, s->now.bytes, s->bytes));
}

/* Reads the delta, and expects exactly the elements that differ. */
static void expect_delta_is_exact(const struct scene *s)
{
	uint32_t each = s->array.element_bytes;
	uint64_t blocks = div_up(s->array.elements, DELTA_BLOCK), changed = 0;
	const uint8_t *counts = s->delta.bytes + sizeof(struct delta_head);
	const uint8_t *at = counts + align_up(4 * blocks, 8);

	for (uint64_t block = 0; block < blocks; block++) {
		uint64_t start = block * DELTA_BLOCK, found = 0;
		uint32_t count;

		memcpy(&count, counts + 4 * block, sizeof(count));
		for (uint64_t i = start; i < min_u64(start + DELTA_BLOCK, s->array.elements); i++) {
			const uint8_t *value = s->now.bytes + i * each;
			uint16_t place;

			if (memcmp(s->old.bytes + i * each, value, each) == 0)
				continue;
			assert_true(found < count);
			memcpy(&place, at + 2 * found, sizeof(place));
			assert_int_equal(place, i - start);
			assert_memory_equal(at + align_up(2ull * count, 8) + found * each, value,
					    each);
			found++;
		}
		assert_int_equal(found, count);
		changed += count;
		at += align_up(2ull * count, 8) + align_up((uint64_t)count * each, 8);
	}
	assert_int_equal(at - s->delta.bytes, s->out.bytes);
	assert_int_equal(changed, s->out.changed);
	assert_true(s->out.bytes + DELTA_SPARE <= delta_room(&s->array, changed));
}

static void check_diff_and_apply(struct scene *s)
{
	struct delta_copy copy = fresh_copy(s);
	uint64_t before = copy.sum;

	assert_int_equal(delta_diff(&s->array, &copy, s->now.bytes, &s->out), 0);
	expect_is_now(s, &copy);
	expect_delta_is_exact(s);
	copy = fresh_copy(s);
	assert_int_equal(delta_apply(&s->array, &copy, s->delta.bytes, s->out.bytes), 0);
	expect_is_now(s, &copy);
	if (copy.sum != before)
		assert_int_equal(delta_apply(&s->array, &copy, s->delta.bytes, s->out.bytes),
				 -ESTALE);
	expect_is_now(s, &copy);
}

static uint64_t random_elements(struct scene *s, uint32_t element_bytes)
{
	uint64_t most = MOST_BYTES / element_bytes;

	return below(s, 2) ? below(s, 2 * DELTA_RUN / element_bytes) : below(s, most);
}

TEST(diff_and_apply__of_random_arrays__by_each_kernel)
{
	struct scene *s = &scene;

	for (uint32_t level = 0; level < ARRAY_LEN(levels); level++) {
		cpu_level_limit(levels[level]);
		rng_seed(&s->rng, 1, 2);
		for (uint32_t i = 0; i < ROUNDS; i++) {
			uint32_t element_bytes = 1u << i % 4;
			static const uint64_t apart[] = { 0, 1, 3, 30, 100, 1000 };

			scene_open(s, random_elements(s, element_bytes), element_bytes,
				   apart[below(s, ARRAY_LEN(apart))]);
			check_diff_and_apply(s);
			scene_close(s);
		}
	}
	cpu_level_limit(CPU_AVX512);
}

TEST(diff__into_too_little_room__brings_the_copy_up_to_date)
{
	struct scene *s = &scene;

	rng_seed(&s->rng, 3, 4);
	for (uint32_t i = 0; i < ROUNDS; i++) {
		struct delta_copy copy;
		int ret;

		scene_open(s, random_elements(s, 1u << i % 4), 1u << i % 4, 1 + i % 5);
		s->out.room = below(s, s->delta.n);
		guarded_close(&s->delta);
		guarded_open(&s->delta, s->out.room, 0);
		s->out.at = s->delta.bytes;
		copy = fresh_copy(s);
		ret = delta_diff(&s->array, &copy, s->now.bytes, &s->out);
		assert_true(ret == 0 || ret == -ENOSPC);
		expect_is_now(s, &copy);
		if (ret == 0)
			expect_delta_is_exact(s);
		else
			assert_int_equal(s->out.bytes, 0);
		scene_close(s);
	}
}

/* The bytes of the format: they may not change without a new DELTA_MAGIC. */
TEST(diff__of_known_elements__gives_known_bytes)
{
	static const uint8_t expected[] = {
		0x44, 0x4c, 0x54, 0x31, 2,    0,    0,    0,    100, 0,  0, 0,    0, 0,    0,
		0,    2,    0,    0,    0,    0,    0,    0,    0,   72, 0, 0,    0, 0,    0,
		0,    0,    0,    0,    0,    0,    0,    0,    0,   0,  0, 0xdb, 6, 0xc6, 0xfd,
		0xa9, 0x3d, 0xc5, 2,    0,    0,    0,    0,    0,   0,  0, 3,    0, 98,   0,
		0,    0,    0,    0,    0x34, 0x12, 0x78, 0x56, 0,   0,  0, 0,
	};
	const struct delta_array array = { 100, 2, 7 };
	_Alignas(8) uint8_t bytes[128 + DELTA_SPARE];
	uint16_t old[100] = { 0 }, now[100] = { 0 };
	struct delta_copy copy = { old, 0 };
	struct delta_out out = { .at = bytes, .room = sizeof(bytes) };

	now[3] = 0x1234;
	now[98] = 0x5678;
	assert_int_equal(delta_diff(&array, &copy, now, &out), 0);
	assert_int_equal(out.bytes, sizeof(expected));
	assert_memory_equal(bytes, expected, sizeof(expected));
}

/* A diff into that much room, which fails if it is less than `enough`. */
TEST(room_of_so_many_changes__is_enough)
{
	struct scene *s = &scene;

	rng_seed(&s->rng, 5, 6);
	for (uint32_t element_bytes = 1; element_bytes <= 8; element_bytes *= 2) {
		struct delta_copy copy;

		scene_open(s, 70000, element_bytes, 1);
		s->out.room = delta_room(&s->array, 70000);
		copy = fresh_copy(s);
		assert_int_equal(delta_diff(&s->array, &copy, s->now.bytes, &s->out), 0);
		assert_int_equal(s->out.changed, 70000);
		s->out.room = s->out.bytes - 1;
		copy = fresh_copy(s);
		assert_int_equal(delta_diff(&s->array, &copy, s->now.bytes, &s->out), -ENOSPC);
		scene_close(s);
	}
}

TEST(apply__of_noise__never_gives_another_result)
{
	struct scene *s = &scene;
	uint64_t refused = 0;

	rng_seed(&s->rng, 7, 8);
	for (uint32_t i = 0; i < NOISES; i++) {
		struct delta_copy copy;
		int ret;

		scene_open(s, 1 + below(s, 3000), 1u << i % 4, 20);
		copy = fresh_copy(s);
		assert_int_equal(delta_diff(&s->array, &copy, s->now.bytes, &s->out), 0);
		s->delta.bytes[below(s, s->out.bytes)] ^= (uint8_t)(1u << below(s, 8));
		copy = fresh_copy(s);
		ret = delta_apply(&s->array, &copy, s->delta.bytes, s->out.bytes);
		if (ret == 0)
			expect_is_now(s, &copy); /* it hit the padding, or the count of changes */
		else
			refused++;
		assert_true(ret == 0 || ret == -EBADMSG || ret == -ESTALE);
		scene_close(s);
	}
	assert_true(refused > NOISES / 2);
}

/* Deltas of versions that follow each other; and without the one in the middle. */
TEST(apply__of_a_chain)
{
	struct scene *s = &scene;

	rng_seed(&s->rng, 19, 20);
	for (uint32_t element_bytes = 1; element_bytes <= 8; element_bytes *= 2) {
		struct delta_in deltas[DELTA_CHAIN + 1];
		struct guarded room[DELTA_CHAIN];
		struct delta_copy copy, shadow;

		scene_open(s, 150000 / element_bytes, element_bytes, 50);
		shadow = fresh_copy(s);
		for (uint32_t k = 0; k < DELTA_CHAIN; k++) {
			guarded_open(&room[k], s->delta.n, 0);
			s->out.at = room[k].bytes;
			for (uint32_t i = 0; i < 100; i++)
				s->now.bytes[below(s, s->bytes)]++;
			assert_int_equal(delta_diff(&s->array, &shadow, s->now.bytes, &s->out), 0);
			deltas[k] = (struct delta_in){ room[k].bytes, s->out.bytes };
		}
		copy = fresh_copy(s);
		assert_int_equal(delta_apply_chain(&s->array, &copy, deltas, DELTA_CHAIN + 1),
				 -EINVAL);
		assert_int_equal(delta_apply_chain(&s->array, &copy, deltas + 1, 2), -ESTALE);
		assert_int_equal(delta_apply_chain(&s->array, &copy, deltas, 0), 0);
		assert_memory_equal(copy.bytes, s->old.bytes, s->bytes);
		assert_int_equal(delta_apply_chain(&s->array, &copy, deltas, DELTA_CHAIN), 0);
		expect_is_now(s, &copy);
		copy = fresh_copy(s);
		deltas[3] = deltas[4];
		assert_int_equal(delta_apply_chain(&s->array, &copy, deltas, DELTA_CHAIN), -ESTALE);
		assert_memory_equal(copy.bytes, s->old.bytes, s->bytes);
		for (uint32_t k = 0; k < DELTA_CHAIN; k++)
			guarded_close(&room[k]);
		scene_close(s);
	}
}

/* A base that has the sum but not the bytes: the result shows it. */
TEST(apply__to_a_wrong_base__is_refused)
{
	struct scene *s = &scene;
	struct delta_copy copy;

	rng_seed(&s->rng, 9, 10);
	for (uint32_t element_bytes = 1; element_bytes <= 8; element_bytes *= 2) {
		uint64_t i = 0;

		scene_open(s, 5000, element_bytes, 10);
		copy = fresh_copy(s);
		assert_int_equal(delta_diff(&s->array, &copy, s->now.bytes, &s->out), 0);
		copy = fresh_copy(s);
		while (s->old.bytes[i] == s->now.bytes[i])
			i++;
		s->copy.bytes[i] ^= 0x80;
		assert_int_equal(delta_apply(&s->array, &copy, s->delta.bytes, s->out.bytes),
				 -EBADMSG);
		scene_close(s);
	}
}

TEST(apply__of_a_delta_of_another_array__is_refused)
{
	struct scene *s = &scene;
	struct delta_copy copy;
	struct delta_array other;

	rng_seed(&s->rng, 11, 12);
	scene_open(s, 5000, 2, 10);
	copy = fresh_copy(s);
	assert_int_equal(delta_diff(&s->array, &copy, s->now.bytes, &s->out), 0);
	copy = fresh_copy(s);
	other = s->array;
	other.elements--;
	assert_int_equal(delta_apply(&other, &copy, s->delta.bytes, s->out.bytes), -EBADMSG);
	other = (struct delta_array){ s->array.elements / 2, 4, s->array.key };
	assert_int_equal(delta_apply(&other, &copy, s->delta.bytes, s->out.bytes), -EBADMSG);
	for (uint64_t n = 0; n < s->out.bytes; n += 7)
		assert_int_equal(delta_apply(&s->array, &copy, s->delta.bytes, n), -EBADMSG);
	assert_memory_equal(s->copy.bytes, s->old.bytes, s->bytes);
	other.element_bytes = 3;
	assert_int_equal(delta_apply(&other, &copy, s->delta.bytes, s->out.bytes), -EINVAL);
	assert_int_equal(delta_apply(&s->array, &copy, s->delta.bytes + 4, s->out.bytes), -EINVAL);
	scene_close(s);
}

TEST(sum__of_parts__adds_up_by_each_kernel)
{
	struct scene *s = &scene;

	rng_seed(&s->rng, 13, 14);
	scene_open(s, 50001, 1, 0);
	for (uint32_t level = 0; level < ARRAY_LEN(levels); level++) {
		uint64_t cut = (1 + below(s, 11)) * DELTA_RUN;
		const uint8_t *bytes = s->old.bytes;

		cpu_level_limit(levels[level]);
		assert_int_equal(delta_sum(&s->array, 0, bytes, s->bytes),
				 naive_sum(&s->array, bytes, s->bytes));
		assert_int_equal(delta_sum(&s->array, 0, bytes, cut) +
					 delta_sum(&s->array, cut, bytes + cut, s->bytes - cut),
				 naive_sum(&s->array, bytes, s->bytes));
	}
	cpu_level_limit(CPU_AVX512);
	scene_close(s);
}

/* What a sum must tell apart although it is the same elements. */
TEST(sum__of_swapped_elements__differs)
{
	struct scene *s = &scene;
	uint64_t sum;

	rng_seed(&s->rng, 15, 16);
	scene_open(s, 16384, 1, 0);
	sum = delta_sum(&s->array, 0, s->old.bytes, s->bytes);
	for (uint64_t apart = 1; apart < s->bytes; apart *= 2) {
		memcpy(s->copy.bytes, s->old.bytes, s->bytes);
		s->copy.bytes[0] = s->old.bytes[apart];
		s->copy.bytes[apart] = s->old.bytes[0];
		if (s->copy.bytes[0] != s->old.bytes[0])
			assert_int_not_equal(delta_sum(&s->array, 0, s->copy.bytes, s->bytes), sum);
	}
	scene_close(s);
}

TEST(density__of_small_and_sampled_arrays)
{
	struct scene *s = &scene;

	rng_seed(&s->rng, 17, 18);
	scene_open(s, 0, 2, 0);
	assert_true(delta_density(&s->array, s->old.bytes, s->now.bytes) == 0);
	scene_close(s);
	scene_open(s, 20000, 2, 0);
	for (uint32_t i = 0; i < 500; i++)
		s->now.bytes[80 * i] ^= 1;
	assert_true(delta_density(&s->array, s->old.bytes, s->now.bytes) == 0.025);
	scene_close(s);
	for (uint32_t each = 1; each <= 8; each *= 2) { /* one in seven, in its last byte */
		scene_open(s, 7 * 300, each, 0);
		for (uint64_t i = 0; i < 300; i++)
			s->now.bytes[(7 * i + 1) * each - 1] ^= 0x80;
		assert_true(delta_density(&s->array, s->old.bytes, s->now.bytes) == 300.0 / 2100);
		scene_close(s);
	}
	scene_open(s, 3u << 20, 2, 0);
	for (uint64_t i = 0; i < s->bytes; i += 40)
		s->now.bytes[i] ^= 1;
	assert_true(fabs(delta_density(&s->array, s->old.bytes, s->now.bytes) - 0.05) < 0.001);
	scene_close(s);
}

int main(void)
{
	return test_run(NULL, NULL);
}
