/*
 * Several writers of one part with copies: what a put leaves when it ends at any step, a copy is lost there, or its
 * client dies; clients that have not heard of a loss; extents; round trips.
 */
#include "tests/support/fake/fault.h"
#include "tests/support/fake/wire_transport.h"
#include "tests/support/fixture/copies_fixture.h"
#include "tests/support/must_internal.h"

#include "ds/heap/writers/writers.h"

#include <errno.h>
#include <string.h>

#define KEYS 8u
#define VALUE_BYTES 66000u /* more than an extent: two chunks */

struct client {
	struct copies_client of;
	struct heap_writers writers;
};

static struct heap_access *access_of(struct client *client)
{
	return &client->of.at[0].acc;
}

/* Begins to put, or again after an error: its extents become orphans. */
static int begin(struct client *client)
{
	struct heap_access *at[COPIES_FIXTURE_MOST];

	heap_writers_leave(access_of(client));
	for (uint32_t i = 0; i < client->of.copies.n_all; i++) {
		int ret = heap_settle_self(client->of.copies.at[i], client->of.self.owner);

		if (ret)
			return ret;
		for (uint32_t k = 0; k < COPIES_FIXTURE_MOST; k++)
			if (client->of.at[k].heap == client->of.copies.at[i])
				at[i] = &client->of.at[k].acc;
	}
	heap_access_reset(access_of(client));
	return heap_writers_join(&client->writers, &client->of.copies, at);
}

static void join(struct copies_fixture *fx, uint32_t first, uint32_t owner,
		 struct transport *(*wrap)(struct transport *inner), struct client *out)
{
	copies_fixture_join(fx, first, owner, wrap, &out->of);
	must(begin(out));
}

static void leave(struct client *client)
{
	heap_access_reset(access_of(client));
	for (uint32_t i = 0; i < client->of.n; i++)
		heap_fixture_leave(&client->of.at[i]);
}

/* A call with an old line, of which it is known that its copy `i` is lost, takes it out. */
static void forget(struct client *client, uint32_t i)
{
	struct heap_copies *copies = &client->of.copies;

	copies->line &= ~heap_copy_bit(copies->at[i]);
	for (copies->n--, copies->n_all--; i < copies->n_all; i++)
		copies->at[i] = copies->at[i + 1];
}

/* -------- puts -------- */

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
static int put_next(struct client *client, uint32_t k, uint64_t acked[KEYS])
{
	static uint8_t value[VALUE_BYTES];
	char key[8];
	uint64_t version;
	int ret;

	snprintf(key, sizeof(key), "%u", k);
	fill(value, len_of(k), acked[k] + 1);
	ret = heap_fixture_put(&client->of.at[0], key, value, len_of(k), &version);
	if (ret == 0)
		assert_int_equal(version, ++acked[k]);
	return ret;
}

static int run_puts(struct client *client, uint64_t acked[KEYS], uint32_t n)
{
	int ret = 0;

	for (uint32_t i = 0; ret == 0 && i < n; i++)
		ret = put_next(client, i % KEYS, acked);
	return ret;
}

/* Each key has the version that was acknowledged, or one of them the next one; from here on that is known. */
static void catch_up(struct client *client, uint64_t acked[KEYS])
{
	static uint8_t want[VALUE_BYTES];
	struct heap_value got;
	uint32_t ahead = 0;
	char key[8];

	for (uint32_t k = 0; k < KEYS; k++) {
		int64_t version;

		snprintf(key, sizeof(key), "%u", k);
		version = heap_fixture_get(&client->of.at[0], key, &got);
		if (version == -ENOENT && acked[k] == 0)
			continue;
		assert_in_range(version, acked[k], acked[k] + 1);
		ahead += (uint64_t)version != acked[k];
		acked[k] = (uint64_t)version;
		fill(want, len_of(k), acked[k]);
		assert_int_equal(got.len, len_of(k));
		assert_memory_equal(got.ptr, want, got.len);
	}
	assert_in_range(ahead, 0, 1);
}

