/*
 * A client with rights to write cuts its own region's file short. The daemons outlive it, the other
 * tables and shards go on, that shard is down.
 *
 * All that maps regions runs in processes of its own: who maps one that is cut may be killed for it.
 */
#include "tests/support/processes.h"
#include "tests/support/fixture/store_fixture.h"
#include "tests/support/test.h"

#include "relive/relive.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define POOL "128M"
#define STEPS 64u

static const struct rlv_column columns[] = {
	{ .name = "obs", .dtype = RLV_F32, .role = RLV_OBS, .ndim = 1, .shape = { 4 } },
	{ .name = "action", .dtype = RLV_I64 },
	{ .name = "reward", .dtype = RLV_F32, .role = RLV_REWARD },
};

struct cut {
	struct processes ps;
	pid_t metad, memnode;
	char pool[PROCESSES_PATH + 64];
	const char *role; /* which file is cut: "tree", "rows" or ".page-" */
};

/* -------- child processes -------- */

static int open_table(const char *name, struct rlv_store **store_out, struct rlv_table **table_out)
{
	struct rlv_store_opts opts = RLV_STORE_OPTS_INIT;
	int ret;

	opts.timeout_ns = 5000000000;
	ret = rlv_store_open("shm:s", &opts, store_out);
	return ret ? ret : rlv_table_open(*store_out, name, table_out);
}

static int append(struct rlv_table *table, uint32_t blocks)
{
	static float obs[STEPS * 4], reward[STEPS];
	static int64_t action[STEPS];
	const void *arrays[] = { obs, action, reward };
	struct rlv_writer_opts opts = RLV_WRITER_OPTS_INIT;
	struct rlv_steps steps = RLV_STEPS_INIT;
	struct rlv_writer *writer = NULL;
	int ret = rlv_writer_open(table, &opts, &writer);

	steps.n = STEPS;
	steps.columns = arrays;
	for (uint32_t i = 0; ret == 0 && i < blocks; i++)
		ret = rlv_writer_append(writer, 0, &steps, NULL);
	return ret ? ret : rlv_writer_close(&writer);
}

static int sample(struct rlv_table *table)
{
	struct rlv_sampler_opts opts = RLV_SAMPLER_OPTS_INIT;
	const struct rlv_batch *batch = NULL;
	struct rlv_sampler *sampler = NULL;
	int ret = rlv_sampler_open(table, &opts, &sampler);

	if (ret == 0)
		ret = rlv_sampler_sample(sampler, 64, 10000000000, &batch);
	if (ret == 0)
		rlv_batch_release(sampler, batch);
	return ret ? ret : rlv_sampler_close(&sampler);
}

static int failed(const char *what, int ret)
{
	fprintf(stderr, "%s: %s: %s\n", what, rlv_error_name(ret), rlv_last_error());
	return 1;
}

static int make_tables(void *ctx)
{
	struct rlv_table_opts opts = RLV_TABLE_OPTS_INIT;
	struct rlv_store *store = NULL;
	int ret = rlv_store_open("shm:s", NULL, &store);

	(void)ctx;
	opts.columns = columns;
	opts.n_columns = 3;
	opts.capacity = 16384;
	for (const char *name = "ab"; ret == 0 && *name; name++) {
		const char text[2] = { *name };
		struct rlv_table *table = NULL;

		opts.shards = *name == 'a' ? 2 : 1;
		ret = rlv_table_create(store, text, &opts, &table);
		if (ret == 0)
			ret = append(table, 128);
		if (ret == 0)
			ret = rlv_table_close(&table);
	}
	return ret ? failed("make", ret) : 0;
}

/* The file of a region of the role that this process maps; of a pool in one file, that file. */
static bool find_mapped(const struct cut *cut, char path[256])
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[512];
	bool found = false;

	while (maps && !found && fgets(line, sizeof(line), maps)) {
		char *at = strchr(line, '/');
		size_t n = strlen(cut->pool);

		if (!at || strncmp(at, cut->pool, n) != 0)
			continue;
		at[strcspn(at, "\n")] = '\0';
		found = at[n] == '\0' || strstr(at + n, cut->role);
		snprintf(path, 256, "%.255s", at);
	}
	if (maps)
		fclose(maps);
	return found;
}

/*
 * A client with rights to table a only. It ends at once, because its own accesses fault. The server
 * then settles its slots in each shard, and touches missing pages.
 */
static int cut_own_region(void *ctx)
{
	struct rlv_writer_opts opts = RLV_WRITER_OPTS_INIT;
	struct rlv_writer *writer;
	struct cut *cut = ctx;
	struct rlv_store *store;
	struct rlv_table *table;
	char path[256];
	int ret = open_table("a", &store, &table);

	if (ret == 0)
		ret = rlv_writer_open(table, &opts, &writer);
	if (ret)
		return failed("open a", ret);
	if (!find_mapped(cut, path) || truncate(path, 0))
		return failed("truncate", -errno);
	fprintf(stderr, "cut %s\n", path);
	_exit(0);
}

static int use_b(void *ctx)
{
	struct rlv_store *store = NULL;
	struct rlv_table *table = NULL;
	int ret = open_table("b", &store, &table);

	(void)ctx;
	if (ret == 0)
		ret = append(table, 64);
	if (ret == 0)
		ret = sample(table);
	if (ret == 0)
		ret = rlv_table_close(&table);
	return ret ? failed("table b", ret) : 0;
}

