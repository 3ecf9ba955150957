/*
 * Threads that claim, publish, update, take and draw on one tree at once: nobody may see a wrong
 * generation, and in the end every sum is exact.
 */
#include "tests/support/test.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "ds/sumtree/sumtree.h"

#include "tests/support/fixture/tree_fixture.h"

#include "transport/barrier.h"

#include "base/os/clock.h"
#include "base/rng.h"

#define LEAVES 2048u
#define BLOCK 32u
#define WRITERS 2u
#define LEARNERS 2u
#define ROUNDS (BARRIER_TSAN ? 400u : 4000u)
#define BATCH 64u
#define LATE_NS (60 * CLOCK_NS_PER_S) /* on a busy machine writers come late */

static const uint16_t fanout[] = { 8, 0 };

struct world {
	struct tree_fixture fx;
	pthread_barrier_t start;
	_Atomic uint64_t updated, taken, failures;
};

struct worker {
	struct world *world;
	struct tree_handle h;
	uint32_t index;
	uint64_t seed;
	pthread_t thread;
};

/* A check that a thread makes; cmocka's may only fail on the test's own. */
static void expect(struct worker *w, bool good, const char *what)
{
	if (good)
		return;
	atomic_fetch_add_explicit(&w->world->failures, 1, memory_order_relaxed);
	print_error("worker %u: %s\n", w->index, what);
}

static void begin_call(struct worker *w)
{
	int ret = epoch_enter(&w->h.ep);

	expect(w, ret == 0, "epoch_enter");
}

static void end_call(struct worker *w)
{
	expect(w, sumtree_flush(&w->h.tree, w->h.deltas) == 0, "flush");
	expect(w, epoch_leave(&w->h.ep) == 0, "epoch_leave");
}

/* Each writer has its own blocks, which block headers would ensure. */
static void *run_writer(void *arg)
{
	struct worker *w = arg;
	uint32_t blocks = LEAVES / BLOCK / WRITERS;
	uint64_t priorities[BLOCK];
	struct rng rng;

	rng_seed(&rng, w->seed, w->index);
	pthread_barrier_wait(&w->world->start);
	for (uint32_t round = 0; round < ROUNDS; round++) {
		uint32_t block = round % blocks * WRITERS + w->index;
		struct leaf_run run = { block * BLOCK, BLOCK, 1 + round / blocks };

		for (uint32_t i = 0; i < BLOCK; i++)
			priorities[i] = rng_uniform_u64(&rng, 1000);
		begin_call(w);
		expect(w, sumtree_claim(&w->h.tree, &w->h.ep, &run, w->h.deltas) == 0, "claim");
		end_call(w);
		begin_call(w);
		expect(w, sumtree_publish(&w->h.tree, &w->h.ep, &run, priorities, w->h.deltas) == 0,
		       "publish");
		end_call(w);
	}
	end_call(w);
	return NULL;
}

static size_t make_ops(struct worker *w, struct rng *rng, struct leaf_op *ops)
{
	uint32_t shard[BATCH], slot[BATCH];
	uint64_t word[BATCH];
	double probability[BATCH];
	const struct draws out = { shard, slot, word, probability };
	const struct draw_opts opts = { .stratified = true };
	const struct forest from = { &w->h.tree, &w->h.ep, 1, NULL };
	int ret = sumtree_draw(&from, &opts, rng, BATCH, &out);
	size_t n = 0;

	expect(w, ret == 0 || ret == -ENODATA, "draw");
	for (uint32_t i = 0; ret == 0 && i < BATCH; i++) {
		bool again = false;

		expect(w, slot[i] < LEAVES && leaf_priority(word[i]) > 0, "a dead leaf was drawn");
		expect(w, probability[i] > 0 && probability[i] <= 1.0000001, "probability");
		for (size_t k = 0; k < n; k++)
			again |= ops[k].slot == slot[i];
		if (!again)
			ops[n++] = (struct leaf_op){
				.slot = slot[i],
				.gen = leaf_gen(word[i]),
				.priority = 1 + rng_uniform_u64(rng, 1000),
				.word = word[i],
			};
	}
	return n;
}

static void *run_learner(void *arg)
{
	struct worker *w = arg;
	struct leaf_op ops[BATCH];
	struct rng rng;

	rng_seed(&rng, w->seed, w->index);
	pthread_barrier_wait(&w->world->start);
	for (uint64_t end = deadline_after(clock_monotonic(), LATE_NS);
	     make_ops(w, &rng, ops) == 0 && !deadline_expired(clock_monotonic(), end);)
		sched_yield();
	for (uint32_t round = 0; round < ROUNDS; round++) {
		bool take = round % 8 == 7;
		size_t n = make_ops(w, &rng, ops);
		uint64_t done = 0;

		begin_call(w);
		if (take)
			expect(w, sumtree_consume(&w->h.tree, &w->h.ep, ops, n, w->h.deltas) == 0,
			       "take");
		else
			expect(w, sumtree_update(&w->h.tree, &w->h.ep, ops, n, w->h.deltas) == 0,
			       "update");
		end_call(w);
		for (size_t i = 0; i < n; i++) {
			expect(w, ops[i].result != LEAF_UNKNOWN, "an answer was lost");
			done += ops[i].result == LEAF_DONE;
		}
		atomic_fetch_add_explicit(take ? &w->world->taken : &w->world->updated, done,
					  memory_order_relaxed);
	}
	begin_call(w);
	end_call(w);
	return NULL;
}

static void run_world(uint64_t seed)
{
	static struct worker workers[WRITERS + LEARNERS];
	struct world world;

	memset(&world, 0, sizeof(world));
	tree_fixture_open(&world.fx, LEAVES, fanout);
	assert_int_equal(pthread_barrier_init(&world.start, NULL, WRITERS + LEARNERS), 0);
	for (uint32_t i = 0; i < WRITERS + LEARNERS; i++) {
		struct worker *w = &workers[i];

		w->world = &world;
		w->index = i;
		w->seed = seed;
		tree_handle_open(&w->h, &world.fx, i, true);
		assert_int_equal(
			pthread_create(&w->thread, NULL, i < WRITERS ? run_writer : run_learner, w),
			0);
	}
	for (uint32_t i = 0; i < WRITERS + LEARNERS; i++)
		assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
	tree_handle_assert_exact(&workers[0].h);
	assert_int_equal(world.failures, 0);
	assert_true(world.updated > 0 && world.taken > 0);
	for (uint32_t i = 0; i < WRITERS + LEARNERS; i++)
		tree_handle_close(&workers[i].h);
	pthread_barrier_destroy(&world.start);
	tree_fixture_close(&world.fx);
}

TEST(sumtree__threads_leave_exact_sums)
{
	uint64_t seed = test_seed("sumtree stress", 99);

	run_world(seed);
}

int main(void)
{
	return test_run(NULL, NULL);
}
