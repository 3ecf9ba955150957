/*
 * Unusable files: in use, truncated, damaged, of another format, too large for the disk. Each gets
 * a typed error with a message; files that can be opened are usable.
 */
#include "tests/support/attack/crash_rows.h"
#include "tests/support/must.h"

#include "relive/relive.h"

#include "wire/pool_layout.h"
#include "wire/region.h"

#include "base/rng.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define POOL_BYTES (12u << 20)
#define FLIPS 400u
#define FORMAT_OFF 8 /* of the major version, in either superblock */
#define EXTENT (2u << 20)
#define SUPER_COPY 274432 /* the second copy of the pool's superblock */
#define TABLE_OFF0 4096   /* of the copies of the extent table: wire/pool_layout.h */
#define TABLE_OFF1 139264 /* each 64 bytes of header, 32 bytes an entry */
#define STATE_OFF 1024    /* of its state in a region's superblock */

static char path[64], copy[80], before[80];
static struct rng rng;

static int open_bytes(const char *file, uint64_t bytes, struct rlv_store **store_out)
{
	struct rlv_store_opts opts = RLV_STORE_OPTS_INIT;
	char uri[128];

	opts.pool_bytes = bytes;
	snprintf(uri, sizeof(uri), "embed:%s", file);
	return rlv_store_open(uri, &opts, store_out);
}

static int open_file(const char *file, struct rlv_store **store_out)
{
	return open_bytes(file, POOL_BYTES, store_out);
}

/* Fails, with that code and those words. */
static void expect_refused(const char *file, int code, const char *words)
{
	struct rlv_store *store = NULL;
	int ret = open_file(file, &store);

	if (ret != code || !strstr(rlv_last_error(), words))
		fail_msg("open gives %s \"%s\", want %s \"%s\"", rlv_error_name(ret),
			 rlv_last_error(), rlv_error_name(code), words);
	assert_null(store);
}

static int create_table(struct rlv_store *store, struct rlv_table **table_out)
{
	struct rlv_table_opts opts = crash_table_opts(2048);

	opts.max_writers = 1;
	opts.max_clients = 4;
	return rlv_table_create(store, "t", &opts, table_out);
}

static void append(struct rlv_table *table, uint32_t steps)
{
	static struct crash_rows rows;
	struct rlv_writer *writer;

	must(rlv_writer_open(table, NULL, &writer), "writer");
	for (uint32_t n = 0; n < steps; n += 100) {
		crash_rows_fill(&rows, 1, n, 100);
		must(rlv_writer_append(writer, 0, &rows.steps, NULL), "append");
	}
	must(rlv_writer_close(&writer), "writer close");
}

static void make_file(void)
{
	struct rlv_store *store;
	struct rlv_table *table;

	must(open_file(path, &store), "make");
	must(create_table(store, &table), "create");
	append(table, 1000);
	must(rlv_table_close(&table), "table close");
	must(rlv_store_close(&store), "close");
}

static int setup(void **state)
{
	(void)state;
	snprintf(path, sizeof(path), "/dev/shm/relive-embed-file.%d", (int)getpid());
	snprintf(copy, sizeof(copy), "%s.copy", path);
	snprintf(before, sizeof(before), "%s.before", path);
	unlink(path);
	make_file();
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	unlink(path);
	unlink(copy);
	unlink(before);
	return 0;
}

/* -------- bytes -------- */

