#include "tests/support/fake/memory_transport.h"
#include "tests/support/fixture/shard_fixture.h"
#include "tests/support/test.h"
#include "tests/support/fake/wire_transport.h"

#include "ds/part/superblock.h"

#include "base/crc32c.h"

#include <errno.h>
#include <string.h>

static struct shard_fixture fx;
static struct shard_conn wire; /* the same shard over a wire */

static int setup(void **state)
{
	(void)state;
	shard_fixture_open(&fx, NULL);
	shard_fixture_connect(&fx, wire_wrap, &wire);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	shard_fixture_disconnect(&wire);
	shard_fixture_close(&fx);
	return 0;
}

static uint64_t load(struct region *region, uint64_t off)
{
	uint64_t word = 0;

	assert_int_equal(transport_load(region, off, &word), 0);
	return word;
}

static void store(struct region *region, uint64_t off, uint64_t word)
{
	assert_int_equal(transport_store(region, off, &word, 8), 0);
}

static int open_again(void)
{
	struct memory_transport here;
	struct part_regions regions;
	struct shard *shard = NULL;
	int rc;

	memory_transport_shard(&here, &fx.conn.regions, true, &regions);
	regions.at[REGION_TREE]->rights = fx.conn.tree->rights;
	rc = shard_open(&regions, &fx.desc, &shard);
	if (rc)
		assert_null(shard);
	else
		shard_close(&shard);
	memory_transport_fini(&here);
	return rc;
}

/* -------- format and open -------- */

static void shard_format__words_as_new(void **state)
{
	const struct shard *s = fx.shard;
	uint64_t prio = s->desc.views[1].words_off + offsetof(struct view_words, max_priority);

	(void)state;
	assert_int_equal(load(s->tree, shard_word_off(s, offsetof(struct shard_words, head))),
			 1000);
	assert_int_equal(load(s->tree, shard_word_off(s, offsetof(struct shard_words, part.epoch))),
			 epoch_make(0, EPOCH_NORMAL, 0));
	assert_int_equal(load(s->tree, prio), 1 << 20);
	for (uint32_t i = 0; i < SHARD_FIXTURE_CLIENTS; i++)
		assert_true(load(s->part.slots, part_slot_off(&s->part, i)) == SLOT_FREE);
}

static void shard_format__region_too_small_names_the_bytes(void **state)
{
	struct shard_ids ids = { .first_ticket = 0 };

	(void)state;
	for (uint32_t role = REGION_TREE; role < REGION_ROLES; role++) {
		struct region small = *fx.conn.regions.at[role];
		struct part_regions regions = fx.conn.regions;

		small.size = 4096;
		regions.at[role] = &small;
		assert_int_equal(shard_format(&regions, &fx.desc, &ids), -EINVAL);
		assert_non_null(strstr(error_last(), "4096"));
	}
}

static void shard_open__reads_what_was_planned(void **state)
{
	(void)state;
	assert_memory_equal(&fx.shard->desc, &fx.desc, sizeof(fx.desc));
	assert_memory_equal(&wire.shard->desc, &fx.desc, sizeof(fx.desc));
	assert_int_equal(fx.shard->trees[1].leaves_off, fx.desc.views[1].leaves_off);
}

static void shard_open__not_a_region(void **state)
{
	(void)state;
	store(fx.conn.tree, offsetof(struct region_superblock, magic), 0);
	assert_int_equal(open_again(), -EPROTO);
}

static void shard_open__a_changed_superblock(void **state)
{
	(void)state;
	store(fx.conn.rows, offsetof(struct region_superblock, ms_term), 99);
	assert_int_equal(open_again(), -EBADMSG);
}

static void shard_open__a_changed_descriptor(void **state)
{
	(void)state;
	store(fx.conn.tree, DESC_OFF + offsetof(struct table_desc, capacity), 99);
	assert_int_equal(open_again(), -EBADMSG);
}

