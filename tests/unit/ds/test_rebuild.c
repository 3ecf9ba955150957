#include "tests/support/fake/memory_transport.h"
#include "tests/support/fixture/shard_fixture.h"
#include "tests/support/test.h"

#include "ds/replay/change.h"
#include "ds/replay/settle.h"
#include "ds/part/slot.h"
#include "ds/sumtree/rebuild.h"

#include <errno.h>
#include <string.h>

#define REBUILDER 8u

static struct shard_fixture fx;
static struct access acc;
static const struct process_id someone = { .pid = 4711, .start_time = 99 };

static void open_filled_as(const struct shard_fixture_opts *opts, uint32_t blocks)
{
	shard_fixture_open_filled(&fx, opts, blocks, &acc);
	shard_fixture_take_slot(fx.shard, REBUILDER);
}

static void open_filled(uint32_t blocks)
{
	open_filled_as(NULL, blocks);
}

static int setup(void **state)
{
	(void)state;
	open_filled(5);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	access_close(&acc);
	shard_fixture_close(&fx);
	return 0;
}

static uint64_t epoch_word(void)
{
	return shard_fixture_load(
		&fx, shard_word_off(fx.shard, offsetof(struct shard_words, part.epoch)));
}

static void set_epoch_word(uint32_t number, enum epoch_mode mode, uint32_t owner)
{
	shard_fixture_store(&fx, shard_word_off(fx.shard, offsetof(struct shard_words, part.epoch)),
			    epoch_make(number, mode, owner));
}

static void set_pin(uint32_t owner, uint64_t pin)
{
	shard_fixture_store_at(fx.shard->part.pages, part_page_off(&fx.shard->part, owner - 1),
			       pin);
}

static void mark_dirty(void)
{
	assert_int_equal(part_mark_dirty(&fx.shard->part), 0);
}

/* Drift on all levels, as a client leaves that died with deltas in hand. */
static void break_sums(uint32_t view)
{
	const struct sumtree *tree = &fx.shard->trees[view];
	uint64_t array = tree->inner_off[acc.epoch.number & 1];

	for (uint32_t l = 1; l <= tree->geo.levels; l++) {
		uint64_t off = array + tree->level_off[l] + 8;

		shard_fixture_store(&fx, off, shard_fixture_load(&fx, off) + l * 12345);
	}
	shard_fixture_store(&fx, array, shard_fixture_load(&fx, array) - 3);
}

static bool is_needed(void)
{
	bool needed = false;

	assert_int_equal(part_rebuild_needed(&fx.shard->part, &needed), 0);
	return needed;
}

#define CASE(f) TEST_WITH(f, setup, teardown)

CASE(rebuild_pass__makes_broken_sums_exact)
{
	struct rebuild_opts opts = { .owner = REBUILDER };
	struct rebuild_report report = { 0 };

	break_sums(0);
	break_sums(1);
	assert_true(shard_fixture_problems(fx.shard) > 0);
	mark_dirty();
	assert_true(is_needed());
	assert_int_equal(sumtree_rebuild_pass(fx.shard, &opts, &report), 0);
	assert_true(report.clean);
	assert_int_equal(report.epoch, 1);
	assert_int_equal(report.live_leaves, 2 * 5 * (fx.desc.block - fx.desc.window_max + 1));
	assert_false(is_needed());
	assert_int_equal(epoch_word(), epoch_make(1, EPOCH_NORMAL, 0));
	assert_int_equal(shard_fixture_problems(fx.shard), 0);
}

/* Trees of more than 2^17 leaves have a second level. */
CASE(rebuild_pass__makes_broken_sums_of_two_levels_exact)
{
	const struct shard_fixture_opts large = { .capacity = 1 << 18 };
	struct rebuild_opts opts = { .owner = REBUILDER };
	struct rebuild_report report = { 0 };

	assert_int_equal(teardown(NULL), 0);
	open_filled_as(&large, 5);
	assert_int_equal(fx.shard->trees[0].geo.levels, 2);
	break_sums(0);
	break_sums(1);
	mark_dirty();
	assert_int_equal(sumtree_rebuild_pass(fx.shard, &opts, &report), 0);
	assert_true(report.clean);
	assert_int_equal(report.live_leaves, 2 * 5 * (fx.desc.block - fx.desc.window_max + 1));
	assert_int_equal(shard_fixture_problems(fx.shard), 0);
}

