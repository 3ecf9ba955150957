/*
 * Random calls of several handles over wires that do everything late and out of order, against a
 * plain array of what should stand in each leaf; rebuild passes begin, are cut short, and end in
 * between. Whenever a call has returned, its leaves are as the array says; when all is flushed,
 * the sums are exact, unless a pass says that another must follow.
 */
#include "tests/support/fixture/shard_fixture.h"
#include "tests/support/test.h"
#include "tests/support/fake/wire_transport.h"

#include "ds/replay/change.h"
#include "ds/ring/ring.h"
#include "ds/sumtree/rebuild.h"

#include "tests/support/fake/fault.h"

#include "base/bits.h"
#include "base/rng.h"

#include <errno.h>
#include <string.h>

#define CLIENTS 3u
#define REBUILDER (CLIENTS + 1)
#define VIEWS 2u
#define SLOTS_MAX 4096u
#define OPS_MAX 300u /* more than a vector */
#define STEPS 6000
#define ROW_MAX 128u

struct client {
	struct shard_conn conn;
	struct access acc;
	struct epoch reader;
	struct block blk;
	uint32_t next; /* row of the block that is published next */
	struct ring_counters counters;
};

/* Expected contents of a leaf, without its tag. */
struct item {
	uint32_t gen;
	uint64_t priority;
};

static struct shard_fixture fx;
static struct shard_conn rebuilder;
static struct transport *fault; /* of the rebuilder */
static struct client clients[CLIENTS];
static struct item items[VIEWS][SLOTS_MAX];
static struct leaf_op ops[VIEWS][OPS_MAX];
static uint8_t rows[OPS_MAX * ROW_MAX];
static struct rng rng;
static uint64_t dirty; /* as of the last settle */
static uint32_t published, updated, taken, drawn, passes, cuts;

static void must(int rc, const char *what)
{
	if (rc)
		fail_msg("%s: %s: %s", what, error_name(rc), error_last());
}

static uint32_t below(uint32_t n)
{
	return (uint32_t)rng_uniform_u64(&rng, n);
}

/* -------- the scene -------- */

static struct transport *break_cpu(struct transport *inner)
{
	must(fault_wrap(inner, NULL, &fault), "fault_wrap");
	return fault;
}

static struct transport *break_nic(struct transport *inner)
{
	return wire_wrap_nic(break_cpu(inner));
}

static void open_scene(shard_fixture_wrap format, const shard_fixture_wrap wraps[CLIENTS],
		       uint64_t seed)
{
	const struct shard_fixture_opts opts = { .capacity = 2048,
						 .block = 64,
						 .views = VIEWS,
						 .max_writers = CLIENTS,
						 .shared = true,
						 .remote = true,
						 .wrap = format };

	shard_fixture_open(&fx, &opts);
	assert_true(fx.desc.slots <= SLOTS_MAX && fx.desc.row_bytes <= ROW_MAX);
	memset(items, 0, sizeof(items));
	memset(clients, 0, sizeof(clients));
	rng_seed(&rng, seed, 0);
	shard_fixture_connect(&fx, format ? break_nic : break_cpu, &rebuilder);
	shard_fixture_take_slot(rebuilder.shard, REBUILDER);
	for (uint32_t i = 0; i < CLIENTS; i++) {
		struct client *c = &clients[i];

		shard_fixture_connect(&fx, wraps[i], &c->conn);
		if (wraps[i])
			wire_seed(c->conn.tr, seed * CLIENTS + i);
		shard_fixture_take_slot(c->conn.shard, i + 1);
		shard_fixture_access(c->conn.shard, i + 1, &c->acc);
		epoch_init(&c->reader, &c->conn.shard->part, 0);
	}
}

static void close_scene(void)
{
	for (uint32_t i = 0; i < CLIENTS; i++) {
		access_close(&clients[i].acc);
		shard_fixture_disconnect(&clients[i].conn);
	}
	shard_fixture_disconnect(&rebuilder);
	shard_fixture_close(&fx);
}

/* -------- calls -------- */

static void claim(struct client *c)
{
	int rc;

	must(access_enter(&c->acc), "enter");
	rc = ring_claim(&c->acc, &c->blk, &c->counters);
	must(access_leave(&c->acc), "leave");
	assert_true(rc == 0 || rc == -EAGAIN);
	if (rc)
		return;
	c->next = fx.desc.window_max - 1;
	for (uint32_t v = 0; v < VIEWS; v++)
		for (uint32_t i = 0; i < fx.desc.block; i++)
			items[v][c->blk.first + i] = (struct item){ .gen = c->blk.gen };
}

