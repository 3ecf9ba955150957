/*
 * The catalog of a store, in a file and back: relive backup and relive restore.
 */
#include "tests/support/command.h"
#include "tests/support/items.h"
#include "tests/support/test.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define N 1000u

struct fixture {
	struct processes ps;
	struct command cmd;
	char pool[PROCESSES_PATH + 64], copy[PROCESSES_PATH + 64], catalog[PROCESSES_PATH + 64];
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	processes_init(&f->ps);
	f->cmd.ps = &f->ps;
	processes_path(&f->ps, "pool", f->pool);
	processes_path(&f->ps, "copy", f->copy);
	processes_path(&f->ps, "a/a.db", f->catalog);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	(void)command_run(&f->cmd, "down --timeout 1s --store a");
	processes_fini(&f->ps);
	free(f);
	return 0;
}

static void up(struct fixture *f)
{
	command_expect(&f->cmd, 0, "up --store a --size 64M --file %s", f->pool);
}

static void down(struct fixture *f)
{
	command_expect(&f->cmd, 0, "down --store a");
}

#define CASE(f) TEST_WITH(f, setup, teardown)

CASE(backup__a_catalog_that_is_lost_comes_back)
{
	struct fixture *f = *state;

	up(f);
	items_put("shm:a", "t", N);
	command_expect(&f->cmd, 0, "backup shm:a %s", f->copy);
	down(f);
	assert_int_equal(unlink(f->catalog), 0);
	command_expect(&f->cmd, 0, "restore a %s", f->copy);
	up(f);
	items_expect("shm:a", "t", N);
}

/* It travels in pieces, which are one whole at the end. */
CASE(backup__of_large_tables)
{
	struct fixture *f = *state;
	struct stat st;

	command_expect(&f->cmd, 0, "up --store a --size 1G");
	for (int i = 0; i < 16; i++) /* of 45 KiB in the catalog */
		command_expect(&f->cmd, 0,
			       "table create shm:a t%d --capacity 1024 --columns "
			       "$(seq -s , -f column_of_a_long_name_%%g:f32 200)",
			       i);
	command_expect(&f->cmd, 0, "backup shm:a %s", f->copy);
	assert_int_equal(stat(f->copy, &st), 0);
	assert_true(st.st_size > 512 << 10);
	command_expect(&f->cmd, 0, "restore b %s", f->copy); /* which checks all of it */
}

CASE(backup__that_fails_leaves_no_file)
{
	struct fixture *f = *state;
	struct stat st;

	up(f);
	command_expect(&f->cmd, 1, "backup shm:a %s/no/such/folder", f->ps.dir);
	command_expect_words(f->cmd.err, "ENOENT");
	command_expect(&f->cmd, 1, "backup shm:a %s/a", f->ps.dir); /* a folder */
	assert_int_equal(stat(f->copy, &st), -1);
	command_expect(&f->cmd, 1, "backup embed: %s", f->copy);
	command_expect_words(f->cmd.err, "ENOTSUP");
}

CASE(restore__is_refused_while_the_server_runs_and_over_a_catalog)
{
	struct fixture *f = *state;

	up(f);
	items_put("shm:a", "t", N);
	command_expect(&f->cmd, 0, "backup shm:a %s", f->copy);
	command_expect(&f->cmd, 1, "restore a %s --force", f->copy);
	command_expect_words(f->cmd.err, "has a metadata server");
	down(f);
	command_expect(&f->cmd, 1, "restore a %s", f->copy);
	command_expect_words(f->cmd.err, "--force");
	command_expect(&f->cmd, 0, "restore a %s --force", f->copy);
	up(f);
	items_expect("shm:a", "t", N);
}

static void flip(const char *path, off_t at)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	char byte;

	assert_true(fd >= 0);
	assert_int_equal(pread(fd, &byte, 1, at), 1);
	byte ^= 0x40;
	assert_int_equal(pwrite(fd, &byte, 1, at), 1);
	close(fd);
}

/* Whatever is damaged: the catalog that is there stays the store's. */
CASE(restore__of_a_damaged_copy_changes_nothing)
{
	static const off_t places[] = { 0 /* magic */,  17 /* page size */, 60 /* version */,
					68 /* whose */, 4096 + 3,           8192 };
	struct fixture *f = *state;

	up(f);
	items_put("shm:a", "t", N);
	command_expect(&f->cmd, 0, "backup shm:a %s", f->copy);
	down(f);
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		flip(f->copy, places[i]);
		command_expect(&f->cmd, 1, "restore a %s --force", f->copy);
		assert_true(strlen(f->cmd.err) > 0);
		flip(f->copy, places[i]);
	}
	assert_int_equal(truncate(f->copy, 8192), 0);
	command_expect(&f->cmd, 1, "restore a %s --force", f->copy);
	assert_int_equal(truncate(f->copy, 0), 0);
	command_expect(&f->cmd, 1, "restore a %s --force", f->copy);
	assert_int_equal(unlink(f->copy), 0);
	command_expect(&f->cmd, 1, "restore a %s --force", f->copy);
	up(f);
	items_expect("shm:a", "t", N);
}

int main(void)
{
	return test_run(NULL, NULL);
}
