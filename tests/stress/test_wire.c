/*
 * Writers, learners and a rebuilder at once, each in a thread with a transport of its own, over wires
 * that do everything late and out of order; one of them in place. Whoever draws an item reads its
 * rows and looks again: rows that hold are those of the item. In the end the sums are exact.
 */
#include "tests/support/fixture/shard_fixture.h"
#include "tests/support/test.h"
#include "tests/support/fake/wire_transport.h"

#include "ds/replay/change.h"
#include "ds/ring/ring.h"
#include "ds/sumtree/rebuild.h"

#include "transport/barrier.h"

#include "base/rng.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#define WRITERS 2u
#define LEARNERS 2u
#define REBUILDER (WRITERS + LEARNERS + 1)
#define VIEWS 2u
#define BLOCK 64u
#define BLOCKS_EACH (BARRIER_TSAN ? 150 : 1500)
#define BATCH 64u
#define ROW_MAX 64u
#define VERIFIED 100u /* at least, or nothing was shown */

struct worker {
	pthread_t thread;
	struct shard_conn conn;
	struct access acc;
	struct rng rng;
	uint32_t owner;
	struct block blk;
	struct leaf_op ops[VIEWS][BLOCK];
	uint8_t rows[BLOCK * ROW_MAX];
	uint64_t read, verified;
};

static struct shard_fixture fx;
static struct worker workers[REBUILDER];
static atomic_int failed, writing;

/* cmocka's asserts belong to the main thread. */
static void expect(int rc, const char *what)
{
	if (!rc)
		return;
	atomic_store_explicit(&failed, 1, memory_order_relaxed); /* read after the join */
	print_message("%s: %s: %s\n", what, error_name(rc), error_last());
}

static bool go_on(void)
{
	return !atomic_load_explicit(&failed, memory_order_relaxed);
}

/* -------- writers -------- */

/* Every byte of a row says for which slot and generation it was written. */
static uint8_t row_byte(uint32_t slot, uint32_t gen)
{
	return (uint8_t)(slot * 31 + gen * 7 + 1);
}

static void make_rows(struct worker *w)
{
	for (uint32_t i = 0; i < BLOCK; i++) {
		uint8_t *row = w->rows + (size_t)i * fx.desc.row_bytes;
		struct row_tail tail = { .step = i, .gen = w->blk.gen };

		memset(row, row_byte(w->blk.first + i, w->blk.gen), fx.desc.tail_off);
		if (i < fx.desc.window_max - 1)
			tail.flags = ROW_REPEATED;
		memcpy(row + fx.desc.tail_off, &tail, sizeof(tail));
	}
}

static int claim(struct worker *w)
{
	struct ring_counters counters = { 0 };
	int rc = access_enter(&w->acc), left;

	if (rc)
		return rc;
	rc = ring_claim(&w->acc, &w->blk, &counters);
	left = access_leave(&w->acc);
	return rc ? rc : left;
}

/* Rows from..to of the block and their items, in one call. */
static int publish(struct worker *w, uint32_t from, uint32_t to)
{
	uint32_t head = fx.desc.window_max - 1, first = from > head ? from : head;
	struct transport_io io = { .region = w->conn.rows,
				   .off = shard_row_off(w->conn.shard, w->blk.first + from),
				   .src = w->rows + (size_t)from * fx.desc.row_bytes,
				   .len = (to - from) * fx.desc.row_bytes };
	struct shard_change change = { .acc = &w->acc, .rows = &io, .n_rows = 1 };

	if (!w->acc.chained) {
		int rc = ring_write(&w->blk, from, io.src, to - from);

		if (rc)
			return rc;
		change.n_rows = 0;
	}
	for (uint32_t v = 0; v < VIEWS; v++) {
		change.ops[v] = w->ops[v];
		for (uint32_t i = first; i < to; i++)
			w->ops[v][change.n[v]++] = (struct leaf_op){
				.slot = w->blk.first + i,
				.gen = w->blk.gen,
				.priority = 1 + rng_uniform_u64(&w->rng, 1000),
			};
	}
	return change_publish(&change, 1);
}

