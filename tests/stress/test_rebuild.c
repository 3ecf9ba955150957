/*
 * Writers, learners and takers at work while passes run without a pause; clients die with deltas in
 * hand. Afterwards the sums are exact.
 */
#include "tests/support/fixture/shard_fixture.h"
#include "tests/support/test.h"

#include "ds/replay/settle.h"
#include "ds/part/slot.h"
#include "ds/sumtree/rebuild.h"

#include "base/rng.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

#define WRITERS 2
#define LEARNERS 2
#define PASSES 150
#define WAIT_NS (60 * CLOCK_NS_PER_S)
#define BATCH 32
#define REBUILDER 16u

static struct shard_fixture fx;
static atomic_bool stop;
static atomic_int failed;

struct actor {
	pthread_t thread;
	struct shard_conn conn;
	struct access acc;
	struct rng rng;
	uint32_t owner;
	_Atomic uint64_t changed; /* relaxed: a hint to end */
};

/* cmocka's asserts belong to the main thread. */
static void expect(int rc, const char *what)
{
	if (!rc)
		return;
	atomic_store_explicit(&failed, 1, memory_order_relaxed); /* read after the join */
	print_message("%s: %s: %s\n", what, error_name(rc), error_last());
}

static void add_changed(struct actor *actor, uint64_t n)
{
	atomic_fetch_add_explicit(&actor->changed, n, memory_order_relaxed);
}

static uint64_t changed(const struct actor *actor)
{
	return atomic_load_explicit(&actor->changed, memory_order_relaxed);
}

static void open_actor(struct actor *actor, uint32_t owner, uint64_t seed)
{
	actor->owner = owner;
	atomic_init(&actor->changed, 0);
	rng_seed(&actor->rng, seed, owner);
	shard_fixture_connect(&fx, NULL, &actor->conn);
	shard_fixture_take_slot(actor->conn.shard, owner);
	assert_int_equal(
		access_open(&actor->acc, actor->conn.shard, owner, (1u << fx.desc.n_views) - 1), 0);
}

static void close_actor(struct actor *actor)
{
	expect(access_flush(&actor->acc), "flush");
	access_close(&actor->acc);
	expect(slot_release(&actor->conn.shard->part, actor->owner - 1), "release");
	shard_fixture_disconnect(&actor->conn);
}

static void *write_blocks(void *arg)
{
	struct actor *actor = arg;
	struct ring_counters counters = { 0 };

	while (!atomic_load_explicit(&stop, memory_order_relaxed)) { /* a hint to end */
		uint64_t priority = 1 + rng_uniform_u64(&actor->rng, 1 << 20);
		struct block blk;

		expect(access_enter(&actor->acc), "enter");
		expect(ring_claim(&actor->acc, &blk, &counters), "claim");
		expect(access_leave(&actor->acc), "leave");
		shard_fixture_write_rows(&blk);
		expect(access_enter(&actor->acc), "enter");
		expect(shard_fixture_publish(&blk, priority), "publish");
		expect(ring_close(&blk), "close");
		expect(access_leave(&actor->acc), "leave");
		add_changed(actor, fx.desc.block);
	}
	return NULL;
}

/* Items as a learner knows them: slot, generation and the word as drawn. */
static void look(struct actor *actor, uint32_t view, struct leaf_op *ops)
{
	struct shard *shard = actor->conn.shard;

	for (uint32_t i = 0; i < BATCH; i++) {
		uint32_t part = fx.desc.slots / BATCH;
		uint32_t slot = i * part + (uint32_t)rng_uniform_u64(&actor->rng, part);
		uint64_t word = 0;

		expect(transport_load(shard->tree, shard_leaf_off(shard, view, slot), &word),
		       "look");
		ops[i] = (struct leaf_op){ .slot = slot,
					   .gen = leaf_gen(word),
					   .word = word,
					   .priority = 1 + rng_uniform_u64(&actor->rng, 1 << 20) };
	}
}

static void change(struct actor *actor, bool take)
{
	uint32_t view = (uint32_t)rng_uniform_u64(&actor->rng, fx.desc.n_views);
	const struct sumtree *tree = &actor->conn.shard->trees[view];
	struct tree_deltas *deltas = actor->acc.deltas[view];
	struct leaf_op ops[BATCH];

	look(actor, view, ops);
	expect(access_enter(&actor->acc), "enter");
	if (take)
		expect(sumtree_consume(tree, &actor->acc.epoch, ops, 4, deltas), "take");
	else
		expect(sumtree_update(tree, &actor->acc.epoch, ops, BATCH, deltas), "update");
	for (uint32_t i = 0; i < (take ? 4 : BATCH); i++)
		add_changed(actor, ops[i].result == LEAF_DONE);
}