/* Both arrays and all four tags come round. */
CASE(rebuild_pass__again_and_again)
{
	struct rebuild_opts opts = { .owner = REBUILDER };

	for (uint32_t i = 1; i <= 9; i++) {
		struct rebuild_report report = { 0 };

		assert_int_equal(sumtree_rebuild_pass(fx.shard, &opts, &report), 0);
		assert_int_equal(report.epoch, i);
		assert_true(report.clean);
		shard_fixture_fill_block(&acc, 7 * i);
		assert_int_equal(shard_fixture_problems(fx.shard), 0);
	}
}

CASE(rebuild_pass__an_empty_shard_stays_empty)
{
	struct rebuild_opts opts = { .owner = REBUILDER };
	struct rebuild_report report = { 0 };
	uint64_t max_off = fx.desc.views[0].words_off + offsetof(struct view_words, max_priority);
	uint64_t before;

	assert_int_equal(teardown(NULL), 0);
	open_filled(0);
	before = shard_fixture_load(&fx, max_off);
	assert_int_equal(sumtree_rebuild_pass(fx.shard, &opts, &report), 0);
	assert_int_equal(report.live_leaves, 0);
	assert_int_equal(shard_fixture_load(&fx, max_off), before);
	assert_int_equal(shard_fixture_problems(fx.shard), 0);
}

CASE(rebuild_pass__lowers_the_running_maximum)
{
	struct rebuild_opts opts = { .owner = REBUILDER };
	struct rebuild_report report = { 0 };
	uint64_t max_off = fx.desc.views[1].words_off + offsetof(struct view_words, max_priority);
	uint64_t items = fx.desc.block - fx.desc.window_max + 1;

	shard_fixture_store(&fx, max_off, (uint64_t)1 << 39);
	assert_int_equal(sumtree_rebuild_pass(fx.shard, &opts, &report), 0);
	assert_int_equal(shard_fixture_load(&fx, max_off), 500 + items - 1);
}

/* Updates one leaf of view 1; returns the running maximum. */
static uint64_t max_after(struct leaf_op *op)
{
	struct shard_change change;

	change_begin(&change, &acc);
	change.ops[1] = op;
	change.n[1] = 1;
	change.most = op->priority;
	assert_int_equal(change_update(&change, 1), 0);
	assert_int_equal(op->result, LEAF_DONE);
	return shard_fixture_load(&fx, fx.desc.views[1].words_off +
					       offsetof(struct view_words, max_priority));
}

/* Updates do not read a maximum that they know to suffice: a rebuild ends that knowledge. */
CASE(rebuild_pass__updates_raise_the_lowered_maximum_again)
{
	struct rebuild_opts opts = { .owner = REBUILDER };
	struct rebuild_report report = { 0 };
	uint64_t max_off = fx.desc.views[1].words_off + offsetof(struct view_words, max_priority);
	struct leaf_op op = { .priority = 5000 };

	while (leaf_priority(op.word) == 0) /* the first item */
		op.word = shard_fixture_load(&fx, shard_leaf_off(fx.shard, 1, ++op.slot));
	op.gen = leaf_gen(op.word);
	shard_fixture_store(&fx, max_off, (uint64_t)1 << 39);
	assert_int_equal(max_after(&op), (uint64_t)1 << 39);
	assert_int_equal(sumtree_rebuild_pass(fx.shard, &opts, &report), 0);
	assert_int_equal(shard_fixture_load(&fx, max_off), 5000);
	op.priority = 9000;
	assert_int_equal(max_after(&op), 9000);
	assert_int_equal(max_after(&op), 9000); /* now it is known */
	/* A pass that has lowered it and is not at its end. */
	set_epoch_word(acc.epoch.number, EPOCH_DUAL, REBUILDER);
	shard_fixture_store(&fx, max_off, 1);
	assert_int_equal(max_after(&op), 9000);
	assert_int_equal(sumtree_rebuild_until_clean(fx.shard, &opts, 3, &report), 0);
	assert_int_equal(shard_fixture_load(&fx, max_off), 9000);
}

