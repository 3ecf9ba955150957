/*
 * Power failures. Each runs under a libpmem that remembers which lines were persisted
 * (tests/shadow/libpmem.c): what is opened afterwards is only that. All that a returned persist
 * covers must be there with its bytes and priorities; the control leaves one persist out and must
 * be found out.
 */
#include "tests/support/attack/crash_rows.h"
#include "tests/support/attack/kept.h"
#include "tests/support/must.h"

#include "relive/save.h"

#include "wire/pool_layout.h"
#include "wire/region.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define POOL_BYTES (24u << 20)

static char path[64], shadow[80], log_path[80], disk[80], saved[80];

static int open_with(const char *file, const struct rlv_store_opts *opts,
		     struct rlv_store **store_out)
{
	char uri[128];

	snprintf(uri, sizeof(uri), "embed:%s", file);
	return rlv_store_open(uri, opts, store_out);
}

static int open_file(const char *file, struct rlv_store **store_out)
{
	struct rlv_store_opts opts = RLV_STORE_OPTS_INIT;

	opts.pool_bytes = POOL_BYTES;
	return open_with(file, &opts, store_out);
}

static int setup(void **state)
{
	(void)state;
	snprintf(path, sizeof(path), "/dev/shm/relive-power.%d", (int)getpid());
	snprintf(shadow, sizeof(shadow), "%s.shadow", path);
	snprintf(log_path, sizeof(log_path), "%s.log", path);
	snprintf(disk, sizeof(disk), "%s.disk", path);
	snprintf(saved, sizeof(saved), "%s.saved", path);
	unlink(path);
	unlink(disk);
	unlink(saved);
	unlink(shadow);
	unlink(log_path);
	return 0;
}

static int teardown(void **state)
{
	unsetenv("RLV_SHADOW_FILE");
	(void)setup(state);
	return 0;
}

/* -------- the victim: works, and loses its power -------- */

enum end {
	END_CREATED,       /* with the table */
	END_WRITER_OPENED, /* and a writer, which has stored nothing */
	END_PERSIST,       /* with the persist */
	END_WRITING,       /* after more steps, with the writer open */
	END_WRITER_CLOSED, /* after more steps, with the store open and nothing else */
	END_REOPENED,      /* as END_WRITING was; then it is opened again, and nothing is done */
	END_NO_CHECKSUMS,  /* as END_WRITER_CLOSED, rows without any */
	END_CLOSED,        /* after the persist and a clean close */
	END_REPLACED,      /* after the table is saved and loaded in its own place */
	END_MORE,          /* of one that begins after END_CLOSED, as END_WRITER_CLOSED */
};

static int create_without_checksums(struct rlv_store *store, struct rlv_table **table_out)
{
	struct rlv_table_opts opts = crash_table_opts(4096);

	opts.row_crc = 2;
	return rlv_table_create(store, "kept", &opts, table_out);
}

static int work_more(struct rlv_store *store)
{
	struct rlv_table *table;
	struct rlv_writer *writer;
	int ret = rlv_table_open(store, "kept", &table);

	if (ret == 0)
		ret = rlv_writer_open(table, NULL, &writer);
	if (ret == 0)
		ret = kept_append(writer, KEPT_STEPS, KEPT_STEPS + KEPT_MORE);
	return ret ? ret : rlv_writer_close(&writer);
}

static int replace_table(struct rlv_store *store, struct rlv_table *table)
{
	struct rlv_load_opts opts = RLV_LOAD_OPTS_INIT;
	struct rlv_table *loaded;
	int ret = rlv_table_save(table, saved, NULL, NULL);

	opts.replace = true;
	return ret ? ret : rlv_table_load(store, saved, &opts, NULL, &loaded);
}

