/*
 * A client of a heap that dies after each of its operations, or loses or tears one of them: what it
 * was told is true, the rest is undone or complete, and nothing is leaked.
 */
#include "tests/support/fixture/heap_fixture.h"
#include "tests/support/fake/fault.h"
#include "tests/support/must_internal.h"

#include "base/mem/alloc.h"

#include <errno.h>
#include <string.h>

#define VALUE_BYTES 3000
#define LARGE_BYTES (3 * 65472 + 100)

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

/* Puts of new and old keys, enough to collect space, until the first error. acked: versions of the
   two keys that were answered. */
static int run_script(struct heap_client *client, uint64_t acked[2])
{
	uint8_t value[VALUE_BYTES];
	struct chain_key key;
	uint64_t version;
	int ret = 0;

	for (uint64_t i = 0; ret == 0 && i < 60; i++) {
		fill(value, acked[i % 2] + 1);
		ret = heap_fixture_put(client, i % 2 ? "b" : "a", value, sizeof(value), &version);
		if (ret == 0 && version != ++acked[i % 2])
			fail_msg("version %d", (int)version);
		if (ret == 0 && i % 20 == 10) {
			const struct heap_put put = { .deletes = true,
						      .expected = HEAP_ANY_VERSION };

			key = chain_key("a", 1, client->heap->desc.seed);
			ret = heap_put(&client->acc, &key, &put, &version);
			acked[0] += ret == 0;
		}
	}
	return ret;
}

/* The same by calls of two puts. */
static int run_many_script(struct heap_client *client, uint64_t acked[2])
{
	uint8_t values[2][VALUE_BYTES];
	int ret = 0;

	for (uint64_t i = 0; ret == 0 && i < 30; i++) {
		struct heap_put_ask asks[2];

		for (uint64_t k = 0; k < 2; k++) {
			fill(values[k], acked[k] + 1);
			asks[k] = (struct heap_put_ask){
				.key = chain_key(k ? "b" : "a", 1, client->heap->desc.seed),
				.put = { .value = values[k],
					 .len = VALUE_BYTES,
					 .expected = HEAP_ANY_VERSION },
			};
		}
		ret = heap_put_many(&client->acc, asks, 2);
		for (uint64_t k = 0; k < 2; k++) {
			if (asks[k].state != HEAP_PUT_DONE)
				assert_true(ret != 0 && (asks[k].state == HEAP_PUT_OPEN ||
							 client->acc.in_doubt));
			else if (asks[k].status)
				ret = asks[k].status;
			else if (asks[k].version != ++acked[k])
				fail_msg("version %d", (int)asks[k].version);
		}
	}
	return ret;
}

/* Puts of values in chunks until the first error; more than fit at a time. */
static int run_large_script(struct heap_client *client, uint64_t *acked)
{
	static uint8_t value[LARGE_BYTES];
	uint64_t version;
	int ret = 0;

	for (uint64_t i = 0; ret == 0 && i < 12; i++) {
		memset(value, (int)i + 1, sizeof(value));
		ret = heap_fixture_put(client, "large", value, sizeof(value), &version);
		if (ret == 0 && version != ++*acked)
			fail_msg("version %d", (int)version);
	}
	return ret;
}

static void expect_large(struct heap_client *client, uint64_t acked)
{
	static uint8_t want[LARGE_BYTES];
	struct heap_value got = { 0 };
	int64_t version = heap_fixture_get(client, "large", &got);

	if (version == -ENOENT) {
		assert_int_equal(acked, 0);
		return;
	}
	assert_in_range(version, acked, acked + 1);
	memset(want, (int)version, sizeof(want));
	assert_int_equal(got.len, sizeof(want));
	assert_memory_equal(got.ptr, want, sizeof(want));
}

/* The key has the version that was acknowledged last, or the next, whole. */
static void expect_key(struct heap_client *client, const char *text, uint64_t acked)
{
	uint8_t want[VALUE_BYTES];
	struct heap_value got = { 0 };
	int64_t version = heap_fixture_get(client, text, &got);

	if (version == -ENOENT) {
		assert_true(acked == 0 || (got.version >= acked && got.version <= acked + 1));
		return;
	}
	assert_in_range(version, acked, acked + 1);
	fill(want, (uint64_t)version);
	assert_int_equal(got.len, sizeof(want));
	assert_memory_equal(got.ptr, want, sizeof(want));
}

