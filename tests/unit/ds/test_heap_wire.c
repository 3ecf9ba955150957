/* A heap over a wire: round trips are exact, and what chains may reorder is reordered. */
#include "tests/support/fixture/heap_fixture.h"
#include "tests/support/fake/wire_transport.h"
#include "tests/support/must_internal.h"

#include "base/rng.h"

#include <errno.h>
#include <string.h>

static uint64_t phases(const struct heap_client *client)
{
	return client->tr->stats.phases;
}

static void expect_get(struct heap_client *client, const char *key, uint64_t version, uint64_t cost)
{
	uint64_t before = phases(client);
	struct heap_value got;

	assert_int_equal(heap_fixture_get(client, key, &got), version);
	assert_int_equal(phases(client) - before, cost);
}

static void expect_put(struct heap_client *client, const char *key, uint64_t len, uint64_t cost)
{
	static const uint8_t value[4096];
	uint64_t before = phases(client), version;

	must(heap_fixture_put(client, key, value, len, &version));
	assert_int_equal(phases(client) - before, cost);
}

/* 1 round trip for all that are warm, and one more for each value that was put since. */
TEST(cost__get_many_1)
{
	static uint8_t memory[HEAP_MANY][1000], value[1000];
	struct heap_ask asks[HEAP_MANY];
	struct heap_fixture fx;
	struct heap_client a, b;
	char text[8];
	uint64_t version, before;

	heap_fixture_open(&fx, 200, 20);
	heap_fixture_join(&fx, 1, wire_wrap, &a);
	heap_fixture_join(&fx, 2, wire_wrap, &b);
	for (uint32_t i = 0; i < HEAP_MANY; i++) {
		struct heap_value got;

		snprintf(text, sizeof(text), "k%u", i);
		value[0] = (uint8_t)i;
		must(heap_fixture_put(&a, text, value, i % 2 ? 1000 : 50, &version));
		assert_int_equal(heap_fixture_get(&b, text, &got), 1);
	}
	for (uint32_t round = 0; round < 3; round++) {
		char keys[HEAP_MANY][8];

		for (uint32_t i = 0; i < HEAP_MANY; i++) {
			snprintf(keys[i], sizeof(keys[i]), "k%u", i);
			asks[i] = (struct heap_ask){ .room = { memory[i], sizeof(memory[i]) } };
			asks[i].key =
				chain_key(keys[i], (uint32_t)strlen(keys[i]), fx.heap->desc.seed);
		}
		before = phases(&b);
		must(heap_get_many(&b.acc, asks, HEAP_MANY));
		assert_int_equal(phases(&b) - before, round == 1 ? 1 + 1 : 1);
		for (uint32_t i = 0; i < HEAP_MANY; i++) {
			assert_int_equal(asks[i].status, 0);
			assert_int_equal(asks[i].value.len, i % 2 ? 1000 : 50);
			assert_int_equal(memory[i][0], round && i < 2 ? 200 : i);
		}
		value[0] = 200;
		if (round == 0) { /* the small one is in its head's cell */
			must(heap_fixture_put(&a, "k0", value, 50, &version));
			must(heap_fixture_put(&a, "k1", value, 1000, &version));
			must(heap_fixture_put(&a, "last", value, 1000, &version));
		}
	}
	heap_fixture_leave(&a);
	heap_fixture_leave(&b);
	heap_fixture_close(&fx);
}

/* Asks of that many keys "k0", .., each with its own value of 50 bytes, or, for each 16th, of 1000. */
static void ask_puts(const struct heap_client *client, struct heap_put_ask *asks, uint32_t n,
		     uint8_t mark)
{
	static uint8_t values[HEAP_MANY][1000];
	static char keys[HEAP_MANY][12];

	for (uint32_t i = 0; i < n; i++) {
		snprintf(keys[i], sizeof(keys[i]), "k%u", i);
		values[i][0] = (uint8_t)(mark + i);
		asks[i] = (struct heap_put_ask){
			.key = chain_key(keys[i], (uint32_t)strlen(keys[i]),
					 client->heap->desc.seed),
			.put = { .value = values[i],
				 .len = i % 16 ? 50 : 1000,
				 .expected = HEAP_ANY_VERSION },
		};
	}
}

