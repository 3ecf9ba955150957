/*
 * Copies of one part: what a put leaves when it ends at any step, a copy is lost there, or its owner dies;
 * filling; round trips.
 */
#include "tests/support/fake/fault.h"
#include "tests/support/fake/wire_transport.h"
#include "tests/support/fixture/copies_fixture.h"
#include "tests/support/must_internal.h"

#include "ds/heap/copies.h"

#include "base/bits.h"
#include "base/rng.h"

#include <errno.h>
#include <string.h>

#define KEYS 12u
#define VALUE_BYTES 66000u /* more than an extent: two chunks */

/* Becomes the owner. */
static int own(struct copies_client *client)
{
	struct heap_access *acc = &client->at[0].acc;
	uint64_t newest;
	bool settle;
	int ret = heap_copies_claim(&client->copies, &client->self, &settle, &newest);

	if (ret == 0 && settle)
		ret = heap_copies_settle(&client->copies, client->self.owner);
	if (ret)
		return ret;
	heap_access_reset(acc);
	acc->copies = acc->space.copies = &client->copies;
	return 0;
}

static void leave(struct copies_client *client)
{
	heap_access_reset(&client->at[0].acc);
	client->at[0].acc.space.copies = NULL;
	must(heap_copies_release(&client->copies, &client->self));
	for (uint32_t i = 0; i < client->copies.n_all; i++)
		heap_fixture_leave(&client->at[i]);
}

/* Some keys have small values, one a long one. */
static uint64_t len_of(uint32_t k)
{
	return k == 5 ? VALUE_BYTES : k % 3 ? 3000 : 40;
}

static void fill(uint8_t *value, uint64_t len, uint64_t number)
{
	memset(value, (int)number, len);
	memcpy(value, &number, sizeof(number));
}

/* Puts the key's next version, with its number as the value. */
static int put_next(struct copies_client *client, uint32_t k, uint64_t acked[KEYS])
{
	uint8_t value[VALUE_BYTES];
	char key[8];
	uint64_t version;
	int ret;

	snprintf(key, sizeof(key), "%u", k);
	fill(value, len_of(k), acked[k] + 1);
	ret = heap_fixture_put(&client->at[0], key, value, len_of(k), &version);
	if (ret == 0)
		assert_int_equal(version, ++acked[k]);
	return ret;
}

/* Each key has the version that was acknowledged, or the next one if that was in doubt, whole. */
static void expect_keys(struct copies_client *client, const uint64_t acked[KEYS])
{
	uint8_t want[VALUE_BYTES];
	struct heap_value got;
	uint32_t ahead = 0;
	char key[8];

	for (uint32_t k = 0; k < KEYS; k++) {
		int64_t version;

		snprintf(key, sizeof(key), "%u", k);
		version = heap_fixture_get(&client->at[0], key, &got);
		if (version == -ENOENT && acked[k] == 0)
			continue;
		assert_in_range(version, acked[k], acked[k] + 1);
		ahead += (uint64_t)version != acked[k];
		fill(want, len_of(k), (uint64_t)version);
		assert_int_equal(got.len, len_of(k));
		assert_memory_equal(got.ptr, want, got.len);
	}
	assert_in_range(ahead, 0, 1);
}

/* As expect_keys; a put in doubt is known from here on. */
static void catch_up(struct copies_client *client, uint64_t acked[KEYS])
{
	struct heap_value got;
	char key[8];

	expect_keys(client, acked);
	for (uint32_t k = 0; k < KEYS; k++) {
		int64_t version;

		snprintf(key, sizeof(key), "%u", k);
		version = heap_fixture_get(&client->at[0], key, &got);
		acked[k] = version > 0 ? (uint64_t)version : 0;
	}
}

/* -------- costs -------- */

static void expect_put(struct copies_client *client, const char *key, uint64_t len, uint64_t cost)
{
	static const uint8_t value[2000];
	uint64_t before = copies_fixture_phases(client), version;

	must(heap_fixture_put(&client->at[0], key, value, len, &version));
	assert_int_equal(copies_fixture_phases(client) - before, cost);
}

