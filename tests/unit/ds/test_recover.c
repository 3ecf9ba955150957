#include "tests/support/fake/memory_transport.h"
#include "tests/support/fixture/shard_fixture.h"
#include "tests/support/test.h"

#include "ds/replay/recover.h"
#include "ds/replay/shard_check.h"
#include "ds/part/slot.h"
#include "ds/sumtree/rebuild.h"

#include "base/mem/alloc.h"
#include "base/crc32c.h"

#include <errno.h>
#include <string.h>

static struct shard_fixture fx;
static struct access acc;

static int setup(void **state)
{
	struct shard_fixture_opts opts = { .flags = TABLE_ROW_CRC };

	(void)state;
	shard_fixture_open_filled(&fx, &opts, 5, &acc);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	access_close(&acc);
	shard_fixture_close(&fx);
	return 0;
}

static uint64_t word_off(size_t member)
{
	return shard_word_off(fx.shard, member);
}

static uint64_t items_of_a_block(void)
{
	return fx.desc.block - fx.desc.window_max + 1;
}

/* A writer killed between its claim and its first publish. */
static void die_with_a_block(struct block *blk)
{
	struct ring_counters counters = { 0 };

	assert_int_equal(access_enter(&acc), 0);
	assert_int_equal(ring_claim(&acc, blk, &counters), 0);
	shard_fixture_write_rows(blk);
}

static struct recover_report recover(bool scan)
{
	struct recover_opts opts = { .scan_rows = scan };
	struct recover_report report;

	assert_int_equal(recover_shard(fx.shard, &opts, &report), 0);
	return report;
}

#define CASE(f) TEST_WITH(f, setup, teardown)

CASE(recover_shard__a_sound_shard_keeps_its_items)
{
	struct recover_report report = recover(true);

	assert_int_equal(report.items, 2 * 5 * items_of_a_block());
	assert_int_equal(report.retired, 0);
	assert_int_equal(report.closed, 0);
	assert_int_equal(report.repaired, 0);
	assert_false(report.was_dirty);
	assert_int_equal(shard_fixture_problems(fx.shard), 0);
}

CASE(recover_shard__closes_what_the_dead_held)
{
	struct recover_report report;
	struct slot_info info;
	struct block blk;

	die_with_a_block(&blk);
	report = recover(false);
	assert_int_equal(report.closed, 1);
	assert_int_equal(report.items, 2 * 5 * items_of_a_block());
	assert_int_equal(slot_read(&fx.shard->part, 0, &info), 0);
	assert_int_equal(info.state, SLOT_FREE);
	assert_int_equal(shard_fixture_problems(fx.shard), 0);
}

CASE(recover_shard__makes_lost_sums_exact)
{
	for (uint32_t v = 0; v < fx.desc.n_views; v++)
		for (uint64_t off = 0; off < fx.desc.tree.inner_bytes; off += 8)
			shard_fixture_store(&fx, fx.shard->trees[v].inner_off[0] + off, off * 77);
	shard_fixture_store(&fx, word_off(offsetof(struct shard_words, part.dirty)), 4);
	assert_true(recover(false).was_dirty);
	assert_int_equal(shard_fixture_problems(fx.shard), 0);
}

CASE(recover_shard__a_rebuild_cut_short_is_forgotten)
{
	for (uint32_t i = 0; i < fx.desc.slots; i += 2) {
		uint64_t off = shard_leaf_off(fx.shard, 0, i), word = shard_fixture_load(&fx, off);

		shard_fixture_store(&fx, off, leaf_make(1, leaf_gen(word), leaf_priority(word)));
	}
	shard_fixture_store(&fx, word_off(offsetof(struct shard_words, part.epoch)),
			    epoch_make(0, EPOCH_DUAL, 9));
	assert_true(recover(false).was_dirty);
	assert_int_equal(
		shard_fixture_load(&fx, word_off(offsetof(struct shard_words, part.epoch))),
		epoch_make(0, EPOCH_NORMAL, 0));
	assert_int_equal(shard_fixture_problems(fx.shard), 0);
}