static void make_rows(const struct block *blk, uint32_t from, uint32_t n)
{
	memset(rows, 0, (size_t)n * fx.desc.row_bytes);
	for (uint32_t i = 0; i < n; i++) {
		struct row_tail tail = { .step = from + i, .gen = blk->gen };

		if (from + i < fx.desc.window_max - 1)
			tail.flags = ROW_REPEATED;
		memcpy(rows + (size_t)i * fx.desc.row_bytes + fx.desc.tail_off, &tail,
		       sizeof(tail));
	}
}

/* Some rows of the block, the head with the first, and their items. */
static void append(struct client *c)
{
	struct transport_io io = { .region = c->conn.rows, .src = rows };
	struct shard_change change = { .acc = &c->acc };
	uint32_t head = fx.desc.window_max - 1, n, from;

	if (!c->blk.acc)
		claim(c);
	if (!c->blk.acc)
		return;
	n = 1 + below(fx.desc.block - c->next);
	from = c->next == head ? 0 : c->next;
	make_rows(&c->blk, from, c->next + n - from);
	io.off = shard_row_off(c->conn.shard, c->blk.first + from);
	io.len = (c->next + n - from) * fx.desc.row_bytes;
	if (ring_row(&c->blk, from))
		must(ring_write(&c->blk, from, rows, c->next + n - from), "rows");
	else
		change.rows = &io, change.n_rows = 1;
	for (uint32_t v = 0; v < VIEWS; v++) {
		change.ops[v] = ops[v];
		change.n[v] = n;
		for (uint32_t i = 0; i < n; i++) {
			uint32_t slot = c->blk.first + c->next + i;

			items[v][slot].priority = 1 + below(1000);
			ops[v][i] = (struct leaf_op){ .slot = slot,
						      .gen = c->blk.gen,
						      .priority = items[v][slot].priority };
		}
	}
	must(change_publish(&change, 1), "publish");
	published += n;
	c->next += n;
	if (c->next == fx.desc.block)
		must(ring_close(&c->blk), "close");
}

/* Ops for distinct leaves of view v: from a random one on, in steps. */
static uint32_t choose(uint32_t v)
{
	uint32_t step = 1 + below(7), slot = below(fx.desc.slots), n = 0;

	for (uint32_t i = 1 + below(OPS_MAX); i > 0 && slot < fx.desc.slots; i--, slot += step) {
		const struct item *item = &items[v][slot];
		bool seen = below(2);

		ops[v][n++] = (struct leaf_op){
			.slot = slot,
			.gen = below(8) ? item->gen : item->gen + 1,
			.priority = below(500),
			.word = seen ? leaf_make(below(4), item->gen, item->priority) : 0,
		};
	}
	return n;
}

static void expect_results(uint32_t v, uint32_t n, bool take)
{
	for (uint32_t i = 0; i < n; i++) {
		const struct leaf_op *op = &ops[v][i];
		struct item *item = &items[v][op->slot];

		if (op->gen != item->gen) {
			assert_int_equal(op->result, LEAF_STALE);
			continue;
		}
		assert_int_equal(op->result, item->priority ? LEAF_DONE : LEAF_ABSENT);
		if (item->priority)
			item->priority = take ? 0 : max_u64(1, op->priority);
	}
}

static void change_some(struct client *c, bool take)
{
	struct shard_change change = { .acc = &c->acc };
	uint32_t v = below(VIEWS);

	change.ops[v] = ops[v];
	change.n[v] = choose(v);
	must(take ? change_consume(&change, 1) : change_update(&change, 1), "change");
	expect_results(v, change.n[v], take);
	updated += !take;
	taken += take;
}