static void *learn(void *arg)
{
	struct actor *actor = arg;

	while (!atomic_load_explicit(&stop, memory_order_relaxed)) { /* a hint to end */
		change(actor, rng_uniform_u64(&actor->rng, 8) == 0);
		expect(access_leave(&actor->acc), "leave");
	}
	return NULL;
}

/* Clients that die in the middle of a call, one after the other; then the server settles them. */
static void *die_often(void *arg)
{
	struct actor *actor = arg;

	while (!atomic_load_explicit(&stop, memory_order_relaxed)) { /* a hint to end */
		change(actor, false);
		access_close(&actor->acc); /* its deltas are lost */
		expect(shard_settle(actor->conn.shard, actor->owner, NULL), "settle");
		shard_fixture_take_slot(actor->conn.shard, actor->owner);
		shard_fixture_access(actor->conn.shard, actor->owner, &actor->acc);
	}
	return NULL;
}

static uint64_t soon(void)
{
	return deadline_after(clock_monotonic(), WAIT_NS);
}

/* Until writers and learners, too, had their turns on a busy machine. */
static void pass_often(struct shard *shard, const struct actor *writer, const struct actor *learner)
{
	struct rebuild_opts opts = { .owner = REBUILDER };
	struct rebuild_report report = { 0 };
	uint64_t end = soon();

	while ((report.passes < PASSES || !changed(writer) || !changed(learner)) &&
	       !deadline_expired(clock_monotonic(), end) &&
	       !atomic_load_explicit(&failed, memory_order_relaxed)) {
		opts.deadline_ns = soon();
		expect(sumtree_rebuild_pass(shard, &opts, &report), "pass");
	}
	atomic_store_explicit(&stop, true, memory_order_relaxed);
}

static void run(bool deaths, bool two_levels, uint64_t seed)
{
	static const uint16_t narrow[] = { 8, 8, 0 };
	struct shard_fixture_opts fixture = { .capacity = two_levels ? 16384 : 2048,
					      .max_writers = WRITERS,
					      .fanout = two_levels ? narrow : NULL };
	struct rebuild_opts opts = { .owner = REBUILDER };
	struct rebuild_report report = { 0 };
	struct actor writers[WRITERS] = { 0 }, learners[LEARNERS] = { 0 }, mortal = { 0 };

	atomic_store_explicit(&stop, false, memory_order_relaxed); /* before the threads start */
	shard_fixture_open(&fx, &fixture);
	assert_int_equal(fx.desc.tree.levels, two_levels ? 2 : 1);
	shard_fixture_take_slot(fx.shard, REBUILDER);
	for (uint32_t i = 0; i < WRITERS; i++)
		open_actor(&writers[i], 1 + i, seed);
	for (uint32_t i = 0; i < LEARNERS; i++)
		open_actor(&learners[i], 4 + i, seed);
	open_actor(&mortal, 9, seed);
	for (uint32_t i = 0; i < WRITERS; i++)
		pthread_create(&writers[i].thread, NULL, write_blocks, &writers[i]);
	for (uint32_t i = 0; i < LEARNERS; i++)
		pthread_create(&learners[i].thread, NULL, learn, &learners[i]);
	if (deaths)
		pthread_create(&mortal.thread, NULL, die_often, &mortal);
	pass_often(fx.shard, &writers[0], &learners[0]);
	for (uint32_t i = 0; i < LEARNERS; i++) {
		pthread_join(learners[i].thread, NULL);
		close_actor(&learners[i]);
	}
	if (deaths)
		pthread_join(mortal.thread, NULL);
	close_actor(&mortal);
	for (uint32_t i = 0; i < WRITERS; i++) {
		pthread_join(writers[i].thread, NULL);
		close_actor(&writers[i]);
	}

	print_message("changes by writers %llu, by learners %llu\n",
		      (unsigned long long)changed(&writers[0]),
		      (unsigned long long)changed(&learners[0]));
	assert_int_equal(atomic_load_explicit(&failed, memory_order_relaxed), 0);
	assert_true(changed(&writers[0]) && changed(&learners[0]));
	if (!deaths)
		assert_int_equal(shard_fixture_problems(fx.shard), 0);
	opts.deadline_ns = soon();
	assert_int_equal(sumtree_rebuild_until_clean(fx.shard, &opts, 2, &report), 0);
	assert_int_equal(shard_fixture_problems(fx.shard), 0);
	shard_fixture_close(&fx);
}

TEST(rebuild_pass__under_writers_and_learners_stays_exact)
{
	run(false, false, test_seed("stress rebuild", 1));
	run(false, true, test_seed("stress rebuild of two levels", 2));
}

TEST(rebuild_pass__with_clients_that_die_in_their_calls)
{
	run(true, false, test_seed("stress rebuild", 3));
	run(true, true, test_seed("stress rebuild of two levels", 4));
}

int main(void)
{
	return test_run(NULL, NULL);
}
