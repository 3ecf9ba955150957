/* Geometry, the four verbs, and refused calls. */
#include "tests/support/test.h"

#include <errno.h>
#include <string.h>

#include "ds/sumtree/sumtree.h"

#include "tests/support/fake/fake_clock.h"
#include "tests/support/fixture/tree_fixture.h"

#include "wire/ring_layout.h"

#include "base/bits.h"
#include "base/os/cpu.h"
#include "base/error.h"
#include "base/rng.h"

#define LEAVES 4096u
#define BATCH 256u
#define WORDS_OFF 4096u

static const uint16_t fanout[] = { 16, 8, 0 };

struct rig {
	struct tree_fixture fx;
	struct tree_handle h;
};

static uint32_t shard[2 * BATCH], slot[2 * BATCH];
static uint64_t word[2 * BATCH];
static double probability[2 * BATCH];
static const struct draws out = { shard, slot, word, probability };

/* All leaves live, gen 1, priority 100 + slot. */
static void open_rig(struct rig *rig, bool in_place)
{
	const struct leaf_run run = { 0, LEAVES, 1 };
	static uint64_t priorities[LEAVES];

	for (uint32_t i = 0; i < LEAVES; i++)
		priorities[i] = 100 + i;
	tree_fixture_open(&rig->fx, LEAVES, fanout);
	tree_handle_open(&rig->h, &rig->fx, 0, in_place);
	tree_handle_fill(&rig->h, &run, priorities);
	assert_int_equal(epoch_enter(&rig->h.ep), 0);
}

static void close_rig(struct rig *rig)
{
	tree_handle_close(&rig->h);
	tree_fixture_close(&rig->fx);
	cpu_level_limit(CPU_AVX512);
}

static void set_epoch(struct rig *rig, uint32_t number, enum epoch_mode mode)
{
	uint64_t value = epoch_make(number, mode, mode == EPOCH_NORMAL ? 0 : 1);

	memcpy(rig->fx.bytes + WORDS_OFF + offsetof(struct shard_words, part.epoch), &value,
	       sizeof(value));
}

static struct leaf_op op_of(uint32_t at, uint64_t priority)
{
	return (struct leaf_op){
		.slot = at, .gen = 1, .priority = priority, .word = leaf_make(0, 1, 100 + at)
	};
}

static void flush(struct rig *rig)
{
	assert_int_equal(sumtree_flush(&rig->h.tree, rig->h.deltas), 0);
}

static int update_one(struct rig *rig, struct leaf_op *op)
{
	return sumtree_update(&rig->h.tree, &rig->h.ep, op, 1, rig->h.deltas);
}

/* -------- geometry -------- */

TEST(sumtree_geometry_init__bad_input_is_refused)
{
	static const uint16_t none[] = { 0 }, odd[] = { 12, 0 }, small[] = { 4, 0 };
	static const uint16_t large[] = { 8, 1032, 0 };
	struct tree_geometry geo = { .leaves = 77 };

	assert_int_equal(sumtree_geometry_init(&geo, 0, NULL, 64), -ERANGE);
	assert_int_equal(sumtree_geometry_init(&geo, TREE_MAX_LEAVES + 1, NULL, 64), -ERANGE);
	assert_int_equal(sumtree_geometry_init(&geo, 4096, none, 64), -EINVAL);
	assert_int_equal(sumtree_geometry_init(&geo, 4096, odd, 64), -EINVAL);
	assert_int_equal(sumtree_geometry_init(&geo, 4096, small, 64), -EINVAL);
	assert_int_equal(sumtree_geometry_init(&geo, 4096, large, 64), -EINVAL);
	assert_non_null(strstr(error_last(), "fanout[1] 1032"));
	assert_int_equal(geo.leaves, 77);
}

TEST(sumtree_geometry_init__top_is_small_and_bytes_add_up)
{
	static const uint16_t kinds[][3] = { { 8 }, { 16, 8 }, { 24 }, { 1024 }, { 64, 16 } };

	for (size_t k = 0; k < ARRAY_LEN(kinds); k++) {
		for (uint32_t bits = 0; bits <= 24; bits++) {
			struct tree_geometry geo;

			assert_int_equal(sumtree_geometry_init(&geo, 1u << bits, kinds[k], 64), 0);
			assert_int_equal(sumtree_geometry_check(&geo), 0);
			assert_int_equal(geo.inner_bytes % WIRE_LINE, 0);
		}
	}
}