CASE(rebuild_pass__waits_for_an_older_promise_and_names_it)
{
	struct rebuild_opts opts = { .owner = REBUILDER };
	struct rebuild_report report = { 0 };

	assert_int_equal(sumtree_rebuild_pass(fx.shard, &opts, &report), 0);
	assert_int_equal(slot_take(&fx.shard->part, 2, &someone, 1), 0);
	set_pin(3, 0); /* in a call of epoch 0; now is 1 */
	assert_int_equal(sumtree_rebuild_pass(fx.shard, &opts, &report), -EAGAIN);
	assert_true(report.waiting);
	assert_int_equal(report.wait.owner, 3);
	assert_int_equal(report.wait.pid, 4711);
	assert_string_equal(error_last(), "rebuild waits for owner 3 (pid 4711)");
	assert_int_equal(epoch_word(), epoch_make(1, EPOCH_ZERO, REBUILDER));
	shard_fixture_fill_block(&acc, 5); /* nobody else waits */
	set_pin(3, SLOT_IDLE);
	assert_int_equal(sumtree_rebuild_pass(fx.shard, &opts, &report), 0);
	assert_true(report.clean);
	assert_false(report.waiting);
	assert_int_equal(shard_fixture_problems(fx.shard), 0);
}

CASE(rebuild_pass__a_promise_of_the_same_epoch_holds_nothing_back)
{
	struct rebuild_opts opts = { .owner = REBUILDER };
	struct rebuild_report report = { 0 };

	set_pin(1, 0);
	assert_int_equal(sumtree_rebuild_pass(fx.shard, &opts, &report), 0);
	assert_true(report.clean);
}

CASE(rebuild_pass__a_fenced_slot_holds_nothing_back)
{
	struct rebuild_opts opts = { .owner = REBUILDER };
	struct rebuild_report report = { 0 };

	assert_int_equal(sumtree_rebuild_pass(fx.shard, &opts, &report), 0);
	assert_int_equal(slot_take(&fx.shard->part, 2, &someone, 1), 0);
	set_pin(3, 0);
	shard_fixture_store_at(fx.shard->part.slots, part_slot_off(&fx.shard->part, 2),
			       SLOT_FENCED);
	assert_int_equal(sumtree_rebuild_pass(fx.shard, &opts, &report), 0);
}

static int count_looks(void *ctx, const struct rebuild_wait *wait)
{
	int *looks = ctx;

	if (++*looks == 3)
		set_pin(wait->owner, wait->epoch);
	return 0;
}

static int stop_waiting(void *ctx, const struct rebuild_wait *wait)
{
	(void)ctx;
	(void)wait;
	return -EINTR;
}

CASE(rebuild_pass__calls_the_idle_hook_while_it_waits)
{
	int looks = 0;
	struct rebuild_opts opts = { .owner = REBUILDER,
				     .deadline_ns = DEADLINE_NEVER,
				     .idle = count_looks,
				     .ctx = &looks };
	struct rebuild_report report = { 0 };

	assert_int_equal(sumtree_rebuild_pass(fx.shard, &opts, &report), 0);
	set_pin(1, 0);
	assert_int_equal(sumtree_rebuild_pass(fx.shard, &opts, &report), 0);
	assert_int_equal(looks, 3);
	set_pin(1, 0);
	opts.idle = stop_waiting;
	assert_int_equal(sumtree_rebuild_pass(fx.shard, &opts, &report), -EINTR);
	set_pin(1, SLOT_IDLE);
}

CASE(rebuild_pass__a_live_rebuilder_is_left_alone)
{
	struct rebuild_opts opts = { .owner = 1 };
	struct rebuild_report report = { 0 };

	set_epoch_word(0, EPOCH_ZERO, REBUILDER);
	assert_int_equal(sumtree_rebuild_pass(fx.shard, &opts, &report), -EBUSY);
	assert_non_null(strstr(error_last(), "owner 8"));
	assert_int_equal(epoch_word(), epoch_make(0, EPOCH_ZERO, REBUILDER));
}

