/*
 * Saved tables when something ends: kill -9 of `relive table save` and `load` at their steps, and a full
 * disk.
 */
#include "tests/support/attack/kill_step.h"
#include "tests/support/command.h"
#include "tests/support/items.h"
#include "tests/support/must.h"

#include "relive/save.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define N 3000u
#define KILLS 5u
#define BEFORE 100u /* items of a table that is replaced */
#define PATH (PROCESSES_PATH + 64)

struct fixture {
	struct processes ps;
	struct command cmd;
	char file[PATH], draft[PATH + 8];
	char from[PATH + 8], to[PATH + 8]; /* URIs of stores in files */
	char pool[PATH];                   /* of the latter */
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	char pool[PATH];

	assert_non_null(f);
	processes_init(&f->ps);
	f->cmd.ps = &f->ps;
	processes_path(&f->ps, "saved", f->file);
	snprintf(f->draft, sizeof(f->draft), "%s.saving", f->file);
	processes_path(&f->ps, "from", pool);
	snprintf(f->from, sizeof(f->from), "embed:%s", pool);
	processes_path(&f->ps, "to", f->pool);
	snprintf(f->to, sizeof(f->to), "embed:%s", f->pool);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	processes_fini(&f->ps);
	free(f);
	return 0;
}

#define CASE(f) TEST_WITH(f, setup, teardown)

/* Runs `relive LINE` to its end, or to its kill before that step; the steps it did. */
static uint64_t run_to(struct fixture *f, const char *line, uint64_t at)
{
	const char *bin = getenv("RLV_BIN_DIR");
	char path[PATH], log[PATH], words[1024], *rest = words;
	const char *argv[16] = { path };
	const struct kill_step step = { .path = path, .argv = argv, .log = log, .at = at };
	struct kill_step_report report;
	size_t n = 1;

	snprintf(path, sizeof(path), "%s/relive", bin ? bin : "bin");
	snprintf(words, sizeof(words), "%s", line);
	for (char *word; (word = strtok_r(rest, " ", &rest)) != NULL;)
		argv[n++] = word;
	processes_path(&f->ps, "killed.log", log);
	kill_step_run(&step, &report);
	assert_true(report.killed || report.status == 0);
	return report.steps;
}

/* The file has all items: it is loaded into a store of its own. */
static void expect_whole(struct fixture *f)
{
	(void)unlink(f->pool);
	command_expect(&f->cmd, 0, "table load %s --file %s", f->to, f->file);
	items_expect(f->to, "t", N);
}

CASE(save__killed_leaves_the_old_file_or_the_new_one)
{
	struct fixture *f = *state;
	char line[1024];
	uint64_t steps;

	items_put(f->from, "t", N);
	snprintf(line, sizeof(line), "table save %s t --file %s", f->from, f->file);
	steps = run_to(f, line, 0);
	for (uint64_t k = 0; k < KILLS; k++) {
		(void)run_to(f, line, 1 + k * steps / KILLS);
		expect_whole(f);
	}
	(void)run_to(f, line, 0);
	assert_int_equal(access(f->draft, F_OK), -1);
	expect_whole(f);
}

CASE(load__killed_is_done_again)
{
	struct fixture *f = *state;
	char line[1024];
	uint64_t steps;

	items_put(f->from, "t", N);
	command_expect(&f->cmd, 0, "table save %s t --file %s", f->from, f->file);
	snprintf(line, sizeof(line), "table load %s --file %s", f->to, f->file);
	steps = run_to(f, line, 0);
	for (uint64_t k = 0; k < KILLS; k++) {
		(void)unlink(f->pool);
		(void)run_to(f, line, 1 + k * steps / KILLS);
		command_expect(&f->cmd, 0, "table load %s --file %s --replace", f->to, f->file);
		items_expect(f->to, "t", N);
	}
}

/* -------- a load that replaces a table -------- */

/* The items of the store's only table; *used_out: the memory of the pool that it has. */
static int64_t items_in(struct fixture *f, uint64_t *used_out)
{
	struct rlv_table_info info = { .size = sizeof(info) };
	struct rlv_node_info node = { .regions = 0 };
	struct rlv_store *store = NULL;
	struct rlv_table *table = NULL;
	struct rlv_verify_report report = { .size = sizeof(report) };
	size_t tables = 0, n = 1;

	must(rlv_store_open(f->to, NULL, &store), "open");
	must(rlv_store_tables(store, NULL, &tables), "tables");
	assert_int_equal(tables, 1);
	must(rlv_table_open(store, "t", &table), "table");
	must(rlv_table_info(table, &info), "info");
	must(rlv_table_verify(table, &report), "verify");
	assert_int_equal(report.problems, 0);
	must(rlv_store_nodes(store, &node, sizeof(node), &n), "nodes");
	*used_out = node.used_bytes;
	must(rlv_table_close(&table), "close");
	must(rlv_store_close(&store), "close");
	return info.views[0].items;
}

CASE(load__that_replaces_killed_leaves_the_one_or_the_other)
{
	struct fixture *f = *state;
	uint64_t steps, used, used_before, used_after;
	uint32_t n_before = 0, n_after = 0;
	char line[1024];

	items_put(f->from, "t", N);
	command_expect(&f->cmd, 0, "table save %s t --file %s", f->from, f->file);
	items_put(f->to, "t", BEFORE);
	assert_int_equal(items_in(f, &used_before), BEFORE);
	snprintf(line, sizeof(line), "table load %s --file %s --replace", f->to, f->file);
	steps = run_to(f, line, 0);
	assert_int_equal(items_in(f, &used_after), N);
	for (uint64_t at = 1; at <= steps; at++) {
		int64_t items;

		(void)unlink(f->pool);
		items_put(f->to, "t", BEFORE);
		(void)run_to(f, line, at);
		items = items_in(f, &used);
		assert_true(items == BEFORE || items == N);
		assert_int_equal(used, items == N ? used_after : used_before);
		n_before += items == BEFORE;
		n_after += items == N;
	}
	print_message("%u steps, killed at %u: %u have the earlier table, %u the new one\n",
		      (uint32_t)steps, n_before + n_after, n_before, n_after);
	assert_true(n_before > 0 && n_after > 0);
}

/* A file may not grow beyond a limit, as on a full disk. */
CASE(save__without_room_leaves_the_old_file)
{
	struct fixture *f = *state;
	const struct rlimit tight = { 8192, RLIM_INFINITY };
	struct rlimit before;
	struct rlv_store *store = NULL;
	struct rlv_table *table = NULL;
	int ret;

	items_put(f->from, "t", N);
	command_expect(&f->cmd, 0, "table save %s t --file %s", f->from, f->file);
	must(rlv_store_open(f->from, NULL, &store), "open");
	must(rlv_table_open(store, "t", &table), "table");
	(void)signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
	ret = rlv_table_save(table, f->file, NULL, NULL);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
	expect(ret, -EFBIG);
	assert_non_null(strstr(rlv_last_error(), f->draft));
	assert_int_equal(access(f->draft, F_OK), -1);
	must(rlv_table_close(&table), "close");
	must(rlv_store_close(&store), "close");
	expect_whole(f);
}

int main(void)
{
	return test_run(NULL, NULL);
}
