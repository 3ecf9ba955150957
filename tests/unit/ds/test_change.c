/*
 * Changes over wires: phases, results, answers of posted operations that arrive later, and
 * concurrent rebuilds. Each handle has a transport of its own; the fixture's own observes in place.
 */
#include "tests/support/fixture/shard_fixture.h"
#include "tests/support/test.h"
#include "tests/support/fake/wire_transport.h"

#include "ds/replay/change.h"
#include "ds/replay/priority.h"
#include "ds/ring/ring.h"
#include "ds/sumtree/rebuild.h"

#include "tests/support/fake/fault.h"

#include <errno.h>
#include <string.h>

#define ME 1u
#define REBUILDER 2u
#define MAX_BLOCK 1024u
#define ROW_MAX 128u

/* A shard, a handle to it over a wire, and the changes of one call. */
struct side {
	struct shard_fixture fx;
	struct shard_conn conn;
	struct transport *fault;
	struct access acc;
	struct block blk;
	struct leaf_op ops[RING_MAX_VIEWS][MAX_BLOCK];
	uint8_t rows[MAX_BLOCK * ROW_MAX];
	struct transport_io io;
};

static struct side sides[2];
static struct transport *last_fault;
static bool guards; /* the wire has them */

static struct transport *wrap(struct transport *inner)
{
	struct transport *wire;

	assert_int_equal(fault_wrap(inner, NULL, &last_fault), 0);
	wire = wire_wrap(last_fault);
	if (guards)
		wire_guards(wire);
	return wire;
}

static void side_open(struct side *s, const struct shard_fixture_opts *opts)
{
	shard_fixture_open(&s->fx, opts);
	shard_fixture_take_slot(s->fx.shard, ME);
	shard_fixture_take_slot(s->fx.shard, REBUILDER);
	shard_fixture_connect(&s->fx, wrap, &s->conn);
	s->fault = last_fault;
	shard_fixture_access(s->conn.shard, ME, &s->acc);
}

static void side_close(struct side *s)
{
	access_close(&s->acc);
	shard_fixture_disconnect(&s->conn);
	shard_fixture_close(&s->fx);
}

static void open_with(const struct shard_fixture_opts *opts)
{
	for (int i = 0; i < 2; i++)
		side_open(&sides[i], opts);
}

static int setup(void **state)
{
	(void)state;
	open_with(NULL);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++)
		side_close(&sides[i]);
	return 0;
}

static uint64_t phases(void)
{
	return sides[0].conn.tr->stats.phases + sides[1].conn.tr->stats.phases;
}

static uint64_t dirty(const struct side *s)
{
	return shard_fixture_load(
		&s->fx, shard_word_off(s->fx.shard, offsetof(struct shard_words, part.dirty)));
}

static uint64_t leaf(const struct side *s, uint32_t view, uint32_t slot)
{
	return shard_fixture_load(&s->fx, shard_leaf_off(s->fx.shard, view, slot));
}

static void claim(struct side *s)
{
	struct ring_counters counters = { 0 };

	assert_int_equal(access_enter(&s->acc), 0);
	assert_int_equal(ring_claim(&s->acc, &s->blk, &counters), 0);
	assert_int_equal(access_leave(&s->acc), 0);
}

/* The items of n rows of the block, of all views, as a change with its rows. */
static struct shard_change items(struct side *s, uint32_t n, uint64_t priority)
{
	const struct table_desc *desc = &s->fx.desc;
	struct shard_change change = { .acc = &s->acc, .rows = &s->io, .n_rows = 1 };
	uint32_t head = desc->window_max - 1;

	assert_true(desc->block <= MAX_BLOCK && desc->row_bytes <= ROW_MAX);
	if (s->blk.acc) /* else it is closed, and no row is written */
		shard_fixture_make_rows(&s->blk, s->rows);
	s->io = (struct transport_io){ .region = s->conn.rows,
				       .off = shard_row_off(s->conn.shard, s->blk.first),
				       .src = s->rows,
				       .len = desc->block * desc->row_bytes };
	for (uint32_t v = 0; v < desc->n_views; v++) {
		change.ops[v] = s->ops[v];
		change.n[v] = n;
		for (uint32_t i = 0; i < n; i++)
			s->ops[v][i] = (struct leaf_op){ .slot = s->blk.first + head + i,
							 .gen = s->blk.gen,
							 .priority = priority + i };
	}
	return change;
}

