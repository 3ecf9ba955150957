/*
 * A memory node on files is killed: the server reads all rows of its shards before anybody has them
 * again, and answers everybody meanwhile.
 */
#include "tests/support/processes.h"
#include "tests/support/fixture/store_fixture.h"
#include "tests/support/test.h"
#include "tests/support/store_nodes.h"

#include "relive/relive.h"

#include "base/os/clock.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define ROW_BYTES (64u << 10)
#define ROWS 12288u /* 768 MiB: a fifth of a second to read at least */
#define STEPS 64u
#define PARTS 3u /* no answer takes as much as this part of all the time until the table is there */

struct fixture {
	struct processes ps;
	struct rlv_store *store, *asker;
	_Atomic bool stop;
	uint32_t answers;
	uint64_t longest;
	pid_t node;
	char file[PROCESSES_PATH + 64];
};

static void must(int ret, const char *what)
{
	if (ret)
		fail_msg("%s: %s: %s", what, rlv_error_name(ret), rlv_last_error());
}

static void start_node(struct fixture *fx)
{
	const char *const args[] = { "--size", "900M", "--file", fx->file, NULL };

	fx->node = processes_memnode(&fx->ps, "s", "a", args);
}

static void fill_table(struct fixture *fx)
{
	static const struct rlv_column columns[] = {
		{ "obs", RLV_U8, RLV_OBS, 1, { ROW_BYTES } },
		{ "reward", RLV_F32, RLV_REWARD, 0, { 0 } },
	};
	struct rlv_table_opts opts = RLV_TABLE_OPTS_INIT;
	struct rlv_steps steps = RLV_STEPS_INIT;
	struct rlv_writer *writer = NULL;
	struct rlv_table *table = NULL;
	const uint32_t n = getenv("RLV_TEST_SLOW") ? ROWS / 16 : ROWS;
	uint8_t *obs = calloc(STEPS, ROW_BYTES);
	float reward[STEPS] = { 0 };
	const void *data[] = { obs, reward };

	assert_non_null(obs);
	opts.columns = columns;
	opts.n_columns = 2;
	opts.capacity = n;
	must(rlv_table_create(fx->store, "t", &opts, &table), "create");
	must(rlv_writer_open(table, NULL, &writer), "writer");
	steps.n = STEPS;
	steps.columns = data;
	for (uint32_t i = 0; i < n; i += STEPS)
		must(rlv_writer_append(writer, 0, &steps, NULL), "append");
	must(rlv_writer_close(&writer), "close the writer");
	must(rlv_table_close(&table), "close the table");
	free(obs);
}

static uint32_t node_state(struct fixture *fx)
{
	return store_node_at(fx->store, 0).state;
}

static bool is_down(void *ctx)
{
	return node_state(ctx) == RLV_NODE_DOWN;
}

static int setup(void **state)
{
	static struct fixture fx;

	memset(&fx, 0, sizeof(fx));
	processes_init(&fx.ps);
	processes_path(&fx.ps, "pool", fx.file);
	processes_metad(&fx.ps, "s", NULL);
	start_node(&fx);
	must(rlv_store_open("shm:s", NULL, &fx.store), "open");
	must(rlv_store_open("shm:s", NULL, &fx.asker), "open as another");
	store_fixture_await_node(fx.store);
	*state = &fx;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *fx = *state;

	(void)!rlv_store_close(&fx->asker);
	(void)!rlv_store_close(&fx->store);
	processes_fini(&fx->ps);
	return 0;
}

/* Somebody who has nothing to do with the table. */
static void *ask_all_the_time(void *arg)
{
	struct rlv_store_info info = { .size = sizeof(info) };
	struct fixture *fx = arg;

	while (!atomic_load(&fx->stop)) {
		uint64_t begin = clock_now_ns(clock_monotonic()), took;

		if (rlv_store_info(fx->asker, &info))
			break;
		took = clock_now_ns(clock_monotonic()) - begin;
		fx->longest = took > fx->longest ? took : fx->longest;
		fx->answers++;
	}
	return NULL;
}

static void memnode_killed__the_server_answers_while_it_reads_all_rows(void **state)
{
	struct fixture *fx = *state;
	struct rlv_table *table = NULL;
	uint64_t begin, all;
	pthread_t asker;

	fill_table(fx);
	processes_kill(&fx->ps, fx->node, SIGKILL);
	assert_true(processes_until(is_down, fx));
	assert_int_equal(pthread_create(&asker, NULL, ask_all_the_time, fx), 0);
	begin = clock_now_ns(clock_monotonic());
	start_node(fx);
	must(rlv_table_open(fx->store, "t", &table), "open");
	all = clock_now_ns(clock_monotonic()) - begin;
	atomic_store(&fx->stop, true);
	pthread_join(asker, NULL);
	must(rlv_table_close(&table), "close");
	print_message("%u answers in %.0f ms, the longest took %.0f ms\n", fx->answers,
		      (double)all / 1e6, (double)fx->longest / 1e6);
	assert_true(fx->longest < all / PARTS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			memnode_killed__the_server_answers_while_it_reads_all_rows, setup,
			teardown),
	};

	return TEST_RUN(tests, NULL, NULL);
}
