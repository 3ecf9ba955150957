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

#define CASE(name) TEST_WITH(name, setup, teardown)

/* -------- format and open -------- */

CASE(shard_format__words_as_new)
{
	const struct shard *s = fx.shard;
	uint64_t prio = s->desc.views[1].words_off + offsetof(struct view_words, max_priority);

	assert_int_equal(load(s->tree, shard_word_off(s, offsetof(struct shard_words, head))),
			 1000);
	assert_int_equal(load(s->tree, shard_word_off(s, offsetof(struct shard_words, part.epoch))),
			 epoch_make(0, EPOCH_NORMAL, 0));
	assert_int_equal(load(s->tree, prio), 1 << 20);
	for (uint32_t i = 0; i < SHARD_FIXTURE_CLIENTS; i++)
		assert_true(load(s->part.slots, part_slot_off(&s->part, i)) == SLOT_FREE);
}

CASE(shard_format__region_too_small_names_the_bytes)
{
	struct shard_ids ids = { .first_ticket = 0 };

	for (uint32_t role = REGION_TREE; role < REGION_ROLES; role++) {
		struct region small = *fx.conn.regions.at[role];
		struct part_regions regions = fx.conn.regions;

		small.size = 4096;
		regions.at[role] = &small;
		assert_int_equal(shard_format(&regions, &fx.desc, &ids), -EINVAL);
		assert_non_null(strstr(error_last(), "4096"));
	}
}

CASE(shard_open__reads_what_was_planned)
{
	assert_memory_equal(&fx.shard->desc, &fx.desc, sizeof(fx.desc));
	assert_memory_equal(&wire.shard->desc, &fx.desc, sizeof(fx.desc));
	assert_int_equal(fx.shard->trees[1].leaves_off, fx.desc.views[1].leaves_off);
}

CASE(shard_open__not_a_region)
{
	store(fx.conn.tree, offsetof(struct region_superblock, magic), 0);
	assert_int_equal(open_again(), -EPROTO);
}

CASE(shard_open__a_changed_superblock)
{
	store(fx.conn.rows, offsetof(struct region_superblock, ms_term), 99);
	assert_int_equal(open_again(), -EBADMSG);
}

CASE(shard_open__a_changed_descriptor)
{
	store(fx.conn.tree, DESC_OFF + offsetof(struct table_desc, capacity), 99);
	assert_int_equal(open_again(), -EBADMSG);
}

/*
 * The descriptor is valid but differs from the catalog's: its sizes and offsets must never be used.
 */
