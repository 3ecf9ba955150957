/*
 * Disks under pools: full ones, read-only ones, paths where no pool can be. In a mount namespace of its
 * own; what needs a mount is skipped, with the reason, where none is permitted.
 */
#include "tests/support/processes.h"
#include "tests/support/fixture/store_fixture.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"

#include "relive/relive.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILLER_BYTES ((off_t)22 << 20)

struct disk {
	struct processes ps;
	char mount[PROCESSES_PATH + 64]; /* a small file system, if may_mount */
	char pool[PROCESSES_PATH + 96];
};

static bool may_mount;

static int setup(void **state)
{
	static struct disk disk;

	memset(&disk, 0, sizeof(disk));
	processes_init(&disk.ps);
	processes_path(&disk.ps, "disk", disk.mount);
	assert_int_equal(mkdir(disk.mount, 0700), 0);
	if (may_mount && mount("none", disk.mount, "tmpfs", 0, "size=32m")) {
		print_message("mount of a tmpfs: %s\n", strerror(errno));
		may_mount = false;
	}
	(void)snprintf(disk.pool, sizeof(disk.pool), "%s/pool", disk.mount);
	*state = &disk;
	return 0;
}

static int teardown(void **state)
{
	struct disk *disk = *state;

	(void)umount2(disk->mount, MNT_DETACH);
	processes_fini(&disk->ps);
	return 0;
}

static void need_mount(void)
{
	if (may_mount)
		return;
	print_message("skipped: no mounts are permitted here\n");
	skip();
}

static bool has_ended(void *ctx)
{
	const struct disk *disk = ctx;

	return !processes_runs(&disk->ps, disk->ps.pids[0]);
}

/* A memory node that cannot start says so with these words, and ends. */
static void expect_refused(struct disk *disk, const char *path, const char *size, const char *words)
{
	const char *const args[] = { "--store", "s",      "--name", "n", "--size",
				     size,      "--file", path,     NULL };
	pid_t pid = processes_start(&disk->ps, "relive-memnode", args);

	assert_int_equal(pid, disk->ps.pids[0]);
	assert_true(processes_until(has_ended, disk));
	if (!processes_log_has(&disk->ps, pid, words))
		fail_msg("%s: not refused by \"%s\"", path, words);
	assert_true(processes_wait(&disk->ps, pid, PROCESSES_WAIT_MS) > 0);
}

static bool is_there(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0;
}

#define CASE(fn) TEST_WITH(fn, setup, teardown)

CASE(node__that_is_refused_leaves_nothing)
{
	struct disk *disk = *state;
	const char text[] = "the only copy";
	char seen[64] = "", thesis[PROCESSES_PATH + 96];
	int fd;

	expect_refused(disk, disk->pool, "1000T", "bytes, ");
	assert_false(is_there(disk->pool));
	expect_refused(disk, "/dev/null", "16M", "/dev/null: a character device, but no DAX");
	fd = open(disk->pool, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	assert_int_equal(write(fd, text, sizeof(text)), sizeof(text));
	expect_refused(disk, disk->pool, "16M", "keeps its pool in a directory");
	assert_int_equal(pread(fd, seen, sizeof(seen), 0), sizeof(text));
	assert_string_equal(seen, text);
	close(fd);
	(void)snprintf(thesis, sizeof(thesis), "%s/thesis", disk->mount);
	assert_int_equal(rename(disk->pool, thesis), 0);
	expect_refused(disk, disk->mount, "16M", "the directory holds thesis");
	assert_false(is_there(disk->pool));
	assert_int_equal(unlink(thesis), 0);
	expect_refused(disk, disk->mount, "1000T", "bytes, ");
	assert_false(is_there(disk->pool));
}

CASE(disk__that_is_read_only_is_named)
{
	struct disk *disk = *state;
	struct rlv_store *store = NULL;
	char uri[PROCESSES_PATH + 128];

	need_mount();
	assert_int_equal(mount("none", disk->mount, NULL, MS_REMOUNT | MS_RDONLY, NULL), 0);
	expect_refused(disk, disk->pool, "16M", "Read-only file system");
	(void)snprintf(uri, sizeof(uri), "embed:%s", disk->pool);
	assert_int_equal(rlv_store_open(uri, NULL, &store), -EROFS);
	assert_non_null(strstr(rlv_last_error(), disk->pool));
	assert_string_equal(rlv_error_name(-EROFS), "EROFS");
}

static int create_table(struct rlv_store *store, const char *name, struct rlv_table **table_out)
{
	static const struct rlv_column columns[] = {
		{ .name = "obs", .dtype = RLV_F32, .role = RLV_OBS, .ndim = 1, .shape = { 64 } },
	};
	struct rlv_table_opts opts = RLV_TABLE_OPTS_INIT;

	opts.columns = columns;
	opts.n_columns = 1;
	opts.capacity = 16384; /* 4 MiB of rows and more */
	return rlv_table_create(store, name, &opts, table_out);
}

static void append(struct rlv_table *table, uint32_t blocks)
{
	static float obs[64 * 64];
	const void *arrays[] = { obs };
	struct rlv_writer_opts opts = RLV_WRITER_OPTS_INIT;
	struct rlv_steps steps = RLV_STEPS_INIT;
	struct rlv_writer *writer = NULL;

	steps.n = 64;
	steps.columns = arrays;
	assert_int_equal(rlv_writer_open(table, &opts, &writer), 0);
	for (uint32_t i = 0; i < blocks; i++)
		assert_int_equal(rlv_writer_append(writer, 0, &steps, NULL), 0);
	assert_int_equal(rlv_writer_close(&writer), 0);
}

/* Others fill the disk under a pool: what was made goes on over all of its rows, a new table is refused. */
CASE(create__on_a_full_disk_is_enospc)
{
	const char *const args[] = { "--size", "30M", "--file", NULL, NULL };
	const char *memnode[5];
	struct rlv_table *first = NULL, *second = NULL;
	struct disk *disk = *state;
	struct rlv_store *store = NULL;
	char filler[PROCESSES_PATH + 96];
	int fd;

	need_mount();
	memcpy(memnode, args, sizeof(args));
	memnode[3] = disk->pool;
	(void)processes_metad(&disk->ps, "s", NULL);
	(void)processes_memnode(&disk->ps, "s", "n", memnode);
	assert_int_equal(rlv_store_open("shm:s", NULL, &store), 0);
	store_fixture_await_node(store);
	assert_int_equal(create_table(store, "first", &first), 0);
	(void)snprintf(filler, sizeof(filler), "%s/filler", disk->mount);
	fd = open(filler, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	for (off_t bytes = FILLER_BYTES; bytes > 0; bytes -= 65536) /* as many as there are */
		(void)posix_fallocate(fd, FILLER_BYTES - bytes, 65536);
	assert_int_equal(create_table(store, "second", &second), -ENOSPC);
	append(first, 600); /* twice round its ring */
	assert_int_equal(rlv_table_verify(first,
					  &(struct rlv_verify_report){
						  .size = sizeof(struct rlv_verify_report) }),
			 0);
	assert_int_equal(ftruncate(fd, 0), 0);
	close(fd);
	assert_int_equal(create_table(store, "second", &second), 0);
	append(second, 300);
	assert_int_equal(rlv_table_close(&first), 0);
	assert_int_equal(rlv_table_close(&second), 0);
	assert_int_equal(rlv_store_close(&store), 0);
}

int main(void)
{
	may_mount = unshare(CLONE_NEWNS) == 0 &&
		    mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
	return test_run(NULL, NULL);
}