static void expect_costs(uint32_t copies)
{
	struct heap_value got;
	struct copies_fixture fx;
	struct copies_client a, b;
	uint64_t before;

	copies_fixture_open(&fx, copies, HEAP_WRITERS_ONE);
	copies_fixture_join(&fx, 0, 1, wire_wrap, &a);
	copies_fixture_join(&fx, 0, 2, wire_wrap, &b);
	must(own(&a));
	/* The first of a class claims an extent, in all copies; and a new key is looked for. */
	expect_put(&a, "large", 1000, 1 + copies + 2 + 2 * (copies - 1));
	expect_put(&a, "large", 1000, copies);
	expect_put(&a, "large", 1000, copies);
	expect_put(&a, "small", 64, 1 + copies + 2 + 2 * (copies - 1));
	expect_put(&a, "small", 64, copies);
	/* Hints that are under way arrive before the next read. */
	assert_int_equal(heap_fixture_get(&a.at[0], "none", &got), -ENOENT);
	assert_int_equal(heap_fixture_get(&b.at[0], "large", &got), 3);
	before = copies_fixture_phases(&b);
	assert_int_equal(heap_fixture_get(&b.at[0], "large", &got), 3);
	assert_int_equal(heap_fixture_get(&b.at[0], "small", &got), 2);
	assert_int_equal(copies_fixture_phases(&b) - before, 2);
	copies_fixture_expect_same(&a);
	leave(&a);
	must(own(&b));
	leave(&b);
	copies_fixture_expect_sound(&fx, 0);
	copies_fixture_close(&fx);
}

TEST(cost__get_1_put_1_for_each_copy)
{
	expect_costs(2);
	expect_costs(3);
}

/* -------- owners -------- */

TEST(claim__of_another_is_busy_until_it_is_given_back)
{
	uint64_t acked[KEYS] = { 0 };
	struct copies_fixture fx;
	struct copies_client a, b;

	copies_fixture_open(&fx, 2, HEAP_WRITERS_ONE);
	copies_fixture_join(&fx, 0, 1, NULL, &a);
	copies_fixture_join(&fx, 0, 2, NULL, &b);
	must(own(&a));
	must(put_next(&a, 1, acked));
	assert_int_equal(own(&b), -EBUSY);
	assert_non_null(strstr(error_last(), "client slot 1 of pid"));
	must(put_next(&a, 1, acked));
	leave(&a);
	must(own(&b));
	must(put_next(&b, 1, acked));
	expect_keys(&b, acked);
	copies_fixture_expect_same(&b);
	leave(&b);
	copies_fixture_close(&fx);
}

/* -------- every step -------- */

/* Puts of all keys in turn, until an error. */
static int run_puts(struct copies_client *client, uint64_t acked[KEYS], uint32_t n)
{
	int ret = 0;

	for (uint32_t i = 0; ret == 0 && i < n; i++)
		ret = put_next(client, i % KEYS, acked);
	return ret;
}

enum after { OWNER_DIES, OWNER_GOES_ON, PRIMARY_IS_LOST, BACKUP_IS_LOST };

/*
 * The n-th call to copy `at` fails as planned; then that happens. Whoever owns the part after that finds
 * each put done or not done, everywhere. False: there were fewer calls.
 */