/* Steps [0, KEPT_STEPS) are persisted, what follows is not. Ends without closing the store. */
static int work(enum end end)
{
	struct rlv_store *store;
	struct rlv_table *table;
	struct rlv_writer *writer;
	int ret = open_file(path, &store);

	if (ret || end == END_REOPENED)
		return ret;
	if (end == END_MORE)
		return work_more(store);
	ret = end == END_NO_CHECKSUMS ? create_without_checksums(store, &table)
				      : kept_create(store, &table);
	if (ret || end == END_CREATED)
		return ret;
	ret = rlv_writer_open(table, NULL, &writer);
	if (ret || end == END_WRITER_OPENED)
		return ret;
	ret = kept_append(writer, 0, KEPT_STEPS);
	if (ret == 0)
		ret = kept_reprioritise(table);
	if (ret == 0)
		ret = rlv_store_persist(store);
	if (ret == 0 && end == END_REPLACED)
		return replace_table(store, table);
	if (ret == 0 && end != END_PERSIST && end != END_CLOSED)
		ret = kept_append(writer, KEPT_STEPS, KEPT_STEPS + KEPT_MORE);
	if (ret == 0 && end > END_WRITING)
		ret = rlv_writer_close(&writer);
	if (ret == 0 && end == END_CLOSED)
		ret = rlv_table_close(&table);
	if (ret == 0 && end == END_CLOSED)
		ret = rlv_store_close(&store);
	return ret;
}