/* Sound in itself, but not what the catalog says: sizes and offsets of it are never used. */
static void shard_open__a_descriptor_that_is_not_the_catalogs(void **state)
{
	struct table_desc other = fx.desc;

	(void)state;
	other.views[0].eps = 0.25;
	table_desc_seal(&other, other.shard);
	assert_int_equal(table_desc_check(&other), 0);
	assert_int_equal(transport_store(fx.conn.tree, DESC_OFF, &other, sizeof(other)), 0);
	assert_int_equal(open_again(), -EBADMSG);
	assert_non_null(strstr(error_last(), "catalog"));
}

static void reseal(struct region *region, struct region_superblock *sb)
{
	sb->crc = crc32c(0, sb, offsetof(struct region_superblock, crc));
	assert_int_equal(transport_store(region, 0, sb, sizeof(*sb)), 0);
}

static struct region_superblock superblock_of(struct region *region)
{
	struct region_superblock sb;
	struct transport_io io = { .region = region, .dst = &sb, .len = sizeof(sb) };

	assert_int_equal(transport_read(region->tr, &io, 1), 0);
	return sb;
}

static void shard_open__another_format_version(void **state)
{
	struct region_superblock sb = superblock_of(fx.conn.tree);

	(void)state;
	sb.format_major = 99;
	reseal(fx.conn.tree, &sb);
	assert_int_equal(open_again(), -EPROTO);
	assert_non_null(strstr(error_last(), "format 99"));
}

static void shard_open__unknown_incompat_bit(void **state)
{
	struct region_superblock sb = superblock_of(fx.conn.rows);

	(void)state;
	sb.incompat = 0x40;
	reseal(fx.conn.rows, &sb);
	assert_int_equal(open_again(), -EPROTO);
	assert_non_null(strstr(error_last(), "0x40"));
}

static void shard_open__unknown_compat_bit_is_ignored(void **state)
{
	struct region_superblock sb = superblock_of(fx.conn.tree);

	(void)state;
	sb.compat = 0x40;
	sb.format_minor = 9;
	reseal(fx.conn.tree, &sb);
	assert_int_equal(open_again(), 0);
}

static void shard_open__read_only_compat_bit_wants_no_right_to_write(void **state)
{
	struct region_superblock sb = superblock_of(fx.conn.tree);

	(void)state;
	sb.ro_compat = 1;
	reseal(fx.conn.tree, &sb);
	assert_int_equal(open_again(), -EPROTO);
	fx.conn.tree->rights = RIGHT_READ;
	assert_int_equal(open_again(), 0);
	fx.conn.tree->rights = RIGHT_ALL;
}

static void shard_open__regions_swapped(void **state)
{
	struct part_regions regions = fx.conn.regions;
	struct shard *shard = NULL;

	(void)state;
	regions.at[REGION_TREE] = fx.conn.rows;
	regions.at[REGION_ROWS] = fx.conn.tree;
	assert_int_equal(shard_open(&regions, NULL, &shard), -EPROTO);
	assert_non_null(strstr(error_last(), "kind"));
}

static void shard_open__rows_of_another_shard(void **state)
{
	struct region_superblock sb = superblock_of(fx.conn.rows);

	(void)state;
	sb.part = 5;
	reseal(fx.conn.rows, &sb);
	assert_int_equal(open_again(), -EPROTO);
}

static void shard_open__nic_words(void **state)
{
	struct region_superblock sb = superblock_of(fx.conn.tree);

	(void)state;
	sb.atomic_domain = ATOMIC_DOMAIN_NIC;
	reseal(fx.conn.tree, &sb);
	assert_int_equal(open_again(), -EPROTO);
	assert_non_null(strstr(error_last(), "RDMA"));
}

static void shard_open__a_region_of_another_table_or_store(void **state)
{
	(void)state;
	for (uint32_t role = REGION_TREE; role < REGION_ROLES; role++) {
		struct region *region = fx.conn.regions.at[role];
		const struct region_superblock good = superblock_of(region);
		struct region_superblock sb = good;

		sb.uuid[0] ^= 1;
		reseal(region, &sb);
		assert_int_equal(open_again(), -EBADMSG);
		sb = good;
		sb.store_uuid[3] ^= 1;
		reseal(region, &sb);
		assert_int_equal(open_again(), -EBADMSG);
		sb = good;
		reseal(region, &sb);
		assert_int_equal(open_again(), 0);
	}
}