static bool run_with(uint32_t at, const struct fault_plan *plan, enum after after)
{
	uint64_t acked[KEYS] = { 0 };
	struct copies_client victim, other;
	struct copies_fixture fx;
	uint32_t first = after == PRIMARY_IS_LOST;
	struct fault_counts counts;

	copies_fixture_open(&fx, 2, HEAP_WRITERS_ONE);
	copies_fixture_join(&fx, 0, 1, copies_fixture_faults, &victim);
	must(own(&victim));
	must(run_puts(&victim, acked, KEYS));
	fault_set(victim.at[at].tr, plan);
	(void)run_puts(&victim, acked, 60);
	fault_get(victim.at[at].tr, &counts);
	if (after == OWNER_GOES_ON) {
		fault_set(victim.at[at].tr, &(struct fault_plan){ .seed = 0 });
		must(own(&victim));
		catch_up(&victim, acked);
		must(run_puts(&victim, acked, 20));
		copies_fixture_expect_same(&victim);
	}
	copies_fixture_kill(&victim);
	if (after != BACKUP_IS_LOST) {
		copies_fixture_join(&fx, 0, 0, NULL, &other);
		catch_up(&other, acked); /* what a reader has seen stays */
		copies_fixture_kill(&other);
	}
	if (after == BACKUP_IS_LOST)
		fx.n = 1;
	copies_fixture_join(&fx, first, 2, NULL, &other);
	if (after == PRIMARY_IS_LOST)
		expect_keys(&other, acked); /* before anybody has settled */
	must(own(&other));
	expect_keys(&other, acked);
	copies_fixture_expect_same(&other);
	copies_fixture_expect_sound(&fx, first);
	leave(&other);
	copies_fixture_expect_sound(&fx, first);
	if (after == BACKUP_IS_LOST)
		fx.n = 2;
	copies_fixture_close(&fx);
	return counts.calls >= plan->fail_at + plan->cut_at;
}

static void run_all(uint32_t at, enum after after)
{
	struct fault_plan plan = { .seed = 1 };
	uint32_t n = 0;

	for (plan.fail_at = 1; run_with(at, &plan, after); plan.fail_at++)
		n++;
	assert_in_range(n, 30, 1000);
	plan.fail_at = 0;
	for (plan.cut_at = 1; run_with(at, &plan, after); plan.cut_at++)
		;
}

TEST(owner__dies_at_every_call_to_the_primary)
{
	run_all(0, OWNER_DIES);
}

TEST(owner__dies_at_every_call_to_the_backup)
{
	run_all(1, OWNER_DIES);
}

TEST(owner__goes_on_after_every_failed_call)
{
	run_all(0, OWNER_GOES_ON);
	run_all(1, OWNER_GOES_ON);
}

TEST(primary__lost_at_every_call)
{
	run_all(0, PRIMARY_IS_LOST);
	run_all(1, PRIMARY_IS_LOST);
}

TEST(backup__lost_at_every_call)
{
	run_all(0, BACKUP_IS_LOST);
	run_all(1, BACKUP_IS_LOST);
}

/* An answer is lost, whether the CAS was done or not. */
TEST(owner__unknown_answers)
{
	for (uint32_t seed = 0; seed < 40; seed++) {
		struct fault_plan plan = { .seed = seed, .unknown_rate = 3000 };

		(void)run_with(seed % 2, &plan, OWNER_DIES);
		(void)run_with(seed % 2, &plan, PRIMARY_IS_LOST);
	}
}

/* -------- repair -------- */

/* A third copy is filled in slices of every size, with puts in between, and then serves alone. */
static void fill_by(uint64_t slice)
{
	uint64_t acked[KEYS] = { 0 };
	struct copies_client owner, alone;
	struct copies_fixture fx;
	uint32_t slices = 0;

	copies_fixture_open(&fx, 2, HEAP_WRITERS_ONE);
	copies_fixture_join(&fx, 0, 1, NULL, &owner);
	must(own(&owner));
	must(run_puts(&owner, acked, 40));
	leave(&owner);
	copies_fixture_add(&fx);
	copies_fixture_join(&fx, 1, 1, NULL, &owner);
	assert_int_equal(owner.copies.n, 1);
	assert_int_equal(owner.copies.n_all, 2);
	must(own(&owner));
	for (uint32_t k = 0; owner.copies.n < owner.copies.n_all; k++, slices++) {
		struct heap_access *acc = &owner.at[0].acc;

		must(put_next(&owner, k % KEYS, acked));
		must(heap_copies_fill(&owner.copies, max_u64(slice, slice + acc->chunk_bytes)));
		acc->chunk_bytes = 0;
	}
	assert_true(slice > 100000 ? slices == 1 : slices > 1);
	must(run_puts(&owner, acked, 25));
	copies_fixture_expect_same(&owner);
	leave(&owner);
	copies_fixture_expect_sound(&fx, 1);
	copies_fixture_join(&fx, 2, 2, NULL, &alone);
	assert_int_equal(alone.copies.n, 1);
	must(own(&alone));
	expect_keys(&alone, acked);
	must(run_puts(&alone, acked, 40));
	expect_keys(&alone, acked);
	leave(&alone);
	copies_fixture_expect_sound(&fx, 2);
	copies_fixture_close(&fx);
}