static void publish_all(struct side *s, uint64_t priority)
{
	struct shard_change change;

	claim(s);
	change = items(s, s->fx.desc.block - s->fx.desc.window_max + 1, priority);
	assert_int_equal(change_publish(&change, 1), 0);
}

static void close_block(struct side *s)
{
	assert_int_equal(ring_close(&s->blk), 0);
	assert_int_equal(access_flush(&s->acc), 0);
}

#define CASE(fn) TEST_WITH(fn, setup, teardown)

/* -------- publish -------- */

CASE(change_publish__rows_and_all_views_are_one_phase)
{
	struct side *s = &sides[0];
	struct shard_change change;
	uint64_t before;

	claim(s);
	change = items(s, 20, 500);
	before = phases();
	assert_int_equal(change_publish(&change, 1), 0);
	assert_int_equal(phases() - before, 1);
	for (uint32_t v = 0; v < s->fx.desc.n_views; v++)
		for (uint32_t i = 0; i < 20; i++) {
			uint64_t word = leaf(s, v, s->ops[v][i].slot);

			assert_int_equal(s->ops[v][i].result, LEAF_DONE);
			assert_int_equal(leaf_priority(word), 500 + i);
			assert_int_equal(leaf_gen(word), s->blk.gen);
		}
	close_block(s);
	assert_int_equal(shard_fixture_problems(s->fx.shard), 0);
}

CASE(change_publish__two_nodes_are_one_phase)
{
	struct shard_change changes[2];
	uint64_t before;

	for (int i = 0; i < 2; i++) {
		claim(&sides[i]);
		changes[i] = items(&sides[i], 30, 100);
	}
	before = phases();
	assert_int_equal(change_publish(changes, 2), 0);
	assert_int_equal(phases() - before, 1);
	for (int i = 0; i < 2; i++) {
		close_block(&sides[i]);
		assert_int_equal(shard_fixture_problems(sides[i].fx.shard), 0);
	}
}

CASE(change_publish__more_than_a_vector_is_one_phase)
{
	const struct shard_fixture_opts opts = { .capacity = 16384, .block = 512, .views = 3 };
	struct side *s = &sides[0];
	struct shard_change change;
	uint64_t before;

	teardown(state);
	open_with(&opts);
	before = phases();
	claim(s);
	assert_int_equal(phases() - before, 3);
	change = items(s, 511, 100);
	before = phases();
	assert_int_equal(change_publish(&change, 1), 0);
	assert_int_equal(phases() - before, 1);
	close_block(s);
	assert_int_equal(shard_fixture_problems(s->fx.shard), 0);
}

CASE(change_publish__another_generation_is_a_fence)
{
	struct side *s = &sides[0];
	struct shard_change change;

	claim(s);
	change = items(s, 5, 100);
	shard_fixture_store(&s->fx, shard_leaf_off(s->fx.shard, 1, s->ops[1][2].slot),
			    leaf_make(0, s->blk.gen + 1, 0));
	assert_int_equal(change_publish(&change, 1), -EOWNERDEAD);
	assert_int_equal(change.ret, -EOWNERDEAD);
	assert_int_equal(leaf_priority(leaf(s, 0, s->ops[0][4].slot)), 104);
}

/* -------- update and take -------- */

CASE(change_update__costs_a_phase_as_seen_and_two_unseen)
{
	struct side *s = &sides[0];
	struct shard_change change;
	uint64_t before;

	publish_all(s, 100);
	change = items(s, 25, 900);
	change.n_rows = 0;
	before = phases();
	assert_int_equal(change_update(&change, 1), 0); /* words are 0: not seen */
	assert_int_equal(phases() - before, 2);
	for (uint32_t i = 0; i < 25; i++) {
		s->ops[0][i].word = leaf(s, 0, s->ops[0][i].slot);
		s->ops[0][i].priority = 77;
	}
	change.n[1] = 0;
	before = phases();
	assert_int_equal(change_update(&change, 1), 0);
	assert_int_equal(phases() - before, 1);
	assert_int_equal(leaf_priority(leaf(s, 0, s->ops[0][3].slot)), 77);
	close_block(s);
	assert_int_equal(shard_fixture_problems(s->fx.shard), 0);
}

