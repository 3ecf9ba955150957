/* Region superblocks: written ones are accepted, all others refused. */
#include "tests/support/test.h"

#include <errno.h>
#include <string.h>

#include "base/crc32c.h"
#include "ds/part/superblock.h"

#define BYTES ((uint64_t)4 << 20)

static struct region_superblock good(void)
{
	const struct region region = { .id = 9, .size = BYTES };
	struct region_superblock sb = { .kind = OBJECT_TABLE,
					.role = REGION_TREE,
					.atomic_domain = ATOMIC_DOMAIN_CPU,
					.object = 3,
					.part = 4,
					.uuid = { 1, 2 },
					.store_uuid = { 5 },
					.ms_term = 6,
					.incarnation = 7 };

	superblock_seal(&sb, &region);
	sb.state.word.raw = REGION_LIVE;
	return sb;
}

static int check(struct region_superblock *sb, bool reseal)
{
	if (reseal)
		sb->crc = crc32c(0, sb, offsetof(struct region_superblock, crc));
	return superblock_check(sb, OBJECT_TABLE, REGION_TREE, BYTES);
}

TEST(superblock_check__of_a_good_one)
{
	struct region_superblock sb = good();

	assert_int_equal(check(&sb, false), 0);
	assert_int_equal(sb.region, 9);
	assert_int_equal(sb.object, 3);
	assert_int_equal(sb.part, 4);
	assert_int_equal(sb.extent_size, REGION_EXTENT_BYTES);
}

/* All that never changes is under the crc. */
TEST(superblock_check__of_any_flipped_bit)
{
	for (size_t bit = 0; bit < 8 * 256; bit++) {
		struct region_superblock sb = good();

		((uint8_t *)&sb)[bit / 8] ^= (uint8_t)(1u << bit % 8);
		assert_true(check(&sb, false) < 0);
	}
}

/* Fields that other processes may change at any time are not covered. */
TEST(superblock_check__of_other_mutable_words)
{
	struct region_superblock sb = good();

	sb.mark.word.raw = 12345;
	assert_int_equal(check(&sb, false), 0);
}

TEST(superblock_check__of_what_a_crc_cannot_tell)
{
	struct region_superblock sb = good();

	sb.format_major++;
	assert_int_equal(check(&sb, true), -EPROTO);
	sb = good();
	sb.format_minor++; /* a later minor is readable */
	assert_int_equal(check(&sb, true), 0);
	sb = good();
	sb.incompat = 1;
	assert_int_equal(check(&sb, true), -EPROTO);
	sb = good();
	sb.compat = 1;
	assert_int_equal(check(&sb, true), 0);
	sb = good();
	sb.role = REGION_ROWS;
	assert_int_equal(check(&sb, true), -EPROTO);
	sb = good();
	sb.size = BYTES + 8;
	assert_int_equal(check(&sb, true), -EPROTO);
	sb = good();
	sb.atomic_domain = ATOMIC_DOMAIN_NIC; /* shard_open checks the rights */
	assert_int_equal(check(&sb, true), 0);
	sb.atomic_domain = 4;
	assert_int_equal(check(&sb, true), -EPROTO);
}

/* The word that counts is the one that no client can write. */
TEST(superblock_check__of_every_state)
{
	static const struct {
		uint64_t state;
		int expected;
	} states[] = {
		{ REGION_FORMATTING, -ESTALE },  { REGION_LIVE, 0 }, { REGION_DROPPED, -ESTALE },
		{ REGION_ORPHANED, -EHOSTDOWN }, { 1, -EBADMSG },
	};
	struct region_superblock sb = good();

	for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++) {
		sb.role = REGION_TREE;
		sb.state.word.raw = states[i].state;
		assert_int_equal(check(&sb, true), 0);
		sb.role = REGION_SLOTS;
		sb.crc = crc32c(0, &sb, offsetof(struct region_superblock, crc));
		assert_int_equal(superblock_check(&sb, OBJECT_TABLE, REGION_SLOTS, BYTES),
				 states[i].expected);
		assert_int_equal(superblock_state_check(states[i].state), states[i].expected);
	}
}

/* No state becomes another one by a flip. */
TEST(superblock_check__of_every_state_with_a_bit_flipped)
{
	static const uint64_t states[] = { REGION_FORMATTING, REGION_LIVE, REGION_DROPPED,
					   REGION_ORPHANED };

	for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++)
		for (uint32_t bit = 0; bit < 64; bit++)
			assert_int_equal(superblock_state_check(states[i] ^ UINT64_C(1) << bit),
					 -EBADMSG);
}

int main(void)
{
	return test_run(NULL, NULL);
}
