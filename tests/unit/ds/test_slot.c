#include "tests/support/fixture/shard_fixture.h"
#include "tests/support/test.h"

#include "ds/replay/settle.h"
#include "ds/part/slot.h"

#include <errno.h>
#include <string.h>

static struct shard_fixture fx;
static struct process_id someone = { .pid = 4711, .start_time = 99, .boot_id = { 1, 2, 3 } };

static int setup(void **state)
{
	(void)state;
	shard_fixture_open(&fx, NULL);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	shard_fixture_close(&fx);
	return 0;
}

static uint64_t slot_off(uint32_t slot, size_t member)
{
	return part_slot_off(&fx.shard->part, slot) + member;
}

static uint64_t page_off(uint32_t slot, size_t member)
{
	return part_page_off(&fx.shard->part, slot) + member;
}

static uint64_t dirty(void)
{
	return shard_fixture_load(
		&fx, shard_word_off(fx.shard, offsetof(struct shard_words, part.dirty)));
}

static void set_pin(uint32_t slot, uint64_t pin)
{
	shard_fixture_store_at(fx.shard->part.pages, page_off(slot, 0), pin);
}

#define CASE(f) TEST_WITH(f, setup, teardown)

CASE(slot_take__says_whose_it_is)
{
	struct slot_info info;

	assert_int_equal(slot_take(&fx.shard->part, 5, &someone, 77), 0);
	assert_int_equal(slot_read(&fx.shard->part, 5, &info), 0);
	assert_int_equal(info.state, SLOT_LIVE);
	assert_int_equal(info.process.pid, 4711);
	assert_int_equal(info.process.start_time, 99);
	assert_memory_equal(info.process.boot_id, someone.boot_id, sizeof(someone.boot_id));
	assert_int_equal(info.lease, 77);
	assert_int_equal(info.pin, SLOT_IDLE);
}

CASE(slot_take__a_live_slot_is_busy)
{
	assert_int_equal(slot_take(&fx.shard->part, 5, &someone, 77), 0);
	assert_int_equal(slot_take(&fx.shard->part, 5, &someone, 78), -EBUSY);
}

CASE(slot_take__no_such_slot_names_the_number)
{
	assert_int_equal(slot_take(&fx.shard->part, SHARD_FIXTURE_CLIENTS, &someone, 1), -EINVAL);
	assert_non_null(strstr(error_last(), "16"));
}

/* A giver died after it had written some fields: the slot is free, and taking it cleans all. */
CASE(slot_take__over_a_half_written_one)
{
	struct slot_info info;
	uint64_t limit = page_off(3, offsetof(struct client_page, limits));

	set_pin(3, 0);
	shard_fixture_store_at(fx.shard->part.pages, limit, 12);
	shard_fixture_store_at(fx.shard->part.slots,
			       slot_off(3, offsetof(struct client_slot, lease)), 5);
	assert_int_equal(slot_take(&fx.shard->part, 3, &someone, 9), 0);
	assert_int_equal(slot_read(&fx.shard->part, 3, &info), 0);
	assert_int_equal(info.pin, SLOT_IDLE);
	assert_int_equal(info.lease, 9);
	assert_int_equal(shard_fixture_load_at(fx.shard->part.pages, limit), 0);
}

CASE(slot_release__frees_an_idle_slot)
{
	struct slot_info info;

	assert_int_equal(slot_take(&fx.shard->part, 0, &someone, 1), 0);
	assert_int_equal(slot_release(&fx.shard->part, 0), 0);
	assert_int_equal(slot_read(&fx.shard->part, 0, &info), 0);
	assert_int_equal(info.state, SLOT_FREE);
	assert_int_equal(slot_release(&fx.shard->part, 0), -ESTALE);
}

CASE(slot_release__with_a_promise_is_busy)
{
	assert_int_equal(slot_take(&fx.shard->part, 0, &someone, 1), 0);
	set_pin(0, 0);
	assert_int_equal(slot_release(&fx.shard->part, 0), -EBUSY);
}

