/*
 * Modes direct and central of a heap: a writer, or the coordinator, that dies after each of its
 * operations, or loses or tears one of them. What was answered is true, the rest is undone or complete,
 * and no lock is left.
 */
#include "ds/heap/central.h"

#include "tests/support/fixture/heap_fixture.h"
#include "tests/support/fake/fault.h"
#include "tests/support/must_internal.h"

#include <errno.h>
#include <string.h>

#define VALUE_BYTES 600
#define COPY 1024u

static struct transport *wrap(struct transport *inner)
{
	struct transport *tr;

	must(fault_wrap(inner, NULL, &tr));
	return tr;
}

static void fill(uint8_t value[VALUE_BYTES], uint64_t number)
{
	memset(value, (int)number, VALUE_BYTES);
	memcpy(value, &number, sizeof(number));
}

/* Puts of two keys, and a deletion, until the first error. acked: the versions that were answered. */
static int run_script(struct heap_client *client, uint64_t acked[2])
{
	struct heap_put deletes = { .deletes = true, .expected = HEAP_ANY_VERSION };
	struct chain_key key = chain_key("a", 1, client->heap->desc.seed);
	uint8_t value[VALUE_BYTES];
	uint64_t version;
	int ret = 0;

	for (uint64_t i = 0; ret == 0 && i < 8; i++) {
		fill(value, acked[i % 2] + 1);
		ret = heap_fixture_put(client, i % 2 ? "b" : "a", value, sizeof(value), &version);
		if (ret == 0 && version != ++acked[i % 2])
			fail_msg("version %d", (int)version);
	}
	if (ret == 0)
		ret = heap_put(&client->acc, &key, &deletes, &version);
	acked[0] += ret == 0;
	return ret;
}

/* The key has the version that was answered last, or the next, whole; and can be put again. */
static void expect_key(struct heap_client *client, const char *text, uint64_t acked)
{
	uint8_t want[VALUE_BYTES];
	struct heap_value got = { 0 };
	int64_t found = heap_fixture_get(client, text, &got);
	uint64_t version;

	if (found != -ENOENT) {
		assert_in_range(found, acked, acked + 1);
		fill(want, (uint64_t)found);
		assert_int_equal(got.len, sizeof(want));
		assert_memory_equal(got.ptr, want, sizeof(want));
		acked = (uint64_t)found;
	}
	must(heap_fixture_put(client, text, want, 8, &version));
	assert_in_range(version, acked + 1, acked + 2);
}

/* Runs the script with that plan, for the writer or the coordinator, which then is dead; looks at what
   is left. Returns the script's result. */
static int run_with(enum heap_mode mode, const struct fault_plan *plan)
{
	uint64_t acked[2] = { 0, 0 };
	struct heap_client victim, other;
	struct heap_fixture fx;
	int ret;

	heap_fixture_open_mode(&fx, mode, 100, COPY);
	heap_fixture_join(&fx, 1, wrap, &victim);
	victim.acc.link.ctx = victim.heap;
	fault_set(victim.tr, plan);
	ret = run_script(&victim, acked);
	fault_set(victim.tr, &(struct fault_plan){ .cut_at = 1 });
	heap_fixture_kill(&victim);
	heap_fixture_expect_sound(&fx, NULL);
	heap_fixture_join(&fx, 2, NULL, &other);
	expect_key(&other, "a", acked[0]);
	expect_key(&other, "b", acked[1]);
	heap_fixture_expect_sound(&fx, NULL);
	heap_fixture_leave(&other);
	heap_fixture_close(&fx);
	return ret;
}

static uint32_t cut_at_each(enum heap_mode mode)
{
	uint32_t n = 1;

	while (run_with(mode, &(struct fault_plan){ .cut_at = n }))
		n++;
	return n;
}

TEST(direct__writer_killed_after_each_operation)
{
	assert_true(cut_at_each(HEAP_DIRECT) > 9 * 4);
}

TEST(central__coordinator_killed_after_each_operation)
{
	assert_true(cut_at_each(HEAP_CENTRAL) > 9);
}

static void faults(enum heap_mode mode)
{
	uint32_t failed = 0;

	for (uint32_t n = 1; n < 60; n++)
		failed += run_with(mode, &(struct fault_plan){ .fail_at = n,
							       .fail_code = -ETIMEDOUT }) != 0;
	for (uint64_t seed = 1; seed <= 100; seed++) {
		failed += run_with(mode, &(struct fault_plan){ .seed = seed, .tear_rate = 3000 }) !=
			  0;
		failed += run_with(mode, &(struct fault_plan){ .seed = seed, .drop_rate = 3000 }) !=
			  0;
		failed += run_with(mode,
				   &(struct fault_plan){ .seed = seed, .unknown_rate = 3000 }) != 0;
	}
	print_message("%u runs failed\n", failed);
	assert_true(failed > 40);
}

TEST(direct__operations_that_fail_are_lost_or_torn)
{
	faults(HEAP_DIRECT);
}

TEST(central__operations_that_fail_are_lost_or_torn)
{
	faults(HEAP_CENTRAL);
}

int main(void)
{
	return test_run(NULL, NULL);
}
