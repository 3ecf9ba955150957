/*
 * Life of stores and tables: open, close in the right order, drop, fork, read-only.
 */
#include "tests/support/fixture/replay_fixture.h"
#include "tests/support/test.h"
#include "tests/support/store_nodes.h"

#include <errno.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct rlv_table_opts plain = { 0 };

TEST(store_close__with_open_tables_gives_ebusy)
{
	struct replay_fixture fx;
	struct rlv_store *store;

	replay_open(&fx, &plain);
	store = fx.store;
	replay_expect(rlv_store_close(&fx.store), -EBUSY, "1 tables");
	assert_ptr_equal(fx.store, store);
	replay_close(&fx);
}

TEST(table_close__with_open_handles_gives_ebusy)
{
	struct replay_fixture fx;
	struct rlv_writer *writer;
	struct rlv_sampler *sampler;

	replay_open(&fx, &plain);
	writer = replay_writer(&fx, 1);
	sampler = replay_sampler(&fx, NULL);
	replay_expect(rlv_table_close(&fx.table), -EBUSY, "2 writers or samplers");
	replay_writer_done(&writer);
	replay_expect(rlv_table_close(&fx.table), -EBUSY, "1 writers or samplers");
	replay_end(&fx, NULL, &sampler);
}

TEST(close__twice_is_a_no_op)
{
	struct replay_fixture fx;
	struct rlv_writer *writer = NULL;
	struct rlv_sampler *sampler = NULL;

	replay_open(&fx, &plain);
	replay_close(&fx);
	assert_int_equal(rlv_table_close(&fx.table), 0);
	assert_int_equal(rlv_store_close(&fx.store), 0);
	assert_int_equal(rlv_writer_close(&writer), 0);
	assert_int_equal(rlv_sampler_close(&sampler), 0);
	assert_int_equal(rlv_writer_close(NULL), 0);
	assert_int_equal(rlv_sampler_close(NULL), 0);
	assert_int_equal(rlv_table_close(NULL), 0);
	assert_int_equal(rlv_store_close(NULL), 0);
}

TEST(store_info__counts_tables_and_bytes)
{
	struct rlv_store_info info = { .size = sizeof(info) };
	struct rlv_node_info node;
	struct replay_fixture fx;

	replay_open(&fx, &plain);
	assert_int_equal(rlv_store_info(fx.store, &info), 0);
	assert_string_equal(info.uri, "embed:");
	assert_string_equal(info.server_version, rlv_version());
	assert_int_equal(info.n_nodes, 1);
	assert_int_equal(info.n_tables, 1);
	node = store_node_at(fx.store, 0);
	assert_int_equal(node.state, RLV_NODE_UP);
	assert_int_equal(node.regions, 4);
	assert_true(node.used_bytes >=
		    replay_info(fx.table).rows_bytes + replay_info(fx.table).tree_bytes);
	replay_close(&fx);
}

/* -------- drop -------- */

TEST(table_drop__handles_on_it_get_estale)
{
	const struct rlv_batch *batch;
	const uint64_t key = 1ull << 56 | 1ull << 24;
	const float td = 1;
	struct replay_put put = { .n = 1 };
	struct replay_fixture fx;
	struct rlv_writer *writer, *late = NULL;
	struct rlv_sampler *sampler;

	replay_open(&fx, &plain);
	writer = replay_writer(&fx, 1);
	sampler = replay_sampler(&fx, NULL);
	replay_append_plain(&fx, writer, 0, 20);
	assert_int_equal(rlv_table_drop(fx.store, "t"), 0);
	replay_expect(replay_append(&fx, writer, &put), -ESTALE, NULL);
	replay_expect(rlv_writer_end_episode(writer, 0, NULL), -ESTALE, NULL);
	replay_expect(rlv_sampler_sample(sampler, 1, -1, &batch), -ESTALE, NULL);
	replay_expect(rlv_sampler_update(sampler, &key, &td, 1, NULL), -ESTALE, NULL);
	replay_expect(rlv_writer_open(fx.table, NULL, &late), -ESTALE, NULL);
	assert_null(late);
	replay_expect(rlv_table_drop(fx.store, "t"), -ENOENT, "t");
	replay_expect(rlv_writer_close(&writer), -ESTALE, NULL);
	replay_expect(rlv_sampler_close(&sampler), -ESTALE, NULL);
	assert_null(writer);
	assert_null(sampler);
	assert_int_equal(rlv_table_close(&fx.table), 0);
	assert_int_equal(rlv_store_close(&fx.store), 0);
	replay_oracle_fini(&fx.oracle);
}