static uint64_t put_asks(struct heap_client *client, struct heap_put_ask *asks, uint32_t n)
{
	uint64_t before = phases(client);

	must(heap_put_many(&client->acc, asks, n));
	for (uint32_t i = 0; i < n; i++) {
		assert_int_equal(asks[i].state, HEAP_PUT_DONE);
		assert_int_equal(asks[i].status, 0);
	}
	return phases(client) - before;
}

/* 2 round trips for all, and 2 more for each put that another one precedes. */
TEST(cost__put_many_2)
{
	struct heap_put_ask asks[HEAP_MANY];
	struct heap_fixture fx;
	struct heap_client a, b;
	struct heap_value got;
	uint64_t version;
	char text[8];

	heap_fixture_open(&fx, 1000, 20);
	heap_fixture_join(&fx, 1, wire_wrap, &a);
	heap_fixture_join(&fx, 2, wire_wrap, &b);
	ask_puts(&a, asks, HEAP_MANY, 0);
	(void)put_asks(&a, asks,
		       HEAP_MANY); /* claims extents; some keys share their first bucket */
	for (uint32_t round = 1; round < 4; round++) {
		ask_puts(&a, asks, HEAP_MANY, (uint8_t)(100 * round));
		assert_int_equal(put_asks(&a, asks, HEAP_MANY), 2);
		for (uint32_t i = 0; i < HEAP_MANY; i++) {
			snprintf(text, sizeof(text), "k%u", i);
			assert_int_equal(asks[i].version, round + 1);
			assert_int_equal(heap_fixture_get(&b, text, &got), round + 1);
			assert_int_equal(got.len, i % 16 ? 50 : 1000);
			assert_int_equal(*(const uint8_t *)got.ptr, (uint8_t)(100 * round + i));
		}
	}
	/* The same key three times, in order: the first wins, the others are put alone. */
	ask_puts(&a, asks, 5, 0);
	asks[2].key = asks[4].key = asks[0].key;
	assert_int_equal(put_asks(&a, asks, 5), 2 + 2 * 2);
	assert_int_equal(asks[0].version, 5);
	assert_int_equal(asks[2].version, 6);
	assert_int_equal(asks[4].version, 7);
	assert_int_equal(heap_fixture_get(&b, "k0", &got), 7);
	assert_int_equal(*(const uint8_t *)got.ptr, 4);
	/* Another client's put between ours is one version more, no conflict. */
	must(heap_fixture_put(&b, "k1", "other", 5, &version));
	assert_int_equal(heap_fixture_get(&b, "none", &got), -ENOENT); /* the cell is on its way */
	ask_puts(&a, asks, 2, 0);
	assert_int_equal(put_asks(&a, asks, 2), 2);
	assert_int_equal(asks[1].version, version + 1);
	heap_fixture_expect_sound(&fx, NULL);
	heap_fixture_leave(&a);
	heap_fixture_leave(&b);
	heap_fixture_close(&fx);
}

TEST(put_many__values_that_do_not_fit_have_their_status)
{
	static uint8_t large[200000];
	struct heap_put_ask asks[40];
	struct heap_client a;
	struct heap_fixture fx;
	struct heap_value got;
	uint32_t full = 0;

	heap_fixture_open(&fx, 100, 4);
	heap_fixture_join(&fx, 1, wire_wrap, &a);
	ask_puts(&a, asks, 40, 0);
	for (uint32_t i = 0; i < 40; i++) /* a few of them fit, in chunks or beside one another */
		asks[i].put = (struct heap_put){ .value = large,
						 .len = i == 3 ? sizeof(large) : 30000,
						 .expected = HEAP_ANY_VERSION };
	must(heap_put_many(&a.acc, asks, 40));
	for (uint32_t i = 0; i < 40; i++) {
		char text[8];

		snprintf(text, sizeof(text), "k%u", i);
		assert_int_equal(asks[i].state, HEAP_PUT_DONE);
		assert_true(asks[i].status == 0 || asks[i].status == -ENOSPC);
		assert_int_equal(heap_fixture_get(&a, text, &got), asks[i].status ? -ENOENT : 1);
		full += asks[i].status != 0;
	}
	assert_in_range(full, 30, 38);
	heap_fixture_expect_sound(&fx, NULL);
	heap_fixture_leave(&a);
	heap_fixture_close(&fx);
}