TEST(fill__while_puts_go_on)
{
	fill_by(1);
	fill_by(9000);
	fill_by(UINT64_MAX);
}

/* An owner that dies while it fills leaves a copy that the next owner fills from the start. */
TEST(fill__its_owner_dies_at_every_call)
{
	uint32_t n = 0;

	for (uint64_t cut = 1;; cut++) {
		uint64_t acked[KEYS] = { 0 };
		struct copies_client owner, next, alone;
		struct copies_fixture fx;
		int ret;

		copies_fixture_open(&fx, 2, HEAP_WRITERS_ONE);
		copies_fixture_join(&fx, 0, 1, NULL, &owner);
		must(own(&owner));
		must(run_puts(&owner, acked, 40));
		leave(&owner);
		copies_fixture_add(&fx);
		copies_fixture_join(&fx, 1, 1, copies_fixture_faults, &owner);
		must(own(&owner));
		fault_set(owner.at[1].tr, &(struct fault_plan){ .cut_at = cut });
		ret = heap_copies_fill(&owner.copies, 9000);
		if (ret == 0)
			ret = run_puts(&owner, acked, 10);
		if (ret == 0)
			ret = heap_copies_fill(&owner.copies, UINT64_MAX);
		copies_fixture_kill(&owner);
		copies_fixture_join(&fx, 1, 2, NULL, &next);
		must(own(&next));
		catch_up(&next, acked);
		must(run_puts(&next, acked, 10));
		must(heap_copies_fill(&next.copies, UINT64_MAX));
		expect_keys(&next, acked);
		copies_fixture_expect_same(&next);
		leave(&next);
		copies_fixture_join(&fx, 2, 3, NULL, &alone);
		assert_int_equal(alone.copies.n, 1);
		expect_keys(&alone, acked);
		leave(&alone);
		copies_fixture_expect_sound(&fx, 1);
		copies_fixture_close(&fx);
		n++;
		if (ret == 0)
			break;
	}
	assert_in_range(n, 20, 2000);
}

/* -------- the server fills -------- */

/* A part whose first copy is lost, after some puts, with a new copy; the server has slot 1. */
static void open_lacking(struct copies_fixture *fx, struct copies_client *server,
			 uint64_t acked[KEYS])
{
	struct copies_client owner;

	copies_fixture_open(fx, 2, HEAP_WRITERS_ONE);
	copies_fixture_join(fx, 0, 2, NULL, &owner);
	must(own(&owner));
	must(run_puts(&owner, acked, 40));
	leave(&owner);
	copies_fixture_add(fx);
	copies_fixture_join(fx, 1, 1, NULL, server);
	assert_int_equal(server->copies.n, 1);
	assert_int_equal(server->copies.n_all, 2);
}

static void expect_served_alone(struct copies_fixture *fx, const uint64_t acked[KEYS])
{
	struct copies_client alone;

	copies_fixture_join(fx, 2, 3, NULL, &alone);
	assert_int_equal(alone.copies.n, 1);
	must(own(&alone));
	expect_keys(&alone, acked);
	leave(&alone);
	copies_fixture_expect_sound(fx, 1);
}

static int mend(struct copies_client *server, uint64_t bytes)
{
	bool done = false;
	int ret = heap_copies_mend(&server->copies, &server->self, bytes, &done);

	assert_int_equal(done, ret == 0 && server->copies.n == server->copies.n_all);
	return ret;
}

TEST(mend__fills_a_part_that_nobody_owns)
{
	uint64_t acked[KEYS] = { 0 };
	struct copies_fixture fx;
	struct copies_client server, next;
	uint32_t slices = 0;

	open_lacking(&fx, &server, acked);
	for (; server.copies.n < server.copies.n_all; slices++)
		must(mend(&server, 9000));
	assert_true(slices > 1);
	copies_fixture_expect_same(&server);
	copies_fixture_join(&fx, 1, 2, NULL, &next);
	must(own(&next)); /* it was given back */
	leave(&next);
	copies_fixture_kill(&server);
	expect_served_alone(&fx, acked);
	copies_fixture_close(&fx);
}

