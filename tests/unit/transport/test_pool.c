/*
 * Pools in files: that are reopened, damaged, full, in use; and pools in memory.
 */
#include "tests/support/fixture/pool_fixture.h"
#include "tests/support/test.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "transport/transport.h"
#include "wire/pool_layout.h"

#define EXTENT POOL_EXTENT_BYTES

/* -------- files -------- */

static int try_open(struct pool_fixture *file, uint64_t bytes, bool create, bool exclusive)
{
	struct target_opts opts = {
		.path = file->path, .pool_bytes = bytes, .create = create, .exclusive = exclusive
	};

	return transport_target_open("shm", &opts, &file->tg);
}

static void must_open(struct pool_fixture *file, uint64_t bytes)
{
	if (try_open(file, bytes, true, true))
		fail_msg("%s", error_last());
}

POOL_TEST(file__keeps_its_regions)
{
	struct pool_fixture *file = *state;
	struct target_region first, second, seen[8];

	must_open(file, 16 * EXTENT);
	first = pool_fixture_add(file, 1, EXTENT);
	second = pool_fixture_add(file, 2, 3 * EXTENT);
	memset(first.base, 0xa1, EXTENT);
	memset(second.base, 0xb2, 3 * EXTENT);
	transport_target_close(&file->tg);
	must_open(file, 0);
	assert_int_equal(pool_fixture_list(file, seen), 2);
	assert_int_equal(seen[1].id, second.id);
	assert_int_equal(seen[1].role, 2);
	assert_int_equal(seen[1].object, 2);
	assert_int_equal(seen[1].part, 3);
	assert_int_equal(seen[1].size, 3 * EXTENT);
	assert_int_equal(seen[0].base[EXTENT - 1], 0xa1);
	assert_int_equal(seen[1].base[0], 0xb2);
	assert_int_not_equal(pool_fixture_add(file, 3, 8).id, second.id);
}

POOL_TEST(file__is_not_made_unless_told)
{
	struct pool_fixture *file = *state;

	assert_int_equal(try_open(file, 4 * EXTENT, false, true), -ENOENT);
	assert_int_equal(access(file->path, F_OK), -1);
	assert_int_equal(try_open(file, 0, true, true), -EINVAL); /* how large? */
}

POOL_TEST(file__grows_and_moves_nothing)
{
	struct pool_fixture *file = *state;
	struct target_region spec, seen[8];
	struct target_stats stats;

	must_open(file, 2 * EXTENT);
	spec = pool_fixture_add(file, 1, 2 * EXTENT);
	memset(spec.base, 7, 2 * EXTENT);
	transport_target_close(&file->tg);
	must_open(file, 6 * EXTENT);
	file->tg->ops->stats(file->tg, &stats);
	assert_int_equal(stats.pool_bytes, 6 * EXTENT);
	assert_int_equal(stats.used_bytes, 2 * EXTENT);
	assert_int_equal(pool_fixture_list(file, seen), 1);
	assert_int_equal(seen[0].base[2 * EXTENT - 1], 7);
	pool_fixture_add(file, 2, 4 * EXTENT);
	transport_target_close(&file->tg);
	must_open(file, EXTENT); /* never shrinks */
	assert_int_equal(pool_fixture_list(file, seen), 2);
}

POOL_TEST(file__reuses_extents_as_zeros)
{
	struct pool_fixture *file = *state;
	struct target_region spec;

	must_open(file, 2 * EXTENT);
	for (int i = 0; i < 3; i++) {
		spec = pool_fixture_add(file, 1, 2 * EXTENT);
		assert_int_equal(spec.base[EXTENT], 0);
		spec.base[EXTENT] = 1;
		assert_int_equal(file->tg->ops->unregister_region(file->tg, spec.id), 0);
	}
}

static void write_at(struct pool_fixture *file, off_t off, const void *bytes, size_t n)
{
	int fd = open(file->path, O_WRONLY | O_CLOEXEC);

	assert_int_equal(pwrite(fd, bytes, n, off), n);
	close(fd);
}

