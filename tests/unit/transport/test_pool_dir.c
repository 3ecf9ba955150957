/*
 * Pools in directories: names of their files, then directories that are reopened, in use, damaged, full.
 */
#include "tests/support/fixture/pool_fixture.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "transport/pool/region_name.h"
#include "transport/transport.h"
#include "wire/pool_layout.h"
#include "wire/region.h"

#define EXTENT POOL_EXTENT_BYTES

/* -------- names -------- */

TEST(name__goes_both_ways)
{
	static const struct {
		struct target_region info;
		const char *name;
	} cases[] = {
		{ { .id = 7, .kind = OBJECT_TABLE, .object = 3, .role = REGION_TREE },
		  "region-0007.table.3.0.tree" },
		{ { .id = 4095,
		    .kind = OBJECT_TABLE,
		    .object = 4095,
		    .part = 1023,
		    .role = REGION_ROWS },
		  "region-4095.table.4095.1023.rows" },
		{ { .id = 1, .kind = 9, .object = UINT32_MAX, .part = UINT32_MAX, .role = 17 },
		  "region-0001.9.4294967295.4294967295.17" },
	};
	char name[REGION_NAME_BYTES];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct target_region seen = { 0 };
		uint32_t page = 0;

		region_name_format(&cases[i].info, REGION_WHOLE, name);
		assert_string_equal(name, cases[i].name);
		assert_true(region_name_parse(name, &seen, &page));
		assert_int_equal(page, REGION_WHOLE);
		assert_memory_equal(&seen, &cases[i].info, sizeof(seen));
	}
}

TEST(name__that_is_none)
{
	static const char *const names[] = {
		"",
		"pool",
		"region-",
		"region-0007",
		"region-0007.table.3.0.tree.tmp",
		"region-0007.table.3.0.tree ",
		"region-0007.table.3.0.",
		"region-0007.table.3.0",
		"region-0007.table.3..tree",
		"region-7.table.3.0.tree",
		"region-00007.table.3.0.tree",
		"region-0000.table.3.0.tree",
		"region-4096.table.3.0.tree",
		"region-0007.1.3.0.tree", /* 1 is written as table */
		"region-0007.table.03.0.tree",
		"region-0007.table.-3.0.tree",
		"region-0007.table.+3.0.tree",
		"region-0007.table.4294967296.0.tree",
		"region-0007.table.99999999999999999999.0.tree",
		"region-0007.table.3.0.trees",
		"region-0007.chair.3.0.tree",
		"Region-0007.table.3.0.tree",
		" region-0007.table.3.0.tree",
	};
	struct target_region seen;
	uint32_t page;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (region_name_parse(names[i], &seen, &page))
			fail_msg("\"%s\" is taken for a region", names[i]);
	assert_true(region_name_is_tmp("region-0007.table.3.0.tree.tmp"));
	assert_false(region_name_is_tmp("region-0007.table.3.0.tree"));
	assert_true(region_name_is_tmp("region-0007.table.3.0.pages.page-1.tmp"));
	assert_false(region_name_is_tmp("region-0007.table.3.0.pages.page-1"));
	assert_false(region_name_is_tmp("thesis.tmp"));
	assert_false(region_name_is_tmp(".tmp"));
}

TEST(name__of_a_page)
{
	static const char *const names[] = {
		"region-0007.table.3.0.pages.page-",
		"region-0007.table.3.0.pages.page-4294967295",
		"region-0007.table.3.0.pages.page-01",
		"region-0007.table.3.0.pages.page-1.tmp",
		"region-0007.table.3.0.tree.page-1",
		"region-0007.table.3.0.pages.page-4294967296",
		"region-0007.table.3.0.pages.page--1",
		"region-0007.table.3.0.pages.page-1.page-1",
		"region-0000.table.3.0.pages.page-1",
		".page-1",
		"region-0007.table.3.0.pages.page-1 ",
		"page-1",
	};
	struct target_region info = {
		.id = 7, .kind = OBJECT_TABLE, .object = 3, .part = 2, .role = REGION_PAGES
	};
	struct target_region seen = { 0 };
	char name[REGION_NAME_BYTES];
	uint32_t page = 0;

	region_name_format(&info, 511, name);
	assert_string_equal(name, "region-0007.table.3.2.pages.page-511");
	assert_true(region_name_parse(name, &seen, &page));
	assert_memory_equal(&seen, &info, sizeof(seen));
	assert_int_equal(page, 511);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (region_name_parse(names[i], &seen, &page))
			fail_msg("\"%s\" is taken for a page", names[i]);
}

/* -------- directories -------- */