CASE(slot_release__in_the_middle_of_its_rebuild_is_busy)
{
	assert_int_equal(slot_take(&fx.shard->part, 4, &someone, 1), 0);
	shard_fixture_store(&fx, shard_word_off(fx.shard, offsetof(struct shard_words, part.epoch)),
			    epoch_make(0, EPOCH_ZERO, 5));
	assert_int_equal(slot_release(&fx.shard->part, 4), -EBUSY);
}

CASE(fence_settle__an_idle_owner_leaves_no_drift)
{
	struct shard_settled report;
	struct slot_info info;

	assert_int_equal(slot_take(&fx.shard->part, 0, &someone, 1), 0);
	assert_int_equal(shard_settle(fx.shard, 1, &report), 0);
	assert_true(report.fence.was_idle);
	assert_int_equal(dirty(), 0);
	assert_int_equal(slot_read(&fx.shard->part, 0, &info), 0);
	assert_int_equal(info.state, SLOT_FREE);
}

CASE(fence_settle__an_owner_in_a_call_makes_the_shard_dirty)
{
	struct shard_settled report;
	struct slot_info info;

	assert_int_equal(slot_take(&fx.shard->part, 0, &someone, 1), 0);
	set_pin(0, 0);
	assert_int_equal(shard_settle(fx.shard, 1, &report), 0);
	assert_false(report.fence.was_idle);
	assert_int_equal(dirty(), 1);
	assert_int_equal(slot_read(&fx.shard->part, 0, &info), 0);
	assert_int_equal(info.state, SLOT_FREE);
	assert_int_equal(info.pin, SLOT_IDLE);
}

CASE(fence_settle__closes_only_the_dead_owners_blocks)
{
	struct shard_settled report;
	struct ring_counters counters = { 0 };
	struct block mine, theirs;
	struct access acc[2];

	for (uint32_t i = 0; i < 2; i++) {
		shard_fixture_take_slot(fx.shard, i + 1);
		shard_fixture_access(fx.shard, i + 1, &acc[i]);
		assert_int_equal(access_enter(&acc[i]), 0);
	}
	assert_int_equal(ring_claim(&acc[0], &mine, &counters), 0);
	assert_int_equal(ring_claim(&acc[1], &theirs, &counters), 0);
	for (uint32_t i = 0; i < 2; i++)
		assert_int_equal(access_leave(&acc[i]), 0);
	assert_int_equal(shard_settle(fx.shard, 1, &report), 0);
	assert_int_equal(report.closed, 1);
	assert_int_equal(ring_close(&mine), 0); /* as its header says: closed, by this owner */
	assert_true(
		block_is_open(shard_fixture_load(&fx, shard_header_off(fx.shard, theirs.index))));
	assert_int_equal(ring_close(&theirs), 0);
	access_close(&acc[0]);
	access_close(&acc[1]);
	assert_int_equal(shard_fixture_problems(fx.shard), 0);
}

CASE(fence_settle__gives_admissions_back_once)
{
	uint64_t limits = page_off(0, offsetof(struct client_page, limits)) +
			  sizeof(struct slot_limits); /* of view 1 */
	uint64_t words = shard_limits_off(fx.shard, 1);
	struct shard_settled report;

	assert_int_equal(slot_take(&fx.shard->part, 0, &someone, 1), 0);
	shard_fixture_store_at(fx.shard->part.limits,
			       words + offsetof(struct view_limits, ins_admitted), 100);
	shard_fixture_store_at(fx.shard->part.limits,
			       words + offsetof(struct view_limits, smp_admitted), 50);
	shard_fixture_store_at(fx.shard->part.pages,
			       limits + offsetof(struct slot_limits, ins_admitted), 30);
	shard_fixture_store_at(fx.shard->part.pages,
			       limits + offsetof(struct slot_limits, ins_committed), 20);
	shard_fixture_store_at(fx.shard->part.pages,
			       limits + offsetof(struct slot_limits, smp_admitted), 8);
	shard_fixture_store_at(fx.shard->part.pages,
			       limits + offsetof(struct slot_limits, smp_committed),
			       9); /* cut between stores */
	assert_int_equal(shard_settle(fx.shard, 1, &report), 0);
	assert_int_equal(report.given_back[0], 10);
	assert_int_equal(report.given_back[1], 0);
	assert_int_equal(shard_fixture_load_at(fx.shard->part.limits,
					       words + offsetof(struct view_limits, ins_admitted)),
			 90);
	assert_int_equal(shard_fixture_load_at(fx.shard->part.limits,
					       words + offsetof(struct view_limits, smp_admitted)),
			 50);
	assert_int_equal(shard_settle(fx.shard, 1, &report), 0); /* again: the slot is free */
	assert_int_equal(shard_fixture_load_at(fx.shard->part.limits,
					       words + offsetof(struct view_limits, ins_admitted)),
			 90);
}