TEST(table_drop__old_handles_cannot_touch_the_next_table)
{
	struct rlv_table_opts opts = RLV_TABLE_OPTS_INIT;
	struct replay_put put = { .n = 50 };
	struct replay_fixture fx;
	struct rlv_table *old;
	struct rlv_writer *stale, *writer;
	struct rlv_sampler *sampler;
	const struct rlv_batch *batch;
	uint64_t key;
	const float td = 3;

	replay_open(&fx, &plain);
	stale = replay_writer(&fx, 1);
	sampler = replay_sampler(&fx, NULL);
	replay_append_plain(&fx, stale, 0, 50);
	batch = replay_sample(sampler, 1);
	key = batch->key[0];
	old = fx.table;
	assert_int_equal(rlv_table_drop(fx.store, "t"), 0);
	opts.columns = replay_obs_columns;
	opts.n_columns = REPLAY_COLUMNS;
	opts.capacity = 4096;
	assert_int_equal(rlv_table_create(fx.store, "t", &opts, &fx.table), 0);
	replay_oracle_fini(&fx.oracle);
	replay_oracle_init(&fx.oracle, true);
	replay_expect(replay_append(&fx, stale, &put), -ESTALE, NULL);
	assert_int_equal(replay_info(fx.table).views[0].items, 0);
	replay_expect(rlv_writer_close(&stale), -ESTALE, NULL);
	replay_expect(rlv_sampler_close(&sampler), -ESTALE, NULL);
	assert_int_equal(rlv_table_close(&old), 0);
	/* A key of the old table matches no item of the new one, even if both have the same id. */
	writer = replay_writer(&fx, 1);
	replay_append_plain(&fx, writer, 0, 50);
	sampler = replay_sampler(&fx, NULL);
	{
		struct rlv_update_result result = { 0 };
		int rc = rlv_sampler_update(sampler, &key, &td, 1, &result);

		assert_true(rc == -EINVAL || (rc == 0 && result.stale == 1));
	}
	replay_end(&fx, &writer, &sampler);
}

TEST(table_drop__gives_its_space_back)
{
	struct rlv_store_opts opts = RLV_STORE_OPTS_INIT;
	struct rlv_store_info info = { .size = sizeof(info) };
	struct rlv_table_opts table = RLV_TABLE_OPTS_INIT;
	struct rlv_store *store = NULL;

	opts.pages = RLV_PAGES_SMALL;
	opts.pool_bytes = 64 << 20;
	table.columns = replay_obs_columns;
	table.n_columns = REPLAY_COLUMNS;
	table.capacity = 200000;
	assert_int_equal(rlv_store_open("embed:", &opts, &store), 0);
	for (uint32_t i = 0; i < 20; i++) {
		struct rlv_table *handle = NULL;

		assert_int_equal(rlv_table_create(store, "t", &table, &handle), 0);
		assert_int_equal(rlv_table_close(&handle), 0);
		assert_int_equal(rlv_table_drop(store, "t"), 0);
	}
	assert_int_equal(rlv_store_info(store, &info), 0);
	assert_int_equal(info.n_tables, 0);
	assert_int_equal(store_node_at(store, 0).used_bytes, 0);
	assert_int_equal(rlv_store_close(&store), 0);
}

/* -------- slots -------- */

TEST(handles__max_clients_are_the_most)
{
	const struct rlv_table_opts opts = { .max_clients = 3 };
	struct replay_fixture fx;
	struct rlv_writer *writers[3], *more = NULL;
	struct rlv_sampler *sampler = NULL;

	replay_open(&fx, &opts);
	for (uint32_t i = 0; i < 3; i++)
		writers[i] = replay_writer(&fx, 1);
	replay_expect(rlv_writer_open(fx.table, NULL, &more), -ENOSPC, NULL);
	replay_expect(rlv_sampler_open(fx.table, NULL, &sampler), -ENOSPC, NULL);
	assert_null(more);
	assert_null(sampler);
	replay_writer_done(&writers[1]);
	sampler = replay_sampler(&fx, NULL);
	replay_sampler_done(&sampler);
	writers[1] = replay_writer(&fx, 1);
	for (uint32_t i = 0; i < 3; i++)
		replay_writer_done(&writers[i]);
	replay_close(&fx);
}

/* -------- fork -------- */