/* What a client can write says nothing about whether the table is there. */
static void shard_open__state_words_of_other_regions_do_not_count(void **state)
{
	(void)state;
	for (uint32_t role = REGION_TREE; role < REGION_ROLES; role++)
		if (role != REGION_SLOTS)
			store(fx.conn.regions.at[role], offsetof(struct region_superblock, state),
			      REGION_DROPPED);
	assert_int_equal(open_again(), 0);
	assert_int_equal(part_state(&fx.shard->part), 0);
}

/* Which of in place, over a wire, mapped and over a wire by NIC may open the shard. */
static void expect_openers(struct shard_fixture *of, const bool may[4])
{
	static const shard_fixture_wrap wraps[4] = { NULL, wire_wrap, wire_wrap_mapped,
						     wire_wrap_nic };

	for (int i = 0; i < 4; i++) {
		struct shard_conn conn;

		assert_int_equal(shard_fixture_try_connect(of, wraps[i], &conn),
				 may[i] ? 0 : -EPROTO);
		shard_fixture_disconnect(&conn);
	}
}

static void shard_open__words_have_one_kind_of_atomics_for_life(void **state)
{
	struct shard_fixture_opts opts = { .shared = true };

	teardown(state);
	shard_fixture_open(&fx, &opts);
	expect_openers(&fx, (bool[4]){ true, true, false, false });
	shard_fixture_close(&fx);
	opts.wrap = wire_wrap_nic;
	shard_fixture_open(&fx, &opts);
	expect_openers(&fx, (bool[4]){ false, false, true, true });
	shard_fixture_close(&fx);
	setup(state);
}

static void shard_open__half_formatted(void **state)
{
	(void)state;
	store(fx.shard->part.slots, offsetof(struct region_superblock, state), REGION_FORMATTING);
	assert_int_equal(open_again(), -ESTALE);
}

static void shard_open__larger_than_its_region(void **state)
{
	struct region_superblock sb = superblock_of(fx.conn.tree);

	(void)state;
	sb.size = fx.conn.tree->size * 2;
	reseal(fx.conn.tree, &sb);
	assert_int_equal(open_again(), -EPROTO);
}

/* -------- state -------- */

static void shard_state__of_each(struct shard *shard)
{
	assert_int_equal(part_state(&shard->part), 0);
	assert_int_equal(part_set_state(&fx.shard->part, REGION_DROPPED), 0);
	assert_int_equal(part_state(&shard->part), -ESTALE);
	assert_int_equal(part_set_state(&fx.shard->part, REGION_ORPHANED), 0);
	assert_int_equal(part_state(&shard->part), -EHOSTDOWN);
	store(fx.shard->part.slots, offsetof(struct region_superblock, state), 77);
	assert_int_equal(part_state(&shard->part), -EBADMSG);
}

static void shard_state__in_place(void **state)
{
	uint64_t phases = fx.conn.tr->stats.phases;

	(void)state;
	assert_int_equal(part_state(&fx.shard->part), 0);
	assert_int_equal(fx.conn.tr->stats.phases, phases);
	shard_state__of_each(fx.shard);
}

static void shard_state__over_a_wire(void **state)
{
	(void)state;
	shard_state__of_each(wire.shard);
}

static void shard_close__twice(void **state)
{
	struct memory_transport here;
	struct part_regions regions;
	struct shard *shard = NULL;

	(void)state;
	memory_transport_shard(&here, &fx.conn.regions, true, &regions);
	assert_int_equal(shard_open(&regions, NULL, &shard), 0);
	shard_close(&shard);
	assert_null(shard);
	shard_close(&shard);
	memory_transport_fini(&here);
}

static void part_mark_dirty__counts(void **state)
{
	uint64_t off = shard_word_off(fx.shard, offsetof(struct shard_words, part.dirty));

	(void)state;
	assert_int_equal(part_mark_dirty(&fx.shard->part), 0);
	assert_int_equal(part_mark_dirty(&wire.shard->part), 0);
	assert_int_equal(load(fx.conn.tree, off), 2);
}

/* -------- access -------- */

static uint64_t pin_of(uint32_t owner)
{
	return load(fx.shard->part.pages, part_page_off(&fx.shard->part, owner - 1));
}

