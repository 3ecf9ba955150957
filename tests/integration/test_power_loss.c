/*
 * Power failures. Each runs under a libpmem that remembers which lines were persisted
 * (tests/shadow/libpmem.c): what is opened afterwards is only that. All that a returned persist
 * covers must be there with its bytes and priorities; the control leaves one persist out and must
 * be found out.
 */
#include "tests/support/kept.h"
#include "tests/support/test.h"

#include "relive/relive.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define POOL_BYTES (12u << 20)

static char path[64], shadow[80], log_path[80];

static void must(int ret, const char *what)
{
	if (ret)
		fail_msg("%s: %s: %s", what, rlv_error_name(ret), rlv_last_error());
}

static int open_file(const char *file, struct rlv_store **store_out)
{
	struct rlv_store_opts opts = RLV_STORE_OPTS_INIT;
	char uri[128];

	opts.pool_bytes = POOL_BYTES;
	snprintf(uri, sizeof(uri), "embed:%s", file);
	return rlv_store_open(uri, &opts, store_out);
}

static int setup(void **state)
{
	(void)state;
	snprintf(path, sizeof(path), "/dev/shm/relive-power.%d", (int)getpid());
	snprintf(shadow, sizeof(shadow), "%s.shadow", path);
	snprintf(log_path, sizeof(log_path), "%s.log", path);
	unlink(path);
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

/* Steps [0, KEPT_STEPS) are persisted, what follows is not. Ends without closing anything. */
static int work(bool go_on)
{
	struct rlv_store *store;
	struct rlv_table *table;
	struct rlv_writer *writer;
	int ret = open_file(path, &store);

	if (ret == 0)
		ret = kept_create(store, &table);
	if (ret == 0)
		ret = rlv_writer_open(table, NULL, &writer);
	if (ret == 0)
		ret = kept_append(writer, 0, KEPT_STEPS);
	if (ret == 0)
		ret = kept_reprioritise(table);
	if (ret == 0)
		ret = rlv_store_persist(store);
	if (ret == 0 && go_on)
		ret = kept_append(writer, KEPT_STEPS, KEPT_STEPS + KEPT_MORE);
	if (ret)
		fprintf(stderr, "victim: %s\n", rlv_last_error());
	return ret ? 1 : 0;
}

/* omit: number of the persist that is left out, 0 = none. */
static void lose_power(bool go_on, uint32_t omit)
{
	char number[16];
	int status;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		snprintf(number, sizeof(number), "%u", omit);
		setenv("RLV_SHADOW_FILE", shadow, 1);
		setenv("RLV_SHADOW_OMIT", number, 1);
		setenv("RLV_SHADOW_LOG", log_path, 1);
		_exit(work(go_on));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
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

/* -------- the survivor: what is left -------- */

struct found {
	bool opened;
	struct kept kept;
};

/* Opens what the failure has left. */
static void look(struct found *found)
{
	struct rlv_verify_report report = { .size = sizeof(report) };
	struct rlv_store *store;
	struct rlv_table *table;

	memset(found, 0, sizeof(*found));
	if (open_file(shadow, &store))
		return;
	if (rlv_table_open(store, "kept", &table) == 0) {
		must(rlv_table_verify(table, &report), "verify");
		assert_int_equal(report.wrong_sums, 0);
		found->opened = kept_look(table, &found->kept) == 0;
		must(rlv_table_close(&table), "table close");
	}
	must(rlv_store_close(&store), "store close");
}

static bool lost_something(const struct found *found)
{
	return !found->opened || found->kept.missing || found->kept.wrong_priorities;
}

/* -------- tests -------- */

static void power_lost__after_a_persist_every_line_is_durable(void **state)
{
	(void)state;
	lose_power(false, 0);
	assert_true(count_persists() > 0);
	assert_int_equal(lines_lost(), 0);
}

static void power_lost__what_was_persisted_is_there_with_its_priorities(void **state)
{
	struct found found;

	(void)state;
	lose_power(true, 0);
	assert_true(lines_lost() > 0); /* there was something to lose */
	look(&found);
	assert_true(found.opened);
	assert_int_equal(found.kept.missing, 0);
	assert_int_equal(found.kept.wrong_bytes, 0);
	assert_int_equal(found.kept.wrong_priorities, 0);
}

static void control__each_omitted_persist_is_found_out(void **state)
{
	uint32_t persists;

	lose_power(false, 0);
	persists = count_persists();
	for (uint32_t omit = 1; omit <= persists; omit++) {
		struct found found;

		(void)teardown(state);
		lose_power(false, omit);
		look(&found);
		assert_true(lines_lost() > 0);
		/* The last two carry rows and leaves. */
		if (omit + 2 > persists)
			assert_true(lost_something(&found));
	}
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

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
	const struct CMUnitTest tests[] = {
		TEST(power_lost__after_a_persist_every_line_is_durable),
		TEST(power_lost__what_was_persisted_is_there_with_its_priorities),
		TEST(control__each_omitted_persist_is_found_out),
	};
	int ret;

	(void)argc;
	if (test_skips_valgrind("forks"))
		return TEST_EXIT_SKIP;
	ret = with_shadow_library(argv);
	return ret ? ret : cmocka_run_group_tests(tests, NULL, NULL);
}