CASE(rebuild_pass__takes_over_in_zero_after_the_fence)
{
	struct rebuild_opts opts = { .owner = 1 };
	struct rebuild_report report = { 0 };

	set_epoch_word(0, EPOCH_ZERO, REBUILDER);
	shard_fixture_store(&fx, fx.shard->trees[0].inner_off[1] + 64, 999); /* half zeroed */
	assert_int_equal(shard_settle(fx.shard, REBUILDER, NULL), 0);
	assert_int_equal(sumtree_rebuild_pass(fx.shard, &opts, &report), 0);
	assert_int_equal(report.takeovers, 1);
	assert_true(report.clean);
	assert_int_equal(shard_fixture_problems(fx.shard), 0);
}

/* The predecessor had moved leaves whose priorities it never added: one pass cannot know. */
CASE(rebuild_pass__takeover_in_dual_asks_for_another_pass)
{
	struct rebuild_opts opts = { .owner = 1 };
	struct rebuild_report report = { 0 };

	for (uint32_t i = 0; i < fx.desc.slots / 2; i++) {
		uint64_t off = shard_leaf_off(fx.shard, 0, i), word = shard_fixture_load(&fx, off);

		shard_fixture_store(&fx, off, leaf_make(1, leaf_gen(word), leaf_priority(word)));
	}
	set_epoch_word(0, EPOCH_DUAL, REBUILDER);
	assert_int_equal(shard_settle(fx.shard, REBUILDER, NULL), 0);
	assert_int_equal(sumtree_rebuild_pass(fx.shard, &opts, &report), 0);
	assert_false(report.clean);
	assert_true(is_needed());
	assert_int_equal(sumtree_rebuild_until_clean(fx.shard, &opts, 2, &report), 0);
	assert_true(report.clean);
	assert_int_equal(report.passes, 2);
	assert_int_equal(shard_fixture_problems(fx.shard), 0);
}

CASE(rebuild_pass__its_own_earlier_life_is_a_takeover)
{
	struct rebuild_opts opts = { .owner = REBUILDER };
	struct rebuild_report report = { 0 };

	set_epoch_word(0, EPOCH_DUAL, REBUILDER);
	assert_int_equal(sumtree_rebuild_until_clean(fx.shard, &opts, 2, &report), 0);
	assert_int_equal(report.takeovers, 1);
	assert_int_equal(report.passes, 2);
	assert_int_equal(shard_fixture_problems(fx.shard), 0);
}

static int fence_somebody(void *ctx, const struct rebuild_wait *wait)
{
	(void)ctx;
	return shard_settle(fx.shard, wait->owner, NULL);
}

/* A fence in the middle of a pass: its deltas may be missing from either array. */
CASE(rebuild_pass__a_fence_meanwhile_asks_for_another_pass)
{
	struct rebuild_opts opts = { .owner = REBUILDER,
				     .deadline_ns = DEADLINE_NEVER,
				     .idle = fence_somebody };
	struct rebuild_report report = { 0 };

	assert_int_equal(sumtree_rebuild_pass(fx.shard, &opts, &report), 0);
	assert_int_equal(slot_take(&fx.shard->part, 2, &someone, 1), 0);
	set_pin(3, 0);
	assert_int_equal(sumtree_rebuild_pass(fx.shard, &opts, &report), 0);
	assert_false(report.clean);
	assert_true(is_needed());
	assert_int_equal(sumtree_rebuild_pass(fx.shard, &opts, &report), 0);
	assert_true(report.clean);
}

CASE(rebuild_until_clean__gives_up_after_max_passes)
{
	struct rebuild_opts opts = { .owner = REBUILDER };
	struct rebuild_report report = { 0 };

	set_epoch_word(0, EPOCH_DUAL, REBUILDER);
	assert_int_equal(sumtree_rebuild_until_clean(fx.shard, &opts, 1, &report), -EAGAIN);
	assert_int_equal(report.passes, 1);
}