TEST(sumtree_geometry_init__default_keeps_within_12_bytes_a_leaf)
{
	for (uint32_t bits = 16; bits <= 24; bits++) {
		struct tree_geometry geo;

		assert_int_equal(sumtree_geometry_init(&geo, 1u << bits, NULL, 64), 0);
		assert_true((double)(sumtree_leaf_bytes(&geo) + 2 * geo.inner_bytes) <=
			    11.5 * (double)geo.leaves);
	}
}

TEST(sumtree_geometry_init__default_groups_level_1_by_lines_where_that_adds_no_level)
{
	static const struct {
		uint32_t leaves, top, levels, fanout;
	} cases[] = {
		{ 1u << 20, SUMTREE_TOP_MAX, 2, 16 },
		{ 1u << 21, SUMTREE_TOP_MAX, 2, 16 },
		{ (1u << 21) + 1, SUMTREE_TOP_MAX, 3, 8 },
		{ 1u << 24, SUMTREE_TOP_MAX, 3, 8 },
		{ 1u << 22, 2048, 3, 16 }, /* else four levels */
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct tree_geometry geo;

		assert_int_equal(sumtree_geometry_init(&geo, cases[i].leaves, NULL, cases[i].top),
				 0);
		assert_int_equal(geo.levels, cases[i].levels);
		assert_int_equal(geo.fanout[1], cases[i].fanout);
	}
}

TEST(sumtree_geometry_check__each_broken_field_is_named)
{
	struct tree_geometry good, geo;

	assert_int_equal(sumtree_geometry_init(&good, LEAVES, fanout, 64), 0);
	geo = good;
	geo.leaves = 0;
	assert_int_equal(sumtree_geometry_check(&geo), -EPROTO);
	geo = good;
	geo.levels = TREE_MAX_LEVELS + 1;
	assert_int_equal(sumtree_geometry_check(&geo), -EPROTO);
	assert_int_equal(sumtree_geometry_init(&geo, 1u << 20, fanout, 64), 0);
	geo.levels = 1;
	assert_int_equal(sumtree_geometry_check(&geo), -EPROTO);
	assert_non_null(strstr(error_last(), "top level"));
	geo = good;
	geo.fanout[1] = 9;
	assert_int_equal(sumtree_geometry_check(&geo), -EPROTO);
	geo = good;
	geo.inner_bytes += 64;
	assert_int_equal(sumtree_geometry_check(&geo), -EPROTO);
}

TEST(sumtree_max_prio__keeps_the_root_below_2_62)
{
	assert_int_equal(sumtree_max_prio(1), LEAF_PRIORITY_MASK);
	for (uint32_t leaves = 1; leaves && leaves <= TREE_MAX_LEAVES; leaves *= 2) {
		assert_true(sumtree_max_prio(leaves) <= LEAF_PRIORITY_MASK);
		assert_true(sumtree_max_prio(leaves) * leaves <= (uint64_t)1 << 62);
	}
}

/* -------- verbs -------- */

TEST(sumtree_claim__out_of_the_tree_is_refused)
{
	const struct leaf_run runs[] = {
		{ LEAVES, 1, 2 }, { LEAVES - 1, 2, 2 }, { 1, UINT32_MAX, 2 }, { UINT32_MAX, 2, 2 }
	};
	uint64_t priorities[2] = { 1, 1 };
	struct rig rig;

	open_rig(&rig, true);
	for (size_t i = 0; i < ARRAY_LEN(runs); i++) {
		assert_int_equal(sumtree_claim(&rig.h.tree, &rig.h.ep, &runs[i], rig.h.deltas),
				 -ERANGE);
		assert_int_equal(
			sumtree_publish(&rig.h.tree, &rig.h.ep, &runs[i], priorities, rig.h.deltas),
			-ERANGE);
	}
	close_rig(&rig);
}

