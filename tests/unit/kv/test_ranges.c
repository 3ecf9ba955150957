/* Readers of ranges: which chunks are read, how often, and in how many round trips. */
#include "tests/support/fixture/heap_fixture.h"
#include "tests/support/fake/fault.h"
#include "tests/support/fake/wire_transport.h"
#include "tests/support/must_internal.h"

#include "ds/heap/access.h"

#include "base/bits.h"
#include "base/rng.h"

#include <errno.h>
#include <string.h>

#define EXTENT 65536u
#define SHARE (EXTENT - 64u)
#define CHUNKS 40u
#define WINDOW 8u  /* chunks */
#define REST 4000u /* bytes of the last chunk */
#define BYTES ((CHUNKS - 1u) * SHARE + REST)
#define LOOK \
	(8u + 128u + 64u + 8u + 128u + CHUNKS * 8u) /* epoch, head, and manifest with its key */

static uint8_t value[BYTES], memory[BYTES];

static void fill(uint64_t number)
{
	uint64_t word = number * UINT64_C(0x9e3779b97f4a7c15) + 1;

	for (uint64_t i = 0; i < BYTES; i++) {
		value[i] = (uint8_t)(word >> 56);
		word = word * 6364136223846793005u + 1442695040888963407u;
	}
}

struct scene {
	struct heap_fixture fx;
	struct heap_client learner, actor;
	uint64_t version;
	/* Of the actor: */
	uint64_t round_trips, bytes,
		calls; /* since `begin`, those of its looks at the key taken off */
};

static void put(struct scene *s, const char *key, uint64_t number)
{
	struct heap_value got;
	int ret;

	fill(number);
	do { /* the fake wire ends the pin of a get with the client's next call */
		assert_int_equal(heap_fixture_get(&s->actor, "none", &got), -ENOENT);
		ret = heap_fixture_put(&s->learner, key, value, BYTES, &s->version);
	} while (ret == -EAGAIN);
	must(ret);
}

static void scene_open(struct scene *s, struct transport *(*wrap)(struct transport *inner))
{
	memset(s, 0, sizeof(*s));
	heap_fixture_open(&s->fx, 100, 4 * CHUNKS);
	heap_fixture_join(&s->fx, 1, NULL, &s->learner);
	heap_fixture_join(&s->fx, 2, wrap, &s->actor);
	s->actor.acc.window_bytes = WINDOW * EXTENT;
	put(s, "k", 1);
}

static void scene_close(struct scene *s)
{
	heap_fixture_leave(&s->actor);
	heap_fixture_leave(&s->learner);
	heap_fixture_close(&s->fx);
}

static int get(struct scene *s, const char *text, uint64_t offset, uint64_t len)
{
	const struct chain_key key = chain_key(text, 1, s->fx.desc.seed);
	const struct heap_room room = { memory, sizeof(memory) };
	struct heap_value got;

	return heap_get_range(&s->actor.acc, &key, &(struct heap_range){ offset, len }, &room,
			      &got);
}

/* Reads a range of the value that was put last, and counts. */
static void read_range(struct scene *s, uint64_t offset, uint64_t len)
{
	struct transport_stats before = s->actor.tr->stats;

	must(get(s, "k", offset, len));
	assert_memory_equal(memory, value + offset, min_u64(len, BYTES - offset));
	if (s->calls++ == 0) { /* it had to find the key */
		before = s->actor.tr->stats;
		s->round_trips = s->bytes = 0;
		return;
	}
	s->round_trips += s->actor.tr->stats.phases - before.phases - 1;
	s->bytes += s->actor.tr->stats.read_bytes - before.read_bytes - LOOK;
}

/* The key is known, and no chunk of it. */
static void begin(struct scene *s)
{
	s->calls = 0;
	read_range(s, 0, 1);
	heap_ahead_free(&s->actor.acc);
}

static uint64_t chunk_bytes(uint32_t c)
{
	return c == CHUNKS - 1 ? REST : SHARE;
}

/* An eighth of a chunk in each call. The sixth chunk comes with 1 more, then 2, 4 and, as the window has 8, 7. */
TEST(ranges__in_order_read_each_chunk_once)
{
	struct scene s;

	scene_open(&s, wire_wrap);
	begin(&s);
	for (uint64_t at = 0; at < BYTES; at += SHARE / 8)
		read_range(&s, at, SHARE / 8);
	assert_int_equal(s.bytes, BYTES);
	assert_int_equal(s.round_trips, 12); /* at 0, 1, 2, 3, 4, 5, 7, 10, 15, 23, 31, 39 */
	scene_close(&s);
}

/* Ranges of any length, as tensors have. */
TEST(ranges__of_any_length_in_order)
{
	struct scene s;
	struct rng rng;

	scene_open(&s, wire_wrap);
	rng_seed(&rng, 1, 0);
	for (uint32_t i = 0; i < 10; i++) {
		begin(&s);
		for (uint64_t at = 0, n; at < BYTES; at += n) {
			n = 1 + rng_uniform_u64(&rng, 3 * SHARE);
			read_range(&s, at, n);
		}
		assert_int_equal(s.bytes, BYTES);
		assert_in_range(s.round_trips, 6, 20);
	}
	scene_close(&s);
}

TEST(ranges__backwards_and_with_a_stride)
{
	static const struct {
		int64_t step;
		uint32_t reads, first, round_trips;
	} cases[] = { { -1, CHUNKS, CHUNKS - 1, 12 }, { 3, 14, 0, 8 }, { -5, 8, 38, 7 } };
	struct scene s;

	scene_open(&s, wire_wrap);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint64_t want = 0;

		begin(&s);
		for (uint32_t k = 0; k < cases[i].reads; k++) {
			uint32_t c = (uint32_t)(cases[i].first + k * cases[i].step);

			read_range(&s, (uint64_t)c * SHARE + 5, 10);
			want += chunk_bytes(c);
		}
		assert_int_equal(s.bytes, want);
		assert_int_equal(s.round_trips, cases[i].round_trips);
	}
	scene_close(&s);
}