CASE(recover_shard__head_is_beyond_every_ticket)
{
	uint64_t off = word_off(offsetof(struct shard_words, head)),
		 head = shard_fixture_load(&fx, off);

	shard_fixture_store(&fx, off, 3); /* its page was lost */
	assert_int_equal(recover(false).head, head);
	shard_fixture_store(&fx, off, head + 10); /* tickets drawn and never claimed */
	assert_int_equal(recover(false).head, head + 10);
	assert_int_equal(shard_fixture_problems(fx.shard), 0);
}

CASE(recover_shard__head_that_is_no_ticket_is_refused)
{
	shard_fixture_store(&fx, word_off(offsetof(struct shard_words, head)), UINT64_MAX);
	assert_int_equal(recover_shard(fx.shard, NULL, NULL), -EPROTO);
}

/* The header's page was lost and the leaves' was not: that ticket must never come again. */
CASE(recover_shard__a_header_behind_its_leaves_follows_them)
{
	uint32_t first = shard_fixture_fill_block(&acc, 9), block = first / fx.desc.block;
	uint64_t off = shard_header_off(fx.shard, block), header = shard_fixture_load(&fx, off);
	struct recover_report report;

	shard_fixture_store(&fx, off, 0);
	shard_fixture_store(&fx, word_off(offsetof(struct shard_words, head)), 0);
	report = recover(true);
	assert_int_equal(report.repaired, 1);
	assert_int_equal(block_seq(shard_fixture_load(&fx, off)), block_seq(header));
	assert_int_equal(report.head, block_seq(header) + 1);
	assert_int_equal(report.retired, 0);
	assert_int_equal(shard_fixture_problems(fx.shard), 0);
}

/* The owner is nobody, or the ticket one that no ring comes to: from there the head would go on. */
CASE(recover_shard__a_damaged_header_follows_its_leaves)
{
	uint32_t first = shard_fixture_fill_block(&acc, 9), block = first / fx.desc.block;
	uint64_t off = shard_header_off(fx.shard, block), header = shard_fixture_load(&fx, off);
	const uint64_t flips[] = { UINT64_C(1) << (BLOCK_SEQ_BITS + 14),
				   UINT64_C(1) << (BLOCK_SEQ_BITS - 1) };
	uint64_t head = shard_fixture_load(&fx, word_off(offsetof(struct shard_words, head)));

	for (size_t i = 0; i < 2; i++) {
		shard_fixture_store(&fx, off, header ^ flips[i]);
		assert_int_equal(recover(true).repaired, i + 1);
		assert_int_equal(block_seq(shard_fixture_load(&fx, off)), block_seq(header));
		assert_int_equal(recover(true).head, head);
		assert_int_equal(shard_fixture_problems(fx.shard), 0);
	}
}

/* A leaf of any generation; that of the first lap, too, whose ticket and owner are 0 in block 0. */
CASE(recover_shard__a_block_without_a_header_follows_any_leaf)
{
	const uint64_t off = shard_header_off(fx.shard, 0);
	const uint32_t gens[] = { 1, 3 * (LEAF_GEN_MASK / 4) };
	struct shard_check_report report;

	for (size_t i = 0; i < 2; i++) {
		shard_fixture_store(&fx, off, 0);
		shard_fixture_store(&fx, word_off(offsetof(struct shard_words, head)), 0);
		for (uint32_t v = 0; v < fx.desc.n_views; v++)
			for (uint32_t k = 0; k < fx.desc.block; k++)
				shard_fixture_store(&fx, shard_leaf_off(fx.shard, v, k), 0);
		shard_fixture_store(&fx, shard_leaf_off(fx.shard, 0, fx.desc.block - 1),
				    leaf_make(0, gens[i], 5));
		(void)recover(false);
		assert_int_not_equal(shard_fixture_load(&fx, off), 0);
		assert_int_equal(block_gen(block_seq(shard_fixture_load(&fx, off)), fx.desc.blocks),
				 gens[i]);
		assert_int_equal(shard_check(fx.shard, NULL, &report), 0);
		assert_int_equal(report.problems, 0);
	}
}

CASE(recover_shard__a_torn_row_retires_the_items_that_need_it)
{
	uint32_t first = shard_fixture_fill_block(&acc, 9);
	uint64_t zero = 0;
	struct recover_report report;

	assert_int_equal(
		transport_store(fx.conn.rows, shard_row_off(fx.shard, first + 10), &zero, 8), 0);
	report = recover(true);
	assert_int_equal(report.retired, 2 * fx.desc.window_max);
	assert_int_equal(shard_fixture_problems(fx.shard), 0);
}