CASE(change_update__says_what_became_of_each)
{
	struct side *s = &sides[0];
	struct shard_change change;

	publish_all(s, 100);
	change = items(s, 3, 900);
	change.n_rows = 0;
	change.n[1] = 0;
	s->ops[0][0].gen++;
	s->ops[0][1].slot = s->blk.first; /* a head row is never an item */
	assert_int_equal(change_update(&change, 1), 0);
	assert_int_equal(s->ops[0][0].result, LEAF_STALE);
	assert_int_equal(s->ops[0][1].result, LEAF_ABSENT);
	assert_int_equal(s->ops[0][2].result, LEAF_DONE);
	s->ops[0][2].slot = s->fx.desc.slots;
	assert_int_equal(change_update(&change, 1), -ERANGE);
}

CASE(change_update__maxima_are_raised_by_what_was_stored)
{
	struct side *s = &sides[0];
	struct shard_change change;
	uint64_t most = 0;

	publish_all(s, 100);
	change = items(s, 3, 1u << 22);
	change.n_rows = 0;
	change.n[1] = 0;
	s->ops[0][2].gen++; /* the largest is stale */
	assert_int_equal(change_update(&change, 1), 0);
	assert_int_equal(access_flush(&s->acc), 0);
	assert_int_equal(priority_max_read(s->fx.shard, 0, &most), 0);
	assert_int_equal(most, (1u << 22) + 1);
	assert_int_equal(s->acc.max_seen[0], most);
	assert_int_equal(priority_max_read(s->fx.shard, 1, &most), 0);
	assert_int_equal(most, s->fx.desc.views[1].scale);
}

/* Another client changed the word first: it is smaller than expected, so the CAS is repeated. */
CASE(change_update__a_maximum_that_moved_is_raised_by_the_next_call)
{
	struct side *s = &sides[0];
	uint64_t most = 0;

	publish_all(s, 100);
	assert_int_equal(access_enter(&s->acc), 0);
	assert_int_equal(access_raise_max(&s->acc, 0, 5u << 20), 0);
	assert_int_equal(priority_max_raise(s->fx.shard, 0, 3u << 20), 0);
	assert_int_equal(access_leave(&s->acc), 0);
	assert_int_equal(access_flush(&s->acc), 0);
	assert_int_equal(access_flush(&s->acc), 0);
	assert_int_equal(priority_max_read(s->fx.shard, 0, &most), 0);
	assert_int_equal(most, 5u << 20);
}

CASE(change_consume__each_item_once)
{
	struct side *s = &sides[0];
	struct shard_change change;
	uint64_t before;

	publish_all(s, 100);
	change = items(s, 10, 0);
	change.n_rows = 0;
	change.n[1] = 0;
	for (uint32_t i = 0; i < 10; i++)
		s->ops[0][i].word = leaf(s, 0, s->ops[0][i].slot);
	before = phases();
	assert_int_equal(change_consume(&change, 1), 0);
	assert_int_equal(phases() - before, 1);
	for (uint32_t i = 0; i < 10; i++)
		assert_int_equal(s->ops[0][i].result, LEAF_DONE);
	assert_int_equal(change_consume(&change, 1), 0);
	for (uint32_t i = 0; i < 10; i++)
		assert_int_equal(s->ops[0][i].result, LEAF_ABSENT);
	close_block(s);
	assert_int_equal(shard_fixture_problems(s->fx.shard), 0);
}

/* -------- posted operations -------- */

static uint64_t pin(const struct side *s)
{
	return shard_fixture_load_at(s->fx.shard->part.pages,
				     part_page_off(&s->fx.shard->part, ME - 1));
}

