#include "cli/host/cmdline.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/temp_dir.h"
#include "tests/support/test.h"

static struct cmdline make(void)
{
	struct cmdline line = { 0 };

	cmdline_add(&line, "relive-memnode");
	cmdline_set(&line, "--store", "a");
	cmdline_set_bytes(&line, "--size", 4096);
	assert_int_equal(line.error, 0);
	return line;
}

TEST(cmdline_set__replaces_and_nothing_given_changes_nothing)
{
	struct cmdline line = make();
	const char *argv[CMDLINE_MAX_ARGS + 1];

	cmdline_set(&line, "--store", "bcd");
	cmdline_set(&line, "--listen", NULL);
	cmdline_set_bytes(&line, "--size", 0);
	cmdline_set_ns(&line, "--node-lost", INT64_MAX);
	assert_int_equal(line.error, 0);
	cmdline_argv(&line, argv);
	assert_string_equal(argv[0], "relive-memnode");
	assert_string_equal(argv[1], "--size");
	assert_string_equal(argv[2], "4096");
	assert_string_equal(argv[3], "--store");
	assert_string_equal(argv[4], "bcd");
	assert_string_equal(argv[5], "--node-lost");
	assert_string_equal(argv[6], "0");
	assert_null(argv[7]);
}

TEST(cmdline_get__finds_both_spellings)
{
	struct cmdline line = make();

	cmdline_add(&line, "--file=/x y");
	assert_int_equal(line.error, 0);
	assert_string_equal(cmdline_get(&line, "--size"), "4096");
	assert_string_equal(cmdline_get(&line, "--file"), "/x y");
	assert_null(cmdline_get(&line, "--fil"));
	assert_null(cmdline_get(&line, "--dax"));
}

TEST(cmdline_merge__takes_every_option)
{
	struct cmdline line = make(), other = { 0 };

	cmdline_set(&other, "--size", "8192");
	cmdline_set(&other, "--pages", "huge");
	cmdline_merge(&line, &other);
	assert_int_equal(line.error, 0);
	assert_string_equal(cmdline_get(&line, "--size"), "8192");
	assert_string_equal(cmdline_get(&line, "--pages"), "huge");
	assert_string_equal(cmdline_get(&line, "--store"), "a");
}

TEST(cmdline_set_path__is_absolute)
{
	struct cmdline line = { 0 };

	cmdline_set_path(&line, "--file", "pool");
	assert_int_equal(cmdline_get(&line, "--file")[0], '/');
	cmdline_set_path(&line, "--file", "/a/pool");
	assert_int_equal(line.error, 0);
	assert_string_equal(cmdline_get(&line, "--file"), "/a/pool");
}

TEST(cmdline_add__too_much_gives_e2big)
{
	struct cmdline line = { 0 }, merged = { 0 };
	char text[CMDLINE_BYTES + 1];

	memset(text, 'x', sizeof(text));
	text[CMDLINE_BYTES] = 0;
	cmdline_add(&line, text);
	assert_int_equal(line.error, -E2BIG);
	line.error = 0;
	for (int i = 0; i < CMDLINE_MAX_ARGS; i++)
		cmdline_add(&line, "x");
	assert_int_equal(line.error, 0);
	cmdline_add(&line, "x");
	assert_int_equal(line.error, -E2BIG);
	cmdline_merge(&merged, &line);
	assert_int_equal(merged.error, -E2BIG);
}

TEST(cmdline_read__gives_what_was_written)
{
	struct cmdline line = make(), got;
	char dir[TEMP_DIR_BYTES], path[TEMP_DIR_BYTES + 16];

	temp_dir_make(dir);
	snprintf(path, sizeof(path), "%s/x", dir);
	assert_int_equal(cmdline_read(path, &got), -ENOENT);
	assert_int_equal(cmdline_write(path, &line), 0);
	assert_int_equal(cmdline_read(path, &got), 0);
	assert_true(cmdline_equals(&line, &got));
	assert_int_equal(truncate(path, (off_t)line.len - 1), 0);
	assert_int_equal(cmdline_read(path, &got), -EPROTO);
	assert_int_equal(truncate(path, 0), 0);
	assert_int_equal(cmdline_read(path, &got), -EPROTO);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(rmdir(dir), 0);
}

TEST(cmdline_of_process__is_this_test)
{
	struct cmdline line;

	assert_int_equal(cmdline_of_process(getpid(), &line), 0);
	assert_non_null(strstr(cmdline_next(&line, NULL), "test_cmdline"));
}

int main(void)
{
	return test_run(NULL, NULL);
}