static void access_enter__promises_until_leave(void **state)
{
	struct access acc;

	(void)state;
	shard_fixture_access(fx.shard, 3, &acc);
	assert_int_equal(access_enter(&acc), 0);
	assert_int_equal(pin_of(3), 0);
	assert_int_equal(access_leave(&acc), 0);
	assert_true(pin_of(3) == SLOT_IDLE);
	access_close(&acc);
}

static void access_open__owner_out_of_range(void **state)
{
	struct tree_deltas_opts opts = { 0 };
	struct access acc;

	(void)state;
	assert_int_equal(access_open(&acc, fx.shard, SHARD_FIXTURE_CLIENTS + 1, 1, &opts), -EINVAL);
	assert_non_null(strstr(error_last(), "owner 17"));
}

static void access_open__no_such_view(void **state)
{
	struct tree_deltas_opts opts = { 0 };
	struct access acc;

	(void)state;
	assert_int_equal(access_open(&acc, fx.shard, 1, 4, &opts), -EINVAL);
}

/* A handle that keeps deltas keeps its pin, and gives both up when the epoch moves. */
static void access_leave__kept_deltas_keep_the_pin(void **state)
{
	struct tree_deltas_opts opts = { .defer_calls = 100,
					 .defer_ns = UINT64_MAX,
					 .clock = fx.conn.tr->clock };
	uint64_t epoch_off = shard_word_off(fx.shard, offsetof(struct shard_words, part.epoch));
	struct leaf_run run = { .first = 0, .n = 8, .gen = 1 };
	uint64_t priorities[8] = { 5, 5, 5, 5, 5, 5, 5, 5 };
	struct access acc;

	(void)state;
	assert_int_equal(access_open(&acc, fx.shard, 3, 3, &opts), 0);
	assert_int_equal(access_enter(&acc), 0);
	assert_int_equal(sumtree_claim(&fx.shard->trees[0], &acc.epoch, &run, acc.deltas[0]), 0);
	assert_int_equal(
		sumtree_publish(&fx.shard->trees[0], &acc.epoch, &run, priorities, acc.deltas[0]),
		0);
	assert_int_equal(access_leave(&acc), 0);
	assert_int_equal(pin_of(3), 0);
	store(fx.conn.tree, epoch_off, epoch_make(1, EPOCH_NORMAL, 0));
	assert_int_equal(access_enter(&acc), 0);
	assert_int_equal(pin_of(3), 1);
	assert_int_equal(access_leave(&acc), 0);
	assert_int_equal(access_flush(&acc), 0);
	assert_true(pin_of(3) == SLOT_IDLE);
	access_close(&acc);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(shard_format__words_as_new),
		TEST(shard_format__region_too_small_names_the_bytes),
		TEST(shard_open__reads_what_was_planned),
		TEST(shard_open__not_a_region),
		TEST(shard_open__a_changed_superblock),
		TEST(shard_open__a_changed_descriptor),
		TEST(shard_open__a_descriptor_that_is_not_the_catalogs),
		TEST(shard_open__a_region_of_another_table_or_store),
		TEST(shard_open__state_words_of_other_regions_do_not_count),
		TEST(shard_open__another_format_version),
		TEST(shard_open__unknown_incompat_bit),
		TEST(shard_open__unknown_compat_bit_is_ignored),
		TEST(shard_open__read_only_compat_bit_wants_no_right_to_write),
		TEST(shard_open__regions_swapped),
		TEST(shard_open__rows_of_another_shard),
		TEST(shard_open__nic_words),
		TEST(shard_open__words_have_one_kind_of_atomics_for_life),
		TEST(shard_open__half_formatted),
		TEST(shard_open__larger_than_its_region),
		TEST(shard_state__in_place),
		TEST(shard_state__over_a_wire),
		TEST(shard_close__twice),
		TEST(part_mark_dirty__counts),
		TEST(access_enter__promises_until_leave),
		TEST(access_open__owner_out_of_range),
		TEST(access_open__no_such_view),
		TEST(access_leave__kept_deltas_keep_the_pin),
	};

	return TEST_RUN(tests, NULL, NULL);
}