CASE(access_leave__is_idle_when_the_additions_are_done)
{
	struct side *s = &sides[0];
	bool late = false;

	for (uint32_t i = 0; i < 200; i++) {
		publish_all(s, 100);
		/* Whenever the pin is gone, so are the deltas. */
		if (pin(s) == SLOT_IDLE)
			assert_int_equal(shard_fixture_problems(s->fx.shard), 0);
		else
			late = true;
		assert_int_equal(ring_close(&s->blk), 0);
	}
	assert_true(late != guards); /* which leave nothing for later */
	assert_int_equal(access_flush(&s->acc), 0);
	assert_int_equal(pin(s), SLOT_IDLE);
	assert_int_equal(shard_fixture_problems(s->fx.shard), 0);
}

CASE(access_enter__a_lost_addition_makes_the_shard_dirty)
{
	const struct fault_plan plan = { .unknown_rate = 65536, .unknown = FAULT_UNKNOWN_NOT_DONE };
	struct side *s = &sides[0];
	uint64_t before = dirty(s);

	if (guards)
		return; /* no addition is posted */
	publish_all(s, 100);
	fault_set(s->fault, &plan);
	assert_int_equal(transport_order(s->conn.tr), 0); /* now the additions are lost */
	fault_set(s->fault, NULL);
	for (uint32_t i = 0; i < UNWAITED_CHAINS; i++) {
		assert_int_equal(access_enter(&s->acc), 0);
		assert_int_equal(access_leave(&s->acc), 0);
		assert_int_equal(access_flush(&s->acc), i ? 0 : -EIO);
	}
	assert_int_equal(dirty(s), before + 1);
}

/* -------- rebuilds in between -------- */

static void pass(struct side *s)
{
	const struct rebuild_opts opts = { .owner = REBUILDER };
	struct rebuild_report report = { 0 };

	assert_int_equal(sumtree_rebuild_pass(s->fx.shard, &opts, &report), 0);
}

/* The view is some epochs old, and nobody asked: the tags say so. */
CASE(change__after_rebuilds_finds_its_epoch_by_the_tags)
{
	struct side *s = &sides[0];

	for (uint32_t passes = 0; passes < 6; passes++) {
		struct shard_change change;

		publish_all(s, 100);
		assert_int_equal(ring_close(&s->blk), 0);
		assert_int_equal(access_flush(&s->acc), 0);
		for (uint32_t i = 0; i < passes; i++)
			pass(s);
		change = items(s, 7, 4000);
		change.n_rows = 0;
		assert_int_equal(change_update(&change, 1), 0);
		assert_int_equal(access_flush(&s->acc), 0);
		assert_int_equal(shard_fixture_problems(s->fx.shard), 0);
	}
}

static void set_mode(struct side *s, enum epoch_mode mode)
{
	uint64_t off = shard_word_off(s->fx.shard, offsetof(struct shard_words, part.epoch));
	uint64_t word = shard_fixture_load(&s->fx, off);

	shard_fixture_store(&s->fx, off, epoch_make(epoch_number(word), mode, REBUILDER));
}

/* A dual view proves nothing later: it is read again behind the pin, which is a phase. */
CASE(change__a_dual_view_is_read_again)
{
	struct side *s = &sides[0];
	struct shard_change change;
	uint64_t before;

	publish_all(s, 100);
	set_mode(s, EPOCH_DUAL);
	assert_int_equal(epoch_refresh(&s->acc.epoch), 0);
	set_mode(s, EPOCH_NORMAL);
	change = items(s, 7, 4000);
	change.n_rows = 0;
	change.n[1] = 0;
	for (uint32_t i = 0; i < 7; i++)
		s->ops[0][i].word = leaf(s, 0, s->ops[0][i].slot);
	before = phases();
	assert_int_equal(change_update(&change, 1), 0);
	assert_int_equal(phases() - before, 2);
	assert_int_equal(s->acc.epoch.mode, EPOCH_NORMAL);
}

/* -------- lost connections -------- */