/* Every call in a child gives -ECHILD; a bit for each that did not. */
static int child_calls(struct replay_fixture *fx, struct rlv_writer *writer,
		       struct rlv_sampler *sampler, const uint64_t *key)
{
	struct rlv_verify_report report = { .size = sizeof(report) };
	struct rlv_table_info info = { .size = sizeof(info) };
	struct replay_put put = { .n = 1 };
	const struct rlv_batch *batch;
	const float td = 1;
	int wrong = 0;

	wrong |= (replay_append(fx, writer, &put) != -ECHILD) << 0;
	wrong |= (rlv_writer_end_episode(writer, 0, NULL) != -ECHILD) << 1;
	wrong |= (rlv_sampler_sample(sampler, 1, 0, &batch) != -ECHILD) << 2;
	wrong |= (rlv_sampler_update(sampler, key, &td, 1, NULL) != -ECHILD) << 3;
	wrong |= (rlv_table_info(fx->table, &info) != -ECHILD) << 4;
	wrong |= (rlv_table_verify(fx->table, &report) != -ECHILD) << 5;
	wrong |= (rlv_writer_close(&writer) != -ECHILD || writer) << 6;
	wrong |= (rlv_sampler_close(&sampler) != -ECHILD || sampler) << 7;
	return wrong;
}

/* Opens and drops ask the store, which did not survive either. */
static int child_control(struct replay_fixture *fx)
{
	struct rlv_table_opts opts = RLV_TABLE_OPTS_INIT;
	struct rlv_table *table = NULL;
	struct rlv_writer *writer = NULL;
	int wrong = 0;

	opts.columns = replay_obs_columns;
	opts.n_columns = REPLAY_COLUMNS;
	opts.capacity = 4096;
	wrong |= (rlv_writer_open(fx->table, NULL, &writer) != -ECHILD) << 0;
	wrong |= (rlv_table_create(fx->store, "u", &opts, &table) != -ECHILD) << 1;
	wrong |= (rlv_table_drop(fx->store, "t") != -ECHILD) << 2;
	wrong |= (rlv_table_open(fx->store, "t", &table) != -ECHILD) << 3;
	wrong |= (rlv_table_close(&fx->table) != 0) << 4;
	wrong |= (rlv_store_close(&fx->store) != 0) << 5;
	return wrong;
}

static int wait_child(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (!WIFEXITED(status))
		fail_msg("the child died of signal %d", WTERMSIG(status));
	return WEXITSTATUS(status);
}

TEST(fork__every_call_on_a_handle_gives_echild)
{
	struct replay_fixture fx;
	struct rlv_writer *writer;
	struct rlv_sampler *sampler;
	uint64_t key;
	pid_t pid;

	replay_open(&fx, &plain);
	writer = replay_writer(&fx, 1);
	replay_append_plain(&fx, writer, 0, 20);
	sampler = replay_sampler(&fx, NULL);
	key = replay_sample(sampler, 1)->key[0];
	pid = fork();
	if (pid == 0)
		_exit(child_calls(&fx, writer, sampler, &key));
	assert_int_equal(wait_child(pid), 0);
	replay_append_plain(&fx, writer, 0, 20);
	replay_end(&fx, &writer, &sampler);
}

TEST(fork__a_child_can_close_what_it_inherited)
{
	struct replay_fixture fx;
	pid_t pid;

	replay_open(&fx, &plain);
	pid = fork();
	if (pid == 0)
		_exit(child_control(&fx));
	assert_int_equal(wait_child(pid), 0);
	replay_verify(fx.table);
	replay_close(&fx);
}

TEST(fork__a_child_opens_a_store_of_its_own)
{
	struct replay_fixture fx;
	pid_t pid;

	replay_open(&fx, &plain);
	pid = fork();
	if (pid == 0) {
		struct rlv_store *store = NULL;
		struct rlv_table_opts opts = RLV_TABLE_OPTS_INIT;
		struct rlv_table *table = NULL;
		int rc = rlv_store_open("embed:", NULL, &store);

		opts.columns = replay_obs_columns;
		opts.n_columns = REPLAY_COLUMNS;
		opts.capacity = 4096;
		rc = rc ? rc : rlv_table_create(store, "u", &opts, &table);
		rc = rc ? rc : rlv_table_close(&table);
		rc = rc ? rc : rlv_store_close(&store);
		_exit(rc ? 1 : 0);
	}
	assert_int_equal(wait_child(pid), 0);
	replay_close(&fx);
}

int main(void)
{
	if (test_skips_valgrind("forks"))
		return TEST_EXIT_SKIP;
	return test_run(NULL, NULL);
}