static void *write_blocks(void *arg)
{
	struct worker *w = arg;

	for (uint32_t i = 0; i < BLOCKS_EACH && go_on(); i++) {
		int rc = claim(w);

		if (rc == -EAGAIN)
			continue;
		expect(rc, "claim");
		if (rc)
			break;
		make_rows(w);
		expect(publish(w, 0, BLOCK / 2), "publish");
		expect(publish(w, BLOCK / 2, BLOCK), "publish");
		expect(ring_close(&w->blk), "close");
	}
	expect(access_flush(&w->acc), "flush");
	atomic_fetch_sub_explicit(&writing, 1, memory_order_relaxed); /* only a wish to stop */
	return NULL;
}

/* -------- learners -------- */

struct drawn {
	uint32_t shard[BATCH], slot[BATCH];
	uint64_t word[BATCH], again[BATCH];
	double probability[BATCH];
	uint8_t rows[BATCH][ROW_MAX];
};

/* Rows, then their leaves again: two calls, so the second looks after the first. */
static int read_rows(struct worker *w, uint32_t view, struct drawn *d)
{
	struct transport_io io[BATCH];
	int rc;

	for (uint32_t i = 0; i < BATCH; i++)
		io[i] = (struct transport_io){ .region = w->conn.rows,
					       .off = shard_row_off(w->conn.shard, d->slot[i]),
					       .dst = d->rows[i],
					       .len = fx.desc.row_bytes };
	rc = transport_read(w->conn.tr, io, BATCH);
	for (uint32_t i = 0; i < BATCH; i++)
		io[i] = (struct transport_io){
			.region = w->conn.tree,
			.off = shard_leaf_off(w->conn.shard, view, d->slot[i]),
			.dst = &d->again[i],
			.len = 8,
		};
	return rc ? rc : transport_read(w->conn.tr, io, BATCH);
}

static void verify(struct worker *w, const struct drawn *d)
{
	for (uint32_t i = 0; i < BATCH; i++) {
		uint32_t gen = leaf_gen(d->word[i]);
		uint8_t want = row_byte(d->slot[i], gen);
		uint32_t wrong = 0;

		w->read++;
		if (leaf_gen(d->again[i]) != gen || leaf_priority(d->again[i]) == 0)
			continue;
		w->verified++;
		for (uint32_t b = 0; b < fx.desc.tail_off; b++)
			wrong += d->rows[i][b] != want;
		expect(wrong ? -EBADMSG : 0, "rows of another item");
	}
}

static int learn(struct worker *w, struct epoch *reader, struct drawn *d)
{
	uint32_t view = (uint32_t)rng_uniform_u64(&w->rng, VIEWS);
	const struct draws out = { d->shard, d->slot, d->word, d->probability };
	const struct draw_opts opts = { .stratified = true };
	const struct forest from = { &w->conn.shard->trees[view], reader, 1, NULL };
	struct shard_change change = { .acc = &w->acc };
	int rc = sumtree_draw(&from, &opts, &w->rng, BATCH, &out);

	if (!rc)
		rc = read_rows(w, view, d);
	if (rc)
		return rc == -ENODATA ? 0 : rc;
	verify(w, d);
	change.ops[view] = w->ops[view];
	for (uint32_t i = 0; i < BATCH; i++)
		if (i == 0 || d->slot[i] != d->slot[i - 1])
			w->ops[view][change.n[view]++] = (struct leaf_op){
				.slot = d->slot[i],
				.gen = leaf_gen(d->word[i]),
				.priority = 1 + rng_uniform_u64(&w->rng, 1000),
				.word = d->again[i],
			};
	return change_update(&change, 1);
}