/* Whichever copy is torn, the other one has all that was used, and mends it. */
POOL_TEST(file__with_one_copy_torn)
{
	static const off_t copies[2] = { POOL_TABLE_OFF0, POOL_TABLE_OFF1 };
	struct pool_fixture *file = *state;
	struct target_region seen[8];
	char torn[4096];

	memset(torn, 0x5a, sizeof(torn));
	for (int copy = 0; copy < 2; copy++) {
		must_open(file, 8 * EXTENT);
		pool_fixture_add(file, 1, EXTENT);
		pool_fixture_add(file, 2, EXTENT);
		for (int i = 0; i < 2; i++) {
			transport_target_close(&file->tg);
			write_at(file, copies[copy ^ i] + 70, torn, 8); /* in its first entry */
			must_open(file, 0);
			assert_int_equal(pool_fixture_list(file, seen), 2);
			assert_int_equal(seen[0].object, 1);
		}
		transport_target_close(&file->tg);
		assert_int_equal(unlink(file->path), 0);
	}
}

static void read_at(struct pool_fixture *file, off_t off, void *bytes, size_t n)
{
	int fd = open(file->path, O_RDONLY | O_CLOEXEC);

	assert_int_equal(pread(fd, bytes, n, off), n);
	close(fd);
}

/* A crash between the writes of the copies: the newer one holds, and the older one follows it. */
POOL_TEST(file__with_one_copy_a_commit_behind)
{
	static struct extent_table older, newer;
	struct pool_fixture *file = *state;
	struct target_region seen[8];

	must_open(file, 8 * EXTENT);
	pool_fixture_add(file, 1, EXTENT);
	transport_target_close(&file->tg);
	read_at(file, POOL_TABLE_OFF1, &older, sizeof(older));
	must_open(file, 0);
	pool_fixture_add(file, 2, EXTENT);
	transport_target_close(&file->tg);
	write_at(file, POOL_TABLE_OFF1, &older, sizeof(older));
	must_open(file, 0);
	assert_int_equal(pool_fixture_list(file, seen), 2);
	transport_target_close(&file->tg);
	read_at(file, POOL_TABLE_OFF0, &newer, sizeof(newer));
	read_at(file, POOL_TABLE_OFF1, &older, sizeof(older));
	assert_memory_equal(&older, &newer, sizeof(newer));
}

POOL_TEST(file__with_both_copies_torn)
{
	struct pool_fixture *file = *state;
	uint64_t bad = 1;

	must_open(file, 8 * EXTENT);
	pool_fixture_add(file, 1, EXTENT);
	transport_target_close(&file->tg);
	write_at(file, POOL_TABLE_OFF0, &bad, sizeof(bad));
	write_at(file, POOL_TABLE_OFF1, &bad, sizeof(bad));
	assert_int_equal(try_open(file, 0, true, true), -EBADMSG);
	assert_non_null(strstr(error_last(), file->path));
}

/* -------- two copies of the superblock -------- */

#define SUPER_OFF1 \
	274432 /* wire/pool_layout.h; as bytes, since what is below is seen from outside */

static void flip(const struct pool_fixture *file, off_t off)
{
	int fd = open(file->path, O_RDWR | O_CLOEXEC);
	uint8_t byte = 0;

	assert_int_equal(pread(fd, &byte, 1, off), 1);
	byte ^= 4;
	assert_int_equal(pwrite(fd, &byte, 1, off), 1);
	close(fd);
}

static void read_super(const struct pool_fixture *file, int copy, uint8_t bytes[256])
{
	int fd = open(file->path, O_RDONLY | O_CLOEXEC);

	assert_int_equal(pread(fd, bytes, 256, copy ? SUPER_OFF1 : 0), 256);
	close(fd);
}

/* One flipped bit anywhere in one of them: the pool opens, has its regions, and both are whole. */
POOL_TEST(superblock__one_copy_damaged_is_mended)
{
	struct pool_fixture *file = *state;
	uint8_t before[256], after[256];
	struct target_region seen[8];

	must_open(file, 4 * EXTENT);
	pool_fixture_add(file, 1, EXTENT);
	transport_target_close(&file->tg);
	read_super(file, 0, before);
	for (off_t at = 0; at < 256; at += 3) {
		for (int copy = 0; copy < 2; copy++) {
			flip(file, at + (copy ? SUPER_OFF1 : 0));
			must_open(file, 0);
			assert_int_equal(pool_fixture_list(file, seen), 1);
			transport_target_close(&file->tg);
			for (int i = 0; i < 2; i++) {
				read_super(file, i, after);
				assert_memory_equal(before, after, sizeof(before));
			}
		}
	}
}