/* Nothing is read ahead: each call reads its chunk, if it is not among those that were read last. */
TEST(ranges__at_random_read_no_chunk_ahead)
{
	uint32_t has[WINDOW] = { 0 };
	struct scene s;
	struct rng rng;

	scene_open(&s, wire_wrap);
	rng_seed(&rng, 1, 0);
	begin(&s);
	for (uint32_t i = 0; i < 1000; i++) {
		uint32_t c = (uint32_t)rng_uniform_u64(&rng, CHUNKS), *slot = &has[c % WINDOW];
		uint64_t before = s.bytes;

		read_range(&s, (uint64_t)c * SHARE + rng_uniform_u64(&rng, REST - 100), 100);
		assert_int_equal(s.bytes - before, *slot == c + 1 ? 0 : chunk_bytes(c));
		*slot = c + 1;
	}
	scene_close(&s);
}

/* A bound below a chunk: one slot, and no chunk ahead. */
TEST(ranges__within_a_small_bound)
{
	struct scene s;

	scene_open(&s, wire_wrap);
	begin(&s);
	for (uint64_t at = 0; at < BYTES / 2; at += SHARE / 8)
		read_range(&s, at, SHARE / 8);
	s.actor.acc.window_bytes = 3 * EXTENT; /* it changes between two calls */
	for (uint64_t at = BYTES / 2 / SHARE * SHARE; at < BYTES; at += SHARE / 8)
		read_range(&s, at, SHARE / 8);
	begin(&s);
	s.actor.acc.window_bytes = EXTENT / 2;
	for (uint64_t at = 0; at < BYTES; at += SHARE / 8)
		read_range(&s, at, SHARE / 8);
	assert_int_equal(s.bytes, BYTES);
	assert_int_equal(s.round_trips, 2 * (CHUNKS - 1) + 1); /* each by two parts */
	scene_close(&s);
}

/* Chunks that were read ahead are of the version before: they are not given. */
static void of_new_versions(struct transport *(*wrap)(struct transport *inner))
{
	struct scene s;

	scene_open(&s, wrap);
	for (uint64_t at = 0, i = 0; at < BYTES; at += SHARE / 2, i++) {
		if (i % 11 == 10)
			put(&s, "k", i);
		must(get(&s, "k", at, SHARE / 2));
		assert_memory_equal(memory, value + at, min_u64(SHARE / 2, BYTES - at));
	}
	scene_close(&s);
}

TEST(ranges__of_new_versions_in_place)
{
	of_new_versions(NULL);
}

TEST(ranges__of_new_versions_over_a_wire)
{
	of_new_versions(wire_wrap);
}

TEST(ranges__of_two_values_in_turn)
{
	static uint8_t other[BYTES];
	struct scene s;

	scene_open(&s, wire_wrap);
	put(&s, "o", 2);
	memcpy(other, value, BYTES);
	put(&s, "k", 3); /* the second version of k, and the first of o */
	for (uint64_t at = 0; at < 12 * SHARE; at += SHARE) {
		must(get(&s, "k", at, 1000));
		assert_memory_equal(memory, value + at, 1000);
		must(get(&s, "o", at, 1000));
		assert_memory_equal(memory, other + at, 1000);
	}
	scene_close(&s);
}

/* A chunk that was read ahead is damaged: only its reader gets an error, and each time. */
TEST(ranges__with_a_damaged_chunk_ahead)
{
	struct scene s;
	uint8_t *at, *rows;

	scene_open(&s, wire_wrap);
	rows = s.fx.heap->rows->base;
	at = memmem(rows, s.fx.heap->rows->size, value + 11 * SHARE + 700, 64);
	assert_non_null(at);
	*at ^= 4;
	for (uint32_t c = 0; c < CHUNKS - 1; c++) {
		int ret = get(&s, "k", (uint64_t)c * SHARE, 100);

		assert_int_equal(ret, c == 11 ? -EBADMSG : 0);
		if (ret == 0)
			assert_memory_equal(memory, value + (uint64_t)c * SHARE, 100);
	}
	assert_int_equal(get(&s, "k", 11 * SHARE, SHARE), -EBADMSG);
	*at ^= 4;
	must(get(&s, "k", 11 * SHARE, SHARE));
	assert_memory_equal(memory, value + 11 * SHARE, SHARE);
	scene_close(&s);
}

static struct transport *faulty(struct transport *inner)
{
	struct transport *tr;

	must(fault_wrap(wire_wrap(inner), NULL, &tr));
	return tr;
}

/* The n-th operation fails: the call may be repeated, and what it left half read is read again. */
TEST(ranges__with_a_failing_operation)
{
	uint32_t failed, n = 0;
	struct scene s;

	scene_open(&s, faulty);
	do {
		failed = 0;
		heap_ahead_free(&s.actor.acc);
		fault_set(s.actor.tr, &(struct fault_plan){ .fail_at = ++n });
		for (uint32_t c = 0; c < 16; c++) {
			int ret = get(&s, "k", (uint64_t)c * SHARE, 2 * SHARE);

			failed += ret != 0;
			if (ret)
				must(get(&s, "k", (uint64_t)c * SHARE, 2 * SHARE));
			assert_memory_equal(memory, value + (uint64_t)c * SHARE, 2 * SHARE);
		}
		assert_in_range(failed, 0, 1);
	} while (failed);
	assert_in_range(n, 20, 100);
	scene_close(&s);
}

int main(void)
{
	return test_run(NULL, NULL);
}