TEST(sumtree_publish__another_generation_means_fenced)
{
	const struct leaf_run mine = { 8, 8, 2 }, later = { 12, 1, 3 };
	const uint64_t priorities[8] = { 5, 5, 5, 5, 5, 5, 5, 5 };
	struct rig rig;

	open_rig(&rig, true);
	assert_int_equal(sumtree_claim(&rig.h.tree, &rig.h.ep, &mine, rig.h.deltas), 0);
	assert_int_equal(sumtree_claim(&rig.h.tree, &rig.h.ep, &later, rig.h.deltas), 0);
	assert_int_equal(sumtree_publish(&rig.h.tree, &rig.h.ep, &mine, priorities, rig.h.deltas),
			 -EOWNERDEAD);
	assert_non_null(strstr(error_last(), "slot 12"));
	flush(&rig);
	tree_handle_assert_exact(&rig.h); /* the other seven were published */
	assert_int_equal(tree_fixture_word(&rig.fx, 0, 15), leaf_make(0, 2, 5));
	close_rig(&rig);
}

TEST(sumtree_publish__twice_is_refused)
{
	const struct leaf_run run = { 8, 2, 2 };
	const uint64_t priorities[2] = { 5, 6 };
	struct rig rig;

	open_rig(&rig, true);
	assert_int_equal(sumtree_claim(&rig.h.tree, &rig.h.ep, &run, rig.h.deltas), 0);
	assert_int_equal(sumtree_publish(&rig.h.tree, &rig.h.ep, &run, priorities, rig.h.deltas),
			 0);
	assert_int_equal(sumtree_publish(&rig.h.tree, &rig.h.ep, &run, priorities, rig.h.deltas),
			 -EEXIST);
	flush(&rig);
	tree_handle_assert_exact(&rig.h);
	close_rig(&rig);
}

TEST(sumtree_publish__zero_stays_unpublished)
{
	const struct leaf_run run = { 0, 4, 2 };
	const uint64_t priorities[4] = { 0, 7, 0, 0 };
	struct rig rig;

	open_rig(&rig, true);
	assert_int_equal(sumtree_claim(&rig.h.tree, &rig.h.ep, &run, rig.h.deltas), 0);
	assert_int_equal(sumtree_publish(&rig.h.tree, &rig.h.ep, &run, priorities, rig.h.deltas),
			 0);
	for (uint32_t i = 0; i < 4; i++)
		assert_int_equal(tree_fixture_word(&rig.fx, 0, i), leaf_make(0, 2, priorities[i]));
	close_rig(&rig);
}

/* Neighbours are changed in pairs where the CPU can: from odd slots, in odd numbers, and not at all. */
TEST(sumtree_publish__pairs_and_single_leaves_come_out_alike)
{
	static const enum cpu_level levels[] = { CPU_PLAIN, CPU_AVX512 };
	uint64_t priorities[16];

	for (uint64_t i = 0; i < ARRAY_LEN(priorities); i++)
		priorities[i] = 3 + i * i;
	for (uint32_t at = 0; at < 2 * 2 * ARRAY_LEN(priorities); at++) {
		const struct leaf_run run = { 24 + at % 2, 1 + at / 4, 2 };
		struct rig rig;

		cpu_level_limit(levels[at / 2 % 2]);
		open_rig(&rig, true);
		assert_int_equal(sumtree_claim(&rig.h.tree, &rig.h.ep, &run, rig.h.deltas), 0);
		assert_int_equal(
			sumtree_publish(&rig.h.tree, &rig.h.ep, &run, priorities, rig.h.deltas), 0);
		for (uint32_t i = 0; i < run.n; i++)
			assert_int_equal(tree_fixture_word(&rig.fx, 0, run.first + i),
					 leaf_make(0, 2, priorities[i]));
		assert_int_equal(tree_fixture_word(&rig.fx, 0, run.first - 1),
				 leaf_make(0, 1, 100 + run.first - 1));
		assert_int_equal(tree_fixture_word(&rig.fx, 0, run.first + run.n),
				 leaf_make(0, 1, 100 + run.first + run.n));
		flush(&rig);
		tree_handle_assert_exact(&rig.h);
		close_rig(&rig);
	}
}