/* A put that looks at each key brings it forward: it asks for a version that the key cannot have. */
static void level_all(struct client *client)
{
	struct heap_put put = { .value = "", .expected = UINT64_MAX - 1 };
	uint64_t version;
	char text[8];

	for (uint32_t k = 0; k < KEYS; k++) {
		int n = snprintf(text, sizeof(text), "%u", k);
		struct chain_key key = chain_key(text, (uint32_t)n, 7);

		assert_int_equal(heap_put(access_of(client), &key, &put, &version), -ESTALE);
	}
}

static void expect_equal_heads(const struct client *client)
{
	const struct heap_copies *copies = &client->of.copies;

	copies_fixture_expect_same(&client->of);
	for (uint32_t b = 0; b < heap_heads(&copies->at[0]->desc); b++)
		for (uint32_t i = 1; i < copies->n_all; i++) {
			uint64_t first, other;

			must(transport_load(copies->at[0]->tree, heap_head_off(copies->at[0], b),
					    &first));
			must(transport_load(copies->at[i]->tree, heap_head_off(copies->at[i], b),
					    &other));
			assert_int_equal(first, other);
		}
}

/* -------- costs -------- */

static void expect_put(struct client *client, const char *key, uint64_t len, uint64_t cost)
{
	static const uint8_t value[2000];
	uint64_t before = copies_fixture_phases(&client->of), version;

	must(heap_fixture_put(&client->of.at[0], key, value, len, &version));
	assert_int_equal(copies_fixture_phases(&client->of) - before, cost);
}

/* What the client's last put did not wait for arrives before its next reads. */
static void arrive(struct client *client)
{
	const struct heap_copies *copies = &client->of.copies;
	uint64_t word;

	for (uint32_t i = 0; i < copies->n_all; i++)
		must(transport_load(copies->at[i]->tree, HEAP_WORDS_OFF, &word));
}

static void expect_costs(uint32_t copies)
{
	struct copies_fixture fx;
	static struct client a, b;
	struct heap_value got;
	uint64_t before;

	copies_fixture_open(&fx, copies, HEAP_WRITERS_MANY);
	join(&fx, 0, 1, wire_wrap, &a);
	join(&fx, 0, 2, wire_wrap, &b);
	/* The first put of a class claims an extent: its words are read, and changed and looked at in all copies. */
	expect_put(&a, "large", 1000, 1 + copies + (1 + 1 + 2 * (copies - 1) + copies));
	expect_put(&a, "large", 1000, 1 + copies);
	arrive(&a);
	expect_put(&b, "large", 1000, 1 + copies + (1 + 1 + 2 * (copies - 1) + copies));
	expect_put(&b, "large", 1000, 1 + copies);
	arrive(&b);
	expect_put(&a, "large", 1000, 1 + copies); /* in turn: no conflict */
	expect_put(&a, "small", 64, 1 + copies + (1 + 1 + 2 * (copies - 1) + copies));
	expect_put(&a, "small", 64, 1 + copies);
	arrive(&a);
	assert_int_equal(heap_fixture_get(&b.of.at[0], "large", &got), 5);
	before = copies_fixture_phases(&b.of);
	assert_int_equal(heap_fixture_get(&b.of.at[0], "large", &got), 5);
	assert_int_equal(copies_fixture_phases(&b.of) - before, 1);
	expect_equal_heads(&a);
	leave(&a);
	leave(&b);
	copies_fixture_expect_sound(&fx, 0);
	copies_fixture_close(&fx);
}

TEST(cost__get_1_put_1_for_each_copy_and_1)
{
	expect_costs(2);
	expect_costs(3);
}

/* A put that was decided, and not brought forward: the next one does that, and looks again. */
static void expect_help(uint32_t copies, uint64_t len, uint64_t more)
{
	static const uint8_t value[2000];
	static struct client dead, other;
	struct copies_fixture fx;
	struct heap_value got;
	uint64_t version;

	copies_fixture_open(&fx, copies, HEAP_WRITERS_MANY);
	join(&fx, 0, 1, copies_fixture_faults, &dead);
	join(&fx, 0, 2, wire_wrap, &other);
	must(heap_fixture_put(&other.of.at[0], "k", value, len, &version));
	must(heap_fixture_put(&dead.of.at[0], "k", value, len, &version));
	fault_set(dead.of.at[copies - 2].tr,
		  &(struct fault_plan){ .fail_at = 3 }); /* lost, heads, entry */
	assert_true(heap_fixture_put(&dead.of.at[0], "k", value, len, &version) < 0);
	assert_true(access_of(&dead)->in_doubt);
	assert_int_equal(heap_fixture_get(&other.of.at[0], "k", &got), 2);
	arrive(&other);
	expect_put(&other, "k", len, 1 + copies + more);
	assert_int_equal(heap_fixture_get(&other.of.at[0], "k", &got), 4);
	copies_fixture_kill(&dead.of);
	leave(&other);
	copies_fixture_close(&fx);
}

