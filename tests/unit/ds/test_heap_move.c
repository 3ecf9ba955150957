/*
 * A part whose contents go to another one while clients put and get: nothing is lost, nothing old comes back.
 */
#include "tests/support/fake/wire_transport.h"
#include "tests/support/fixture/heap_fixture.h"
#include "tests/support/must_internal.h"

#include "ds/heap/copies.h"

#include "base/rng.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define KEYS 40u
#define COPY 4096u /* in modes that have copies */
#define VALUE_MOST (3 * HEAP_EXTENT_LEAST)

struct fixture {
	struct heap_fixture from, to;
	enum heap_mode mode;
	uint8_t *value; /* VALUE_MOST */
};

/* What a key has: the version, and the number that its value is made of; deleted: no value. */
struct state {
	uint64_t version;
	uint64_t number;
	bool deleted;
};

static void open_part(struct heap_fixture *fx, enum heap_mode mode, uint32_t number)
{
	const struct heap_wish wish = {
		.name = "h",
		.keys = KEYS,
		.bytes = 64 * HEAP_EXTENT_LEAST,
		.extent_bytes = mode == HEAP_CLOVER ? HEAP_EXTENT_LEAST : COPY,
		.n_parts = 1,
		.copies = 1,
		.mode = mode,
		.max_clients = HEAP_FIXTURE_CLIENTS,
	};

	heap_fixture_open_copy(fx, &wish, number);
}

static void fixture_open(struct fixture *fx, enum heap_mode mode)
{
	fx->mode = mode;
	open_part(&fx->from, mode, 0);
	open_part(&fx->to, mode, 1);
	fx->value = malloc(VALUE_MOST);
	assert_non_null(fx->value);
}

static void fixture_close(struct fixture *fx)
{
	heap_fixture_close(&fx->from);
	heap_fixture_close(&fx->to);
	free(fx->value);
}

static uint64_t value_len(const struct heap_client *client, uint64_t number)
{
	static const uint64_t sizes[] = { 8, 90, 3000, VALUE_MOST - 64 };

	bool large = number % 16 == 0 && client->heap->desc.mode == HEAP_CLOVER;

	return sizes[large ? 3 : number % 3] + number % 8;
}

static void key_of(uint32_t k, char key[8])
{
	(void)snprintf(key, 8, "%u", k);
}

/* Puts or deletes. 0, or -EAGAIN: the key has left. */
static int change(struct heap_client *client, uint32_t k, uint64_t number, uint8_t *value,
		  struct state *state)
{
	const struct heap_put deletes = { .deletes = true, .expected = HEAP_ANY_VERSION };
	bool is_delete = number % 7 == 0 && state->version && !state->deleted;
	struct chain_key name;
	uint64_t version = 0;
	char key[8];
	int ret;

	key_of(k, key);
	name = chain_key(key, (uint32_t)strlen(key), client->heap->desc.seed);
	memset(value, (int)number, value_len(client, number));
	if (is_delete)
		ret = heap_put(&client->acc, &name, &deletes, &version);
	else
		ret = heap_fixture_put(client, key, value, value_len(client, number), &version);
	if (ret)
		return ret;
	assert_int_equal(version, state->version + 1);
	*state = (struct state){ version, number, is_delete };
	return 0;
}

static void expect_state(struct heap_client *client, uint32_t k, const struct state *state,
			 uint8_t *value)
{
	struct heap_value got;
	int64_t found;
	char key[8];

	key_of(k, key);
	found = heap_fixture_get(client, key, &got);
	if (!state->version || state->deleted) {
		assert_int_equal(found, -ENOENT);
		return;
	}
	assert_int_equal(found, state->version);
	assert_int_equal(got.len, value_len(client, state->number));
	memset(value, (int)state->number, got.len);
	assert_memory_equal(got.ptr, value, got.len);
}

static void expect_all(struct fixture *fx, struct heap_client *client, const struct state *states)
{
	for (uint32_t k = 0; k < KEYS; k++)
		expect_state(client, k, &states[k], fx->value);
}