static void copy_bytes(const char *source, const char *target)
{
	static uint8_t bytes[1 << 16];
	int from = open(source, O_RDONLY | O_CLOEXEC);
	int to = open(target, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	ssize_t n;

	assert_true(from >= 0 && to >= 0);
	while ((n = read(from, bytes, sizeof(bytes))) > 0)
		assert_int_equal(write(to, bytes, (size_t)n), n);
	close(from);
	close(to);
}

static void copy_file(void)
{
	copy_bytes(path, copy);
}

static void change_byte(const char *file, off_t off, uint8_t mask)
{
	int fd = open(file, O_RDWR | O_CLOEXEC);
	uint8_t byte = 0;

	assert_true(fd >= 0);
	assert_int_equal(pread(fd, &byte, 1, off), 1);
	byte ^= mask;
	assert_int_equal(pwrite(fd, &byte, 1, off), 1);
	close(fd);
}

#define CASE(f) TEST_WITH(f, setup, teardown)

/* -------- in use -------- */

CASE(open__twice_in_one_process_gives_ebusy)
{
	struct rlv_store *store;

	must(open_file(path, &store), "open");
	expect_refused(path, -EBUSY, "in use");
	must(rlv_store_close(&store), "close");
}

CASE(open__in_two_processes_gives_ebusy)
{
	struct rlv_store *store;
	int status, ret;
	pid_t pid;

	must(open_file(path, &store), "open");
	fflush(stdout);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		struct rlv_store *other;

		ret = open_file(path, &other);
		_exit(ret == -EBUSY && strstr(rlv_last_error(), path) ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	must(rlv_store_close(&store), "close");
}

/* -------- damage -------- */

CASE(open__of_a_foreign_file_gives_eproto)
{
	int fd = open(copy, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	for (uint32_t i = 0; i < 4096; i++)
		assert_int_equal(write(fd, "not a pool of any kind\n", 23), 23);
	close(fd);
	expect_refused(copy, -EPROTO, "not a pool");
}

/* It would grow to pool_bytes again, and what was cut off would read as zeros. */
CASE(open__of_a_file_cut_short_gives_eproto)
{
	for (off_t bytes = 1; bytes < POOL_BYTES; bytes = bytes * 3 + 7) {
		struct stat st;

		copy_file();
		assert_int_equal(truncate(copy, bytes), 0);
		expect_refused(copy, -EPROTO, copy);
		assert_int_equal(stat(copy, &st), 0);
		assert_int_equal(st.st_size, bytes);
	}
}

CASE(open__of_another_pool_format_gives_eproto)
{
	copy_file();
	change_byte(copy, FORMAT_OFF, 0x40);
	change_byte(copy, SUPER_COPY + FORMAT_OFF, 0x40);
	expect_refused(copy, -EPROTO, "format 68");
}

/* -------- its superblock -------- */

CASE(open__with_one_flipped_bit_in_the_superblock_has_its_table)
{
	struct rlv_store *store = NULL;
	struct rlv_table *table = NULL;

	copy_file();
	change_byte(copy, 60, 4);
	must(open_file(copy, &store), "open");
	must(rlv_table_open(store, "t", &table), "its table");
	must(rlv_table_close(&table), "close");
	must(rlv_store_close(&store), "close");
}

/* The regions behind the superblock say their version, too. */
CASE(open__of_another_region_format_gives_eproto)
{
	copy_file();
	change_byte(copy, EXTENT + FORMAT_OFF, 0x40);
	expect_refused(copy, -EPROTO, "format 69");
}

/* Of a table that held 1000 steps. */
static uint64_t count_items(const char *file)
{
	struct rlv_verify_report report = { .size = sizeof(report) };
	struct rlv_store *store;
	struct rlv_table *table;

	must(open_file(file, &store), "open");
	must(rlv_table_open(store, "t", &table), "the table");
	must(rlv_table_verify(table, &report), "verify");
	assert_int_equal(report.problems, 0);
	must(rlv_table_close(&table), "table close");
	must(rlv_store_close(&store), "close");
	return report.items;
}

/* Magic, seq, extents, n, last region, crc, then both entries: region, owner, place, state. */
static const off_t table_fields[] = { 0, 8, 16, 24, 28, 60, 64, 72, 80, 92, 96, 104, 112, 124 };

#define N_TABLE_FIELDS (sizeof(table_fields) / sizeof(table_fields[0]))

CASE(open__with_one_extent_table_damaged_keeps_the_table)
{
	static const off_t copies[] = { TABLE_OFF0, TABLE_OFF1 };
	uint64_t items = count_items(path);

	for (uint32_t c = 0; c < 2; c++)
		for (uint32_t f = 0; f < N_TABLE_FIELDS; f++) {
			copy_file();
			change_byte(copy, copies[c] + table_fields[f], 1);
			assert_int_equal(count_items(copy), items);
		}
}

CASE(open__mends_the_extent_table_that_is_damaged)
{
	uint64_t items = count_items(path);

	copy_file();
	change_byte(copy, TABLE_OFF0 + 64, 1);
	assert_int_equal(count_items(copy), items);
	change_byte(copy, TABLE_OFF1 + 64, 1);
	assert_int_equal(count_items(copy), items);
	change_byte(copy, TABLE_OFF0 + 64, 1);
	assert_int_equal(count_items(copy), items);
}

static void expect_same_bytes(const char *file, const char *other)
{
	static uint8_t a[1 << 16], b[1 << 16];
	int fds[] = { open(file, O_RDONLY | O_CLOEXEC), open(other, O_RDONLY | O_CLOEXEC) };
	ssize_t n;

	assert_true(fds[0] >= 0 && fds[1] >= 0);
	while ((n = read(fds[0], a, sizeof(a))) > 0) {
		assert_int_equal(read(fds[1], b, (size_t)n), n);
		assert_memory_equal(a, b, (size_t)n);
	}
	close(fds[0]);
	close(fds[1]);
}

/* Refused, and not a byte of it is changed. */
static void expect_damaged(const char *words)
{
	copy_bytes(copy, before);
	expect_refused(copy, -EBADMSG, words);
	expect_same_bytes(copy, before);
}

CASE(open__with_both_extent_tables_damaged_is_refused)
{
	copy_file();
	change_byte(copy, TABLE_OFF0 + 64, 1);
	change_byte(copy, TABLE_OFF1 + 64, 1);
	expect_damaged("extent table");
}

/* A state word is whole or damaged: no flip makes it say that the table was never finished. */
/* Where the region of that role begins in the copy: of its only shard. */
static off_t find_role(uint32_t role)
{
	static struct extent_table table;
	int fd = open(copy, O_RDONLY | O_CLOEXEC);
	off_t at = 0;

	assert_int_equal(pread(fd, &table, sizeof(table), POOL_TABLE_OFF0), sizeof(table));
	close(fd);
	for (uint32_t i = 0; i < table.n; i++)
		if (table.entries[i].state == EXTENT_LIVE && table.entries[i].role == role)
			at = (off_t)(table.entries[i].first * POOL_EXTENT_BYTES);
	assert_true(at > 0);
	return at;
}

/* The word that counts is that of the slots. */
CASE(open__with_a_state_word_damaged_frees_nothing)
{
	for (uint32_t bit = 0; bit < 64; bit += 7) {
		copy_file();
		change_byte(copy, find_role(REGION_SLOTS) + STATE_OFF + bit / 8,
			    (uint8_t)(1u << bit % 8));
		expect_damaged("state");
	}
}

/* A page that reads as zeros looks as before the format, but the rows are there. */
CASE(open__with_the_page_of_a_superblock_gone_frees_nothing)
{
	static const uint8_t zeros[4096];
	int fd;

	copy_file();
	fd = open(copy, O_WRONLY | O_CLOEXEC);
	assert_int_equal(pwrite(fd, zeros, sizeof(zeros), EXTENT), sizeof(zeros));
	close(fd);
	expect_damaged("table id 1 shard 0");
}

/* In a child, so that a crash is seen as one. 0 = typed error or opened and usable. */
static int use_damaged(void)
{
	struct rlv_sampler_opts opts = RLV_SAMPLER_OPTS_INIT;
	struct rlv_verify_report report = { .size = sizeof(report) };
	struct rlv_sampler *sampler;
	const struct rlv_batch *batch;
	struct rlv_store *store;
	struct rlv_table *table;
	int ret = open_file(copy, &store);

	if (ret)
		return ret == -EPROTO || ret == -EBADMSG ? 0 : 1;
	if (rlv_table_open(store, "t", &table))
		return rlv_store_close(&store) ? 2 : 0;
	if (rlv_table_verify(table, &report) || rlv_sampler_open(table, &opts, &sampler))
		return 3;
	for (uint32_t i = 0; i < 20; i++) {
		ret = rlv_sampler_sample(sampler, 256, 0, &batch);
		if (ret && ret != -ENODATA && ret != -ETIMEDOUT)
			return 4;
		if (ret == 0)
			rlv_batch_release(sampler, batch);
	}
	if (rlv_sampler_close(&sampler) || rlv_table_close(&table) || rlv_store_close(&store))
		return 5;
	return 0;
}

/* Where a flip may hurt: pool superblock and tables, superblocks, descriptor, words, leaves. */
static off_t random_place(void)
{
	static const off_t starts[] = { 0, 4096, EXTENT, EXTENT + 4096, 2 * EXTENT };
	uint32_t which = (uint32_t)rng_uniform_u64(&rng, sizeof(starts) / sizeof(starts[0]));
	uint32_t room = which == 3 ? 60000 : 4096;

	return starts[which] + (off_t)rng_uniform_u64(&rng, room);
}

CASE(open__with_bits_flipped_gives_an_error_or_a_store)
{
	rng_seed(&rng, test_seed("flips", 20240920), 0);
	copy_file();
	for (uint32_t i = 0; i < (getenv("RLV_TEST_SLOW") ? FLIPS / 20 : FLIPS); i++) {
		off_t off = random_place();
		uint8_t mask = (uint8_t)(1u << rng_uniform_u64(&rng, 8));
		int status = 0;
		pid_t pid;

		if (i % 8 == 0)
			copy_file();
		change_byte(copy, off, mask);
		fflush(stdout);
		pid = fork();
		assert_true(pid >= 0);
		if (pid == 0) {
			alarm(60);
			_exit(use_damaged());
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		if (status)
			fail_msg("flip %u, bit mask %#x at %lld: status 0x%x", i, mask,
				 (long long)off, (unsigned)status);
	}
}

/* -------- disk -------- */

CASE(open__larger_than_the_disk_gives_enospc)
{
	struct rlv_store *store = NULL;
	struct stat st;

	unlink(copy);
	assert_int_equal(open_bytes(copy, (uint64_t)1 << 50, &store), -ENOSPC);
	assert_non_null(strstr(rlv_last_error(), "bytes"));
	assert_int_equal(stat(copy, &st), -1); /* nothing stays behind */
	must(open_file(path, &store), "the other file");
	must(rlv_store_close(&store), "close");
}

/* A directory, a device that is none of DAX: each by its name. */
CASE(open__of_what_no_pool_can_be_says_why)
{
	expect_refused("/tmp", -EISDIR, "/tmp");
	expect_refused("/dev/null", -ENODEV, "/dev/null");
	assert_string_equal(rlv_error_name(-ENODEV), "ENODEV");
}

CASE(create__in_a_full_pool_gives_enospc_and_leaves_it_usable)
{
	struct rlv_table_opts opts = crash_table_opts(1 << 20);
	struct rlv_table *table = NULL;
	struct rlv_store *store;

	must(open_file(path, &store), "open");
	assert_int_equal(rlv_table_create(store, "large", &opts, &table), -ENOSPC);
	must(rlv_table_open(store, "t", &table), "the other table");
	append(table, 3000);
	must(rlv_table_close(&table), "close");
	must(rlv_store_close(&store), "close");
}

int main(void)
{
	return test_run(NULL, NULL);
}