/* Reads of the entry, which may need two | entry and head of each copy before the last one | a look. */
TEST(cost__of_help)
{
	expect_help(2, 64, 1 + 1 + 1);
	expect_help(2, 1000, 2 + 1 + 1);
	expect_help(3, 64, 1 + 2 + 1);
}

/* -------- in turn -------- */

static void take_turns(struct transport *(*wrap)(struct transport *inner))
{
	struct heap_put put = { .value = "x", .len = 1, .expected = 1 };
	static struct client a, b, c;
	uint64_t acked[KEYS] = { 0 }, version;
	struct copies_fixture fx;
	struct chain_key key = chain_key("1", 1, 7);

	copies_fixture_open(&fx, 3, HEAP_WRITERS_MANY);
	join(&fx, 0, 1, wrap, &a);
	join(&fx, 0, 2, wrap, &b);
	join(&fx, 0, 3, NULL, &c);
	for (uint32_t i = 0; i < 20; i++) {
		must(run_puts(&a, acked, KEYS));
		arrive(&a);
		must(run_puts(&b, acked, KEYS - 1));
		arrive(&b);
		must(run_puts(&c, acked, KEYS));
	}
	catch_up(&c, acked);
	assert_int_equal(heap_put(access_of(&a), &key, &put, &version), -ESTALE);
	put.expected = acked[1];
	must(heap_put(access_of(&a), &key, &put, &version));
	assert_int_equal(version, acked[1] + 1);
	put = (struct heap_put){ .deletes = true, .expected = HEAP_ANY_VERSION };
	must(heap_put(access_of(&b), &key, &put, &version));
	assert_int_equal(heap_put(access_of(&c), &key, &put, &version), -ENOENT);
	expect_equal_heads(&a);
	for (uint32_t i = 0; i < fx.n; i++) {
		uint64_t keys;

		must(heap_keys(fx.at[i].heap, &keys));
		assert_int_equal(keys, KEYS);
	}
	leave(&a);
	leave(&b);
	leave(&c);
	copies_fixture_expect_sound(&fx, 0);
	copies_fixture_close(&fx);
}

TEST(clients__take_turns_in_place)
{
	take_turns(NULL);
}

TEST(clients__take_turns_over_a_wire)
{
	take_turns(wire_wrap);
}

/* -------- every step -------- */

enum after { CLIENT_DIES, CLIENT_GOES_ON, PRIMARY_IS_LOST, BACKUP_IS_LOST };

static uint32_t count_room(struct client *client)
{
	static const uint8_t value[60000];
	uint64_t version;
	char key[16];
	uint32_t n = 0;
	int ret = 0;

	while (ret == 0) {
		snprintf(key, sizeof(key), "room-%u", n);
		ret = heap_fixture_put(&client->of.at[0], key, value, sizeof(value), &version);
		n += ret == 0;
	}
	assert_int_equal(ret, -ENOSPC);
	return n;
}

/* Every extent is free or has a key, so all space came back: but for one, which is kept for deletes. */
static void expect_no_leak(struct copies_fixture *fx, struct client *client, uint32_t first)
{
	struct heap_check_report report;

	assert_in_range(count_room(client), 5, 32);
	for (uint32_t i = first; i < fx->n; i++) {
		heap_fixture_expect_sound(&fx->at[i], &report);
		assert_int_equal(report.extents.orphans, 0);
		assert_true(report.extents.free <= 1);
	}
}

/*
 * The n-th call of the victim to copy `at` fails as planned. Another client goes on at once, without a fence, and
 * finds each put done or not done; then that happens. False: there were fewer calls.
 */