static uint8_t *row_at(uint32_t slot)
{
	return fx.conn.rows->base + shard_row_off(fx.shard, slot);
}

/* A row that was never sealed has no crc; one of a table whose rows have is torn. */
CASE(recover_shard__a_row_without_its_crc_retires_its_items)
{
	uint32_t first = shard_fixture_fill_block(&acc, 9), none = 0;

	memcpy(row_at(first + 10) + fx.desc.tail_off + offsetof(struct row_tail, crc), &none,
	       sizeof(none));
	assert_int_equal(recover(true).retired, 2 * fx.desc.window_max);
	assert_int_equal(shard_fixture_problems(fx.shard), 0);
}

/*
 * Bytes of the row's first column for which its crc is 0: the crc is linear in them, so each bit
 * changes it by a pattern of its own, and those are combined (Gauss).
 */
static void make_crc_zero(uint8_t *row)
{
	const uint32_t covered = fx.desc.tail_off + (uint32_t)offsetof(struct row_tail, crc);
	uint32_t effect[32], bits[32], crc = crc32c(0, row, covered), change = 0;
	uint32_t used = 0;

	for (uint32_t i = 0; i < 32; i++) {
		row[i / 8] ^= (uint8_t)(1u << i % 8);
		effect[i] = crc32c(0, row, covered) ^ crc;
		bits[i] = 1u << i;
		row[i / 8] ^= (uint8_t)(1u << i % 8);
	}
	for (uint32_t bit = 0; bit < 32; bit++) {
		uint32_t k = 0;

		while (k < 32 && ((used >> k & 1) || !(effect[k] >> bit & 1)))
			k++;
		assert_true(k < 32); /* four bytes give every crc */
		used |= 1u << k;
		change ^= crc >> bit & 1 ? bits[k] : 0;
		crc ^= crc >> bit & 1 ? effect[k] : 0;
		for (uint32_t i = 0; i < 32; i++)
			if (i != k && effect[i] >> bit & 1) {
				effect[i] ^= effect[k];
				bits[i] ^= bits[k];
			}
	}
	for (uint32_t i = 0; i < 32; i++)
		row[i / 8] ^= (uint8_t)((change >> i & 1) << i % 8);
	assert_int_equal(crc32c(0, row, covered), 0);
	memset(row + covered, 0, sizeof(uint32_t));
}

CASE(recover_shard__a_row_whose_crc_is_0_keeps_its_items)
{
	uint32_t first = shard_fixture_fill_block(&acc, 9);

	make_crc_zero(row_at(first + 10));
	assert_int_equal(recover(true).retired, 0);
	row_at(first + 10)[0] ^= 1;
	assert_int_equal(recover(true).retired, 2 * fx.desc.window_max);
}

/* A leaf that came alive by damage, over rows that are whole. */
CASE(recover_shard__an_item_on_no_step_is_retired)
{
	uint32_t first = shard_fixture_fill_block(&acc, 9);
	const uint32_t covered = fx.desc.tail_off + (uint32_t)offsetof(struct row_tail, crc);
	uint8_t *row = row_at(first + 10);
	struct row_tail tail;

	memcpy(&tail, row + fx.desc.tail_off, sizeof(tail));
	tail.flags = ROW_FINAL;
	memcpy(row + fx.desc.tail_off, &tail, sizeof(tail));
	tail.crc = crc32c(0, row, covered);
	memcpy(row + fx.desc.tail_off, &tail, sizeof(tail));
	assert_int_equal(recover(true).retired, 2);
	assert_int_equal(shard_fixture_problems(fx.shard), 0);
}

CASE(recover_shard__a_row_of_another_lap_retires_its_items)
{
	uint32_t first = shard_fixture_fill_block(&acc, 9);
	struct row_tail tail = { .gen = 1 };

	assert_int_equal(transport_store(fx.conn.rows,
					 shard_row_off(fx.shard, first + fx.desc.block - 1) +
						 fx.desc.tail_off,
					 &tail, sizeof(tail)),
			 0);
	assert_int_equal(recover(false).retired, 0); /* rows are not looked at */
	assert_int_equal(recover(true).retired, 2);
}

