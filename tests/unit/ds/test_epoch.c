#include "tests/support/fake/memory_transport.h"
#include "tests/support/fixture/shard_fixture.h"
#include "tests/support/test.h"

#include "ds/part/epoch.h"

#include <errno.h>
#include <string.h>

static struct shard_fixture fx;
static struct epoch ep;

static uint64_t word_off(void)
{
	return shard_word_off(fx.shard, offsetof(struct shard_words, part.epoch));
}

static void set_epoch(uint32_t number, enum epoch_mode mode)
{
	uint64_t word = epoch_make(number, mode, 1);

	assert_int_equal(transport_store(fx.conn.tree, word_off(), &word, 8), 0);
}

static uint64_t pin(void)
{
	uint64_t word = 0;

	assert_int_equal(
		transport_load(fx.shard->part.pages, part_page_off(&fx.shard->part, 2), &word), 0);
	return word;
}

static void wire_open(struct memory_transport *wire)
{
	const struct region *pages = fx.shard->part.pages;

	memory_transport_init(wire, fx.conn.tree->base, fx.conn.tree->size, false);
	(void)memory_transport_add(wire, pages->base, pages->size);
}

static void init_over(struct memory_transport *wire)
{
	struct part part = fx.shard->part;

	part.tree = &wire->region;
	part.pages = &wire->more[0];
	epoch_init(&ep, &part, 3);
}

static int setup(void **state)
{
	(void)state;
	shard_fixture_open(&fx, NULL);
	shard_fixture_take_slot(fx.shard, 3);
	epoch_init(&ep, &fx.shard->part, 3);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	shard_fixture_close(&fx);
	return 0;
}

#define CASE(f) TEST_WITH(f, setup, teardown)

CASE(epoch_enter__promises_the_epoch_of_the_shard)
{
	set_epoch(7, EPOCH_DUAL);
	assert_int_equal(pin(), SLOT_IDLE);
	assert_int_equal(epoch_enter(&ep), 0);
	assert_int_equal(pin(), 7);
	assert_int_equal(ep.number, 7);
	assert_int_equal(ep.mode, EPOCH_DUAL);
}

CASE(epoch_enter__again_sees_a_new_mode)
{
	assert_int_equal(epoch_enter(&ep), 0);
	set_epoch(0, EPOCH_DUAL);
	assert_int_equal(epoch_enter(&ep), 0);
	assert_int_equal(ep.mode, EPOCH_DUAL);
}

CASE(epoch_enter__again_under_a_new_epoch_is_stale)
{
	assert_int_equal(epoch_enter(&ep), 0);
	set_epoch(1, EPOCH_NORMAL);
	assert_int_equal(epoch_enter(&ep), -ESTALE);
	assert_int_equal(ep.number, 0);
	assert_int_equal(pin(), 0);
	assert_int_equal(epoch_leave(&ep), 0);
	assert_int_equal(epoch_enter(&ep), 0);
	assert_int_equal(pin(), 1);
}

CASE(epoch_enter__after_a_refresh_is_still_stale)
{
	assert_int_equal(epoch_enter(&ep), 0);
	set_epoch(1, EPOCH_NORMAL);
	assert_int_equal(epoch_refresh(&ep), 0);
	assert_int_equal(ep.number, 1);
	assert_int_equal(pin(), 0); /* the older pin still holds back the next pass */
	assert_int_equal(epoch_enter(&ep), -ESTALE);
}

CASE(epoch_enter_end__of_the_epoch_that_was_announced)
{
	set_epoch(7, EPOCH_ZERO);
	epoch_enter_begin(&ep);
	assert_int_equal(pin(), 7);
	assert_false(ep.entered);
	set_epoch(7, EPOCH_DUAL);
	assert_int_equal(epoch_enter_end(&ep), 0);
	assert_true(ep.entered);
	assert_int_equal(ep.mode, EPOCH_DUAL);
	assert_int_equal(epoch_leave(&ep), 0);
	assert_int_equal(pin(), SLOT_IDLE);
}

CASE(epoch_enter_end__of_an_epoch_that_moved_meanwhile_announces_that)
{
	epoch_enter_begin(&ep);
	set_epoch(1, EPOCH_NORMAL);
	assert_int_equal(epoch_enter_end(&ep), 0);
	assert_int_equal(ep.number, 1);
	assert_int_equal(pin(), 1);
	epoch_enter_begin(&ep); /* entered already: it keeps its pin */
	set_epoch(2, EPOCH_NORMAL);
	assert_int_equal(epoch_enter_end(&ep), -ESTALE);
	assert_int_equal(pin(), 1);
}

CASE(epoch_leave__is_idle)
{
	assert_int_equal(epoch_enter(&ep), 0);
	assert_int_equal(epoch_leave(&ep), 0);
	assert_int_equal(pin(), SLOT_IDLE);
	assert_int_equal(epoch_leave(&ep), 0);
}