/* The first prototype's mistake: an item that was claimed meanwhile must not be updated. */
TEST(sumtree_update__claimed_leaf_is_left_alone)
{
	const struct leaf_run run = { 100, 8, 2 };
	struct leaf_op old = op_of(100, 5), new = op_of(101, 5);
	struct rig rig;

	open_rig(&rig, true);
	assert_int_equal(sumtree_claim(&rig.h.tree, &rig.h.ep, &run, rig.h.deltas), 0);
	new.gen = 2;
	assert_int_equal(update_one(&rig, &old), 0);
	assert_int_equal(old.result, LEAF_STALE);
	assert_int_equal(update_one(&rig, &new), 0);
	assert_int_equal(new.result, LEAF_ABSENT);
	assert_int_equal(tree_fixture_word(&rig.fx, 0, 101), leaf_make(0, 2, 0));
	flush(&rig);
	tree_handle_assert_exact(&rig.h);
	close_rig(&rig);
}

TEST(sumtree_update__unseen_word_is_looked_up)
{
	struct leaf_op op = op_of(9, 55);
	struct rig rig;

	open_rig(&rig, true);
	op.word = 0;
	assert_int_equal(update_one(&rig, &op), 0);
	assert_int_equal(op.result, LEAF_DONE);
	assert_int_equal(op.word, leaf_make(0, 1, 109));
	assert_int_equal(tree_fixture_word(&rig.fx, 0, 9), leaf_make(0, 1, 55));
	close_rig(&rig);
}

TEST(sumtree_update__priority_is_clamped_into_range)
{
	struct leaf_op low = op_of(3, 0), high = op_of(4, UINT64_MAX);
	struct rig rig;

	open_rig(&rig, true);
	assert_int_equal(update_one(&rig, &low), 0);
	assert_int_equal(update_one(&rig, &high), 0);
	assert_int_equal(tree_fixture_word(&rig.fx, 0, 3), leaf_make(0, 1, 1));
	assert_int_equal(tree_fixture_word(&rig.fx, 0, 4), leaf_make(0, 1, rig.h.tree.max_prio));
	close_rig(&rig);
}

TEST(sumtree_update__slot_outside_changes_nothing)
{
	struct leaf_op ops[2] = { op_of(3, 7), op_of(LEAVES, 7) };
	struct rig rig;

	open_rig(&rig, true);
	assert_int_equal(sumtree_update(&rig.h.tree, &rig.h.ep, ops, 2, rig.h.deltas), -ERANGE);
	assert_int_equal(tree_fixture_word(&rig.fx, 0, 3), leaf_make(0, 1, 103));
	close_rig(&rig);
}

TEST(sumtree_consume__once_only)
{
	struct leaf_op first = op_of(9, 0), second = op_of(9, 0);
	struct rig rig;

	open_rig(&rig, true);
	assert_int_equal(sumtree_consume(&rig.h.tree, &rig.h.ep, &first, 1, rig.h.deltas), 0);
	assert_int_equal(sumtree_consume(&rig.h.tree, &rig.h.ep, &second, 1, rig.h.deltas), 0);
	assert_int_equal(first.result, LEAF_DONE);
	assert_int_equal(second.result, LEAF_ABSENT);
	flush(&rig);
	tree_handle_assert_exact(&rig.h);
	close_rig(&rig);
}

/* More changes than the lists hold, in falling order: they are sorted and added on the way. */
TEST(sumtree_update__many_unsorted)
{
	static struct leaf_op ops[LEAVES];
	struct rig rig;
	open_rig(&rig, true);
	for (uint32_t i = 0; i < LEAVES; i++) /* an odd multiplier visits each once */
		ops[i] = op_of((LEAVES - 1 - i) * 2654435761u % LEAVES, 1 + i);
	assert_int_equal(sumtree_update(&rig.h.tree, &rig.h.ep, ops, LEAVES, rig.h.deltas), 0);
	flush(&rig);
	tree_handle_assert_exact(&rig.h);
	close_rig(&rig);
}

/* -------- epochs -------- */

static uint64_t top_sum(const struct rig *rig, uint32_t parity)
{
	const struct sumtree *tree = &rig->h.tree;
	uint64_t sum = 0;

	for (uint32_t i = 0; i < tree->nodes[tree->geo.levels]; i++) {
		uint64_t node;

		memcpy(&node,
		       rig->fx.bytes + tree->inner_off[parity] + tree->level_off[tree->geo.levels] +
			       (size_t)i * 8,
		       sizeof(node));
		sum += node;
	}
	return sum;
}

