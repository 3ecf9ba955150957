/* Each invariant is broken once, and the check says so in words; a sound shard gives none. */
#include "tests/support/fixture/shard_fixture.h"
#include "tests/support/test.h"

#include "ds/replay/shard_check.h"
#include "ds/part/slot.h"

#include "base/crc32c.h"

#include <errno.h>
#include <string.h>

static struct shard_fixture fx;
static struct access acc;
static uint32_t first; /* slot of the last block filled */

static int setup(void **state)
{
	struct shard_fixture_opts opts = { .flags = TABLE_ROW_CRC };

	(void)state;
	first = shard_fixture_open_filled(&fx, &opts, 3, &acc);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	access_close(&acc);
	shard_fixture_close(&fx);
	return 0;
}

static struct shard_check_report check(void)
{
	struct shard_check_opts opts = { .crc = true };
	struct shard_check_report report;

	assert_int_equal(shard_check(fx.shard, &opts, &report), 0);
	return report;
}

/* Exactly one problem, whose words hold text. */
static void expect_one(const struct shard_check_report *report, const char *text)
{
	for (uint32_t i = 0; i < report->n_texts; i++)
		if (report->problems != 1 || !strstr(report->text[i], text))
			print_message("problem: %s\n", report->text[i]);
	assert_int_equal(report->problems, 1);
	assert_int_equal(report->n_texts, 1);
	assert_non_null(strstr(report->text[0], text));
}

static uint32_t last_block(void)
{
	return first / fx.desc.block;
}

#define CASE(f) TEST_WITH(f, setup, teardown)

CASE(shard_check__a_sound_shard)
{
	struct shard_check_report report = check();

	assert_int_equal(report.problems, 0);
	assert_int_equal(report.live[0], 3 * (fx.desc.block - 1));
	assert_int_equal(report.live[1], report.live[0]);
	assert_int_equal(report.used_blocks, 3);
	assert_int_equal(report.open_blocks, 0);
	assert_int_equal(report.live_slots, 1);
	assert_int_equal(report.busy_slots, 0);
	assert_false(report.dirty);
}

CASE(shard_check__changes_nothing)
{
	uint64_t before = fx.conn.tr->stats.writes + fx.conn.tr->stats.cas + fx.conn.tr->stats.faa;

	check();
	assert_int_equal(fx.conn.tr->stats.writes + fx.conn.tr->stats.cas + fx.conn.tr->stats.faa,
			 before);
}

CASE(shard_check__a_wrong_sum)
{
	uint64_t off = fx.shard->trees[1].inner_off[0] + fx.shard->trees[1].level_off[1];
	struct shard_check_report report;

	shard_fixture_store(&fx, off, shard_fixture_load(&fx, off) + 1);
	report = check();
	expect_one(&report, "view 1");
	assert_true(report.wrong_nodes > 0);
}

/* A node counts as wrong beside its children, and so does the sum above it. */
CASE(shard_check__a_wrong_sum_on_each_of_two_levels)
{
	const struct shard_fixture_opts large = { .capacity = 1 << 18 };
	const struct sumtree *tree;

	assert_int_equal(teardown(NULL), 0);
	(void)shard_fixture_open_filled(&fx, &large, 3, &acc);
	tree = &fx.shard->trees[0];
	assert_int_equal(tree->geo.levels, 2);
	assert_int_equal(check().wrong_nodes, 0);
	for (uint32_t l = 1; l <= 2; l++) {
		uint64_t off = tree->inner_off[0] + tree->level_off[l];
		uint64_t right = shard_fixture_load(&fx, off);
		struct shard_check_report report;

		shard_fixture_store(&fx, off, right + 1);
		report = check();
		expect_one(&report, "view 0");
		assert_int_equal(report.wrong_nodes, 3 - l);
		shard_fixture_store(&fx, off, right);
	}
}

/* A crash leaves drift; it is only a problem where nobody knows of it. */
CASE(shard_check__a_wrong_sum_of_a_dirty_shard_is_drift)
{
	uint64_t off = fx.shard->trees[0].inner_off[0] + fx.shard->trees[0].level_off[1];
	struct shard_check_report report;

	shard_fixture_store(&fx, off, shard_fixture_load(&fx, off) + 1);
	assert_int_equal(part_mark_dirty(&fx.shard->part), 0);
	report = check();
	assert_int_equal(report.problems, 0);
	assert_true(report.dirty);
	assert_true(report.wrong_nodes > 0);
}

CASE(shard_check__a_wrong_size)
{
	uint64_t off = fx.shard->trees[0].inner_off[0];
	struct shard_check_report report;

	shard_fixture_store(&fx, off, shard_fixture_load(&fx, off) + 2);
	report = check();
	expect_one(&report, "size is 2 off");
}

