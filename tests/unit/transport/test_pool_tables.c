/* The start of a pool, without a file: the extent table and the superblock. */
#include "tests/support/test.h"

#include <errno.h>
#include <string.h>

#include "base/crc32c.h"
#include "transport/pool/extents.h"
#include "transport/pool/pool_super.h"

/* -------- the extent table -------- */

static struct extent_table *make_table(uint64_t extents)
{
	struct extent_table *table = malloc(sizeof(*table));

	assert_non_null(table);
	extents_make_table(table, extents);
	extents_seal(table);
	return table;
}

static void add_entry(struct extent_table *table, uint32_t region, uint64_t first, uint32_t n)
{
	struct extent_entry *entry = extents_take_entry(table);

	assert_non_null(entry);
	*entry = (struct extent_entry){
		.region = region, .kind = 1, .first = first, .extents = n, .state = EXTENT_LIVE
	};
	extents_seal(table);
}

TEST(extents_check__a_new_table)
{
	struct extent_table *table = make_table(10);

	assert_int_equal(extents_check_table(table, 10), 0);
	assert_int_equal(extents_check_table(table, 9), -EPROTO); /* the file was cut */
	free(table);
}

TEST(extents_check__what_no_crc_catches)
{
	for (int i = 0; i < 9; i++) {
		struct extent_table *table = make_table(10);

		add_entry(table, 1, 1, 2);
		add_entry(table, 2, 3, 2);
		assert_int_equal(extents_check_table(table, 10), 0);
		switch (i) {
		case 0: /* overlap */
			table->entries[1].first = 2;
			break;
		case 1: /* the header's extent */
			table->entries[0].first = 0;
			break;
		case 2: /* behind the end */
			table->entries[1].extents = 8;
			break;
		case 3: /* none at all */
			table->entries[1].extents = 0;
			break;
		case 4: /* twice the same number */
			table->entries[1].region = 1;
			break;
		case 5: /* a number that cannot be */
			table->entries[1].region = 4096;
			break;
		case 6: /* a state that is none */
			table->entries[1].state = 3;
			break;
		case 7: /* a free entry with something in it */
			table->entries[1].state = EXTENT_FREE;
			break;
		default: /* a sum that wraps */
			table->entries[1].first = UINT64_MAX;
			break;
		}
		extents_seal(table);
		assert_int_equal(extents_check_table(table, 10), -EBADMSG);
		free(table);
	}
}

TEST(extents_check__too_many_entries)
{
	struct extent_table *table = make_table(10);

	table->n = POOL_TABLE_ENTRIES + 1; /* never read behind the end for the crc */
	assert_int_equal(extents_check_table(table, 10), -EBADMSG);
	free(table);
}

TEST(extents_choose__the_newer_whole_copy)
{
	struct extent_table *a = make_table(10), *b = make_table(10);
	const struct extent_table *copies[2] = { a, b };

	b->seq = 2;
	extents_seal(b);
	assert_int_equal(extents_choose(copies, 10), 1);
	a->seq = 3;
	extents_seal(a);
	assert_int_equal(extents_choose(copies, 10), 0);
	a->crc ^= 1;
	assert_int_equal(extents_choose(copies, 10), 1);
	b->magic = 0;
	assert_int_equal(extents_choose(copies, 10), -EBADMSG);
	free(a);
	free(b);
}

TEST(extents_find_run__first_that_fits)
{
	struct extent_table *table = make_table(20);
	uint64_t longest = 0;

	assert_int_equal(extents_find_run(table, 19, &longest), 1);
	assert_int_equal(extents_find_run(table, 20, &longest), 0);
	assert_int_equal(longest, 19);
	add_entry(table, 1, 8, 4); /* 1..7 and 12..19 are free */
	assert_int_equal(extents_find_run(table, 7, &longest), 1);
	assert_int_equal(extents_find_run(table, 8, &longest), 12);
	assert_int_equal(extents_find_run(table, 9, &longest), 0);
	assert_int_equal(longest, 8);
	add_entry(table, 2, 1, 1);
	assert_int_equal(extents_find_run(table, 6, &longest), 2);
	assert_int_equal(extents_used(table), 5);
	free(table);
}

TEST(extents_take_entry__reuses_and_ends)
{
	struct extent_table *table = make_table(5000);
	struct extent_entry *entry;

	for (uint32_t i = 1; i <= POOL_TABLE_ENTRIES; i++) {
		entry = extents_take_entry(table);
		assert_non_null(entry);
		*entry = (struct extent_entry){
			.region = i, .first = i, .extents = 1, .state = EXTENT_LIVE
		};
	}
	extents_seal(table);
	assert_int_equal(extents_check_table(table, 5000), 0);
	assert_null(extents_take_entry(table));
	table->entries[17] = (struct extent_entry){ 0 };
	assert_ptr_equal(extents_take_entry(table), &table->entries[17]);
	free(table);
}

/* -------- the superblock -------- */

static void reseal(struct pool_superblock *sb)
{
	sb->crc = crc32c(0, sb, offsetof(struct pool_superblock, crc));
}

TEST(superblock_check__what_is_refused)
{
	struct pool_superblock good, sb;

	assert_int_equal(pool_super_make(&good, POOL_EXTENTS), 0);
	assert_int_equal(pool_super_check(&good, POOL_EXTENTS), 0);
	sb = good;
	sb.magic ^= 1;
	assert_int_equal(pool_super_check(&sb, POOL_EXTENTS), -EPROTO);
	sb = good;
	sb.uuid[3] ^= 1; /* crc */
	assert_int_equal(pool_super_check(&sb, POOL_EXTENTS), -EBADMSG);
	sb = good;
	memset(sb.store_name, 'x', sizeof(sb.store_name)); /* ends nowhere */
	reseal(&sb);
	assert_int_equal(pool_super_check(&sb, POOL_EXTENTS), -EBADMSG);
	sb = good;
	sb.format_major = 99;
	reseal(&sb);
	assert_int_equal(pool_super_check(&sb, POOL_EXTENTS), -EPROTO);
	assert_non_null(strstr(error_last(), "format 99.0"));
	sb = good;
	sb.incompat = 8;
	reseal(&sb);
	assert_int_equal(pool_super_check(&sb, POOL_EXTENTS), -EPROTO);
	assert_non_null(strstr(error_last(), "8"));
	sb = good;
	sb.ro_compat = 8;
	reseal(&sb);
	assert_int_equal(pool_super_check(&sb, POOL_EXTENTS), -EPROTO);
	sb = good;
	sb.table_off[1] = 8192;
	reseal(&sb);
	assert_int_equal(pool_super_check(&sb, POOL_EXTENTS), -EPROTO);
	sb = good;
	sb.compat = 8; /* may be ignored; so may a minor */
	sb.format_minor = 7;
	reseal(&sb);
	assert_int_equal(pool_super_check(&sb, POOL_EXTENTS), 0);
}

int main(void)
{
	return test_run(NULL, NULL);
}