/* Number of new keys that fit. */
static uint32_t count_room(struct heap_client *client)
{
	uint8_t value[VALUE_BYTES] = { 0 };
	uint64_t version;
	char key[16];
	uint32_t n = 0;
	int ret = 0;

	while (ret == 0) {
		snprintf(key, sizeof(key), "room-%u", n);
		ret = heap_fixture_put(client, key, value, sizeof(value), &version);
		n += ret == 0;
	}
	assert_int_equal(ret, -ENOSPC);
	assert_non_null(strstr(error_last(), "is full"));
	return n;
}

/* Runs the script with that plan, and looks at what is left. Returns the script's result. */
static int run_with(int (*script)(struct heap_client *client, uint64_t acked[2]),
		    const struct fault_plan *plan)
{
	uint64_t acked[2] = { 0, 0 };
	struct heap_client victim, other;
	struct heap_check_report report;
	struct heap_fixture fx;
	uint32_t room;
	int ret;

	heap_fixture_open(&fx, 200, 3);
	heap_fixture_join(&fx, 1, wrap, &victim);
	victim.acc.in_place = false; /* each step is a call of the transport */
	fault_set(victim.tr, plan);
	ret = script(&victim, acked);
	fault_set(victim.tr, &(struct fault_plan){ .cut_at = 1 });
	heap_fixture_kill(&victim);
	heap_fixture_expect_sound(&fx, &report);
	assert_int_equal(report.extents.owned, 0);
	heap_fixture_join(&fx, 2, NULL, &other);
	expect_key(&other, "a", acked[0]);
	expect_key(&other, "b", acked[1]);
	/* Every slot of every extent is a key's, but those of one extent, which is kept for deletes,
	   and those beside the deleted key. */
	room = count_room(&other);
	heap_fixture_expect_sound(&fx, &report);
	assert_true(report.keys >= room && report.extents.free <= 1);
	assert_int_equal(report.extents.orphans, 0);
	assert_int_equal(report.keys, 21 * (report.extents.owned - report.deleted));
	heap_fixture_leave(&other);
	heap_fixture_close(&fx);
	return ret;
}

TEST(killed_after_each_operation__nothing_is_lost_or_leaked)
{
	uint32_t n = 1;

	while (run_with(run_script, &(struct fault_plan){ .cut_at = n }))
		n++;
	assert_true(n > 150);
}

/* Runs the large script with that plan. Then another client finds an old value or the new one, and,
   when it has replaced it, all memory. Returns the script's result. */
static int run_large_with(const struct fault_plan *plan)
{
	struct heap_client victim, other;
	struct heap_check_report report;
	struct heap_fixture fx;
	uint64_t acked = 0, version;
	int ret;

	heap_fixture_open(&fx, 400, 12);
	heap_fixture_join(&fx, 1, wrap, &victim);
	victim.acc.in_place = false; /* each step is a call of the transport */
	fault_set(victim.tr, plan);
	ret = run_large_script(&victim, &acked);
	fault_set(victim.tr, &(struct fault_plan){ .cut_at = 1 });
	heap_fixture_kill(&victim);
	heap_fixture_expect_sound(&fx, &report);
	heap_fixture_join(&fx, 2, NULL, &other);
	expect_large(&other, acked);
	must(heap_fixture_put(&other, "large", "", 0, &version));
	(void)count_room(&other);
	heap_fixture_expect_sound(&fx, &report);
	assert_true(report.extents.free <= 1);
	assert_int_equal(report.extents.orphans, 0);
	assert_int_equal(report.keys - 1, 21 * (report.extents.owned - 1));
	heap_fixture_leave(&other);
	heap_fixture_close(&fx);
	return ret;
}

TEST(large_values__killed_after_each_operation__nothing_is_lost_or_leaked)
{
	uint32_t n = 1;

	while (run_large_with(&(struct fault_plan){ .cut_at = n }))
		n++;
	assert_true(n > 60);
	for (uint64_t i = 1; i < n; i++)
		(void)run_large_with(&(struct fault_plan){ .fail_at = i, .fail_code = -EIO });
}

TEST(each_operation_fails_once__the_error_is_typed)
{
	uint32_t n = 1, failed = 0;
	int ret;

	do {
		ret = run_with(run_script,
			       &(struct fault_plan){ .fail_at = n++, .fail_code = -ETIMEDOUT });
		assert_true(ret == 0 || ret == -ETIMEDOUT || ret == -EIO);
		failed += ret != 0;
	} while (n < 250);
	assert_true(failed > 100);
}