CASE(rebuild_pass__repairs_a_damaged_tag)
{
	uint64_t off = shard_leaf_off(fx.shard, 1, 3);
	struct rebuild_opts opts = { .owner = REBUILDER };
	struct rebuild_report report = { 0 };

	shard_fixture_store(&fx, off,
			    leaf_make(2, leaf_gen(shard_fixture_load(&fx, off)),
				      leaf_priority(shard_fixture_load(&fx, off))));
	assert_int_equal(sumtree_rebuild_pass(fx.shard, &opts, &report), 0);
	assert_int_equal(report.repaired_tags, 1);
	assert_int_equal(shard_fixture_problems(fx.shard), 0);
}

/* Deltas buffered under epoch 0 and flushed after the flip are in the new array already. */
CASE(rebuild_pass__deltas_flushed_after_the_flip_do_not_count_twice)
{
	struct rebuild_opts opts = { .owner = REBUILDER };
	struct rebuild_report report = { 0 };
	struct ring_counters counters = { 0 };
	struct block blk;

	assert_int_equal(access_enter(&acc), 0);
	assert_int_equal(ring_claim(&acc, &blk, &counters), 0);
	shard_fixture_write_rows(&blk);
	assert_int_equal(shard_fixture_publish(&blk, 1000), 0);
	assert_int_equal(sumtree_rebuild_pass(fx.shard, &opts, &report), 0);
	assert_int_equal(access_leave(&acc), 0);
	assert_int_equal(access_enter(&acc), 0);
	assert_int_equal(ring_close(&blk), 0);
	assert_int_equal(access_leave(&acc), 0);
	assert_int_equal(shard_fixture_problems(fx.shard), 0);
	assert_int_equal(sumtree_rebuild_pass(fx.shard, &opts, &report), 0);
	assert_int_equal(shard_fixture_problems(fx.shard), 0);
}

/* The same pass by calls only, as over a network. */
CASE(rebuild_pass__over_a_wire)
{
	struct rebuild_opts opts = { .owner = REBUILDER };
	struct rebuild_report report = { 0 };
	struct memory_transport wire;
	struct part_regions regions;
	struct shard *shard = NULL;
	int opened, passed = -1;

	break_sums(0);
	mark_dirty();
	memory_transport_shard(&wire, &fx.conn.regions, false, &regions);
	opened = shard_open(&regions, NULL, &shard);
	if (!opened)
		passed = sumtree_rebuild_until_clean(shard, &opts, 1, &report);
	shard_close(&shard);
	memory_transport_fini(&wire);
	assert_int_equal(opened, 0);
	assert_int_equal(passed, 0);
	assert_int_equal(shard_fixture_problems(fx.shard), 0);
}

/* A shard that was clean: only the pass itself knows that an answer is missing. */
CASE(rebuild_pass__a_lost_answer_makes_the_shard_dirty)
{
	struct rebuild_opts opts = { .owner = REBUILDER };
	uint64_t lost = 0;

	for (uint64_t n = 1; n < 600; n += 7) {
		struct rebuild_report report = { 0 };
		struct memory_transport here;
		struct part_regions regions;
		struct shard *shard = NULL;

		memory_transport_shard(&here, &fx.conn.regions, true, &regions);
		assert_int_equal(shard_open(&regions, NULL, &shard), 0);
		here.lose_atomic = n;
		here.lose_undone = n & 1;
		assert_int_equal(sumtree_rebuild_pass(shard, &opts, &report), 0);
		shard_close(&shard);
		memory_transport_fini(&here);
		lost += report.lost_answers;
		assert_int_equal(is_needed(), !report.clean);
		assert_true(report.clean == (report.lost_answers == 0));
		assert_int_equal(sumtree_rebuild_until_clean(fx.shard, &opts, 2, &report), 0);
	}
	assert_true(lost > 10);
	assert_int_equal(shard_fixture_problems(fx.shard), 0);
}

CASE(rebuild_pass__owner_out_of_range)
{
	struct rebuild_opts opts = { .owner = 0 };
	struct rebuild_report report = { 0 };

	assert_int_equal(sumtree_rebuild_pass(fx.shard, &opts, &report), -EINVAL);
	opts.owner = SHARD_FIXTURE_CLIENTS + 1;
	assert_int_equal(sumtree_rebuild_pass(fx.shard, &opts, &report), -EINVAL);
	assert_non_null(strstr(error_last(), "owner 17"));
}

int main(void)
{
	return test_run(NULL, NULL);
}