POOL_TEST(superblock__both_copies_damaged_is_left_alone)
{
	struct pool_fixture *file = *state;
	uint8_t before[2][256], after[256];

	must_open(file, 4 * EXTENT);
	transport_target_close(&file->tg);
	flip(file, 60);
	flip(file, SUPER_OFF1 + 44);
	read_super(file, 0, before[0]);
	read_super(file, 1, before[1]);
	assert_int_equal(try_open(file, 0, true, true), -EBADMSG);
	assert_non_null(strstr(error_last(), file->path));
	for (int i = 0; i < 2; i++) {
		read_super(file, i, after);
		assert_memory_equal(before[i], after, sizeof(after));
	}
}

/* The magic of one is gone, too: it is a damaged pool, and no foreign file. */
POOL_TEST(superblock__one_copy_damaged_and_one_gone)
{
	struct pool_fixture *file = *state;
	static const uint8_t zeros[4096];

	must_open(file, 4 * EXTENT);
	transport_target_close(&file->tg);
	flip(file, SUPER_OFF1 + 44);
	write_at(file, 0, zeros, sizeof(zeros));
	assert_int_equal(try_open(file, 0, true, true), -EBADMSG);
}

POOL_TEST(file__that_is_no_pool_is_left_alone)
{
	struct pool_fixture *file = *state;
	const char text[] = "the only copy of my thesis";
	char seen[64] = "";
	struct stat st;
	int fd = open(file->path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);

	assert_int_equal(write(fd, text, sizeof(text)), sizeof(text));
	close(fd);
	assert_int_equal(try_open(file, 8 * EXTENT, true, true), -EPROTO);
	fd = open(file->path, O_RDONLY | O_CLOEXEC);
	assert_int_equal(read(fd, seen, sizeof(seen)), sizeof(text));
	assert_string_equal(seen, text);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_size, sizeof(text));
	close(fd);
}

POOL_TEST(file__that_was_cut)
{
	struct pool_fixture *file = *state;

	must_open(file, 8 * EXTENT);
	transport_target_close(&file->tg);
	assert_int_equal(truncate(file->path, 3 * (off_t)EXTENT), 0);
	assert_int_equal(try_open(file, 0, true, true), -EPROTO);
	assert_non_null(strstr(error_last(), "9 extents"));
	assert_int_equal(truncate(file->path, 100), 0);
	assert_int_equal(try_open(file, 0, true, true), -EPROTO);
}

/* Made, but killed before the superblock was written. */
POOL_TEST(file__that_was_only_begun)
{
	struct pool_fixture *file = *state;
	int fd = open(file->path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);

	assert_int_equal(ftruncate(fd, 4 * (off_t)EXTENT), 0);
	close(fd);
	must_open(file, 0);
	pool_fixture_add(file, 1, 3 * EXTENT);
}

POOL_TEST(file__that_is_a_folder)
{
	struct pool_fixture *file = *state;

	assert_int_equal(mkdir(file->path, 0700), 0);
	assert_int_equal(try_open(file, 0, true, true), -EISDIR);
	assert_non_null(strstr(error_last(), file->path));
	assert_int_equal(rmdir(file->path), 0);
}

POOL_TEST(file__of_more_than_the_disk_has)
{
	struct pool_fixture *file = *state;

	assert_int_equal(try_open(file, (uint64_t)1 << 50, true, true), -ENOSPC);
	assert_non_null(strstr(error_last(), "1125899908939776")); /* needed */
	assert_int_equal(access(file->path, F_OK), -1);
	assert_int_equal(try_open(file, UINT64_MAX, true, true), -EINVAL);
	assert_int_equal(access(file->path, F_OK), -1);
}