CASE(recover_shard__settles_the_limiter)
{
	uint64_t words = shard_limits_off(fx.shard, 1);

	shard_fixture_store_at(fx.shard->part.limits,
			       words + offsetof(struct view_limits, ins_admitted), 90);
	shard_fixture_store_at(fx.shard->part.limits,
			       words + offsetof(struct view_limits, ins_committed), 70);
	shard_fixture_store_at(fx.shard->part.limits,
			       words + offsetof(struct view_limits, smp_admitted), 9);
	shard_fixture_store_at(fx.shard->part.limits,
			       words + offsetof(struct view_limits, smp_committed), 10);
	recover(false);
	assert_int_equal(shard_fixture_load_at(fx.shard->part.limits,
					       words + offsetof(struct view_limits, ins_admitted)),
			 70);
	assert_int_equal(shard_fixture_load_at(fx.shard->part.limits,
					       words + offsetof(struct view_limits, smp_admitted)),
			 10);
}

/* Killed anywhere, it is run again: stopped after n calls, for every n. */
CASE(recover_shard__may_be_cut_anywhere_and_run_again)
{
	struct recover_report report;
	struct block blk;
	uint64_t n = 0;
	int rc = 0;

	die_with_a_block(&blk);
	for (uint32_t i = 0; i < fx.desc.slots; i += 3) {
		uint64_t off = shard_leaf_off(fx.shard, 1, i), word = shard_fixture_load(&fx, off);

		shard_fixture_store(&fx, off, leaf_make(1, leaf_gen(word), leaf_priority(word)));
	}
	shard_fixture_store(&fx, word_off(offsetof(struct shard_words, part.epoch)),
			    epoch_make(0, EPOCH_DUAL, 9));
	do {
		struct memory_transport here;
		struct part_regions regions;
		struct shard *shard = NULL;

		memory_transport_shard(&here, &fx.conn.regions, true, &regions);
		assert_int_equal(shard_open(&regions, NULL, &shard), 0);
		here.fail_call = n += 5;
		rc = recover_shard(shard, &(struct recover_opts){ .scan_rows = true }, &report);
		shard_close(&shard);
		memory_transport_fini(&here);
	} while (rc == -ECONNRESET);
	assert_int_equal(rc, 0);
	assert_true(n > 100);
	assert_int_equal(report.items, 2 * 5 * items_of_a_block());
	assert_int_equal(report.retired, 0);
	assert_int_equal(shard_fixture_problems(fx.shard), 0);
}

CASE(recover_shard__no_memory_changes_nothing)
{
	uint64_t off = word_off(offsetof(struct shard_words, part.dirty));
	uint64_t clean_off = word_off(offsetof(struct shard_words, part.clean));
	int rc = -ENOMEM;

	shard_fixture_store(&fx, off, 4);
	for (uint64_t n = 1; rc == -ENOMEM; n++) {
		mem_fail_after(n);
		rc = recover_shard(fx.shard, &(struct recover_opts){ .scan_rows = true }, NULL);
		assert_true(rc == 0 || rc == -ENOMEM);
		assert_int_equal(shard_fixture_load(&fx, clean_off), rc == 0 ? 4 : 0);
	}
	mem_fail_after(0);
	assert_int_equal(rc, 0);
}

/* A recovered shard is used again: by new owners, over both laps of the ring. */
CASE(recover_shard__the_ring_goes_on_with_new_tickets)
{
	uint64_t head;
	struct block blk;

	die_with_a_block(&blk);
	head = recover(false).head;
	access_close(&acc);
	shard_fixture_take_slot(fx.shard, 1);
	shard_fixture_access(fx.shard, 1, &acc);
	for (uint32_t i = 0; i < 2 * fx.desc.blocks; i++)
		shard_fixture_fill_block(&acc, 1 + i);
	assert_true(shard_fixture_load(&fx, word_off(offsetof(struct shard_words, head))) >=
		    head + 2 * fx.desc.blocks);
	assert_int_equal(shard_fixture_problems(fx.shard), 0);
}

int main(void)
{
	return test_run(NULL, NULL);
}