/* In DUAL a change migrates its leaf: the older array gets the difference, the newer one all. */
TEST(sumtree_update__in_dual_counts_in_both_arrays)
{
	struct leaf_op op = op_of(7, 1000);
	struct rig rig;
	uint64_t before;

	open_rig(&rig, true);
	before = top_sum(&rig, 0);
	set_epoch(&rig, 0, EPOCH_DUAL);
	assert_int_equal(epoch_refresh(&rig.h.ep), 0);
	assert_int_equal(update_one(&rig, &op), 0);
	assert_int_equal(tree_fixture_word(&rig.fx, 0, 7), leaf_make(1, 1, 1000));
	flush(&rig);
	assert_int_equal(top_sum(&rig, 0), before + 1000 - 107);
	assert_int_equal(top_sum(&rig, 1), 1000);

	op.word = leaf_make(1, 1, 1000); /* migrated: both get the difference */
	op.priority = 400;
	assert_int_equal(update_one(&rig, &op), 0);
	flush(&rig);
	assert_int_equal(top_sum(&rig, 0), before + 400 - 107);
	assert_int_equal(top_sum(&rig, 1), 400);
	close_rig(&rig);
}

/* A view of NORMAL meets a leaf that somebody in DUAL has migrated: it looks at the word again. */
TEST(sumtree_update__newer_tag_refreshes_the_view)
{
	struct leaf_op op = op_of(7, 1000);
	struct rig rig;

	open_rig(&rig, true);
	set_epoch(&rig, 0, EPOCH_DUAL);
	tree_fixture_set_word(&rig.fx, 0, 7, leaf_make(1, 1, 107));
	assert_int_equal(update_one(&rig, &op), 0);
	assert_int_equal(op.result, LEAF_DONE);
	assert_int_equal(rig.h.ep.mode, EPOCH_DUAL);
	assert_int_equal(tree_fixture_word(&rig.fx, 0, 7), leaf_make(1, 1, 1000));
	close_rig(&rig);
}

/* -------- failing calls -------- */

/* Every call of the transport fails once: an error comes back, nothing is leaked or repeated. */
TEST(sumtree_draw__each_failing_call_is_an_error)
{
	struct rng rng;

	for (uint64_t n = 1; n < 100; n++) {
		struct forest from;
		struct rig rig;
		int ret;

		open_rig(&rig, false);
		rng_seed(&rng, n, 0);
		from = (struct forest){ &rig.h.tree, &rig.h.ep, 1, NULL };
		rig.h.mt.fail_call = n;
		ret = sumtree_draw(&from, NULL, &rng, 8, &out);
		if (!ret)
			n = 100;
		else
			assert_int_equal(ret, -ECONNRESET);
		close_rig(&rig);
	}
}

TEST(sumtree_update__needs_words_in_place)
{
	struct leaf_op op = op_of(3, 7);
	struct rig rig;

	open_rig(&rig, false);
	assert_int_equal(update_one(&rig, &op), -ENOTSUP);
	assert_int_equal(op.result, LEAF_UNKNOWN);
	assert_int_equal(sumtree_flush(&rig.h.tree, rig.h.deltas), -ENOTSUP);
	assert_int_equal(tree_fixture_word(&rig.fx, 0, 3), leaf_make(0, 1, 103));
	close_rig(&rig);
}

/* -------- checking -------- */

TEST(sumtree_check__finds_what_is_wrong)
{
	struct sumtree_report report;
	struct rig rig;

	open_rig(&rig, true);
	tree_fixture_set_word(&rig.fx, 2, 5, 1);
	tree_fixture_set_word(&rig.fx, 0, 77, leaf_make(2, 1, 0));
	assert_int_equal(sumtree_check(&rig.h.tree, &rig.h.ep, &report), 0);
	assert_int_equal(report.live_leaves, LEAVES - 1);
	assert_int_equal(report.wrong_tags, 1);
	/* Node 5 and its parent, were there one; the parent of leaf 77. */
	assert_int_equal(report.wrong_nodes, 2);
	assert_int_equal(report.size_error, 1);
	close_rig(&rig);
}

int main(void)
{
	return test_run(NULL, NULL);
}