/* A refusal takes away what it made, and nothing else. */
POOL_TEST(open__that_is_refused_leaves_the_file_as_it_was)
{
	struct pool_fixture *file = *state;
	struct stat st;

	assert_int_equal(try_open(file, 0, true, true), -EINVAL); /* how large? */
	assert_int_equal(access(file->path, F_OK), -1);
	close(open(file->path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
	assert_int_equal(try_open(file, (uint64_t)1 << 50, true, true), -ENOSPC);
	assert_int_equal(stat(file->path, &st), 0);
	assert_int_equal(st.st_size, 0);
}

POOL_TEST(open__of_a_device_that_is_none_of_dax)
{
	struct pool_fixture *file = *state;
	struct target_opts opts = { .path = "/dev/null", .pool_bytes = 4 * EXTENT, .create = true };

	assert_int_equal(transport_target_open("shm", &opts, &file->tg), -ENODEV);
	assert_non_null(strstr(error_last(), "/dev/null"));
}

/* -------- locks -------- */

POOL_TEST(open__of_a_file_in_use)
{
	struct pool_fixture *file = *state;
	struct pool_fixture second = *file;

	must_open(file, 4 * EXTENT);
	assert_int_equal(try_open(&second, 0, false, true), -EBUSY);
	assert_non_null(strstr(error_last(), "in use by another process"));
	assert_int_equal(try_open(&second, 0, false, false), -EBUSY);
	transport_target_close(&file->tg);
	assert_int_equal(try_open(&second, 0, false, false), 0);
	assert_int_equal(try_open(file, 0, false, false), -EBUSY); /* one node at a time */
	transport_target_close(&second.tg);
}

POOL_TEST(open__of_a_file_that_another_process_has)
{
	struct pool_fixture *file = *state;
	int pipes[2], status;
	char byte;
	pid_t pid;

	assert_int_equal(pipe(pipes), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		if (try_open(file, 4 * EXTENT, true, true) || write(pipes[1], "x", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	assert_int_equal(read(pipes[0], &byte, 1), 1);
	assert_int_equal(try_open(file, 0, false, true), -EBUSY);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	must_open(file, 0); /* the kernel gave its lock back */
	close(pipes[0]);
	close(pipes[1]);
}

/* A child that was forked while it was open does not keep it locked. */
POOL_TEST(close__gives_the_lock_back_though_a_child_lives)
{
	struct pool_fixture *file = *state;
	int pipes[2], status;
	pid_t pid;

	must_open(file, 4 * EXTENT);
	assert_int_equal(pipe(pipes), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		char byte;

		close(pipes[1]);
		_exit(read(pipes[0], &byte, 1) != 0);
	}
	close(pipes[0]);
	transport_target_close(&file->tg);
	must_open(file, 0);
	close(pipes[1]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
}

/* A client that still maps the file: extents given back are not used again before it is gone. */
POOL_TEST(quarantine__lasts_while_somebody_maps_the_file)
{
	struct pool_fixture *file = *state;
	struct target_region spec = { .kind = 1, .size = 2 * EXTENT };
	struct target_stats stats;
	int mapper;

	must_open(file, 4 * EXTENT);
	transport_target_close(&file->tg);
	mapper = open(file->path, O_RDWR | O_CLOEXEC);
	assert_int_equal(flock(mapper, LOCK_SH), 0);
	assert_int_equal(try_open(file, 0, false, true), -EBUSY);
	assert_int_equal(try_open(file, 0, false, false), 0);
	file->tg->ops->stats(file->tg, &stats);
	assert_false(stats.sole_opener);
	assert_int_equal(file->tg->ops->register_region(file->tg, &spec), 0);
	assert_int_equal(file->tg->ops->unregister_region(file->tg, spec.id), 0);
	spec.size = 4 * EXTENT;
	assert_int_equal(file->tg->ops->register_region(file->tg, &spec), -ENOSPC);
	transport_target_close(&file->tg);
	assert_int_equal(try_open(file, 0, false, false), 0); /* and it survives a restart */
	assert_int_equal(file->tg->ops->register_region(file->tg, &spec), -ENOSPC);
	close(mapper);
	assert_int_equal(file->tg->ops->register_region(file->tg, &spec), 0);
}

/* -------- memory -------- */

TEST(memory__more_than_there_is)
{
	struct target_opts opts = { .pool_bytes = (uint64_t)1 << 50 };
	struct transport_target *tg = NULL;

	assert_int_equal(transport_target_open("shm", &opts, &tg), -ENOMEM);
	assert_non_null(strstr(error_last(), "1125899906842624"));
	opts.private_memory = true;
	assert_int_equal(transport_target_open("shm", &opts, &tg), -ENOMEM);
	assert_null(tg);
}

TEST(memory__more_than_a_file_may_have)
{
	struct target_opts opts = { .pool_bytes = 8 * EXTENT };
	struct transport_target *tg = NULL;
	struct rlimit before, limit;

	assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
	limit = before;
	limit.rlim_cur = EXTENT;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	assert_int_equal(transport_target_open("shm", &opts, &tg), -ENOMEM);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
}

TEST(memory__of_impossible_opts)
{
	struct target_opts opts = { .pool_bytes = UINT64_MAX };
	struct transport_target *tg = NULL;

	assert_int_equal(transport_target_open("shm", &opts, &tg), -EINVAL);
	opts.pool_bytes = EXTENT;
	opts.page_kind = 9;
	assert_int_equal(transport_target_open("shm", &opts, &tg), -EINVAL);
}

TEST(memory__says_what_pages_it_got)
{
	for (uint32_t kind = 0; kind <= 2; kind++) {
		struct target_opts opts = { .pool_bytes = 4 * EXTENT, .page_kind = kind };
		struct target_region spec = { .kind = 1, .size = EXTENT };
		struct transport_target *tg = NULL;
		struct target_stats stats;

		assert_int_equal(transport_target_open("shm", &opts, &tg), 0);
		assert_int_equal(tg->ops->register_region(tg, &spec), 0);
		spec.base[EXTENT - 1] = 1;
		tg->ops->stats(tg, &stats);
		if (kind == 0)
			assert_string_equal(stats.page_kind, "4k");
		assert_non_null(strstr("hugetlb thp 4k", stats.page_kind));
		transport_target_close(&tg);
	}
}

/* Caches of 2^17 bytes a way would find the same words of many shards in few sets. */
TEST(memory__private_of_several_parts_begins_at_several_offsets)
{
	struct target_opts opts = { .private_memory = true, .page_kind = 1 /* thp */ };
	struct transport_target *tg = NULL;
	uintptr_t seen = 0;

	assert_int_equal(transport_target_open("shm", &opts, &tg), 0);
	for (uint32_t part = 0; part < 32; part++) {
		struct target_region spec = { .kind = 1, .part = part, .role = 1, .size = EXTENT };

		assert_int_equal(tg->ops->register_region(tg, &spec), 0);
		spec.base[EXTENT - 1] = 1;
		seen |= (uintptr_t)1 << (uintptr_t)spec.base / 4096 % 32;
	}
	assert_int_equal(seen, UINT32_MAX);
	transport_target_close(&tg);
}

/* A number comes back as late as possible. */
TEST(numbers__of_regions_go_round)
{
	struct target_opts opts = { .pool_bytes = 4 * EXTENT, .private_memory = true };
	struct transport_target *tg = NULL;
	struct target_region kept = { .kind = 1, .size = EXTENT }, spec = kept;
	bool seen[4096] = { false };

	assert_int_equal(transport_target_open("shm", &opts, &tg), 0);
	assert_int_equal(tg->ops->register_region(tg, &kept), 0);
	seen[kept.id] = true;
	for (int i = 0; i < 4094; i++) {
		assert_int_equal(tg->ops->register_region(tg, &spec), 0);
		assert_in_range(spec.id, 1, 4095);
		assert_false(seen[spec.id]);
		seen[spec.id] = true;
		assert_int_equal(tg->ops->unregister_region(tg, spec.id), 0);
	}
	assert_int_equal(tg->ops->register_region(tg, &spec), 0);
	assert_int_not_equal(spec.id, kept.id);
	transport_target_close(&tg);
}

int main(void)
{
	return test_run(NULL, NULL);
}