static void draw(struct client *c)
{
	static uint32_t shard[OPS_MAX], slot[OPS_MAX];
	static uint64_t word[OPS_MAX];
	static double probability[OPS_MAX];
	const struct draws out = { shard, slot, word, probability };
	const struct draw_opts opts = { .stratified = below(2) };
	uint32_t v = below(VIEWS), n = 1 + below(OPS_MAX);
	struct forest from = { &c->conn.shard->trees[v], &c->reader, 1, NULL };
	int rc = sumtree_draw(&from, &opts, &rng, n, &out);

	if (rc == -ENODATA) /* additions of other handles may still be outstanding */
		return;
	must(rc, "draw");
	for (uint32_t i = 0; i < n; i++) {
		assert_int_equal(leaf_gen(word[i]), items[v][slot[i]].gen);
		assert_int_equal(leaf_priority(word[i]), items[v][slot[i]].priority);
	}
	drawn += n;
}

/*
 * Goes on with the pass under way, or begins one; a pin may hold it back until later, and it may
 * be cut short anywhere.
 */
static void rebuild(bool cut)
{
	const struct rebuild_opts opts = { .owner = REBUILDER };
	const struct fault_plan plan = { .fail_at = 1 + below(60), .fail_code = -ETIMEDOUT };
	struct rebuild_report report = { 0 };
	int rc;

	fault_set(fault, cut ? &plan : NULL);
	rc = sumtree_rebuild_pass(rebuilder.shard, &opts, &report);
	fault_set(fault, NULL);
	if (rc != -EAGAIN && !(cut && rc == -ETIMEDOUT))
		must(rc, "pass");
	passes += report.passes;
	cuts += rc == -ETIMEDOUT;
}

/* -------- the end -------- */

static void expect_leaves(void)
{
	for (uint32_t v = 0; v < VIEWS; v++)
		for (uint32_t i = 0; i < fx.desc.slots; i++) {
			uint64_t leaf = shard_fixture_load(&fx, shard_leaf_off(fx.shard, v, i));

			assert_int_equal(leaf_gen(leaf), items[v][i].gen);
			assert_int_equal(leaf_priority(leaf), items[v][i].priority);
		}
}

static void settle(void)
{
	uint64_t off = shard_word_off(fx.shard, offsetof(struct shard_words, part.dirty)), word;
	bool needed = false;

	for (uint32_t i = 0; i < CLIENTS; i++) {
		struct client *c = &clients[i];

		if (c->blk.acc)
			must(ring_close(&c->blk), "close");
		must(access_flush(&c->acc), "flush");
	}
	word = shard_fixture_load(&fx, off);
	assert_true(word == dirty || cuts > 0); /* no client ever asks for a pass */
	must(part_rebuild_needed(&fx.shard->part, &needed), "needed");
	for (int i = 0; needed && i < 4; i++) {
		rebuild(false);
		must(part_rebuild_needed(&fx.shard->part, &needed), "needed");
	}
	dirty = shard_fixture_load(&fx, off);
	cuts = 0;
	expect_leaves();
	assert_int_equal(shard_fixture_problems(fx.shard), 0);
}

static void run(shard_fixture_wrap format, const shard_fixture_wrap wraps[CLIENTS], uint64_t seed)
{
	open_scene(format, wraps, seed);
	published = updated = taken = drawn = passes = cuts = 0;
	dirty = 0;
	for (uint32_t step = 0; step < STEPS; step++) {
		struct client *c = &clients[below(CLIENTS)];
		uint32_t what = below(100);

		if (what < 50)
			append(c);
		else if (what < 75)
			change_some(c, false);
		else if (what < 78)
			change_some(c, true);
		else if (what < 97)
			draw(c);
		else if (what < 99)
			for (uint32_t n = below(4); n > 0; n--)
				rebuild(step / 500 % 2 && below(2));
		else
			must(access_flush(&c->acc), "flush");
		if (step % 500 == 499)
			settle();
	}
	assert_true(published > 10000 && updated > 500 && taken > 50 && drawn > 10000);
	assert_true(passes > 20);
	close_scene();
}

TEST(wire__words_by_cpus_as_in_the_array)
{
	const shard_fixture_wrap wraps[CLIENTS] = { wire_wrap, NULL, wire_wrap };

	run(NULL, wraps, test_seed("words by CPUs", 11));
}

TEST(wire__words_by_a_nic_as_in_the_array)
{
	const shard_fixture_wrap wraps[CLIENTS] = { wire_wrap_nic, wire_wrap_mapped,
						    wire_wrap_nic };

	run(wire_wrap_nic, wraps, test_seed("words by a NIC", 12));
}

int main(void)
{
	return test_run(NULL, NULL);
}