static int try_open(struct pool_fixture *dir, uint64_t bytes, bool create)
{
	struct target_opts opts = {
		.path = dir->path, .dir = true, .pool_bytes = bytes, .create = create
	};

	return transport_target_open("shm", &opts, &dir->tg);
}

static void must_open(struct pool_fixture *dir, uint64_t bytes)
{
	transport_target_close(&dir->tg);
	if (try_open(dir, bytes, true))
		fail_msg("%s", error_last());
}

static struct target_stats stats_of(struct pool_fixture *dir)
{
	struct target_stats stats;

	dir->tg->ops->stats(dir->tg, &stats);
	return stats;
}

static const char *path_of(const struct pool_fixture *dir, const struct target_region *region)
{
	static char path[200];
	char name[REGION_NAME_BYTES];

	region_name_format(region, REGION_WHOLE, name);
	(void)snprintf(path, sizeof(path), "%s/%s", dir->path, name);
	return path;
}

static const char *in_dir(const struct pool_fixture *dir, const char *name)
{
	static char path[200];

	(void)snprintf(path, sizeof(path), "%s/%s", dir->path, name);
	return path;
}

static void make_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

static bool is_there(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0;
}

POOL_TEST(dir__keeps_its_regions)
{
	struct pool_fixture *dir = *state;
	struct target_region first, second, seen[8];
	struct stat st;

	must_open(dir, 16 * EXTENT);
	assert_int_equal(stat(dir->path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0700);
	first = pool_fixture_add(dir, 1, EXTENT);
	second = pool_fixture_add(dir, 2, 3 * EXTENT);
	memset(first.base, 0xa1, EXTENT);
	memset(second.base, 0xb2, 3 * EXTENT);
	assert_int_equal(stat(path_of(dir, &second), &st), 0);
	assert_int_equal(st.st_size, 3 * EXTENT);
	assert_true((uint64_t)st.st_blocks * 512 >= 3 * EXTENT); /* no hole */
	must_open(dir, 0);
	assert_int_equal(pool_fixture_list(dir, seen), 2);
	assert_int_equal(seen[1].id, second.id);
	assert_int_equal(seen[1].kind, OBJECT_TABLE);
	assert_int_equal(seen[1].role, REGION_ROWS);
	assert_int_equal(seen[1].object, 2);
	assert_int_equal(seen[1].part, 3);
	assert_int_equal(seen[1].size, 3 * EXTENT);
	assert_true(seen[1].sole);
	assert_false(seen[1].broken);
	assert_int_equal(seen[0].base[EXTENT - 1], 0xa1);
	assert_int_equal(seen[1].base[0], 0xb2);
	assert_int_not_equal(pool_fixture_add(dir, 3, 8).id, second.id);
	assert_true(stats_of(dir).sole_opener);
}

POOL_TEST(dir__says_whose_it_is)
{
	const uint8_t store[16] = { 1, 2 };
	struct pool_fixture *dir = *state;
	struct pool_identity made, seen;

	must_open(dir, 4 * EXTENT);
	assert_int_equal(dir->tg->ops->identity(dir->tg, &made), 0);
	assert_int_equal(dir->tg->ops->own(dir->tg, store, "alpha"), 0);
	must_open(dir, 0);
	assert_int_equal(dir->tg->ops->identity(dir->tg, &seen), 0);
	assert_memory_equal(seen.store_uuid, store, 16);
	assert_string_equal(seen.store_name, "alpha");
	assert_memory_equal(seen.pool_uuid, made.pool_uuid, 16);
}

POOL_TEST(dir__is_not_made_unless_told)
{
	struct pool_fixture *dir = *state;

	assert_int_equal(try_open(dir, 4 * EXTENT, false), -ENOENT);
	assert_false(is_there(dir->path));
}

/* Each refused for another reason; none leaves a file or directory that was not there. */
POOL_TEST(open__that_is_refused_leaves_nothing)
{
	struct pool_fixture *dir = *state;

	assert_int_equal(try_open(dir, 0, true), -EINVAL); /* how large? */
	assert_false(is_there(dir->path));
	assert_int_equal(try_open(dir, UINT64_MAX, true), -EINVAL);
	assert_false(is_there(dir->path));
	assert_int_equal(try_open(dir, (uint64_t)1 << 50, true), -ENOSPC);
	assert_non_null(strstr(error_last(), "1125899906842624"));
	assert_false(is_there(dir->path));
	assert_int_equal(mkdir(dir->path, 0700), 0);
	assert_int_equal(try_open(dir, (uint64_t)1 << 50, true), -ENOSPC);
	assert_int_equal(rmdir(dir->path), 0); /* still empty */
	make_file(dir->path, "a file");
	assert_int_equal(try_open(dir, 4 * EXTENT, true), -ENOTDIR);
	assert_non_null(strstr(error_last(), dir->path));
}

POOL_TEST(dir__of_other_things_is_left_alone)
{
	struct pool_fixture *dir = *state;

	assert_int_equal(mkdir(dir->path, 0700), 0);
	make_file(in_dir(dir, "thesis"), "the only copy");
	assert_int_equal(try_open(dir, 4 * EXTENT, true), -EPROTO);
	assert_non_null(strstr(error_last(), "thesis"));
	assert_false(is_there(in_dir(dir, "pool")));
	assert_int_equal(unlink(in_dir(dir, "thesis")), 0);
	must_open(dir, 4 * EXTENT);
	make_file(in_dir(dir, "thesis.tmp"), "came later");
	make_file(in_dir(dir, "region-7"), "no region");
	must_open(dir, 0);
	assert_true(is_there(in_dir(dir, "thesis.tmp")));
	assert_true(is_there(in_dir(dir, "region-7")));
}

POOL_TEST(dir__has_a_budget)
{
	struct target_region spec = { .kind = 1, .size = 3 * EXTENT };
	struct pool_fixture *dir = *state;

	must_open(dir, 4 * EXTENT - 5);
	assert_int_equal(stats_of(dir).pool_bytes, 4 * EXTENT);
	pool_fixture_add(dir, 1, 2 * EXTENT);
	assert_int_equal(stats_of(dir).used_bytes, 2 * EXTENT);
	assert_int_equal(dir->tg->ops->register_region(dir->tg, &spec), -ENOSPC);
	must_open(dir, 0);
	assert_int_equal(stats_of(dir).pool_bytes, 4 * EXTENT);
	must_open(dir, 8 * EXTENT);
	assert_int_equal(dir->tg->ops->register_region(dir->tg, &spec), 0);
	must_open(dir, 2 * EXTENT); /* less than it holds */
	assert_int_equal(stats_of(dir).pool_bytes, 5 * EXTENT);
	assert_int_equal(stats_of(dir).used_bytes, 5 * EXTENT);
	assert_int_equal(dir->tg->ops->register_region(dir->tg, &spec), -ENOSPC);
}

POOL_TEST(dir__with_a_file_too_large_for_the_limit)
{
	struct target_region spec = { .kind = 1, .size = 3 * EXTENT }, seen[8];
	struct pool_fixture *dir = *state;
	struct rlimit before, limit;

	must_open(dir, 16 * EXTENT);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
	limit = before;
	limit.rlim_cur = 2 * EXTENT;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	assert_int_equal(dir->tg->ops->register_region(dir->tg, &spec), -ENOSPC);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
	assert_non_null(strstr(error_last(), "6291456"));
	assert_int_equal(pool_fixture_list(dir, seen), 0);
	assert_int_equal(stats_of(dir).used_bytes, 0);
	assert_int_equal(dir->tg->ops->register_region(dir->tg, &spec), 0);
}

/* -------- killed, damaged -------- */

POOL_TEST(leftovers__of_a_region_that_was_being_made)
{
	struct target_region seen[8];
	struct pool_fixture *dir = *state;

	must_open(dir, 8 * EXTENT);
	pool_fixture_add(dir, 1, EXTENT);
	transport_target_close(&dir->tg);
	make_file(in_dir(dir, "region-0002.table.1.0.rows.tmp"), "half");
	must_open(dir, 0);
	assert_false(is_there(in_dir(dir, "region-0002.table.1.0.rows.tmp")));
	assert_int_equal(pool_fixture_list(dir, seen), 1);
}

/* Killed before the head was written: there was nothing yet, so it is made. */
POOL_TEST(head__that_is_blank)
{
	struct pool_fixture *dir = *state;

	assert_int_equal(mkdir(dir->path, 0700), 0);
	make_file(in_dir(dir, "pool"), "");
	must_open(dir, 4 * EXTENT);
	pool_fixture_add(dir, 1, EXTENT);
	transport_target_close(&dir->tg);
	assert_int_equal(truncate(in_dir(dir, "pool"), 0), 0);
	assert_int_equal(try_open(dir, 4 * EXTENT, true), -EBADMSG);
	assert_int_equal(unlink(in_dir(dir, "pool")), 0);
	assert_int_equal(try_open(dir, 4 * EXTENT, true), -EBADMSG);
	assert_non_null(strstr(error_last(), dir->path));
	assert_false(is_there(in_dir(dir, "pool")));
}

static void flip(const struct pool_fixture *dir, off_t off)
{
	int fd = open(in_dir(dir, "pool"), O_RDWR | O_CLOEXEC);
	uint8_t byte = 0;

	assert_int_equal(pread(fd, &byte, 1, off), 1);
	byte ^= 4;
	assert_int_equal(pwrite(fd, &byte, 1, off), 1);
	close(fd);
}

POOL_TEST(head__with_a_damaged_copy)
{
	struct target_region seen[8];
	struct pool_fixture *dir = *state;

	must_open(dir, 4 * EXTENT);
	pool_fixture_add(dir, 1, EXTENT);
	transport_target_close(&dir->tg);
	for (off_t at = 0; at < 256; at += 5) {
		flip(dir, at);
		must_open(dir, 0);
		transport_target_close(&dir->tg);
		flip(dir, at + POOL_DIRECTORY_OFF1); /* the first was mended */
		must_open(dir, 0);
		assert_int_equal(pool_fixture_list(dir, seen), 1);
		transport_target_close(&dir->tg);
	}
	flip(dir, 60);
	flip(dir, 60 + POOL_DIRECTORY_OFF1);
	assert_int_equal(try_open(dir, 0, true), -EBADMSG);
}

POOL_TEST(head__of_a_pool_in_one_file)
{
	struct pool_fixture *dir = *state;
	struct target_opts opts = { .pool_bytes = 4 * EXTENT, .create = true };
	struct transport_target *file = NULL;
	char path[200];

	must_open(dir, 4 * EXTENT);
	transport_target_close(&dir->tg);
	(void)snprintf(path, sizeof(path), "%s", in_dir(dir, "pool"));
	opts.path = path;
	assert_int_equal(transport_target_open("shm", &opts, &file), -EPROTO);
	opts.path = dir->path;
	assert_int_equal(transport_target_open("shm", &opts, &file), -EISDIR);
	assert_non_null(strstr(error_last(), dir->path));
	assert_int_equal(unlink(path), 0);
	opts.path = path;
	assert_int_equal(transport_target_open("shm", &opts, &file), 0);
	transport_target_close(&file);
	assert_int_equal(try_open(dir, 0, true), -EPROTO);
}

POOL_TEST(region__that_is_there_twice)
{
	struct target_region spec;
	struct pool_fixture *dir = *state;
	char path[200];

	must_open(dir, 8 * EXTENT);
	spec = pool_fixture_add(dir, 1, EXTENT);
	transport_target_close(&dir->tg);
	(void)snprintf(path, sizeof(path), "%s", path_of(dir, &spec));
	spec.part++;
	assert_int_equal(link(path, path_of(dir, &spec)), 0);
	assert_int_equal(try_open(dir, 0, true), -EBADMSG);
	assert_non_null(strstr(error_last(), "region 1"));
	assert_int_equal(unlink(path_of(dir, &spec)), 0);
	must_open(dir, 0);
}

/* Cut short while nobody had it, to any size: that region cannot be attached, the other one can. */
POOL_TEST(region__that_was_cut_is_broken)
{
	static const off_t sizes[] = { 0, 1, 4096, (off_t)EXTENT + 4096 };
	struct target_region first, second, seen[8];
	struct pool_fixture *dir = *state;
	struct region_grant grant;

	must_open(dir, 8 * EXTENT);
	first = pool_fixture_add(dir, 1, EXTENT);
	second = pool_fixture_add(dir, 2, 2 * EXTENT);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct transport_opts opts = { .client_id = 5 };
		struct region *region = NULL;
		struct transport *tr = NULL;

		transport_target_close(&dir->tg);
		assert_int_equal(truncate(path_of(dir, &second), sizes[i]), 0);
		must_open(dir, 0);
		assert_int_equal(pool_fixture_list(dir, seen), 2);
		assert_false(seen[0].broken);
		assert_true(seen[1].broken);
		assert_int_equal(stats_of(dir).broken, 1);
		opts.target = dir->tg;
		assert_int_equal(transport_open("embed:", &opts, &tr), 0);
		assert_int_equal(transport_grant(dir->tg, 5, second.id, RIGHT_ALL, &grant), 0);
		assert_int_equal(transport_attach(tr, &grant, &region), -EBADMSG);
		assert_int_equal(transport_grant(dir->tg, 5, first.id, RIGHT_ALL, &grant), 0);
		assert_int_equal(transport_attach(tr, &grant, &region), 0);
		transport_close(&tr);
		assert_int_equal(dir->tg->ops->persist(dir->tg, second.id, 0, 0), -EBADMSG);
		assert_int_equal(dir->tg->ops->persist(dir->tg, first.id, 0, 0), 0);
	}
	assert_int_equal(dir->tg->ops->unregister_region(dir->tg, second.id), 0);
	assert_false(is_there(path_of(dir, &second)));
	assert_int_equal(stats_of(dir).broken, 0);
	assert_int_equal(stats_of(dir).used_bytes, EXTENT);
}