static bool run_with(uint32_t at, const struct fault_plan *plan, enum after after)
{
	uint64_t acked[KEYS] = { 0 };
	static struct client victim, other, late;
	struct copies_fixture fx;
	uint32_t first = after == PRIMARY_IS_LOST;
	struct fault_counts counts;

	copies_fixture_open(&fx, 2, HEAP_WRITERS_MANY);
	join(&fx, 0, 1, copies_fixture_faults, &victim);
	join(&fx, 0, 2, NULL, &other);
	must(run_puts(&victim, acked, KEYS));
	must(run_puts(&other, acked, 3));
	fault_set(victim.of.at[at].tr, plan);
	(void)run_puts(&victim, acked, 16);
	fault_get(victim.of.at[at].tr, &counts);
	catch_up(&other, acked); /* what a reader has seen stays */
	if (after <= CLIENT_GOES_ON) {
		level_all(&other);
		catch_up(&other, acked); /* what was decided and not seen */
		must(run_puts(&other, acked, 8));
	}
	if (after == CLIENT_GOES_ON) {
		fault_set(victim.of.at[at].tr, &(struct fault_plan){ .seed = 0 });
		must(begin(&victim));
		must(run_puts(&victim, acked, 8));
		expect_equal_heads(&victim);
	}
	copies_fixture_kill(&victim.of);
	if (after <= CLIENT_GOES_ON)
		expect_equal_heads(&other);
	copies_fixture_kill(&other.of);
	if (after == BACKUP_IS_LOST)
		fx.n = 1;
	join(&fx, first, 3, NULL, &late);
	catch_up(&late, acked);
	must(run_puts(&late, acked, 8));
	catch_up(&late, acked);
	level_all(&late);
	expect_equal_heads(&late);
	if ((plan->fail_at + plan->cut_at) % 16 == 0)
		expect_no_leak(&fx, &late, first);
	leave(&late);
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

	if (after == CLIENT_GOES_ON)
		for (plan.fail_at = 1; run_with(at, &plan, after); plan.fail_at++)
			n++;
	else
		for (plan.cut_at = 1; run_with(at, &plan, after); plan.cut_at++)
			n++;
	assert_in_range(n, 50, 1000);
}

TEST(client__dies_at_every_call_to_the_primary)
{
	run_all(0, CLIENT_DIES);
}

TEST(client__dies_at_every_call_to_the_backup)
{
	run_all(1, CLIENT_DIES);
}

