/*
 * `relive status --why` with real processes: a sampler and a writer in a limiter, a rebuild delayed
 * by a stopped writer, a drain.
 */
#include "tests/support/command.h"
#include "tests/support/attack/crash_rows.h"
#include "tests/support/attack/debtor.h"
#include "tests/support/processes.h"
#include "tests/support/fixture/store_fixture.h"
#include "tests/support/must.h"

#include "relive/relive.h"

#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#define SECOND ((int64_t)1000000000)

struct fixture {
	struct processes ps;
	struct command command;
	struct debtor *debtor;
	struct rlv_store *store;
	struct rlv_table *table;
};

static int setup(void **state)
{
	static const char *const metad[] = { "--lease", "600", NULL };
	static const char *const node[] = { "--size", "64M", NULL };
	static struct fixture fx;

	memset(&fx, 0, sizeof(fx));
	processes_init(&fx.ps);
	fx.command.ps = &fx.ps;
	fx.debtor = mmap(NULL, sizeof(*fx.debtor), PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(fx.debtor != MAP_FAILED);
	(void)processes_metad(&fx.ps, "s", metad);
	(void)processes_memnode(&fx.ps, "s", "a", node);
	must(rlv_store_open("shm:s", NULL, &fx.store), "open");
	store_fixture_await_node(fx.store);
	*state = &fx;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *fx = *state;

	(void)!rlv_table_close(&fx->table);
	(void)!rlv_store_close(&fx->store);
	processes_fini(&fx->ps);
	munmap(fx->debtor, sizeof(*fx->debtor));
	return 0;
}

/* -------- output of the command -------- */

struct look {
	struct fixture *fx;
	const char *words[4]; /* all of one line */
};

static bool has_words(const char *line, size_t len, const char *const words[4])
{
	for (size_t i = 0; i < 4 && words[i]; i++)
		if (!memmem(line, len, words[i], strlen(words[i])))
			return false;
	return true;
}

static bool says(void *ctx)
{
	const struct look *look = ctx;
	struct command *command = &look->fx->command;
	const char *line = command->out;

	if (command_run(command, "status shm:s --why"))
		return false;
	for (const char *end; (end = strchr(line, '\n')) != NULL; line = end + 1)
		if (has_words(line, (size_t)(end - line), look->words))
			return true;
	return false;
}

static bool says_no_more(void *ctx)
{
	return !says(ctx);
}

static void await_words(struct look *look)
{
	if (!processes_until(says, look))
		fail_msg("\"%s ... %s\" is in no line of:\n%s%s", look->words[0], look->words[1],
			 look->fx->command.out, look->fx->command.err);
}

/* -------- limiters -------- */

static struct rlv_table *limited_table(struct fixture *fx, const struct rlv_limiter *limiter)
{
	const struct rlv_column columns[] = { { "obs", RLV_F32, RLV_OBS, 1, { 4 } } };
	struct rlv_view view = { .selector = RLV_UNIFORM, .limiter = *limiter };
	struct rlv_table_opts opts = RLV_TABLE_OPTS_INIT;
	struct rlv_table *table;

	opts.columns = columns;
	opts.n_columns = 1;
	opts.capacity = 1024;
	opts.max_writers = 4;
	opts.views = &view;
	opts.n_views = 1;
	must(rlv_table_create(fx->store, "t", &opts, &table), "create");
	return table;
}

static int append(struct rlv_writer *writer, uint32_t n)
{
	static const float obs[64][4];
	const void *columns[] = { obs };
	const struct rlv_steps steps = { sizeof(steps), n, columns, NULL, NULL, 0 };

	return rlv_writer_append(writer, 0, &steps, NULL);
}

static int run_sampler(void *ctx)
{
	struct rlv_store *store;
	struct rlv_table *table;
	struct rlv_sampler *sampler;
	const struct rlv_batch *batch;

	(void)ctx;
	if (rlv_store_open("shm:s", NULL, &store) || rlv_table_open(store, "t", &table) ||
	    rlv_sampler_open(table, NULL, &sampler))
		return 1;
	return rlv_sampler_sample(sampler, 8, 60 * SECOND, &batch) ? 2 : 0;
}

static int run_writer(void *ctx)
{
	struct rlv_writer_opts opts = RLV_WRITER_OPTS_INIT;
	struct rlv_store *store;
	struct rlv_table *table;
	struct rlv_writer *writer;

	(void)ctx;
	opts.timeout_ns = 60 * SECOND;
	if (rlv_store_open("shm:s", NULL, &store) || rlv_table_open(store, "t", &table) ||
	    rlv_writer_open(table, &opts, &writer))
		return 1;
	for (uint32_t i = 0; i < 30; i++)
		if (append(writer, 1))
			return 2;
	return 0;
}

TEST_WITH(why__a_sampler_that_waits_for_min_size, setup, teardown)
{
	const struct rlv_limiter limiter = { .min_size = 20 };
	struct fixture *fx = *state;
	char pid_words[32];
	struct look look = { fx,
			     { "limiter", pid_words, "from view 0 of table t",
			       "waits for 20 more inserts (0 items inserted, min_size 20" } };
	struct rlv_writer *writer;
	pid_t pid;

	fx->table = limited_table(fx, &limiter);
	pid = processes_fork(&fx->ps, run_sampler, NULL);
	snprintf(pid_words, sizeof(pid_words), "pid %d slot ", (int)pid);
	await_words(&look);
	command_expect(&fx->command, 0, "status shm:s --why --json");
	command_expect_words(fx->command.out, "\"kind\":\"limiter\"");
	command_expect_words(fx->command.out, "\"table\":\"t\",\"view\":0");
	must(rlv_writer_open(fx->table, NULL, &writer), "writer");
	must(append(writer, 64), "append");
	assert_int_equal(processes_wait(&fx->ps, pid, PROCESSES_WAIT_MS), 0);
	assert_true(processes_until(says_no_more, &look));
	must(rlv_writer_close(&writer), "close");
}

TEST_WITH(why__a_writer_that_waits_for_max_diff, setup, teardown)
{
	const struct rlv_limiter limiter = {
		.min_size = 1, .samples_per_insert = 1, .min_diff = -1000, .max_diff = 10
	};
	struct fixture *fx = *state;
	char pid_words[32];
	struct look look = { fx,
			     { "limiter", pid_words, "append: the limiter of view 0 of table t",
			       "max_diff 10" } };
	struct rlv_sampler *sampler;
	const struct rlv_batch *batch;
	pid_t pid;

	fx->table = limited_table(fx, &limiter);
	pid = processes_fork(&fx->ps, run_writer, NULL);
	snprintf(pid_words, sizeof(pid_words), "pid %d slot ", (int)pid);
	await_words(&look);
	command_expect_words(fx->command.out, "more sample");
	must(rlv_sampler_open(fx->table, NULL, &sampler), "sampler");
	must(rlv_sampler_sample(sampler, 64, 10 * SECOND, &batch), "sample");
	assert_int_equal(processes_wait(&fx->ps, pid, PROCESSES_WAIT_MS), 0);
	assert_true(processes_until(says_no_more, &look));
	must(rlv_sampler_close(&sampler), "close");
}

/* -------- rebuilds, and stopped processes -------- */

static bool is_rebuilt_or_waits(void *ctx)
{
	struct rlv_store_info info = { .size = sizeof(info) };
	struct fixture *fx = ctx;

	return rlv_store_info(fx->store, &info) == 0 && (info.rebuilds > 0 || info.waiting[0]);
}

static void fill_table(struct fixture *fx)
{
	static struct crash_rows rows;
	struct rlv_writer *writer;

	fx->table = store_fixture_crash_table(fx->store, 2048, 64);
	must(rlv_writer_open(fx->table, NULL, &writer), "writer");
	for (uint32_t step = 0; step < 2000; step += 200) {
		crash_rows_fill(&rows, 1, step, 200);
		must(rlv_writer_append(writer, 0, &rows.steps, NULL), "append");
	}
	must(rlv_writer_close(&writer), "close");
}

TEST_WITH(why__a_rebuild_that_a_stopped_process_holds_up, setup, teardown)
{
	struct fixture *fx = *state;
	char waits[64], stopped[64];
	struct look rebuild = { fx, { "rebuild", waits, "table t", "stopped (state T)" } };
	struct look process = { fx, { "stopped", stopped, "of table t", NULL } };
	pid_t pid;

	fill_table(fx);
	pid = debtor_start(&fx->ps, fx->debtor, SIGSTOP);
	snprintf(waits, sizeof(waits), "pid %d slot ", (int)pid);
	snprintf(stopped, sizeof(stopped), "pid %d is stopped", (int)pid);
	(void)debtor_start(&fx->ps, fx->debtor,
			   SIGKILL); /* the first rebuild may pass by a pin of its own epoch */
	assert_true(processes_until(is_rebuilt_or_waits, fx));
	(void)debtor_start(&fx->ps, fx->debtor, SIGKILL);
	await_words(&rebuild);
	await_words(&process);
	command_expect(&fx->command, 0, "status shm:s --why --json");
	command_expect_words(fx->command.out, "\"kind\":\"rebuild\"");
	command_expect_words(fx->command.out, "\"stopped\":true");
	atomic_store(&fx->debtor->pays, true);
	processes_kill(&fx->ps, pid, SIGCONT);
	assert_int_equal(processes_wait(&fx->ps, pid, PROCESSES_WAIT_MS), 0);
	assert_true(processes_until(says_no_more, &rebuild));
	assert_true(processes_until(says_no_more, &process));
}

/* -------- drains -------- */

TEST_WITH(why__a_node_that_drains, setup, teardown)
{
	static const char *const node[] = { "--size", "64M", NULL };
	struct fixture *fx = *state;
	struct look look = {
		fx, { "drain", "shard 0 leaves node a", "items are still to be overwritten", NULL }
	};

	fill_table(fx);
	(void)processes_memnode(&fx->ps, "s", "b", node);
	command_expect(&fx->command, 0, "node drain shm:s a");
	await_words(&look);
	command_expect(&fx->command, 0, "status shm:s --why --json");
	command_expect_words(fx->command.out, "\"node\":\"a\",\"items_left\":");
}

TEST_WITH(why__nobody_waits, setup, teardown)
{
	struct fixture *fx = *state;

	command_expect(&fx->command, 0, "status shm:s --why");
	command_expect_words(fx->command.out, "nothing is waiting");
	command_expect(&fx->command, 0, "status shm:s --why --json");
	command_expect_words(fx->command.out, "\"waits\":[]");
}

int main(void)
{
	return test_run(NULL, NULL);
}
