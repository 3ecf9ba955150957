/*
 * Rows under readers while writers go round a small ring, and writers that stop at any step. Every
 * word of a row says which slot and generation it was written for, so a wrong byte is seen. Two
 * controls leave a rule out and must find wrong bytes.
 */
#include "ds/replay/settle.h"
#include "ds/ring/ring.h"

#include "tests/support/fixture/shard_fixture.h"
#include "tests/support/test.h"

#include "transport/barrier.h"
#include "tests/support/fake/fault.h"

#include "base/mem/alloc.h"
#include "base/rng.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#define WRITERS 3
#define READERS 2
#define BLOCKS_EACH 10000
#define ROW_WORDS 8 /* at least row_bytes / 8 */

static struct shard_fixture fx;
static atomic_int failed, writing;

/* cmocka's asserts belong to the main thread. */
static void expect(int rc, const char *what)
{
	if (!rc)
		return;
	atomic_store_explicit(&failed, 1, memory_order_relaxed); /* read after the join */
	print_message("%s: %s: %s\n", what, error_name(rc), error_last());
}

static void open_shard(void)
{
	struct shard_fixture_opts opts = {
		.views = 2, .n_step = 8, .capacity = 800, .block = 32, .max_writers = 4
	};

	shard_fixture_open(&fx, &opts);
	assert_true(fx.desc.row_bytes <= ROW_WORDS * 8);
	atomic_store_explicit(&failed, 0, memory_order_relaxed); /* no thread runs */
}

/* -------- rows that contain their own id -------- */

static uint64_t row_word(uint32_t slot, uint32_t gen, uint32_t i)
{
	return ((uint64_t)slot << 40 | (uint64_t)gen << 8 | i) * 0x9e3779b97f4a7c15ull;
}

static void make_row(const struct table_desc *desc, uint32_t slot, uint32_t gen, uint64_t *words)
{
	struct row_tail tail = { .step = slot, .gen = gen };

	for (uint32_t i = 0; i < desc->tail_off / 8; i++)
		words[i] = row_word(slot, gen, i);
	if (slot % desc->block < desc->window_max - 1)
		tail.flags = ROW_REPEATED;
	memcpy(words + desc->tail_off / 8, &tail, sizeof(tail));
}

/* Words of the window that were not written for these slots and this generation. */
static uint32_t wrong_words(const struct table_desc *desc, const uint64_t *rows, uint32_t last,
			    uint32_t gen)
{
	uint32_t wrong = 0, n = desc->window_max;

	for (uint32_t r = 0; r < n; r++) {
		uint64_t want[ROW_WORDS];

		make_row(desc, last + 1 - n + r, gen, want);
		for (uint32_t i = 0; i < desc->row_bytes / 8; i++)
			wrong += rows[r * desc->row_bytes / 8 + i] != want[i];
	}
	return wrong;
}

/* -------- writers -------- */

struct writer {
	pthread_t thread;
	struct shard_conn conn;
	struct access acc;
	struct ring_counters counters;
	struct rng rng;
	uint32_t owner;
};

static void open_writer(struct writer *w, uint32_t owner, shard_fixture_wrap wrap)
{
	memset(w, 0, sizeof(*w));
	w->owner = owner;
	rng_seed(&w->rng, 1, owner);
	shard_fixture_connect(&fx, wrap, &w->conn);
	shard_fixture_take_slot(w->conn.shard, owner);
	shard_fixture_access(w->conn.shard, owner, &w->acc);
}

static void close_writer(struct writer *w)
{
	access_close(&w->acc);
	shard_fixture_disconnect(&w->conn);
}

static int write_rows(const struct block *blk, uint32_t from, uint32_t n)
{
	const struct table_desc *desc = &blk->acc->shard->desc;
	uint64_t words[ROW_WORDS];
	int rc = 0;

	for (uint32_t i = from; !rc && i < from + n; i++) {
		make_row(desc, blk->first + i, blk->gen, words);
		rc = ring_write(blk, i, words, 1);
	}
	return rc;
}

static int publish(const struct block *blk, uint32_t from, uint32_t n)
{
	const struct shard *shard = blk->acc->shard;
	uint32_t head = shard->desc.window_max - 1;
	uint64_t priorities[64];
	int rc = 0;

	for (uint32_t i = 0; i < n; i++)
		priorities[i] = from + i < head ? 0 : 1 + from + i;
	for (uint32_t v = 0; !rc && v < shard->desc.n_views; v++) {
		struct leaf_run run = { blk->first + from, n, blk->gen };

		rc = sumtree_publish(&shard->trees[v], &blk->acc->epoch, &run, priorities,
				     blk->acc->deltas[v]);
	}
	return rc;
}