CASE(change_update__one_lost_node_spoils_no_other)
{
	const struct fault_plan plan = { .cut_at = 1 };
	struct shard_change changes[2];

	for (int i = 0; i < 2; i++) {
		publish_all(&sides[i], 100);
		changes[i] = items(&sides[i], 30, 300);
		changes[i].n_rows = 0;
		assert_int_equal(access_flush(&sides[i].acc), 0);
	}
	fault_set(sides[0].fault, &plan);
	assert_int_equal(change_update(changes, 2), -ECONNRESET);
	assert_int_equal(changes[0].ret, -ECONNRESET);
	assert_int_equal(changes[1].ret, 0);
	assert_int_equal(sides[0].conn.tr->broken, -ECONNRESET);
	assert_int_equal(sides[1].ops[0][29].result, LEAF_DONE);
	close_block(&sides[1]);
	assert_int_equal(shard_fixture_problems(sides[1].fx.shard), 0);
	assert_int_equal(access_enter(&sides[0].acc), -ECONNRESET);
	fault_set(sides[0].fault, NULL);
}

/* Whichever operation fails, a shard whose sums may be wrong is marked. */
CASE(change__any_failed_operation_leaves_sums_exact_or_the_shard_dirty)
{
	struct side *s = &sides[0];
	uint32_t failed = 0;
	int ret = -1;

	publish_all(s, 100);
	assert_int_equal(access_flush(&s->acc), 0);
	for (uint64_t n = 1; ret; n++) {
		const struct fault_plan plan = { .fail_at = n, .fail_code = -ETIMEDOUT };
		uint64_t before = dirty(s);
		struct shard_change change = items(s, 20, 100 + n);
		int flushed;

		change.n_rows = 0;
		fault_set(s->fault, &plan);
		ret = change_update(&change, 1);
		flushed = access_flush(&s->acc);
		fault_set(s->fault, NULL);
		assert_true(ret == 0 || ret == -ETIMEDOUT);
		assert_true(flushed == 0 || flushed == -ETIMEDOUT || flushed == -EIO);
		ret = ret ? ret : flushed;
		failed += ret != 0;
		flushed = access_flush(&s->acc); /* marks the shard that it could not mark before */
		assert_true(flushed == 0 || flushed == -EIO);
		if (dirty(s) != before)
			pass(s);
		assert_int_equal(shard_fixture_problems(s->fx.shard), 0);
	}
	assert_true(failed > 80);
}

/* Where the wire has guards, nothing is posted behind a change whose CASes all succeed. */
CASE(change__with_guards_is_one_chain)
{
	struct side *s = &sides[0];
	struct shard_change change;
	uint64_t chains = 0;

	publish_all(s, 100);
	assert_int_equal(access_flush(&s->acc), 0);
	change = items(s, 30, 300);
	change.n_rows = 0;
	for (uint32_t i = 0; i < 2;
	     i++) { /* the second knows the words, and that no maximum rises */
		for (uint32_t v = 0; v < s->fx.desc.n_views; v++)
			for (uint32_t k = 0; k < change.n[v]; k++)
				s->ops[v][k].word = leaf(s, v, s->ops[v][k].slot);
		chains = s->conn.tr->posted;
		assert_int_equal(change_update(&change, 1), 0);
	}
	assert_int_equal(s->conn.tr->posted - chains, guards ? 1 : 2);
	close_block(s);
	assert_int_equal(shard_fixture_problems(s->fx.shard), 0);
}

/* One CAS of a chain finds another word: its additions are skipped, and those of the others are posted. */
CASE(change__with_guards_survives_a_lost_cas)
{
	struct side *s = &sides[0];
	struct shard_change change;

	publish_all(s, 100);
	assert_int_equal(access_flush(&s->acc), 0);
	change = items(s, 30, 300);
	change.n_rows = 0;
	for (uint32_t v = 0; v < s->fx.desc.n_views; v++)
		for (uint32_t k = 0; k < change.n[v]; k++)
			s->ops[v][k].word = leaf(s, v, s->ops[v][k].slot) + (k == 17);
	assert_int_equal(change_update(&change, 1), 0);
	for (uint32_t v = 0; v < s->fx.desc.n_views; v++)
		for (uint32_t k = 0; k < change.n[v]; k++) {
			assert_int_equal(s->ops[v][k].result, LEAF_DONE);
			assert_int_equal(leaf_priority(leaf(s, v, s->ops[v][k].slot)), 300 + k);
		}
	close_block(s);
	assert_int_equal(shard_fixture_problems(s->fx.shard), 0);
}

int main(void)
{
	int failed = test_run(NULL, NULL);

	guards = true;
	return failed + test_run(NULL, NULL);
}