/* Moves in small steps. Between them the client changes keys until they leave; then they are only there. */
static void moves(enum heap_mode mode, struct transport *(*wrap)(struct transport *inner),
		  uint64_t seed)
{
	struct state states[KEYS] = { { 0 } };
	struct heap_move_at at = { 0 };
	struct heap_check_report report;
	struct heap_client a, b;
	struct fixture fx;
	uint32_t away = 0;
	const uint64_t step = mode == HEAP_CENTRAL ? 3 * COPY : 1; /* more than is put meanwhile */
	bool done = false, whole;
	struct rng rng;

	fixture_open(&fx, mode);
	rng_seed(&rng, seed, 1);
	heap_fixture_join(&fx.from, 1, wrap, &a);
	for (uint32_t i = 0; i < 100; i++)
		must(change(&a, i % KEYS, i, fx.value, &states[i % KEYS]));
	for (uint64_t i = 100; !done; i++) {
		uint32_t k = (uint32_t)rng_uniform_u64(&rng, KEYS);
		int ret = change(&a, k, i, fx.value, &states[k]);

		if (ret) {
			assert_int_equal(ret, -EAGAIN);
			assert_true(a.acc.away);
			away++;
		} else {
			expect_state(&a, k, &states[k], fx.value);
		}
		/* A server that was restarted, or has to take another part, begins again. */
		if (i == 130 || i == 190)
			at = (struct heap_move_at){ 0 };
		must(heap_move(fx.from.heap, fx.to.heap, &at, step, &done));
	}
	if (mode == HEAP_CENTRAL)
		a.acc.link.ctx = fx.to.heap; /* as the server does */
	else
		assert_true(away > 0);
	must(heap_is_whole(fx.to.heap, &whole));
	assert_true(whole);
	heap_fixture_expect_sound(&fx.to, &report);
	heap_fixture_join(&fx.to, 1, wrap, &b);
	expect_all(&fx, &b, states);
	if (mode != HEAP_CENTRAL)
		assert_int_equal(heap_fixture_get(&a, "0", &(struct heap_value){ 0 }), -EAGAIN);
	/* Its memory can be used: what was replaced, too. */
	for (uint64_t i = 0; i < 300; i++) {
		uint32_t k = (uint32_t)rng_uniform_u64(&rng, KEYS);

		must(change(&b, k, i, fx.value, &states[k]));
	}
	expect_all(&fx, &b, states);
	heap_fixture_expect_sound(&fx.to, &report);
	heap_fixture_leave(&a);
	heap_fixture_leave(&b);
	fixture_close(&fx);
}

TEST(part__moves_while_a_client_puts_in_place)
{
	for (uint64_t seed = 1; seed < 5; seed++)
		moves(HEAP_CLOVER, NULL, seed);
}

TEST(part__moves_while_a_client_puts_over_a_wire)
{
	for (uint64_t seed = 1; seed < 3; seed++)
		moves(HEAP_CLOVER, wire_wrap, seed);
}

TEST(part__of_mode_direct_moves)
{
	for (uint64_t seed = 1; seed < 5; seed++)
		moves(HEAP_DIRECT, NULL, seed);
	moves(HEAP_DIRECT, wire_wrap, 5);
}

TEST(part__of_mode_central_moves)
{
	for (uint64_t seed = 1; seed < 5; seed++)
		moves(HEAP_CENTRAL, NULL, seed);
}

/* A client that is stopped in a put holds up the move, until it is fenced. */
TEST(part__of_mode_direct_waits_for_a_lock)
{
	struct heap_move_at at = { 0 };
	struct heap_client a, reader;
	struct heap_value got;
	struct fixture fx;
	bool done = false;
	uint64_t version, old, intent;
	uint32_t bucket;

	fixture_open(&fx, HEAP_DIRECT);
	heap_fixture_join(&fx.from, 1, NULL, &a);
	must(heap_fixture_put(&a, "k", "old", 3, &version));
	bucket = a.acc.cursors[chain_key("k", 1, a.heap->desc.seed).hash % HEAP_CURSORS].bucket;
	intent = bucket + 1;
	must(transport_store(a.heap->tree, heap_pin_off(2), &intent, sizeof(intent)));
	must(transport_cas_word(a.heap->tree,
				heap_head_off(a.heap, bucket) + offsetof(struct heap_head, lock), 0,
				2, &old));
	for (uint32_t i = 0; i < 10; i++)
		must(heap_move(fx.from.heap, fx.to.heap, &at, 1 << 20, &done));
	assert_false(done);
	assert_int_equal(heap_fixture_get(&a, "k", &got), 1);
	must(heap_settle(fx.from.heap, 2));
	must(heap_move(fx.from.heap, fx.to.heap, &at, 1 << 20, &done));
	assert_true(done);
	assert_int_equal(heap_fixture_get(&a, "k", &got), -EAGAIN);
	assert_int_equal(heap_fixture_put(&a, "none", "new", 3, &version), -EAGAIN);
	heap_fixture_join(&fx.to, 3, NULL, &reader);
	assert_int_equal(heap_fixture_get(&reader, "k", &got), 1);
	assert_memory_equal(got.ptr, "old", 3);
	heap_fixture_leave(&a);
	heap_fixture_leave(&reader);
	fixture_close(&fx);
}