CASE(shard_open__a_descriptor_that_is_not_the_catalogs)
{
	struct table_desc other = fx.desc;

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

CASE(shard_open__another_format_version)
{
	struct region_superblock sb = superblock_of(fx.conn.tree);

	sb.format_major = 99;
	reseal(fx.conn.tree, &sb);
	assert_int_equal(open_again(), -EPROTO);
	assert_non_null(strstr(error_last(), "format 99"));
}

CASE(shard_open__unknown_incompat_bit)
{
	struct region_superblock sb = superblock_of(fx.conn.rows);

	sb.incompat = 0x40;
	reseal(fx.conn.rows, &sb);
	assert_int_equal(open_again(), -EPROTO);
	assert_non_null(strstr(error_last(), "0x40"));
}

CASE(shard_open__unknown_compat_bit_is_ignored)
{
	struct region_superblock sb = superblock_of(fx.conn.tree);

	sb.compat = 0x40;
	sb.format_minor = 9;
	reseal(fx.conn.tree, &sb);
	assert_int_equal(open_again(), 0);
}

CASE(shard_open__read_only_compat_bit_wants_no_right_to_write)
{
	struct region_superblock sb = superblock_of(fx.conn.tree);

	sb.ro_compat = 1;
	reseal(fx.conn.tree, &sb);
	assert_int_equal(open_again(), -EPROTO);
	fx.conn.tree->rights = RIGHT_READ;
	assert_int_equal(open_again(), 0);
	fx.conn.tree->rights = RIGHT_ALL;
}

CASE(shard_open__regions_swapped)
{
	struct part_regions regions = fx.conn.regions;
	struct shard *shard = NULL;

	regions.at[REGION_TREE] = fx.conn.rows;
	regions.at[REGION_ROWS] = fx.conn.tree;
	assert_int_equal(shard_open(&regions, NULL, &shard), -EPROTO);
	assert_non_null(strstr(error_last(), "kind"));
}

CASE(shard_open__rows_of_another_shard)
{
	struct region_superblock sb = superblock_of(fx.conn.rows);

	sb.part = 5;
	reseal(fx.conn.rows, &sb);
	assert_int_equal(open_again(), -EPROTO);
}

CASE(shard_open__nic_words)
{
	struct region_superblock sb = superblock_of(fx.conn.tree);

	sb.atomic_domain = ATOMIC_DOMAIN_NIC;
	reseal(fx.conn.tree, &sb);
	assert_int_equal(open_again(), -EPROTO);
	assert_non_null(strstr(error_last(), "RDMA"));
	sb.atomic_domain = ATOMIC_DOMAIN_AGENT;
	reseal(fx.conn.tree, &sb);
	assert_int_equal(open_again(), -EPROTO);
	assert_non_null(strstr(error_last(), "the node's agent"));
}

CASE(shard_open__a_region_of_another_table_or_store)
{
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

/* Words that a client can write do not decide whether the table exists. */
CASE(shard_open__state_words_of_other_regions_do_not_count)
{
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

CASE(shard_open__words_have_one_kind_of_atomics_for_life)
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

CASE(shard_open__half_formatted)
{
	store(fx.shard->part.slots, offsetof(struct region_superblock, state), REGION_FORMATTING);
	assert_int_equal(open_again(), -ESTALE);
}

CASE(shard_open__larger_than_its_region)
{
	struct region_superblock sb = superblock_of(fx.conn.tree);

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

CASE(shard_state__in_place)
{
	uint64_t phases = fx.conn.tr->stats.phases;

	assert_int_equal(part_state(&fx.shard->part), 0);
	assert_int_equal(fx.conn.tr->stats.phases, phases);
	shard_state__of_each(fx.shard);
}

CASE(shard_state__over_a_wire)
{
	shard_state__of_each(wire.shard);
}

CASE(shard_close__twice)
{
	struct memory_transport here;
	struct part_regions regions;
	struct shard *shard = NULL;

	memory_transport_shard(&here, &fx.conn.regions, true, &regions);
	assert_int_equal(shard_open(&regions, NULL, &shard), 0);
	shard_close(&shard);
	assert_null(shard);
	shard_close(&shard);
	memory_transport_fini(&here);
}

CASE(part_mark_dirty__counts)
{
	uint64_t off = shard_word_off(fx.shard, offsetof(struct shard_words, part.dirty));

	assert_int_equal(part_mark_dirty(&fx.shard->part), 0);
	assert_int_equal(part_mark_dirty(&wire.shard->part), 0);
	assert_int_equal(load(fx.conn.tree, off), 2);
}

/* -------- access -------- */

static uint64_t pin_of(uint32_t owner)
{
	return load(fx.shard->part.pages, part_page_off(&fx.shard->part, owner - 1));
}

CASE(access_enter__promises_until_leave)
{
	struct access acc;

	shard_fixture_access(fx.shard, 3, &acc);
	assert_int_equal(access_enter(&acc), 0);
	assert_int_equal(pin_of(3), 0);
	assert_int_equal(access_leave(&acc), 0);
	assert_true(pin_of(3) == SLOT_IDLE);
	access_close(&acc);
}

CASE(access_open__owner_out_of_range)
{
	struct access acc;

	assert_int_equal(access_open(&acc, fx.shard, SHARD_FIXTURE_CLIENTS + 1, 1), -EINVAL);
	assert_non_null(strstr(error_last(), "owner 17"));
}

CASE(access_open__no_such_view)
{
	struct access acc;

	assert_int_equal(access_open(&acc, fx.shard, 1, 4), -EINVAL);
}

int main(void)
{
	return test_run(NULL, NULL);
}
