/*
 * A memory node on files is killed: the server reads all rows of its shards before anybody has them
 * again, and answers everybody meanwhile: who asks for the table is told that its rows are being read.
 * How long a slice of that work is, unit.test_catalog_nodes counts.
 */
#include "tests/support/processes.h"
#include "tests/support/fixture/store_fixture.h"
#include "tests/support/must.h"
#include "tests/support/store_nodes.h"

#include "relive/relive.h"

#include "client/store/store.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define ROW_BYTES (64u << 10)
#define ROWS 12288u /* 768 MiB: a fifth of a second to read at least */
#define STEPS 64u

struct fixture {
	struct processes ps;
	struct rlv_store *store, *asker;
	int asked; /* the asker's last answer */
	uint32_t answers;
	pid_t node;
	char file[PROCESSES_PATH + 64];
};

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
	fx.asker->timeout_ns = 0; /* an open does not wait for nodes: it asks once */
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

/* Counts the answers that only a server can give that is between two slices of the scan. */
static void *ask_for_the_table(void *arg)
{
	struct fixture *fx = arg;
	struct rlv_table *table = NULL;

	do {
		fx->asked = rlv_table_open(fx->asker, "t", &table);
		fx->answers += fx->asked && strstr(rlv_last_error(), "all rows are being read");
	} while (fx->asked == -EHOSTDOWN);
	(void)!rlv_table_close(&table);
	return NULL;
}

static void kill_node(struct fixture *fx)
{
	pthread_t asker;

	processes_kill(&fx->ps, fx->node, SIGKILL);
	assert_true(processes_until(is_down, fx));
	assert_int_equal(pthread_create(&asker, NULL, ask_for_the_table, fx), 0);
	start_node(fx);
	pthread_join(asker, NULL);
	print_message("%u answers during the scan\n", fx->answers);
	must(fx->asked, "open");
}

/* On a busy host the asker may stand still for a whole scan, which comes with each death of the node. */
TEST_WITH(memnode_killed__the_server_answers_while_it_reads_all_rows, setup, teardown)
{
	struct fixture *fx = *state;

	fill_table(fx);
	for (int i = 0; i < 5 && fx->answers == 0; i++)
		kill_node(fx);
	assert_true(fx->answers > 0);
}

int main(void)
{
	return test_run(NULL, NULL);
}