/* The page is its client's, and may say anything: others' admissions stay, and no count goes wild. */
CASE(fence_settle__gives_back_no_more_than_is_out)
{
	const uint64_t noise[] = { UINT64_MAX, UINT64_MAX / 2, 1000, 0x5a5a5a5a5a5a5a5a };
	uint64_t limits = page_off(0, offsetof(struct client_page, limits));
	uint64_t words = shard_limits_off(fx.shard, 0);
	struct region *all = fx.shard->part.limits;
	struct shard_settled report;

	for (size_t i = 0; i < sizeof(noise) / sizeof(noise[0]); i++) {
		assert_int_equal(slot_take(&fx.shard->part, 0, &someone, 1), 0);
		shard_fixture_store_at(all, words + offsetof(struct view_limits, ins_admitted),
				       107);
		shard_fixture_store_at(all, words + offsetof(struct view_limits, ins_committed),
				       100);
		shard_fixture_store_at(fx.shard->part.pages,
				       limits + offsetof(struct slot_limits, ins_admitted),
				       noise[i]);
		shard_fixture_store_at(fx.shard->part.pages,
				       limits + offsetof(struct slot_limits, smp_admitted),
				       noise[i]);
		assert_int_equal(shard_settle(fx.shard, 1, &report), 0);
		assert_int_equal(report.given_back[0], 7);
		assert_int_equal(report.given_back[1], 0);
		assert_int_equal(shard_fixture_load_at(
					 all, words + offsetof(struct view_limits, ins_admitted)),
				 100);
		assert_int_equal(shard_fixture_load_at(
					 all, words + offsetof(struct view_limits, smp_admitted)),
				 0);
	}
}

/* A server was killed after it had marked the slot; the next one settles the rest. */
CASE(fence_settle__goes_on_from_a_fenced_slot)
{
	struct slot_info info;

	assert_int_equal(slot_take(&fx.shard->part, 0, &someone, 1), 0);
	set_pin(0, 0);
	shard_fixture_store_at(fx.shard->part.slots,
			       slot_off(0, offsetof(struct client_slot, state)), SLOT_FENCED);
	assert_int_equal(slot_release(&fx.shard->part, 0), -ESTALE);
	assert_int_equal(shard_settle(fx.shard, 1, NULL), 0);
	assert_int_equal(dirty(), 1);
	assert_int_equal(slot_read(&fx.shard->part, 0, &info), 0);
	assert_int_equal(info.state, SLOT_FREE);
}

CASE(fence_settle__makes_its_rebuild_ownerless)
{
	uint64_t off = shard_word_off(fx.shard, offsetof(struct shard_words, part.epoch));
	struct shard_settled report;

	assert_int_equal(slot_take(&fx.shard->part, 4, &someone, 1), 0);
	shard_fixture_store(&fx, off, epoch_make(6, EPOCH_DUAL, 5));
	assert_int_equal(shard_settle(fx.shard, 5, &report), 0);
	assert_true(report.fence.had_rebuild);
	assert_int_equal(shard_fixture_load(&fx, off), epoch_make(6, EPOCH_DUAL, 0));
}

CASE(fence_settle__owner_out_of_range)
{
	assert_int_equal(shard_settle(fx.shard, 0, NULL), -EINVAL);
	assert_int_equal(shard_settle(fx.shard, SHARD_FIXTURE_CLIENTS + 1, NULL), -EINVAL);
}

int main(void)
{
	return test_run(NULL, NULL);
}
