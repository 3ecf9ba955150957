#include "program/text_table.h"

#include <errno.h>
#include <string.h>

#include "base/mem/alloc.h"
#include "tests/support/test.h"

static void print(const struct text_table *table, char *text, size_t bytes)
{
	FILE *file = fmemopen(text, bytes, "w");

	assert_non_null(file);
	assert_int_equal(text_table_print(table, file), 0);
	fclose(file);
}

TEST(text_table_print__columns_are_as_wide_as_their_cells)
{
	struct text_table table;
	char text[256] = "";

	text_table_init(&table, "name|>size|note");
	text_table_cell(&table, "%s", "a");
	text_table_cell(&table, "%d", 12345);
	text_table_row(&table);
	text_table_cell(&table, "longer");
	text_table_cell(&table, "1");
	text_table_cell(&table, "ok");
	text_table_row(&table);
	print(&table, text, sizeof(text));
	text_table_fini(&table);
	assert_string_equal(text, "name     size  note\n"
				  "a       12345  \n"
				  "longer      1  ok\n");
}

TEST(text_table_print__counts_characters_and_not_bytes)
{
	struct text_table table;
	char text[256] = "";

	text_table_init(&table, ">x|y");
	text_table_cell(&table, "\xC3\xA9\xC3\xA9");
	text_table_row(&table);
	text_table_cell(&table, "abc");
	text_table_row(&table);
	print(&table, text, sizeof(text));
	text_table_fini(&table);
	assert_string_equal(text, "  x  y\n \xC3\xA9\xC3\xA9  \nabc  \n");
}

TEST(text_table__no_memory_is_enomem)
{
	bool failed = false;

	for (uint64_t n = 1;; n++) {
		struct text_table table;
		char text[4096];
		FILE *file = fmemopen(text, sizeof(text), "w");
		int ret;

		assert_non_null(file);
		mem_fail_after(n);
		text_table_init(&table, "a|b");
		for (int i = 0; i < 100; i++)
			text_table_cell(&table, "%d", i);
		ret = text_table_print(&table, file);
		text_table_fini(&table);
		fclose(file);
		if (!mem_fail_fired()) {
			assert_int_equal(ret, 0);
			break;
		}
		assert_int_equal(ret, -ENOMEM);
		failed = true;
	}
	mem_fail_after(0);
	assert_true(failed);
}

TEST(text_table_print__full_disk_is_eio)
{
	FILE *file = fopen("/dev/full", "w");
	struct text_table table;

	if (!file)
		skip();
	text_table_init(&table, "a");
	assert_int_equal(text_table_print(&table, file), -EIO);
	text_table_fini(&table);
	fclose(file);
}

int main(void)
{
	return test_run(NULL, NULL);
}