/* A block in pieces, each published before the next is written. */
static int write_block(struct writer *w)
{
	uint32_t size = w->conn.shard->desc.block, done = 0;
	struct block blk;
	int rc = access_enter(&w->acc), left;

	if (!rc)
		rc = ring_claim(&w->acc, &blk, &w->counters);
	while (!rc && done < size) {
		uint32_t n = 1 + (uint32_t)rng_uniform_u64(&w->rng, size - done);

		rc = write_rows(&blk, done, n);
		if (!rc)
			rc = publish(&blk, done, n);
		done += n;
	}
	if (!rc)
		rc = ring_close(&blk);
	left = access_leave(&w->acc);
	return rc ? rc : left;
}

static void *write_blocks(void *arg)
{
	struct writer *w = arg;

	for (uint32_t i = 0; i < BLOCKS_EACH; i++)
		expect(write_block(w), "write");
	atomic_fetch_sub_explicit(&writing, 1, memory_order_relaxed); /* a hint to end */
	return NULL;
}

/* -------- readers -------- */

struct reader {
	pthread_t thread;
	struct shard_conn conn;
	struct rng rng;
	bool looks_twice;
	uint64_t accepted, rejected, wrong;
};

static void read_item(struct reader *r, uint64_t *rows)
{
	const struct shard *shard = r->conn.shard;
	const struct table_desc *desc = &shard->desc;
	uint32_t head = desc->window_max - 1;
	uint32_t block = (uint32_t)rng_uniform_u64(&r->rng, desc->blocks);
	uint32_t slot =
		block * desc->block + head + (uint32_t)rng_uniform_u64(&r->rng, desc->block - head);
	const struct rword64 *leaf = (void *)(r->conn.tree->base + shard_leaf_off(shard, 1, slot));
	uint64_t word = rword64_load_acquire(leaf), again;

	if (!leaf_priority(word))
		return;
	if (rng_next_u64(&r->rng) % 64 == 0)
		sched_yield(); /* the ring moves on under us */
	transport_copy_racy(rows, r->conn.rows->base + shard_row_off(shard, slot - head),
			    (size_t)desc->window_max * desc->row_bytes);
	again = transport_read_validate(leaf);
	if (r->looks_twice && (leaf_gen(again) != leaf_gen(word) || !leaf_priority(again))) {
		r->rejected++;
		return;
	}
	r->accepted++;
	r->wrong += wrong_words(desc, rows, slot, leaf_gen(word)) != 0;
}

static void *read_items(void *arg)
{
	struct reader *r = arg;
	uint64_t *rows = mem_aligned(64, 64 * ROW_WORDS * 8);

	while (rows && atomic_load_explicit(&writing, memory_order_relaxed)) /* a hint to end */
		read_item(r, rows);
	mem_free(rows);
	return NULL;
}

static struct reader run_threads(bool looks_twice, uint64_t seed)
{
	struct writer writers[WRITERS];
	struct reader readers[READERS], sum = { 0 };

	open_shard();
	atomic_store_explicit(&writing, WRITERS, memory_order_relaxed); /* no thread runs */
	for (uint32_t i = 0; i < READERS; i++) {
		readers[i] = (struct reader){ .looks_twice = looks_twice };
		rng_seed(&readers[i].rng, seed, i);
		shard_fixture_connect(&fx, NULL, &readers[i].conn);
	}
	for (uint32_t i = 0; i < WRITERS; i++)
		open_writer(&writers[i], i + 1, NULL);
	for (uint32_t i = 0; i < READERS; i++)
		pthread_create(&readers[i].thread, NULL, read_items, &readers[i]);
	for (uint32_t i = 0; i < WRITERS; i++)
		pthread_create(&writers[i].thread, NULL, write_blocks, &writers[i]);
	for (uint32_t i = 0; i < WRITERS; i++) {
		pthread_join(writers[i].thread, NULL);
		close_writer(&writers[i]);
	}
	for (uint32_t i = 0; i < READERS; i++) {
		pthread_join(readers[i].thread, NULL);
		shard_fixture_disconnect(&readers[i].conn);
		sum.accepted += readers[i].accepted;
		sum.rejected += readers[i].rejected;
		sum.wrong += readers[i].wrong;
	}
	print_message("%llu accepted, %llu rejected, %llu wrong\n",
		      (unsigned long long)sum.accepted, (unsigned long long)sum.rejected,
		      (unsigned long long)sum.wrong);
	assert_int_equal(atomic_load_explicit(&failed, memory_order_relaxed), 0); /* joined */
	assert_int_equal(shard_fixture_problems(fx.shard), 0);
	shard_fixture_close(&fx);
	return sum;
}

/* On a busy machine readers may have no turn while a block is written: at most so many times. */
#define RUNS 20u