CASE(shard_check__an_unfinished_rebuild)
{
	struct shard_check_report report;

	shard_fixture_store(&fx, shard_word_off(fx.shard, offsetof(struct shard_words, part.epoch)),
			    epoch_make(0, EPOCH_ZERO, 4));
	report = check();
	expect_one(&report, "a rebuild by owner 4");
}

CASE(shard_check__a_ticket_at_head)
{
	uint64_t header = shard_fixture_load(&fx, shard_header_off(fx.shard, last_block()));
	struct shard_check_report report;

	shard_fixture_store(&fx, shard_word_off(fx.shard, offsetof(struct shard_words, head)),
			    block_seq(header));
	report = check();
	expect_one(&report, "but head is at");
}

CASE(shard_check__a_ticket_of_another_block)
{
	uint64_t off = shard_header_off(fx.shard, last_block()),
		 header = shard_fixture_load(&fx, off);
	struct shard_check_report report;

	shard_fixture_store(&fx, off, block_make(false, 1, block_seq(header) - 1));
	report = check();
	expect_one(&report, "is of block");
	assert_int_equal(report.wrong_headers, 1);
}

CASE(shard_check__an_owner_out_of_range)
{
	uint64_t off = shard_header_off(fx.shard, last_block()),
		 header = shard_fixture_load(&fx, off);
	struct shard_check_report report;

	shard_fixture_store(&fx, off, block_make(false, 17, block_seq(header)));
	report = check();
	expect_one(&report, "closed by owner 17 of 16");
}

CASE(shard_check__an_open_block_of_nobody)
{
	uint64_t off = shard_header_off(fx.shard, last_block()),
		 header = shard_fixture_load(&fx, off);
	struct shard_check_report report;

	shard_fixture_store(&fx, off, block_make(true, 5, block_seq(header)));
	report = check();
	expect_one(&report, "slot 4 is free");
	assert_int_equal(report.open_blocks, 1);
}

CASE(shard_check__an_open_block_of_a_live_owner_is_sound)
{
	struct ring_counters counters = { 0 };
	struct shard_check_report report;
	struct block blk;

	assert_int_equal(access_enter(&acc), 0);
	assert_int_equal(ring_claim(&acc, &blk, &counters), 0);
	assert_int_equal(access_leave(&acc), 0);
	report = check();
	assert_int_equal(report.problems, 0);
	assert_int_equal(report.open_blocks, 1);
	assert_int_equal(ring_close(&blk), 0);
}

/* Moves one item of view 0 to a word of our choice, sums included. */
static void set_leaf(uint32_t slot, uint64_t word)
{
	const struct sumtree *tree = &fx.shard->trees[0];
	uint64_t off = shard_leaf_off(fx.shard, 0, slot), old = shard_fixture_load(&fx, off);
	uint64_t delta = leaf_priority(word) - leaf_priority(old);
	uint64_t live = (uint64_t)(leaf_priority(word) != 0) - (leaf_priority(old) != 0);
	uint32_t node = slot;

	shard_fixture_store(&fx, off, word);
	for (uint32_t l = 1; l <= tree->geo.levels; l++) {
		uint64_t at;

		node /= tree->geo.fanout[l - 1];
		at = tree->inner_off[0] + tree->level_off[l] + node * 8ull;
		shard_fixture_store(&fx, at, shard_fixture_load(&fx, at) + delta);
	}
	shard_fixture_store(&fx, tree->inner_off[0],
			    shard_fixture_load(&fx, tree->inner_off[0]) + live);
}

CASE(shard_check__a_leaf_newer_than_its_header)
{
	uint64_t word = shard_fixture_load(&fx, shard_leaf_off(fx.shard, 0, first + 5));
	struct shard_check_report report;

	set_leaf(first + 5, leaf_make(0, leaf_gen(word) + 1, leaf_priority(word)));
	report = check();
	assert_int_equal(report.wrong_leaves, 1);
	assert_int_equal(report.wrong_rows, 1); /* its rows are not of that generation either */
	assert_non_null(strstr(report.text[0], "live with gen"));
}

CASE(shard_check__a_leaf_of_a_block_never_claimed)
{
	struct shard_check_report report;

	set_leaf((last_block() + 1) * fx.desc.block + 5, leaf_make(0, 9, 1));
	report = check();
	assert_int_equal(report.wrong_leaves, 1);
	assert_non_null(strstr(report.text[0], "under header 0"));
}

