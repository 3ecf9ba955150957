/*
 * Writers and samplers of a queue in threads of their own, which now and then die with something
 * admitted. A watcher sees no overshoot at any time, and in the end nothing is lost: exactly what
 * is committed can be sampled, and the queue takes its full size again.
 */
#include "ds/limiter/limiter.h"

#include "ds/replay/settle.h"

#include "tests/support/fixture/shard_fixture.h"
#include "tests/support/test.h"

#include "base/rng.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#define WRITERS 2
#define SAMPLERS 2
#define CALLS 200000
#define QUEUE 16

struct worker {
	pthread_t thread;
	struct shard_conn conn;
	struct limiter lim;
	struct rng rng;
	uint32_t owner;
	bool writes;
	uint64_t done, deaths;
};

static struct shard_fixture fx;
static atomic_int failed;
static atomic_bool stop;

/* cmocka's asserts belong to the main thread. */
static void expect(bool good, const char *what)
{
	if (good)
		return;
	atomic_store_explicit(&failed, 1, memory_order_relaxed); /* read after the join */
	print_message("%s: %s\n", what, error_last());
}

static void rise(struct worker *w)
{
	shard_fixture_take_slot(w->conn.shard, w->owner);
	limiter_init(&w->lim, w->conn.shard, 0, w->owner);
}

/* Killed here; the server fences and settles it, and another takes the slot. */
static void die(struct worker *w)
{
	expect(shard_settle(w->conn.shard, w->owner, NULL) == 0, "settle");
	w->deaths++;
	rise(w);
}

static void work_once(struct worker *w)
{
	uint64_t n = 1 + rng_uniform_u64(&w->rng, 5), kept = n;
	uint64_t fate = rng_uniform_u64(&w->rng, 100);
	int rc = w->writes ? limiter_try_insert(&w->lim, n) : limiter_try_sample(&w->lim, n);

	if (rc) {
		expect(rc == -EAGAIN, "try");
		sched_yield();
		return;
	}
	if (fate < 3) {
		die(w);
		return;
	}
	if (fate < 10)
		kept = rng_uniform_u64(&w->rng, n + 1);
	rc = w->writes ? limiter_commit_insert(&w->lim, n, kept)
		       : limiter_commit_sample(&w->lim, n, kept);
	expect(rc == 0, "commit");
	w->done += kept;
}

static void *work(void *arg)
{
	struct worker *w = arg;

	for (uint32_t i = 0; i < CALLS; i++)
		work_once(w);
	return NULL;
}

/* Words that only grow are read last, so that the bounds hold for the values read. */
static void *watch(void *arg)
{
	struct limiter *lim = arg;

	while (!atomic_load_explicit(&stop, memory_order_relaxed)) { /* a hint to end */
		struct limiter_words first, then;

		expect(limiter_read(lim, &first) == 0, "read");
		expect(limiter_read(lim, &then) == 0, "read");
		expect((int64_t)(first.ins_admitted - then.smp_committed) <= QUEUE, "inserts");
		expect((int64_t)(then.ins_committed - first.smp_admitted) >= 0, "samples");
	}
	return NULL;
}

static void open_worker(struct worker *w, uint32_t owner, uint64_t seed)
{
	*w = (struct worker){ .owner = owner, .writes = owner <= WRITERS };
	rng_seed(&w->rng, seed, owner);
	shard_fixture_connect(&fx, NULL, &w->conn);
	rise(w);
}

/* The queue is intact: all its items come out, and then it accepts its full size. */
static void assert_nothing_lost(struct limiter *lim, uint64_t inserted, uint64_t sampled)
{
	struct limiter_words now;

	assert_int_equal(limiter_read(lim, &now), 0);
	assert_int_equal(now.ins_committed, inserted);
	assert_int_equal(now.smp_committed, sampled);
	assert_int_equal(now.ins_admitted, inserted);
	assert_int_equal(now.smp_admitted, sampled);
	for (; sampled < inserted; sampled++) {
		assert_int_equal(limiter_try_sample(lim, 1), 0);
		assert_int_equal(limiter_commit_sample(lim, 1, 1), 0);
	}
	assert_int_equal(limiter_try_sample(lim, 1), -EAGAIN);
	assert_int_equal(limiter_try_insert(lim, QUEUE), 0);
	assert_int_equal(limiter_try_insert(lim, 1), -EAGAIN);
}

TEST(limiter__no_overshoot_and_nothing_lost)
{
	uint64_t seed = test_seed("limiter__no_overshoot_and_nothing_lost", 11);
	uint64_t inserted = 0, sampled = 0, deaths = 0;
	struct worker workers[WRITERS + SAMPLERS];
	struct shard_fixture_opts opts = { 0 };
	struct shard_conn conn;
	struct limit_desc law;
	struct limiter lim;
	pthread_t watcher;

	assert_int_equal(limit_desc_init(&law, 1, 1, 0, QUEUE), 0);
	opts.limit = &law;
	shard_fixture_open(&fx, &opts);
	shard_fixture_connect(&fx, NULL, &conn);
	limiter_init(&lim, conn.shard, 0, 9);
	for (uint32_t i = 0; i < WRITERS + SAMPLERS; i++)
		open_worker(&workers[i], i + 1, seed);
	assert_int_equal(pthread_create(&watcher, NULL, watch, &lim), 0);
	for (uint32_t i = 0; i < WRITERS + SAMPLERS; i++)
		assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
	for (uint32_t i = 0; i < WRITERS + SAMPLERS; i++) {
		pthread_join(workers[i].thread, NULL);
		*(workers[i].writes ? &inserted : &sampled) += workers[i].done;
		deaths += workers[i].deaths;
		shard_fixture_disconnect(&workers[i].conn);
	}
	atomic_store_explicit(&stop, true, memory_order_relaxed); /* a hint to end */
	pthread_join(watcher, NULL);
	assert_int_equal(atomic_load_explicit(&failed, memory_order_relaxed), 0); /* joined */
	assert_true(deaths > 0 && sampled > QUEUE);
	assert_nothing_lost(&lim, inserted, sampled);
	print_message("%llu inserted, %llu sampled, %llu deaths\n", (unsigned long long)inserted,
		      (unsigned long long)sampled, (unsigned long long)deaths);
	shard_fixture_disconnect(&conn);
	shard_fixture_close(&fx);
}

int main(void)
{
	return test_run(NULL, NULL);
}