CASE(epoch_read__announces_nothing)
{
	set_epoch(9, EPOCH_NORMAL);
	assert_int_equal(epoch_refresh(&ep), 0);
	assert_int_equal(ep.number, 9);
	assert_int_equal(pin(), SLOT_IDLE);
}

CASE(epoch_enter__without_a_slot_is_refused)
{
	epoch_init(&ep, &fx.shard->part, 0);
	assert_int_equal(epoch_enter(&ep), -EINVAL);
	assert_int_equal(epoch_refresh(&ep), 0);
}

CASE(epoch_enter__counts_no_phase_on_an_addressable_region)
{
	uint64_t before = fx.conn.tr->stats.phases;

	assert_int_equal(epoch_enter(&ep), 0);
	assert_int_equal(epoch_leave(&ep), 0);
	assert_int_equal(fx.conn.tr->stats.phases, before);
}

CASE(epoch_enter__over_a_wire_is_calls)
{
	struct memory_transport wire;
	int entered, left;
	uint64_t seen;

	set_epoch(5, EPOCH_NORMAL);
	wire_open(&wire);
	init_over(&wire);
	entered = epoch_enter(&ep);
	seen = pin();
	left = epoch_leave(&ep);
	memory_transport_fini(&wire);
	assert_int_equal(entered, 0);
	assert_int_equal(seen, 5);
	assert_int_equal(left, 0);
	assert_int_equal(pin(), SLOT_IDLE);
}

static const struct transport_ops *plain_ops;
static uint32_t moves_left;

/* A pass ends between the look at the epoch and the announcement of it. */
static int write_after_a_pass(struct transport *tr, struct transport_wr *wrs, size_t n,
			      enum submit_order order, uint64_t *ticket_out)
{
	if (wrs[0].verb == VERB_WRITE && moves_left)
		set_epoch(10 - --moves_left, EPOCH_NORMAL);
	return plain_ops->submit(tr, wrs, n, order, ticket_out);
}

CASE(epoch_enter__the_epoch_moves_while_it_announces)
{
	struct memory_transport wire;
	struct transport_ops ops;

	wire_open(&wire);
	plain_ops = wire.tr.ops;
	ops = *plain_ops;
	ops.submit = write_after_a_pass;
	wire.tr.ops = &ops;
	moves_left = 3;
	init_over(&wire);
	assert_int_equal(epoch_enter(&ep), 0);
	assert_int_equal(ep.number, 10);
	assert_int_equal(pin(), 10);
	memory_transport_fini(&wire);
}

/* Nobody may believe that it is idle, nor that it has promised, when the call failed. */
CASE(epoch_enter__a_failed_call_is_reported)
{
	struct memory_transport wire;

	wire_open(&wire);
	init_over(&wire);
	for (uint64_t n = 1; n <= 3; n++) {
		wire.fail_call = n;
		assert_int_equal(epoch_enter(&ep), -ECONNRESET);
		assert_false(ep.entered);
	}
	assert_int_equal(epoch_enter(&ep), 0);
	wire.fail_call = 1;
	assert_int_equal(epoch_leave(&ep), -ECONNRESET);
	assert_true(ep.entered);
	assert_int_equal(epoch_leave(&ep), 0);
	memory_transport_fini(&wire);
}

/* Rule 7: words that may replace each tag, in each mode. */
CASE(epoch_next_tag__by_mode_and_tag)
{
	static const struct {
		enum epoch_mode mode;
		uint32_t old;
		int rc;
		uint32_t tag;
	} cases[] = {
		{ EPOCH_NORMAL, 2, 0, 2 },       { EPOCH_NORMAL, 3, -ESTALE, 9 },
		{ EPOCH_NORMAL, 1, -ESTALE, 9 }, { EPOCH_ZERO, 2, 0, 2 },
		{ EPOCH_ZERO, 3, -ESTALE, 9 },   { EPOCH_DUAL, 2, 0, 3 },
		{ EPOCH_DUAL, 3, 0, 3 },         { EPOCH_DUAL, 0, -ESTALE, 9 },
		{ EPOCH_DUAL, 1, -ESTALE, 9 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint32_t tag = 9;

		ep.number = 6;
		ep.mode = cases[i].mode;
		assert_int_equal(epoch_next_tag(&ep, cases[i].old, &tag), cases[i].rc);
		assert_int_equal(tag, cases[i].tag);
	}
}

CASE(epoch_blocks_pass__only_older_promises)
{
	assert_true(epoch_blocks_pass(4, 5));
	assert_false(epoch_blocks_pass(5, 5));
	assert_false(epoch_blocks_pass(6, 5));
	assert_false(epoch_blocks_pass(SLOT_IDLE, 5));
	assert_true(epoch_blocks_pass(UINT32_MAX, 0)); /* the number wrapped */
	assert_false(epoch_blocks_pass(0, UINT32_MAX));
}

int main(void)
{
	return test_run(NULL, NULL);
}