TEST(many__each_operation_is_the_last_or_fails_once)
{
	uint32_t n = 1, failed = 0;
	int ret;

	while (run_with(run_many_script, &(struct fault_plan){ .cut_at = n }))
		n++;
	assert_true(n > 60);
	for (uint32_t i = 1; i < n; i++) {
		ret = run_with(run_many_script,
			       &(struct fault_plan){ .fail_at = i, .fail_code = -ETIMEDOUT });
		assert_true(ret == 0 || ret == -ETIMEDOUT || ret == -EIO);
		failed += ret != 0;
	}
	assert_true(failed > n / 3);
	for (uint64_t seed = 1; seed <= 15; seed++) {
		(void)run_with(run_many_script,
			       &(struct fault_plan){ .seed = seed, .tear_rate = 600 });
		(void)run_with(run_many_script,
			       &(struct fault_plan){ .seed = seed, .drop_rate = 600 });
		(void)run_with(run_many_script,
			       &(struct fault_plan){ .seed = seed, .unknown_rate = 600 });
	}
}

TEST(torn_dropped_and_unknown__are_never_read)
{
	uint32_t failed = 0;

	for (uint64_t seed = 1; seed <= 100; seed++) {
		failed += run_with(run_script,
				   &(struct fault_plan){ .seed = seed, .tear_rate = 600 }) != 0;
		failed += run_with(run_script,
				   &(struct fault_plan){ .seed = seed, .drop_rate = 600 }) != 0;
		failed += run_with(run_script,
				   &(struct fault_plan){ .seed = seed, .unknown_rate = 600 }) != 0;
	}
	assert_true(failed > 100);
}

/* A range of a value in chunks is right, or the error typed. */
static int run_range_with(const struct fault_plan *plan, uint64_t no_memory_at)
{
	static const uint8_t value[LARGE_BYTES] = { [70000] = 7 };
	const struct heap_range range = { 69999, 130000 };
	const struct heap_room room = { NULL, 0 };
	struct heap_client writer, client;
	struct heap_fixture fx;
	struct heap_value got;
	struct chain_key key;
	uint64_t version;
	int ret;

	heap_fixture_open(&fx, 400, 12);
	heap_fixture_join(&fx, 1, NULL, &writer);
	heap_fixture_join(&fx, 2, wrap, &client);
	client.acc.in_place = !plan;
	key = chain_key("large", 5, client.heap->desc.seed);
	must(heap_fixture_put(&writer, "large", value, sizeof(value), &version));
	fault_set(client.tr, plan ? plan : &(struct fault_plan){ 0 });
	mem_fail_after(no_memory_at);
	ret = heap_get_range(&client.acc, &key, &range, &room, &got);
	mem_fail_after(0);
	fault_set(client.tr, &(struct fault_plan){ 0 });
	if (ret == 0) {
		assert_int_equal(got.len, sizeof(value) - range.offset);
		assert_memory_equal(got.ptr, value + range.offset, got.len);
	}
	heap_fixture_expect_sound(&fx, NULL);
	heap_fixture_leave(&client);
	heap_fixture_leave(&writer);
	heap_fixture_close(&fx);
	return ret;
}

TEST(a_range__each_operation_and_allocation_fails_once)
{
	uint64_t n = 1;

	while (run_range_with(&(struct fault_plan){ .fail_at = n, .fail_code = -EIO }, 0) == -EIO)
		n++;
	assert_true(n > 3);
	for (n = 1; run_range_with(NULL, n) == -ENOMEM;)
		n++;
	assert_int_equal(n, 5); /* manifest, value, what is kept of chunks, and their bytes */
	for (uint64_t seed = 1; seed <= 20; seed++)
		assert_int_not_equal(
			run_range_with(&(struct fault_plan){ .seed = seed, .tear_rate = 30000 }, 0),
			-EBADMSG);
}

/* Every allocation of an access fails once. */
TEST(no_memory__is_an_error)
{
	uint64_t acked[2], n = 1;
	struct heap_client client;
	struct heap_fixture fx;
	int ret;

	do {
		heap_fixture_open(&fx, 200, 3);
		heap_fixture_join(&fx, 1, NULL, &client);
		memset(acked, 0, sizeof(acked));
		mem_fail_after(n++);
		ret = run_script(&client, acked);
		mem_fail_after(0);
		assert_true(ret == 0 || ret == -ENOMEM);
		heap_fixture_expect_sound(&fx, NULL);
		heap_fixture_leave(&client);
		heap_fixture_close(&fx);
	} while (ret);
	assert_true(n > 3);
}

int main(void)
{
	return test_run(NULL, NULL);
}
