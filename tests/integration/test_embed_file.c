/*
 * Files that are not as they should be: in use, cut short, damaged, of another format, too large for
 * the disk. Each gets a typed error with a message, and what can be opened can be used.
 */
#include "tests/support/crash_rows.h"
#include "tests/support/test.h"

#include "relive/relive.h"

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

static char path[64], copy[80];
static struct rng rng;

static void must(int ret, const char *what)
{
	if (ret)
		fail_msg("%s: %s: %s", what, rlv_error_name(ret), rlv_last_error());
}

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
	struct rlv_table_opts opts = RLV_TABLE_OPTS_INIT;

	opts.columns = crash_columns;
	opts.n_columns = CRASH_COLUMNS;
	opts.views = crash_views;
	opts.n_views = CRASH_VIEWS;
	opts.capacity = 2048;
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
	unlink(path);
	make_file();
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	unlink(path);
	unlink(copy);
	return 0;
}

/* -------- bytes -------- */

static void copy_file(void)
{
	static uint8_t bytes[1 << 16];
	int from = open(path, O_RDONLY | O_CLOEXEC);
	int to = open(copy, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	ssize_t n;

	assert_true(from >= 0 && to >= 0);
	while ((n = read(from, bytes, sizeof(bytes))) > 0)
		assert_int_equal(write(to, bytes, (size_t)n), n);
	close(from);
	close(to);
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

/* -------- in use -------- */

static void open__twice_in_one_process_gives_ebusy(void **state)
{
	struct rlv_store *store;

	(void)state;
	must(open_file(path, &store), "open");
	expect_refused(path, -EBUSY, "in use");
	must(rlv_store_close(&store), "close");
}

static void open__in_two_processes_gives_ebusy(void **state)
{
	struct rlv_store *store;
	int status, ret;
	pid_t pid;

	(void)state;
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

static void open__of_a_foreign_file_gives_eproto(void **state)
{
	int fd = open(copy, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	(void)state;
	assert_true(fd >= 0);
	for (uint32_t i = 0; i < 4096; i++)
		assert_int_equal(write(fd, "not a pool of any kind\n", 23), 23);
	close(fd);
	expect_refused(copy, -EPROTO, "not a pool");
}

/* It would grow to pool_bytes again, and what was cut off would read as zeros. */
static void open__of_a_file_cut_short_gives_eproto(void **state)
{
	(void)state;
	for (off_t bytes = 1; bytes < POOL_BYTES; bytes = bytes * 3 + 7) {
		struct stat st;

		copy_file();
		assert_int_equal(truncate(copy, bytes), 0);
		expect_refused(copy, -EPROTO, copy);
		assert_int_equal(stat(copy, &st), 0);
		assert_int_equal(st.st_size, bytes);
	}
}

static void open__of_another_pool_format_gives_eproto(void **state)
{
	(void)state;
	copy_file();
	change_byte(copy, FORMAT_OFF, 0x40);
	change_byte(copy, SUPER_COPY + FORMAT_OFF, 0x40);
	expect_refused(copy, -EPROTO, "format 66");
}

/* -------- its superblock -------- */

static void open__with_one_flipped_bit_in_the_superblock_has_its_table(void **state)
{
	struct rlv_store *store = NULL;
	struct rlv_table *table = NULL;

	(void)state;
	copy_file();
	change_byte(copy, 60, 4);
	must(open_file(copy, &store), "open");
	must(rlv_table_open(store, "t", &table), "its table");
	must(rlv_table_close(&table), "close");
	must(rlv_store_close(&store), "close");
}

/* The regions behind the superblock say their version, too. */
static void open__of_another_region_format_gives_eproto(void **state)
{
	(void)state;
	copy_file();
	change_byte(copy, EXTENT + FORMAT_OFF, 0x40);
	expect_refused(copy, -EPROTO, "format 66");
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

static void open__with_bits_flipped_gives_an_error_or_a_store(void **state)
{
	(void)state;
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

static void open__larger_than_the_disk_gives_enospc(void **state)
{
	struct rlv_store *store = NULL;
	struct stat st;

	(void)state;
	unlink(copy);
	assert_int_equal(open_bytes(copy, (uint64_t)1 << 50, &store), -ENOSPC);
	assert_non_null(strstr(rlv_last_error(), "bytes"));
	assert_true(stat(copy, &st) != 0 || st.st_size == 0);
	must(open_file(path, &store), "the other file");
	must(rlv_store_close(&store), "close");
}

static void create__in_a_full_pool_gives_enospc_and_leaves_it_usable(void **state)
{
	struct rlv_table_opts opts = RLV_TABLE_OPTS_INIT;
	struct rlv_table *table = NULL;
	struct rlv_store *store;

	(void)state;
	opts.columns = crash_columns;
	opts.n_columns = CRASH_COLUMNS;
	opts.capacity = 1 << 20;
	must(open_file(path, &store), "open");
	assert_int_equal(rlv_table_create(store, "large", &opts, &table), -ENOSPC);
	must(rlv_table_open(store, "t", &table), "the other table");
	append(table, 3000);
	must(rlv_table_close(&table), "close");
	must(rlv_store_close(&store), "close");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(open__twice_in_one_process_gives_ebusy),
		TEST(open__in_two_processes_gives_ebusy),
		TEST(open__of_a_foreign_file_gives_eproto),
		TEST(open__of_a_file_cut_short_gives_eproto),
		TEST(open__of_another_pool_format_gives_eproto),
		TEST(open__with_one_flipped_bit_in_the_superblock_has_its_table),
		TEST(open__of_another_region_format_gives_eproto),
		TEST(open__with_bits_flipped_gives_an_error_or_a_store),
		TEST(open__larger_than_the_disk_gives_enospc),
		TEST(create__in_a_full_pool_gives_enospc_and_leaves_it_usable),
	};

	return TEST_RUN(tests, NULL, NULL);
}
