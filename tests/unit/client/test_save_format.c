#include "tests/support/saved_table.h"
#include "tests/support/must.h"
#include "tests/support/temp_dir.h"

#include "client/save/zstd.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[TEMP_DIR_BYTES];
static char path[TEMP_DIR_BYTES + 16];
static char draft[TEMP_DIR_BYTES + 32];

static int begin(void **state)
{
	(void)state;
	temp_dir_make(dir);
	snprintf(path, sizeof(path), "%s/table", dir);
	snprintf(draft, sizeof(draft), "%s.saving", path);
	return 0;
}

static int end(void **state)
{
	(void)state;
	temp_dir_remove(dir);
	return 0;
}

static bool there(const char *file)
{
	return access(file, F_OK) == 0;
}

/* Reads the file at path whole; its bytes and their number. */
static size_t slurp(uint8_t *bytes, size_t room)
{
	int fd = open(path, O_RDONLY);
	ssize_t n = read(fd, bytes, room);

	assert_true(n > 0 && (size_t)n < room);
	close(fd);
	return (size_t)n;
}

static int read_bytes(const uint8_t *bytes, size_t n)
{
	int fd = memfd_create("saved", MFD_CLOEXEC), ret;
	struct save_input *in;

	assert_int_equal(write(fd, bytes, n), n);
	ret = save_input_open_fd(fd, "saved", &in);
	if (ret)
		return ret;
	ret = saved_table_read(in, NULL);
	save_input_close(&in);
	return ret;
}

static uint32_t seen;

static void see(const struct save_chunk *head, const void *body)
{
	uint8_t want[256];
	uint32_t run = seen / 2;

	assert_int_equal(head->kind, seen % 2 ? SAVE_LEAVES : SAVE_ROWS);
	assert_int_equal(head->seq, run + 1);
	assert_int_equal(head->first, 3);
	assert_int_equal(head->rows, SAVED_ROWS);
	if (head->kind == SAVE_ROWS)
		saved_table_rows(run, want);
	else
		saved_table_leaves(run, want);
	assert_memory_equal(body, want, head->bytes);
	seen++;
}

static void write_and_read(int level)
{
	struct save_input *in;
	uint64_t size, done;

	saved_table_write(path, level);
	assert_false(there(draft));
	must(save_input_open(path, &in), "open");
	assert_string_equal(save_input_table(in)->head.name, "t");
	assert_int_equal(save_input_table(in)->row_bytes, 12 + 8 + 4);
	assert_int_equal(save_input_table(in)->leaf_bytes, 8 + 12);
	seen = 0;
	must(saved_table_read(in, see), "read");
	assert_int_equal(seen, 2 * SAVED_RUNS);
	assert_int_equal(save_input_counts(in)[1].sampled, 7);
	size = save_input_bytes(in, &done);
	assert_int_equal(done, size);
	save_input_close(&in);
}

TEST_WITH(save_format__reads_what_was_written, begin, end)
{
	write_and_read(0);
}

TEST_WITH(save_format__reads_compressed_chunks, begin, end)
{
	if (test_skips_msan("zstd") || zstd_load())
		skip();
	write_and_read(3);
}

/* Each bit of the file is covered by a checksum, by a length, or by both. */
TEST_WITH(save_input__a_flipped_bit_is_found, begin, end)
{
	uint8_t bytes[4096];
	size_t n;

	saved_table_write(path, 0);
	n = slurp(bytes, sizeof(bytes));
	for (size_t bit = 0; bit < 8 * n; bit++) {
		int ret;

		bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
		ret = read_bytes(bytes, n);
		bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
		assert_true(ret == -EBADMSG || ret == -EPROTO);
	}
	assert_int_equal(read_bytes(bytes, n), 0);
}

TEST_WITH(save_input__a_cut_file_is_refused, begin, end)
{
	uint8_t bytes[4096];
	size_t n;

	saved_table_write(path, 0);
	n = slurp(bytes, sizeof(bytes));
	for (size_t cut = 0; cut < n; cut++) {
		int ret = read_bytes(bytes, cut);

		assert_true(ret == -EBADMSG || ret == -EPROTO);
	}
	bytes[n] = 0;
	expect(read_bytes(bytes, n + 1), -EBADMSG);
}

/* Chunks that are whole each, but not all of them, or not in their order. */
TEST_WITH(save_input__a_missing_chunk_is_found, begin, end)
{
	const size_t chunk = sizeof(struct save_chunk) + SAVED_ROWS * 24;
	struct save_header head;
	uint8_t bytes[4096], other[4096];
	size_t n;

	saved_table_write(path, 0);
	n = slurp(bytes, sizeof(bytes));
	memcpy(&head, bytes, sizeof(head));
	memcpy(other, bytes, head.bytes);
	memcpy(other + head.bytes, bytes + head.bytes + chunk, n - head.bytes - chunk);
	expect(read_bytes(other, n - chunk), -EBADMSG);
}

TEST_WITH(save_input__a_foreign_file_is_refused, begin, end)
{
	static const uint8_t text[512] = "not a table at all\n";
	struct save_input *in;

	expect(read_bytes(text, sizeof(text)), -EPROTO);
	assert_non_null(strstr(rlv_last_error(), "not a saved table"));
	expect(save_input_open(dir, &in), -EINVAL);
	expect(save_input_open(path, &in), -ENOENT);
}

TEST_WITH(save_output__unfinished_leaves_the_old_file, begin, end)
{
	uint8_t before[4096], after[4096];
	struct save_output *out;
	size_t n;

	saved_table_write(path, 0);
	n = slurp(before, sizeof(before));
	out = saved_table_draft(path, 0);
	assert_true(there(draft));
	save_output_close(&out);
	assert_false(there(draft));
	assert_int_equal(slurp(after, sizeof(after)), n);
	assert_memory_equal(before, after, n);
}

TEST_WITH(save_output__one_at_a_time, begin, end)
{
	struct save_output *first = saved_table_draft(path, 0), *second;
	struct save_table table;

	saved_table_describe(&table);
	expect(save_output_open(path, &table, 0, &second), -EBUSY);
	save_output_close(&first);
	must(save_output_open(path, &table, 0, &second), "open");
	save_output_close(&second);
	expect(save_output_open("/nowhere/table", &table, 0, &second), -ENOENT);
}

/* A device or a queue keeps its name, and so does a link: the file behind it is written. */
TEST_WITH(save_output__replaces_files_alone, begin, end)
{
	char link[TEMP_DIR_BYTES + 16];
	struct save_output *out;
	struct save_table table;
	struct stat st;

	saved_table_describe(&table);
	snprintf(link, sizeof(link), "%s/link", dir);
	assert_int_equal(mkfifo(link, 0600), 0);
	expect(save_output_open(link, &table, 0, &out), -EINVAL);
	expect(save_output_open(dir, &table, 0, &out), -EINVAL);
	assert_int_equal(unlink(link), 0);
	saved_table_write(path, 0);
	assert_int_equal(symlink(path, link), 0);
	saved_table_write(link, 0);
	assert_int_equal(lstat(link, &st), 0);
	assert_true(S_ISLNK(st.st_mode));
}

/* A draft of a killed process is taken over, whatever it holds. */
TEST_WITH(save_output__takes_over_an_old_draft, begin, end)
{
	uint8_t noise[9000] = { 1 };
	int fd = open(draft, O_WRONLY | O_CREAT, 0600);

	assert_int_equal(write(fd, noise, sizeof(noise)), sizeof(noise));
	close(fd);
	write_and_read(0);
}

int main(void)
{
	return test_run(NULL, NULL);
}