CASE(shard_check__a_live_repeated_row)
{
	uint64_t word = shard_fixture_load(&fx, shard_leaf_off(fx.shard, 0, first));
	struct shard_check_report report;

	set_leaf(first, leaf_make(0, leaf_gen(word), 3));
	report = check();
	expect_one(&report, "live on a repeated row");
}

CASE(shard_check__a_priority_above_the_maximum)
{
	struct shard_check_report report;

	/* The last of the newest block has 300 + its number; a shard this small allows more. */
	fx.shard->desc.views[0].max_prio = 300 + fx.desc.block - 3;
	report = check();
	expect_one(&report, "above 329");
}

CASE(shard_check__a_row_of_another_generation)
{
	struct row_tail tail = { .gen = 1 };
	struct shard_check_report report;

	assert_int_equal(transport_store(fx.conn.rows,
					 shard_row_off(fx.shard, first + fx.desc.block - 1) +
						 fx.desc.tail_off,
					 &tail, sizeof(tail)),
			 0);
	report = check();
	assert_int_equal(report.problems, 2); /* one item in each view */
	assert_int_equal(report.wrong_rows, 2);
	assert_non_null(strstr(report.text[0], "torn or not of gen"));
}

CASE(shard_check__a_torn_row)
{
	struct shard_check_opts no_crc = { .rows = true };
	struct shard_check_report report;
	uint64_t junk = 0x55;

	assert_int_equal(
		transport_store(fx.conn.rows, shard_row_off(fx.shard, first + 10), &junk, 8), 0);
	assert_int_equal(check().wrong_rows, 4); /* two windows hold it, in each view */
	assert_int_equal(shard_check(fx.shard, &no_crc, &report), 0);
	assert_int_equal(report.problems, 0);
}

CASE(shard_check__an_anchor_that_is_no_step)
{
	uint8_t *row = fx.conn.rows->base + shard_row_off(fx.shard, first + 7);
	const uint32_t covered = fx.desc.tail_off + (uint32_t)offsetof(struct row_tail, crc);
	struct row_tail tail = { .gen = leaf_gen(shard_fixture_load(
					 &fx, shard_leaf_off(fx.shard, 0, first))),
				 .flags = ROW_FINAL };
	struct shard_check_report report;

	memcpy(row + fx.desc.tail_off, &tail, sizeof(tail));
	tail.crc = crc32c(0, row, covered);
	memcpy(row + fx.desc.tail_off, &tail, sizeof(tail));
	report = check();
	assert_int_equal(report.wrong_rows, 2);
	assert_non_null(strstr(report.text[0], "its anchor has flags"));
}

CASE(shard_check__more_committed_than_admitted)
{
	struct limit_desc law = { .min_size = 1,
				  .spi = 1 << LIMIT_SPI_BITS,
				  .min_diff = -(1000LL << LIMIT_SPI_BITS),
				  .max_diff = 1000LL << LIMIT_SPI_BITS };
	struct shard_fixture_opts opts = { .limit = &law };
	struct shard_check_opts slack = { .limit_slack = 3 };
	struct shard_check_report report;

	assert_int_equal(teardown(NULL), 0);
	first = shard_fixture_open_filled(&fx, &opts, 3, &acc);
	shard_fixture_store_at(
		fx.shard->part.limits,
		shard_limits_off(fx.shard, 0) + offsetof(struct view_limits, smp_committed), 3);
	report = check();
	expect_one(&report, "3 samples committed, only 0 admitted");
	assert_int_equal(shard_check(fx.shard, &slack, &report), 0);
	assert_int_equal(report.problems, 0);
}

CASE(shard_check__a_pin_of_no_possible_epoch)
{
	struct shard_check_report report;

	shard_fixture_store_at(fx.shard->part.pages, part_page_off(&fx.shard->part, 0), 5);
	report = check();
	expect_one(&report, "pin 5 under epoch 0");
	assert_int_equal(report.busy_slots, 1);
}

CASE(shard_check__an_unknown_slot_state)
{
	struct shard_check_report report;

	shard_fixture_store_at(fx.shard->part.slots, part_slot_off(&fx.shard->part, 7), 9);
	report = check();
	expect_one(&report, "slot 7: state 9");
}

CASE(shard_check__keeps_the_words_of_the_first_problems_only)
{
	struct shard_check_report report;

	for (uint32_t i = 1; i < SHARD_FIXTURE_CLIENTS; i++)
		shard_fixture_store_at(fx.shard->part.slots, part_slot_off(&fx.shard->part, i), 9);
	report = check();
	assert_int_equal(report.problems, SHARD_FIXTURE_CLIENTS - 1);
	assert_int_equal(report.n_texts, SHARD_CHECK_TEXTS);
}

int main(void)
{
	return test_run(NULL, NULL);
}