TEST(cost__get_1_put_2)
{
	struct heap_fixture fx;
	struct heap_client a, b;
	struct heap_value got;
	uint64_t before;

	heap_fixture_open(&fx, 100, 10);
	heap_fixture_join(&fx, 1, wire_wrap, &a);
	heap_fixture_join(&fx, 0, wire_wrap, &b);
	/* The first of a class claims an extent. */
	expect_put(&a, "large", 1000, 2 + 2);
	expect_put(&a, "small", 64, 2 + 2);
	expect_put(&a, "large", 1000, 2);
	expect_put(&a, "small", 64, 2);
	expect_put(&a, "new", 1000, 2);
	assert_int_equal(heap_fixture_get(&a, "none", &got), -ENOENT);
	/* Cold: the head record, then the entry; a small value is in the record. */
	expect_get(&b, "large", 2, 2);
	expect_get(&b, "small", 2, 1);
	expect_get(&b, "large", 2, 1);
	expect_get(&b, "small", 2, 1);
	/* Of a client that wrote it itself. */
	expect_get(&a, "large", 2, 1);
	/* The head has moved: small values are in it, others need their entry. */
	expect_put(&a, "large", 1000, 2);
	expect_put(&a, "small", 64, 2);
	assert_int_equal(heap_fixture_get(&a, "none", &got), -ENOENT); /* cells are on their way */
	before = phases(&b);
	expect_get(&b, "large", 3, 2);
	expect_get(&b, "large", 3, 1);
	expect_get(&b, "small", 3, 1);
	assert_int_equal(heap_fixture_get(&b, "absent", &got), -ENOENT);
	assert_int_equal(phases(&b) - before, 5);
	heap_fixture_expect_sound(&fx, NULL);
	heap_fixture_leave(&a);
	heap_fixture_leave(&b);
	heap_fixture_close(&fx);
}

/* Collecting is paid by what it frees. */
TEST(cost__of_many_puts_stays_near_2)
{
	struct heap_fixture fx;
	struct heap_client a;
	uint8_t value[1000] = { 0 };
	uint64_t version, before;

	heap_fixture_open(&fx, 100, 4);
	heap_fixture_join(&fx, 1, wire_wrap, &a);
	must(heap_fixture_put(&a, "k", value, sizeof(value), &version));
	before = phases(&a);
	for (uint32_t i = 0; i < 2000; i++)
		must(heap_fixture_put(&a, "k", value, sizeof(value), &version));
	assert_in_range(phases(&a) - before, 4000, 4000 + 2000 / 4);
	heap_fixture_leave(&a);
	heap_fixture_close(&fx);
}

TEST(two_clients__see_each_others_versions)
{
	struct rng rng;
	struct heap_fixture fx;
	struct heap_client clients[2];
	uint64_t versions[10] = { 0 }, version;
	uint8_t value[600] = { 0 };
	struct heap_value got;
	char key[16];
	int ret;

	rng_seed(&rng, test_seed("heap over a wire", 11), 0);
	heap_fixture_open(&fx, 100, 20);
	for (uint32_t i = 0; i < 2; i++) {
		heap_fixture_join(&fx, i + 1, wire_wrap, &clients[i]);
		wire_seed(clients[i].tr, i);
	}
	for (uint32_t i = 0; i < 20000; i++) {
		uint32_t k = (uint32_t)rng_uniform_u64(&rng, 10);
		struct heap_client *client = &clients[rng_uniform_u64(&rng, 2)];
		uint64_t len = 8 + rng_uniform_u64(&rng, sizeof(value) - 8);

		snprintf(key, sizeof(key), "key-%u", k);
		if (rng_uniform_u64(&rng, 2)) {
			memset(value, (int)(versions[k] + 1), sizeof(value));
			/* The end of a pin is under way until its client looks. */
			while ((ret = heap_fixture_put(client, key, value, len, &version)) ==
			       -EAGAIN)
				for (uint32_t c = 0; c < 2; c++)
					(void)heap_fixture_get(&clients[c], "none", &got);
			must(ret);
			assert_int_equal(version, ++versions[k]);
		} else if (versions[k]) {
			assert_int_equal(heap_fixture_get(client, key, &got), versions[k]);
			assert_int_equal(*(const uint8_t *)got.ptr, (uint8_t)versions[k]);
		}
	}
	heap_fixture_expect_sound(&fx, NULL);
	for (uint32_t i = 0; i < 2; i++)
		heap_fixture_leave(&clients[i]);
	heap_fixture_close(&fx);
}

int main(void)
{
	return test_run(NULL, NULL);
}