static void *learn_on(void *arg)
{
	struct worker *w = arg;
	struct epoch reader;
	struct drawn drawn;
	uint32_t more = 1000;

	epoch_init(&reader, &w->conn.shard->part, 0);
	/* Some more if writers left it no turn on a busy machine. */
	while (go_on() && (atomic_load_explicit(&writing, memory_order_relaxed) > 0 ||
			   (w->verified <= VERIFIED && more-- > 0)))
		expect(learn(w, &reader, &drawn), "learn");
	expect(access_flush(&w->acc), "flush");
	return NULL;
}

/* -------- rebuilds -------- */

static void *rebuild_on(void *arg)
{
	struct worker *w = arg;
	const struct rebuild_opts opts = { .owner = REBUILDER };

	while (atomic_load_explicit(&writing, memory_order_relaxed) > 0 && go_on()) {
		struct rebuild_report report = { 0 };
		int rc = sumtree_rebuild_pass(w->conn.shard, &opts, &report);

		w->read += report.passes;
		expect(rc == -EAGAIN ? 0 : rc, "pass");
	}
	return NULL;
}

/* -------- the run -------- */

static void open_worker(uint32_t i, shard_fixture_wrap wrap)
{
	struct worker *w = &workers[i];

	memset(w, 0, sizeof(*w));
	w->owner = i + 1;
	rng_seed(&w->rng, 1, w->owner);
	shard_fixture_connect(&fx, wrap, &w->conn);
	if (wrap)
		wire_seed(w->conn.tr, w->owner);
	shard_fixture_take_slot(w->conn.shard, w->owner);
	if (w->owner != REBUILDER)
		shard_fixture_access(w->conn.shard, w->owner, &w->acc);
}

static void run(shard_fixture_wrap first, shard_fixture_wrap others)
{
	const struct shard_fixture_opts opts = { .capacity = 2048,
						 .block = BLOCK,
						 .views = VIEWS,
						 .shared = true,
						 .wrap = first == wire_wrap_mapped ? others
										   : NULL };
	const struct rebuild_opts finish = { .owner = REBUILDER };
	struct rebuild_report report = { 0 };
	uint64_t verified = 0;
	bool begun = true;

	shard_fixture_open(&fx, &opts);
	assert_true(fx.desc.row_bytes <= ROW_MAX);
	atomic_store_explicit(&failed, 0, memory_order_relaxed); /* no thread runs */
	atomic_store_explicit(&writing, WRITERS, memory_order_relaxed);
	for (uint32_t i = 0; i < REBUILDER; i++)
		open_worker(i, i % 2 ? others : first);
	for (uint32_t i = 0; i < REBUILDER; i++)
		assert_int_equal(pthread_create(&workers[i].thread, NULL,
						i < WRITERS              ? write_blocks
						: i < WRITERS + LEARNERS ? learn_on
									 : rebuild_on,
						&workers[i]),
				 0);
	for (uint32_t i = 0; i < REBUILDER; i++)
		assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
	assert_false(failed);
	for (uint32_t i = WRITERS; i < WRITERS + LEARNERS; i++)
		verified += workers[i].verified;
	assert_true(verified > VERIFIED);
	assert_int_equal(part_rebuild_needed(&fx.shard->part, &begun), 0);
	if (!begun)
		assert_int_equal(shard_fixture_problems(fx.shard), 0);
	/* A pass that was under way is finished; nothing made another one necessary. */
	assert_int_equal(sumtree_rebuild_pass(workers[REBUILDER - 1].conn.shard, &finish, &report),
			 0);
	assert_true(report.clean);
	assert_int_equal(shard_fixture_problems(fx.shard), 0);
	for (uint32_t i = 0; i < REBUILDER; i++) {
		if (workers[i].owner != REBUILDER)
			access_close(&workers[i].acc);
		shard_fixture_disconnect(&workers[i].conn);
	}
	shard_fixture_close(&fx);
}

TEST(wire__words_by_cpus)
{
	run(NULL, wire_wrap);
}

TEST(wire__words_by_a_nic)
{
	run(wire_wrap_mapped, wire_wrap_nic);
}

int main(void)
{
	return test_run(NULL, NULL);
}