POOL_TEST(region__that_is_cut_while_it_is_open)
{
	struct target_region spec, seen[8];
	struct pool_fixture *dir = *state;

	must_open(dir, 8 * EXTENT);
	pool_fixture_add(dir, 1, EXTENT);
	spec = pool_fixture_add(dir, 2, EXTENT);
	assert_int_equal(stats_of(dir).broken, 0);
	assert_int_equal(truncate(path_of(dir, &spec), 4096), 0);
	assert_int_equal(stats_of(dir).broken, 1);
	assert_int_equal(pool_fixture_list(dir, seen), 2);
	assert_false(seen[0].broken);
	assert_true(seen[1].broken);
}

/* -------- locks -------- */

POOL_TEST(open__of_a_directory_in_use)
{
	struct pool_fixture *dir = *state;
	struct pool_fixture second = *dir;

	must_open(dir, 4 * EXTENT);
	assert_int_equal(try_open(&second, 0, true), -EBUSY);
	assert_non_null(strstr(error_last(), "in use by another process"));
	assert_true(is_there(in_dir(dir, "pool")));
	transport_target_close(&dir->tg);
	assert_int_equal(try_open(&second, 0, false), 0);
	assert_int_equal(try_open(dir, 0, true), -EBUSY);
	transport_target_close(&second.tg);
}