TEST(mend__leaves_the_part_to_a_client)
{
	uint64_t acked[KEYS] = { 0 };
	struct copies_fixture fx;
	struct copies_client server, client;

	open_lacking(&fx, &server, acked);
	copies_fixture_join(&fx, 1, 2, NULL, &client);
	must(mend(&server, 1));
	assert_int_equal(own(&client), -EAGAIN);
	assert_int_equal(own(&client), -EAGAIN);
	assert_int_equal(mend(&server, 1), -EBUSY);
	must(own(&client));
	assert_int_equal(mend(&server, 1), -EBUSY); /* it owns the part */
	must(run_puts(&client, acked, 40));
	leave(&client);
	while (server.copies.n < server.copies.n_all)
		must(mend(&server, 9000));
	copies_fixture_join(&fx, 1, 4, NULL, &client);
	expect_keys(&client, acked);
	copies_fixture_expect_same(&client);
	copies_fixture_kill(&client);
	copies_fixture_kill(&server);
	expect_served_alone(&fx, acked);
	copies_fixture_close(&fx);
}

/* The server is killed, or cannot reach a copy: a client then owns the part, or the server begins again. */
static bool mend_with(uint32_t at, uint64_t fail_at, uint64_t cut_at, bool by_client)
{
	uint64_t acked[KEYS] = { 0 };
	struct copies_client server, client;
	struct copies_fixture fx;
	int ret = 0;

	open_lacking(&fx, &server, acked);
	copies_fixture_kill(&server);
	copies_fixture_join(&fx, 1, 1, copies_fixture_faults, &server);
	fault_set(server.at[at].tr, &(struct fault_plan){ .fail_at = fail_at, .cut_at = cut_at });
	while (ret == 0 && server.copies.n < server.copies.n_all)
		ret = mend(&server, 9000);
	if (by_client) {
		copies_fixture_kill(&server);
		copies_fixture_join(&fx, 1, 2, NULL, &client);
		must(own(&client));
		must(run_puts(&client, acked, 10));
		must(heap_copies_fill(&client.copies, UINT64_MAX));
		copies_fixture_expect_same(&client);
		leave(&client);
	} else {
		fault_set(server.at[at].tr, &(struct fault_plan){ .seed = 0 });
		while (server.copies.n < server.copies.n_all)
			must(mend(&server, 9000));
		copies_fixture_expect_same(&server);
		copies_fixture_kill(&server);
	}
	expect_served_alone(&fx, acked);
	copies_fixture_close(&fx);
	return ret != 0;
}

TEST(mend__ends_at_every_call)
{
	for (uint32_t at = 0; at < 2; at++) {
		uint32_t n = 0;

		for (uint64_t i = 1; mend_with(at, i % 2 ? i : 0, i % 2 ? 0 : i, i % 2 == 0); i++)
			n++;
		assert_in_range(n, 20, 2000);
	}
}

/* A client looked at the copies before another owner filled the new one. */
TEST(claim__with_an_old_line_looks_again)
{
	uint64_t acked[KEYS] = { 0 };
	struct copies_client server, old;
	struct copies_fixture fx;

	open_lacking(&fx, &server, acked);
	copies_fixture_join(&fx, 1, 2, NULL, &old);
	while (server.copies.n < server.copies.n_all)
		must(mend(&server, UINT64_MAX));
	assert_int_equal(old.copies.n, 1);
	assert_int_equal(own(&old), -EAGAIN);
	old.copies.n = 2;
	must(own(&old));
	must(run_puts(&old, acked, 10));
	copies_fixture_expect_same(&old);
	leave(&old);
	copies_fixture_kill(&server);
	expect_served_alone(&fx, acked);
	copies_fixture_close(&fx);
}

int main(void)
{
	return test_run(NULL, NULL);
}