/* One shard of the table is down, the other accepts appends and samples. */
static int use_rest_of_a(void *ctx)
{
	struct rlv_shard_info shards[2] = { 0 };
	struct rlv_store *store = NULL;
	struct rlv_table *table = NULL;
	size_t n = 2;
	int ret = open_table("a", &store, &table);

	(void)ctx;
	if (ret == 0)
		ret = rlv_table_shards(table, shards, sizeof(shards[0]), &n);
	if (ret)
		return 3;
	if (n != 2 ||
	    (shards[0].state == RLV_SHARD_DOWN) + (shards[1].state == RLV_SHARD_DOWN) != 1)
		return 2; /* not yet */
	ret = append(table, 8);
	if (ret == 0)
		ret = sample(table);
	return ret ? failed("rest of table a", ret) : 0;
}

/* -------- the test -------- */

static int run(struct cut *cut, int (*fn)(void *ctx))
{
	return processes_wait(&cut->ps, processes_fork(&cut->ps, fn, cut), PROCESSES_WAIT_MS);
}

static bool rest_of_a_works(void *ctx)
{
	return run(ctx, use_rest_of_a) == 0;
}

static void start_memnode(struct cut *cut)
{
	const char *const args[] = { "--size", POOL, "--file", cut->pool, NULL };

	cut->memnode = processes_memnode(&cut->ps, "s", "n", args);
}

static bool node_is_up(void *ctx)
{
	struct rlv_store *store = NULL;
	bool is = rlv_store_open("shm:s", NULL, &store) == 0 && store_fixture_node_is_up(store);

	(void)ctx;
	return rlv_store_close(&store) == 0 && is;
}

static int setup(void **state)
{
	static struct cut cut;

	memset(&cut, 0, sizeof(cut));
	processes_init(&cut.ps);
	processes_path(&cut.ps, "pool", cut.pool);
	cut.metad = processes_metad(&cut.ps, "s", NULL);
	start_memnode(&cut);
	assert_true(processes_until(node_is_up, NULL));
	assert_int_equal(run(&cut, make_tables), 0);
	*state = &cut;
	return 0;
}

static int teardown(void **state)
{
	struct cut *cut = *state;

	processes_fini(&cut->ps);
	return 0;
}

struct command {
	struct cut *cut;
	pid_t pid;
};

static bool has_ended(void *ctx)
{
	const struct command *command = ctx;

	return !processes_runs(&command->cut->ps, command->pid);
}

static bool status_says_broken(void *ctx)
{
	const char *const args[] = { "status", "shm:s", NULL };
	struct command command = { .cut = ctx };
	bool found;

	command.pid = processes_start(&command.cut->ps, "relive", args);
	assert_true(processes_until(has_ended, &command));
	found = processes_log_has(&command.cut->ps, command.pid, "up, 1 broken");
	assert_int_equal(processes_wait(&command.cut->ps, command.pid, PROCESSES_WAIT_MS), 0);
	return found;
}

static void cut_and_use(struct cut *cut)
{
	assert_int_equal(run(cut, cut_own_region), 0);
	assert_int_equal(run(cut, use_b), 0);
	assert_true(processes_until(rest_of_a_works, cut));
	assert_int_equal(run(cut, use_b), 0);
	assert_true(processes_runs(&cut->ps, cut->metad));
	assert_true(processes_runs(&cut->ps, cut->memnode));
}

static void cut_and_check(struct cut *cut)
{
	cut_and_use(cut);
	assert_true(processes_until(status_says_broken, cut));
	assert_true(processes_log_has(&cut->ps, cut->metad, "table a shard"));
}

#define CASE(fn) TEST_WITH(fn, setup, teardown)

CASE(rows_cut__the_others_go_on)
{
	struct cut *cut = *state;

	cut->role = "rows";
	cut_and_check(cut);
}

CASE(tree_cut__the_others_go_on)
{
	struct cut *cut = *state;

	cut->role = "tree";
	cut_and_check(cut);
}

/*
 * The slot's next owner may renew the page before the damage is noticed: it is intact again then.
 */
CASE(page_cut__the_others_go_on)
{
	struct cut *cut = *state;

	cut->role = ".page-";
	cut_and_use(cut);
}

/* The next lives of both daemons find a file that was cut, and serve the rest. */
CASE(restart__on_a_cut_region_serves_the_others)
{
	struct cut *cut = *state;

	cut->role = "tree";
	cut_and_check(cut);
	processes_kill(&cut->ps, cut->memnode, SIGKILL);
	processes_kill(&cut->ps, cut->metad, SIGKILL);
	cut->metad = processes_metad(&cut->ps, "s", NULL);
	start_memnode(cut);
	assert_true(processes_until(node_is_up, NULL));
	assert_int_equal(run(cut, use_b), 0);
	assert_true(processes_until(rest_of_a_works, cut));
}

static int drop_a(void *ctx)
{
	struct rlv_store *store = NULL;
	int ret = rlv_store_open("shm:s", NULL, &store);

	(void)ctx;
	if (ret == 0)
		ret = rlv_table_drop(store, "a");
	return ret ? failed("drop a", ret) : 0;
}

/* A table that has lost a shard so can be dropped, and made again in its room. */
CASE(drop__of_a_table_with_a_cut_region)
{
	struct cut *cut = *state;

	cut->role = "rows";
	cut_and_check(cut);
	assert_int_equal(run(cut, drop_a), 0);
	assert_int_equal(run(cut, use_b), 0);
	assert_int_equal(run(cut, make_tables), 0);
	assert_int_equal(run(cut, use_b), 0);
}

int main(void)
{
	if (test_skips_valgrind("its registers are not exact where a signal comes"))
		return TEST_EXIT_SKIP;
	return test_run(NULL, NULL);
}