POOL_TEST(open__of_a_directory_that_another_process_has)
{
	struct pool_fixture *dir = *state;
	int pipes[2], status;
	char byte;
	pid_t pid;

	assert_int_equal(pipe(pipes), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		if (try_open(dir, 4 * EXTENT, true) || write(pipes[1], "x", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	assert_int_equal(read(pipes[0], &byte, 1), 1);
	assert_int_equal(try_open(dir, 0, true), -EBUSY);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	must_open(dir, 0); /* the kernel gave its lock back */
	close(pipes[0]);
	close(pipes[1]);
}

/* A client that outlived the node: the region that it has is not sole, the other one is. */
POOL_TEST(sole__is_said_of_each_region)
{
	struct target_region first, seen[8];
	struct pool_fixture *dir = *state;
	int mapper;

	must_open(dir, 8 * EXTENT);
	first = pool_fixture_add(dir, 1, EXTENT);
	pool_fixture_add(dir, 2, EXTENT);
	transport_target_close(&dir->tg);
	mapper = open(path_of(dir, &first), O_RDWR | O_CLOEXEC);
	assert_int_equal(flock(mapper, LOCK_SH), 0);
	must_open(dir, 0);
	assert_int_equal(pool_fixture_list(dir, seen), 2);
	assert_false(seen[0].sole);
	assert_true(seen[1].sole);
	assert_false(stats_of(dir).sole_opener);
	close(mapper);
	must_open(dir, 0);
	assert_int_equal(pool_fixture_list(dir, seen), 2);
	assert_true(seen[0].sole);
}

/* Its name is gone at once; its bytes are used until the last one who has it is gone. */
POOL_TEST(drop__counts_what_somebody_still_maps)
{
	struct target_region first, second;
	struct pool_fixture *dir = *state;
	int mapper;

	must_open(dir, 4 * EXTENT);
	first = pool_fixture_add(dir, 1, 2 * EXTENT);
	mapper = open(path_of(dir, &first), O_RDWR | O_CLOEXEC);
	assert_int_equal(flock(mapper, LOCK_SH), 0);
	assert_int_equal(dir->tg->ops->unregister_region(dir->tg, first.id), 0);
	assert_false(is_there(path_of(dir, &first)));
	assert_int_equal(stats_of(dir).used_bytes, 2 * EXTENT);
	assert_int_equal(stats_of(dir).regions, 0);
	second = (struct target_region){ .kind = 1, .size = 4 * EXTENT };
	assert_int_equal(dir->tg->ops->register_region(dir->tg, &second), -ENOSPC);
	close(mapper);
	assert_int_equal(stats_of(dir).used_bytes, 0);
	assert_int_equal(dir->tg->ops->register_region(dir->tg, &second), 0);
}

int main(void)
{
	return test_run(NULL, NULL);
}