/* Persisted bytes go to the shadow; omit: the number of one that is left out, 0 = none. */
static void run_victim(enum end end, const char *to, uint32_t omit)
{
	char number[16];
	int status, ret;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		snprintf(number, sizeof(number), "%u", omit);
		setenv("RLV_SHADOW_FILE", to, 1);
		setenv("RLV_SHADOW_OMIT", number, 1);
		setenv("RLV_SHADOW_LOG", log_path, 1);
		ret = work(end);
		if (ret)
			fprintf(stderr, "victim: %s\n", rlv_last_error());
		_exit(ret ? 1 : 0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static void lose_power(bool go_on, uint32_t omit)
{
	run_victim(go_on ? END_WRITING : END_PERSIST, shadow, omit);
}

static uint32_t count_persists(void)
{
	FILE *file = fopen(log_path, "re");
	char line[128];
	uint32_t n = 0;

	assert_non_null(file);
	while (fgets(line, sizeof(line), file))
		n++;
	fclose(file);
	return n;
}

/* Lines of the pool that were stored and are not durable. */
static uint64_t lines_lost(void)
{
	static uint8_t live[1 << 16], kept[1 << 16];
	int a = open(path, O_RDONLY | O_CLOEXEC), b = open(shadow, O_RDONLY | O_CLOEXEC);
	uint64_t lost = 0;
	ssize_t n;

	assert_true(a >= 0 && b >= 0);
	while ((n = read(a, live, sizeof(live))) > 0) {
		assert_int_equal(read(b, kept, (size_t)n), n);
		for (ssize_t i = 0; i < n; i += 64)
			lost += memcmp(live + i, kept + i, 64) != 0;
	}
	close(a);
	close(b);
	return lost;
}

/* -------- the disk: pages that came to it, in any order -------- */

/* Where the rows of the only table lie: of the newer extent table. */
static struct extent_entry find_rows(void)
{
	static const off_t offs[] = { POOL_TABLE_OFF0, POOL_TABLE_OFF1 };
	static struct extent_table table;
	struct extent_entry rows = { 0 };
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	uint64_t newest = 0;

	for (uint32_t c = 0; c < 2; c++) {
		assert_int_equal(pread(fd, &table, sizeof(table), offs[c]), sizeof(table));
		for (uint32_t i = 0; table.seq > newest && i < table.n; i++)
			if (table.entries[i].role == REGION_ROWS)
				rows = table.entries[i];
		newest = table.seq > newest ? table.seq : newest;
	}
	close(fd);
	assert_true(rows.extents > 0);
	return rows;
}

/*
 * All that the process stored came to the disk but for the pages of the rows, of which it has what
 * was persisted. The order is the kernel's; a copy of a file in use is no better.
 */
static void write_back_all_but_rows(void)
{
	const struct extent_entry rows = find_rows();
	int live = open(path, O_RDONLY | O_CLOEXEC), kept = open(shadow, O_RDONLY | O_CLOEXEC);
	int to = open(disk, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	off_t from = (off_t)(rows.first * POOL_EXTENT_BYTES);
	off_t end = from + (off_t)(rows.extents * POOL_EXTENT_BYTES), at = 0;
	static uint8_t page[4096];
	uint32_t differ = 0;
	ssize_t n;

	assert_true(live >= 0 && kept >= 0 && to >= 0);
	while ((n = pread(live, page, sizeof(page), at)) > 0) {
		static uint8_t old[4096];

		assert_int_equal(pread(kept, old, (size_t)n, at), n);
		if (at >= from && at < end && memcmp(page, old, (size_t)n) != 0) {
			memcpy(page, old, (size_t)n);
			differ++;
		}
		assert_int_equal(pwrite(to, page, (size_t)n, at), n);
		at += n;
	}
	close(live);
	close(kept);
	close(to);
	assert_true(differ > 0); /* there is something to find */
}

/* -------- after the power failure -------- */

struct found {
	bool opened;
	struct kept kept;
};

/* Opens the file as the failure left it. */
static void look_at_file(const char *file, struct found *found)
{
	struct rlv_verify_report report = { .size = sizeof(report) };
	struct rlv_store *store;
	struct rlv_table *table;

	memset(found, 0, sizeof(*found));
	if (open_file(file, &store))
		return;
	if (rlv_table_open(store, "kept", &table) == 0) {
		must(rlv_table_verify(table, &report), "verify");
		assert_int_equal(report.wrong_sums, 0);
		found->opened = kept_look(table, &found->kept) == 0;
		must(rlv_table_close(&table), "table close");
	}
	must(rlv_store_close(&store), "store close");
}

static void look(struct found *found)
{
	look_at_file(shadow, found);
}

/* Items of rows that were not written back are gone, the others are there, and none is wrong. */
static void expect_whole_items(void)
{
	struct found found;

	write_back_all_but_rows();
	look_at_file(disk, &found);
	assert_true(found.opened);
	assert_int_equal(found.kept.wrong_bytes, 0);
	assert_int_equal(found.kept.missing, 0);
	assert_int_equal(found.kept.wrong_priorities, 0);
}

static bool lost_something(const struct found *found)
{
	return !found->opened || found->kept.missing || found->kept.wrong_priorities;
}

#define CASE(fn) TEST_WITH(fn, setup, teardown)

/* -------- tests -------- */

CASE(power_lost__after_a_persist_every_line_is_durable)
{
	lose_power(false, 0);
	assert_true(count_persists() > 0);
	assert_int_equal(lines_lost(), 0);
}

CASE(power_lost__what_was_persisted_is_there_with_its_priorities)
{
	struct found found;

	lose_power(true, 0);
	assert_true(lines_lost() > 0); /* there was something to lose */
	look(&found);
	assert_true(found.opened);
	assert_int_equal(found.kept.missing, 0);
	assert_int_equal(found.kept.wrong_bytes, 0);
	assert_int_equal(found.kept.wrong_priorities, 0);
}

CASE(control__each_omitted_persist_is_found_out)
{
	uint32_t persists;

	lose_power(false, 0);
	persists = count_persists();
	for (uint32_t omit = 1; omit <= persists; omit++) {
		struct found found;

		(void)teardown(state);
		lose_power(false, omit);
		look(&found);
		/* The last four are of a shard's regions: rows, leaves, slots, pages. The latter two
		   are made anew by whoever opens it next. */
		if (omit + 4 > persists && omit + 2 <= persists)
			assert_true(lost_something(&found));
	}
}

/* No writer or sampler was open, so no slot shows a user. */
CASE(power_lost__with_the_store_open_and_nothing_else)
{
	run_victim(END_WRITER_CLOSED, shadow, 0);
	expect_whole_items();
}

/* The second opener, of the same boot, has no need to read rows, and frees the slots. */
CASE(power_lost__after_a_kill_and_a_reopening)
{
	char second[96];

	run_victim(END_WRITING, shadow, 0);
	snprintf(second, sizeof(second), "%s.2", shadow);
	run_victim(END_REOPENED, second, 0);
	unlink(second);
	expect_whole_items();
}

/* Its pages are of different moments; boot, device and inode may all be the same. */
/* The earlier table is freed, so the new one must be durable before. */
CASE(power_lost__after_a_load_that_replaced_the_table)
{
	struct found found;

	run_victim(END_REPLACED, shadow, 0);
	look(&found);
	assert_true(found.opened);
	assert_int_equal(found.kept.missing, 0);
	assert_int_equal(found.kept.wrong_bytes, 0);
	assert_int_equal(found.kept.wrong_priorities, 0);
}

CASE(copy__of_a_file_in_use_put_back)
{
	run_victim(END_WRITING, shadow, 0);
	expect_whole_items();
}

#ifdef REGION_MARKED /* a file that is laid over a commit of before has no word for it */

static uint64_t mark_of(const char *file)
{
	const struct extent_entry rows = find_rows();
	int fd = open(file, O_RDONLY | O_CLOEXEC);
	uint64_t mark = 0;
	off_t at = (off_t)(rows.first * POOL_EXTENT_BYTES) +
		   (off_t)offsetof(struct region_superblock, mark);

	assert_int_equal(pread(fd, &mark, sizeof(mark), at), sizeof(mark));
	close(fd);
	return mark;
}

/* From the first writer on, until all is persisted and none is open. */
CASE(mark__is_durable_while_rows_may_not_be)
{
	struct rlv_store *store;

	run_victim(END_CREATED, shadow, 0);
	assert_int_equal(mark_of(shadow), 0);
	run_victim(END_WRITER_OPENED, shadow, 0);
	assert_true(mark_of(shadow) == REGION_MARKED);
	must(open_file(path, &store), "open");
	assert_true(mark_of(path) == REGION_MARKED);
	must(rlv_store_persist(store), "persist");
	assert_int_equal(mark_of(path), 0);
	must(rlv_store_close(&store), "close");
	assert_int_equal(mark_of(path), 0);
}

/* The mark was clear before, and nothing is persisted behind it. */
CASE(power_lost__before_any_persist_but_that_of_the_mark)
{
	run_victim(END_CLOSED, shadow, 0);
	run_victim(END_MORE, shadow, 0);
	expect_whole_items();
}

/* The control: the same loss, if the mark is not made durable. */
CASE(control__without_its_mark_wrong_items_are_given_out)
{
	char at[32];
	struct found found;

	run_victim(END_CLOSED, shadow, 0);
	snprintf(at, sizeof(at), "%llu",
		 (unsigned long long)(find_rows().first * POOL_EXTENT_BYTES +
				      offsetof(struct region_superblock, mark)));
	setenv("RLV_SHADOW_OMIT_AT", at, 1);
	run_victim(END_MORE, shadow, 0);
	unsetenv("RLV_SHADOW_OMIT_AT");
	write_back_all_but_rows();
	look_at_file(disk, &found);
	assert_true(found.opened);
	assert_true(found.kept.wrong_bytes > 0);
}

static void run_command(const char *format, const char *a, const char *b)
{
	char command[256];

	snprintf(command, sizeof(command), "%s %s %s", format, a, b);
	assert_int_equal(system(command), 0);
}

/* A torn row cannot be detected: only an operator may declare that there is none. */
CASE(power_lost__rows_without_checksums_are_refused_until_trusted)
{
	struct rlv_store_opts opts = RLV_STORE_OPTS_INIT;
	struct rlv_store *store = NULL;
	struct rlv_table *table;

	run_victim(END_NO_CHECKSUMS, shadow, 0);
	run_command("cp", path, disk);
	assert_int_equal(open_file(disk, &store), -EBADMSG);
	assert_non_null(strstr(rlv_last_error(), "table kept"));
	assert_non_null(strstr(rlv_last_error(), "opts.trust"));
	run_command("cmp", disk, path);
	opts.trust = true;
	must(open_with(disk, &opts, &store), "trusted");
	must(rlv_table_open(store, "kept", &table), "table");
	must(rlv_table_close(&table), "table close");
	must(rlv_store_close(&store), "close");
	must(open_file(disk, &store), "closed cleanly");
	must(rlv_store_close(&store), "close");
}

#endif

/* The loader takes our libpmem only if the path is set before the program starts. */
static int with_shadow_library(char **argv)
{
	static const char dir[] = RLV_TEST_BIN_DIR "/../lib/shadow";
	const char *now = getenv("LD_LIBRARY_PATH");

	if (now && strcmp(now, dir) == 0)
		return 0;
	if (access(RLV_TEST_BIN_DIR "/../lib/shadow/libpmem.so.1", R_OK)) {
		print_message("skipped: built without libpmem\n");
		return TEST_EXIT_SKIP;
	}
	setenv("LD_LIBRARY_PATH", dir, 1);
	execv("/proc/self/exe", argv);
	perror("exec");
	return EXIT_FAILURE;
}

int main(int argc, char **argv)
{
	int ret;

	(void)argc;
	if (test_skips_valgrind("forks"))
		return TEST_EXIT_SKIP;
	ret = with_shadow_library(argv);
	return ret ? ret : test_run(NULL, NULL);
}