TEST(ring__no_reader_accepts_a_torn_row)
{
	uint64_t seed = test_seed("ring__no_reader_accepts_a_torn_row", 21);
	struct reader sum = { 0 };

	for (uint32_t run = 0; run < RUNS && !(sum.accepted > 1000 && sum.rejected > 0); run++) {
		sum = run_threads(true, seed + run);
		assert_int_equal(sum.wrong, 0);
	}
	assert_true(sum.accepted > 1000 && sum.rejected > 0);
}

TEST(ring__without_the_second_look_rows_are_torn)
{
	uint64_t seed = test_seed("ring__without_the_second_look_rows_are_torn", 22);
	struct reader sum = { 0 };

	for (uint32_t run = 0; run < RUNS && sum.wrong == 0; run++)
		sum = run_threads(false, seed + run);
	assert_true(sum.wrong > 0);
}

/* -------- writers that stop -------- */

/* Live items whose rows are not theirs, over all views. */
static uint32_t wrong_items(void)
{
	const struct table_desc *desc = &fx.desc;
	uint32_t wrong = 0, head = desc->window_max - 1;

	for (uint32_t v = 0; v < desc->n_views; v++)
		for (uint32_t slot = 0; slot < desc->slots; slot++) {
			uint64_t word = 0;

			assert_int_equal(transport_load(fx.conn.tree,
							shard_leaf_off(fx.shard, v, slot), &word),
					 0);
			if (leaf_priority(word))
				wrong += wrong_words(desc,
						     (const void *)(fx.conn.rows->base +
								    shard_row_off(fx.shard,
										  slot - head)),
						     slot, leaf_gen(word)) != 0;
		}
	return wrong;
}

static struct writer stopper, other;

/* While the stopper stands still, the ring goes round twice. */
static void go_round(void *ctx, uint64_t delay_ns)
{
	uint64_t *left = ctx;

	(void)delay_ns;
	if (!*left || --*left)
		return;
	for (uint32_t i = 0; i < 2 * fx.desc.blocks; i++)
		expect(write_block(&other), "go round");
}

static struct transport *stop_it(struct transport *inner)
{
	struct transport *tr = NULL;

	assert_int_equal(fault_wrap(inner, NULL, &tr), 0);
	return tr;
}

/* Writes one block and stops before its n-th call of the transport. False: there is none. */
static bool stop_at(uint64_t n)
{
	uint64_t left = n;
	struct fault_plan plan = {
		.delay_rate = 65536, .delay_ns = 1, .delay = go_round, .delay_ctx = &left
	};
	struct fault_plan none = { 0 };
	int rc;

	fault_set(stopper.conn.tr, &plan);
	rc = write_block(&stopper);
	fault_set(stopper.conn.tr, &none);
	assert_int_equal(rc, 0);
	return left == 0;
}

static void open_two(void)
{
	open_shard();
	open_writer(&stopper, 1, stop_it);
	open_writer(&other, 2, NULL);
	for (uint32_t i = 0; i < fx.desc.blocks; i++)
		expect(write_block(&other), "fill");
}

static void close_two(void)
{
	close_writer(&stopper);
	close_writer(&other);
	shard_fixture_close(&fx);
}

TEST(ring__a_writer_stopped_anywhere_writes_no_wrong_byte)
{
	uint64_t n = 1;

	open_two();
	while (stop_at(n)) {
		assert_int_equal(wrong_items(), 0);
		assert_int_equal(shard_fixture_problems(fx.shard), 0);
		n++;
	}
	print_message("stopped before each of %llu calls; %llu tickets skipped\n",
		      (unsigned long long)n - 1, (unsigned long long)stopper.counters.skipped);
	assert_true(n > 10);
	assert_true(stopper.counters.skipped > 0);
	assert_int_equal(atomic_load_explicit(&failed, memory_order_relaxed), 0); /* one thread */
	close_two();
}

/* Closing the block of a writer that only stands still is what the fence forbids. */
TEST(ring__a_block_taken_from_a_live_writer_is_seen)
{
	uint32_t closed = 0;
	struct block blk;

	open_two();
	expect(access_enter(&stopper.acc), "enter");
	expect(ring_claim(&stopper.acc, &blk, &stopper.counters), "claim");
	expect(write_rows(&blk, 0, 5), "rows");
	assert_int_equal(shard_close_blocks(fx.shard, stopper.owner, &closed), 0);
	assert_int_equal(closed, 1);
	for (uint32_t i = 0; i < 2 * fx.desc.blocks; i++)
		expect(write_block(&other), "go round");
	assert_int_equal(wrong_items(), 0);
	expect(write_rows(&blk, 5, 20), "rows");
	assert_true(wrong_items() > 0);
	assert_int_equal(publish(&blk, 0, 25), -EOWNERDEAD);
	assert_int_equal(ring_close(&blk), -EOWNERDEAD);
	expect(access_leave(&stopper.acc), "leave");
	close_two();
}

int main(void)
{
	return test_run(NULL, NULL);
}