TEST(client__goes_on_after_every_failed_call)
{
	run_all(0, CLIENT_GOES_ON);
	run_all(1, CLIENT_GOES_ON);
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
TEST(client__unknown_answers)
{
	for (uint32_t seed = 0; seed < 40; seed++) {
		struct fault_plan plan = { .seed = seed, .unknown_rate = 3000 };

		(void)run_with(seed % 2, &plan, seed % 4 < 2 ? CLIENT_DIES : PRIMARY_IS_LOST);
	}
}

/* -------- old lines -------- */

/* A client that has not heard of the loss of copy `lost` ends its call, and goes on with the others. */
static void hear_of(uint32_t lost)
{
	static struct client old, reads_late;
	uint64_t acked[KEYS] = { 0 };
	struct copies_fixture fx;

	copies_fixture_open(&fx, 3, HEAP_WRITERS_MANY);
	join(&fx, 0, 1, NULL, &old);
	join(&fx, 0, 2, NULL, &reads_late);
	must(run_puts(&old, acked, 30));
	forget(&reads_late, lost);
	must(begin(&reads_late));
	access_of(&old)->away = false;
	assert_int_equal(put_next(&old, 1, acked), -EAGAIN);
	assert_true(access_of(&old)->away);
	assert_int_equal(begin(&old), -EAGAIN);
	forget(&old, lost);
	must(begin(&old));
	if (lost > 0) {
		must(run_puts(&old, acked, 30));
		catch_up(&old, acked);
	}
	copies_fixture_kill(&old.of);
	copies_fixture_kill(&reads_late.of);
	copies_fixture_close(&fx);
}

TEST(old_line__is_given_up)
{
	hear_of(1);
	hear_of(2);
}

/* Claims of a client with an old line are undone: the others may have put there meanwhile. */
TEST(old_line__takes_no_extent)
{
	static struct client old, other;
	struct copies_fixture fx;
	uint64_t word, now;
	uint64_t off;
	bool got;

	copies_fixture_open(&fx, 2, HEAP_WRITERS_MANY);
	join(&fx, 0, 1, NULL, &old);
	join(&fx, 0, 2, NULL, &other);
	off = heap_extent_off(fx.at[0].heap, 3);
	must(transport_load(fx.at[1].heap->tree, off, &word));
	must(heap_writers_take(&old.of.copies, 3, word, extent_make(1, 2, word + 1), &got));
	assert_true(got);
	must(heap_writers_take(&other.of.copies, 3, word, extent_make(2, 2, word + 1), &got));
	assert_false(got);
	must(heap_writers_give(&old.of.copies, 3, extent_make(1, 2, word + 1), word + 2));
	/* A word that is another client's in the primary alone: a put of theirs died, or is under way. */
	must(transport_cas_word(fx.at[0].heap->tree, off, word + 2, extent_make(2, 2, 9), &now));
	must(heap_writers_take(&old.of.copies, 3, word + 2, extent_make(1, 2, word + 3), &got));
	assert_false(got);
	must(transport_load(fx.at[1].heap->tree, off, &now));
	assert_int_equal(now, word + 2);
	must(heap_settle(fx.at[0].heap, 2)); /* each copy by itself */
	forget(&other, 1);
	must(begin(&other));
	assert_int_equal(
		heap_writers_take(&old.of.copies, 4, word, extent_make(1, 2, word + 1), &got),
		-EAGAIN);
	for (uint32_t i = 0; i < 2; i++) {
		must(transport_load(fx.at[i].heap->tree, heap_extent_off(fx.at[i].heap, 4), &now));
		assert_int_equal(now, word);
	}
	copies_fixture_kill(&old.of);
	copies_fixture_kill(&other.of);
	copies_fixture_close(&fx);
}

/* After a loss nothing is swept while a call may be under way that does not know of it; free extents are used. */
TEST(stopped_client__holds_back_sweeps_after_a_loss)
{
	static struct client stopped, other;
	uint64_t acked[KEYS] = { 0 }, idle = 0, pin = 1;
	struct copies_fixture fx;
	int ret = 0;

	copies_fixture_open(&fx, 2, HEAP_WRITERS_MANY);
	join(&fx, 0, 1, NULL, &stopped);
	join(&fx, 0, 2, NULL, &other);
	must(run_puts(&stopped, acked, KEYS));
	forget(&other, 1);
	must(begin(&other));
	must(transport_store(fx.at[0].heap->tree, heap_pin_off(1), &pin, sizeof(pin)));
	for (uint32_t i = 0; ret == 0 && i < 1000; i++)
		ret = put_next(&other, 1, acked);
	assert_int_equal(ret, -EAGAIN);
	assert_true(acked[1] > 20);
	must(transport_store(fx.at[0].heap->tree, heap_pin_off(1), &idle, sizeof(idle)));
	for (uint32_t i = 0; i < 1000; i++)
		must(put_next(&other, 1, acked));
	copies_fixture_kill(&stopped.of);
	fx.n = 1;
	expect_no_leak(&fx, &other, 0);
	leave(&other);
	fx.n = 2;
	copies_fixture_close(&fx);
}

/* -------- memory -------- */

static int put_text(struct client *client, const char *key, char fill_by)
{
	uint8_t value[3000];
	uint64_t version;

	memset(value, fill_by, sizeof(value));
	access_of(client)->in_doubt = false;
	return heap_fixture_put(&client->of.at[0], key, value, sizeof(value), &version);
}

static void expect_text(struct client *client, const char *key, int64_t version, char filled_by)
{
	uint8_t want[3000];
	struct heap_value got;

	memset(want, filled_by, sizeof(want));
	assert_int_equal(heap_fixture_get(&client->of.at[0], key, &got), version);
	assert_int_equal(got.len, sizeof(want));
	assert_memory_equal(got.ptr, want, sizeof(want));
}

/* Puts until the first error: enough to collect space many times. */
static int put_often(struct client *client, const char *key)
{
	int ret = 0;

	for (uint32_t i = 0; ret == 0 && i < 800; i++)
		ret = put_text(client, key, 'o');
	return ret;
}

/* Decides version 2 of "k", which the primary does not hear of. */
static void put_half(struct client *client)
{
	must(put_text(client, "k", '1'));
	fault_set(client->of.at[0].tr, &(struct fault_plan){ .fail_at = 3 });
	assert_true(put_text(client, "k", '2') < 0);
	assert_true(access_of(client)->in_doubt);
	fault_set(client->of.at[0].tr, &(struct fault_plan){ .seed = 0 });
}

/* Only the last copy names the entry, whose slot its client may neither reuse nor adopt as a free one. */
static void keep_decided(bool again)
{
	static struct client half, other;
	struct copies_fixture fx;

	copies_fixture_open(&fx, 2, HEAP_WRITERS_MANY);
	join(&fx, 0, 1, copies_fixture_faults, &half);
	join(&fx, 0, 2, NULL, &other);
	put_half(&half);
	if (again) { /* the other client takes over all that there is */
		must(begin(&half));
		(void)count_room(&other);
	}
	must(put_often(again ? &other : &half, "other"));
	expect_text(&other, "k", 1, '1');
	must(put_text(&other, "k", '3')); /* completes it first */
	expect_text(&other, "k", 3, '3');
	copies_fixture_kill(&half.of);
	leave(&other);
	copies_fixture_close(&fx);
}

TEST(decided_put__keeps_its_memory)
{
	keep_decided(false);
	keep_decided(true);
}

/* A client whose line has lost the primary pins in the backup alone. */
TEST(pin_in_a_backup__holds_back)
{
	const uint64_t pin = 1, idle = 0;
	static struct client client;
	struct copies_fixture fx;

	copies_fixture_open(&fx, 2, HEAP_WRITERS_MANY);
	join(&fx, 0, 1, NULL, &client);
	must(put_text(&client, "k", '1'));
	must(transport_store(fx.at[1].heap->tree, heap_pin_off(2), &pin, sizeof(pin)));
	assert_int_equal(put_often(&client, "k"), -EAGAIN);
	must(transport_store(fx.at[1].heap->tree, heap_pin_off(2), &idle, sizeof(idle)));
	must(put_often(&client, "k"));
	leave(&client);
	copies_fixture_expect_sound(&fx, 0);
	copies_fixture_close(&fx);
}

/* What a call does that looked before the loss was said: it brings the lost copy's head and entry forward. */
static void help_late(struct copies_fixture *fx, uint32_t bucket)
{
	struct heap *primary = fx->at[0].heap, *backup = fx->at[1].heap;
	struct copies_put put = { .bucket = bucket };
	static uint8_t entry[HEAP_EXTENT_LEAST];
	uint64_t old;

	must(transport_load(primary->tree, heap_head_off(primary, bucket), &put.from));
	must(transport_load(backup->tree, heap_head_off(backup, bucket), &put.to));
	must(heap_place_read(backup, head_off(put.to), entry, &put.bytes));
	put.entry = entry;
	must(heap_put_entry(primary, &put, &old));
	assert_int_equal(old, put.from);
}

/* Sweeps begin when all calls have ended that may still help what the lost copy alone has. */
TEST(late_help_after_a_loss__finds_its_memory)
{
	const uint64_t pin = 1, idle = 0;
	static struct client half, full;
	struct copies_fixture fx;
	struct chain_key key = chain_key("k", 1, 7);

	copies_fixture_open(&fx, 2, HEAP_WRITERS_MANY);
	join(&fx, 0, 1, copies_fixture_faults, &half);
	join(&fx, 0, 3, NULL, &full);
	put_half(&half);
	(void)count_room(&full); /* so the next extent is the one that has the entry */
	must(transport_store(fx.at[0].heap->tree, heap_pin_off(2), &pin, sizeof(pin)));
	forget(&half, 1);
	must(begin(&half));
	assert_int_equal(put_often(&half, "other"), -EAGAIN);
	help_late(&fx, chain_place(key.hash, fx.at[0].desc.buckets));
	must(transport_store(fx.at[0].heap->tree, heap_pin_off(2), &idle, sizeof(idle)));
	must(put_often(&half, "other"));
	expect_text(&half, "k", 2, '2');
	heap_fixture_expect_sound(&fx.at[0], NULL);
	copies_fixture_kill(&half.of);
	copies_fixture_kill(&full.of);
	copies_fixture_close(&fx);
}

/* While a client sweeps: its own put is completed, and the next one decided. */
static void go_on(void *ctx, uint64_t delay_ns)
{
	struct client **other = ctx, *writer = *other;

	(void)delay_ns;
	*other = NULL;
	if (!writer)
		return;
	/* Of the primary: two reads, the help, two reads, the put. */
	fault_set(writer->of.at[0].tr, &(struct fault_plan){ .fail_at = 6 });
	assert_true(put_text(writer, "k", '3') < 0);
	assert_true(access_of(writer)->in_doubt);
	fault_set(writer->of.at[0].tr, &(struct fault_plan){ .seed = 0 });
}

TEST(sweep__begins_in_the_last_copy)
{
	static struct client half, other, *writer = &other;
	const struct fault_plan plan = { .delay_rate = 65536,
					 .delay = go_on,
					 .delay_ctx = &writer };
	struct copies_fixture fx;

	copies_fixture_open(&fx, 2, HEAP_WRITERS_MANY);
	join(&fx, 0, 1, copies_fixture_faults, &half);
	join(&fx, 0, 2, copies_fixture_faults, &other);
	must(put_text(&other, "other", 'o'));
	put_half(&half);
	while (space_has(&access_of(&half)->space, 3072))
		must(put_text(&half, "other", 'o'));
	fault_set(half.of.at[1].tr, &plan);
	must(put_text(&half, "other", 'o'));
	assert_null(writer);
	must(put_often(&half, "other"));
	expect_text(&half, "k", 2, '2');
	copies_fixture_kill(&half.of);
	copies_fixture_kill(&other.of);
	copies_fixture_close(&fx);
}

/* -------- a loss inside a put -------- */

/* What another client does before the n-th call to the primary. */
struct meanwhile {
	struct client *other;
	uint32_t n, puts;
};

static void lose_backup(void *ctx, uint64_t delay_ns)
{
	struct meanwhile *meanwhile = ctx;

	(void)delay_ns;
	if (--meanwhile->n)
		return;
	forget(meanwhile->other, 1);
	must(begin(meanwhile->other));
	for (uint32_t i = 0; i < meanwhile->puts; i++)
		must(put_text(meanwhile->other, "k", 'n'));
}

/* The put was decided in the copy that is lost; the others go on without it. */
static void lose_in_put(uint32_t n, uint32_t puts, int code, bool in_doubt)
{
	static struct client old, other;
	struct meanwhile meanwhile = { &other, n, puts };
	const struct fault_plan plan = { .delay_rate = 65536,
					 .delay = lose_backup,
					 .delay_ctx = &meanwhile };
	struct copies_fixture fx;

	copies_fixture_open(&fx, 2, HEAP_WRITERS_MANY);
	join(&fx, 0, 1, copies_fixture_faults, &old);
	join(&fx, 0, 2, NULL, &other);
	must(put_text(&old, "k", '1'));
	fault_set(old.of.at[0].tr, &plan);
	assert_int_equal(put_text(&old, "k", 'l'), code);
	assert_int_equal(access_of(&old)->in_doubt, in_doubt);
	fault_set(old.of.at[0].tr, &(struct fault_plan){ .seed = 0 });
	expect_text(&other, "k", 1 + (puts ? puts : 1), puts ? 'n' : 'l');
	copies_fixture_kill(&old.of);
	copies_fixture_kill(&other.of);
	copies_fixture_close(&fx);
}

TEST(loss_inside_a_put__never_reports_what_was_not_done)
{
	lose_in_put(3, 0, 0, false);       /* the primary took it */
	lose_in_put(3, 1, -EAGAIN, false); /* another one has its version */
	lose_in_put(3, 2, -EIO, true);     /* as if others had gone on from it */
	lose_in_put(2, 2, -EAGAIN, false); /* its heads are older than what was said before */
}

int main(void)
{
	return test_run(NULL, NULL);
}