/* The copy is lost when half of the part is closed: what was closed is still in the part. */
static void moves_again(enum heap_mode mode)
{
	struct state states[KEYS] = { { 0 } };
	struct heap_move_at at = { 0 };
	struct heap_check_report report;
	struct heap_client a, b;
	struct fixture fx;
	bool done = false;

	fixture_open(&fx, mode);
	heap_fixture_join(&fx.from, 1, NULL, &a);
	for (uint32_t i = 0; i < 3 * KEYS; i++)
		must(change(&a, i % KEYS, i, fx.value, &states[i % KEYS]));
	while (!at.closing || at.bucket == 0)
		must(heap_move(fx.from.heap, fx.to.heap, &at, 1, &done));
	assert_false(done);
	/* Clients collect what was replaced, and nothing of what was closed. */
	for (uint32_t i = 0; i < 2000; i++) {
		int ret = change(&a, i % KEYS, i, fx.value, &states[i % KEYS]);

		assert_true(ret == 0 || ret == -EAGAIN);
	}
	heap_fixture_close(&fx.to);
	open_part(&fx.to, mode, 1);
	at = (struct heap_move_at){ 0 };
	while (!done)
		must(heap_move(fx.from.heap, fx.to.heap, &at, 1 << 20, &done));
	heap_fixture_expect_sound(&fx.to, &report);
	heap_fixture_join(&fx.to, 1, NULL, &b);
	expect_all(&fx, &b, states);
	heap_fixture_leave(&a);
	heap_fixture_leave(&b);
	fixture_close(&fx);
}

TEST(part__moves_again_when_its_copy_is_lost)
{
	moves_again(HEAP_CLOVER);
	moves_again(HEAP_DIRECT);
}

/* -------- threads -------- */

#define THREADS 3u

struct putter {
	struct heap_client client;
	struct state states[KEYS]; /* of its own keys */
	uint32_t first, away;
	pthread_t thread;
	_Atomic uint32_t *under_way;
};

static void *put_until_away(void *arg)
{
	struct putter *putter = arg;
	uint8_t *value = malloc(VALUE_MOST);

	for (uint64_t i = 1; putter->away < KEYS / THREADS; i++) {
		uint32_t k = putter->first + (uint32_t)(i % (KEYS / THREADS)) * THREADS;
		int ret = change(&putter->client, k, i, value, &putter->states[k]);

		assert_true(ret == 0 || ret == -EAGAIN);
		putter->away = ret ? putter->away + 1 : 0;
		if (i == KEYS)
			atomic_fetch_add(putter->under_way, 1);
	}
	free(value);
	return NULL;
}

static void moves_under_threads(enum heap_mode mode)
{
	struct putter putters[THREADS] = { { .away = 0 } };
	struct heap_move_at at = { 0 };
	_Atomic uint32_t under_way = 0;
	struct heap_check_report report;
	struct heap_client b;
	struct fixture fx;
	bool done = false;

	fixture_open(&fx, mode);
	for (uint32_t i = 0; i < THREADS; i++) {
		putters[i].first = i;
		putters[i].under_way = &under_way;
		heap_fixture_join(&fx.from, 1 + i, NULL, &putters[i].client);
		assert_int_equal(
			pthread_create(&putters[i].thread, NULL, put_until_away, &putters[i]), 0);
	}
	while (atomic_load(&under_way) < THREADS)
		;
	while (!done)
		must(heap_move(fx.from.heap, fx.to.heap, &at, 4096, &done));
	for (uint32_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_join(putters[i].thread, NULL), 0);
	heap_fixture_join(&fx.to, 1, NULL, &b);
	for (uint32_t i = 0; i < THREADS; i++)
		for (uint32_t k = i; k < KEYS / THREADS * THREADS; k += THREADS)
			expect_state(&b, k, &putters[i].states[k], fx.value);
	heap_fixture_expect_sound(&fx.to, &report);
	for (uint32_t i = 0; i < THREADS; i++)
		heap_fixture_leave(&putters[i].client);
	heap_fixture_leave(&b);
	fixture_close(&fx);
}

TEST(part__moves_under_threads_that_put)
{
	moves_under_threads(HEAP_CLOVER);
	moves_under_threads(HEAP_DIRECT);
}

int main(void)
{
	return test_run(NULL, NULL);
}
