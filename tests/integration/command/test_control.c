/*
 * The control plane with real daemons: tables over the wire, tokens, names, bad peers.
 */
#include "tests/support/sockets.h"
#include "tests/support/processes.h"
#include "tests/support/fixture/store_fixture.h"
#include "tests/support/must.h"
#include "tests/support/store_nodes.h"

#include "relive/relive.h"

#include "wire/control/frame.h"

#include "base/os/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define POOL "256M"

static const struct rlv_column columns[] = {
	{ .name = "obs", .dtype = RLV_F32, .role = RLV_OBS, .ndim = 1, .shape = { 4 } },
	{ .name = "action", .dtype = RLV_I64 },
	{ .name = "reward", .dtype = RLV_F32, .role = RLV_REWARD },
};

struct control {
	struct processes ps;
	pid_t metad;
	pid_t memnode;
	uint16_t port;
	struct rlv_store *store;
};

static int setup(void **state)
{
	static struct control control;
	const char *const node_args[] = { "--size", POOL, NULL };
	char listen[32];
	const char *const args[] = { "--listen", listen, "--lease", "0.5", NULL };

	memset(&control, 0, sizeof(control));
	processes_init(&control.ps);
	control.port = processes_free_port();
	snprintf(listen, sizeof(listen), "127.0.0.1:%u", control.port);
	control.metad = processes_metad(&control.ps, "s", args);
	control.memnode = processes_memnode(&control.ps, "s", "a", node_args);
	*state = &control;
	return 0;
}

static int teardown(void **state)
{
	struct control *control = *state;

	assert_int_equal(rlv_store_close(&control->store), 0);
	processes_fini(&control->ps);
	return 0;
}

/* A store whose node has registered. */
static struct rlv_store *open_store(struct control *control)
{
	expect(rlv_store_open("shm:s", NULL, &control->store), 0);
	store_fixture_await_node(control->store);
	return control->store;
}

static struct rlv_table *make_table(struct rlv_store *store, const char *name, uint32_t shards)
{
	struct rlv_table_opts opts = RLV_TABLE_OPTS_INIT;
	struct rlv_table *table = NULL;

	opts.columns = columns;
	opts.n_columns = 3;
	opts.capacity = 65536;
	opts.shards = shards;
	expect(rlv_table_create(store, name, &opts, &table), 0);
	return table;
}

#define CASE(f) TEST_WITH(f, setup, teardown)

/* -------- tables -------- */

CASE(table_create__opens_the_same_signature)
{
	struct rlv_store *store = open_store(*state);
	struct rlv_table *first = make_table(store, "t", 2), *second = make_table(store, "t", 2);
	struct rlv_table_info info = { .size = sizeof(info) };

	expect(rlv_table_info(second, &info), 0);
	assert_string_equal(info.name, "t");
	assert_int_equal(info.shards, 2);
	assert_int_equal(info.capacity, 65536);
	expect(rlv_table_close(&first), 0);
	expect(rlv_table_close(&second), 0);
}

CASE(table_create__another_signature_gives_eexist)
{
	struct rlv_store *store = open_store(*state);
	struct rlv_table_opts opts = RLV_TABLE_OPTS_INIT;
	struct rlv_table *table = make_table(store, "t", 1), *other = NULL;

	opts.columns = columns;
	opts.n_columns = 2;
	opts.capacity = 65536;
	expect(rlv_table_create(store, "t", &opts, &other), -EEXIST);
	assert_non_null(strstr(rlv_last_error(), "another signature"));
	assert_null(other);
	expect(rlv_table_close(&table), 0);
}

struct used {
	struct rlv_store *store;
	uint64_t bytes;
};

static bool is_used(void *ctx)
{
	const struct used *used = ctx;

	return store_node_at(used->store, 0).used_bytes == used->bytes;
}

/* Nodes free memory in their own time. */
static void await_used_bytes(struct rlv_store *store, uint64_t bytes)
{
	struct used used = { store, bytes };

	if (!processes_until(is_used, &used))
		fail_msg("not %llu bytes are in use", (unsigned long long)bytes);
}

CASE(table_create__no_room_gives_enospc_and_leaves_nothing)
{
	struct rlv_store *store = open_store(*state);
	struct rlv_store_info after = { .size = sizeof(after) };
	struct rlv_table_opts opts = RLV_TABLE_OPTS_INIT;
	const uint64_t used = store_node_at(store, 0).used_bytes;
	struct rlv_table *table = NULL;

	opts.columns = columns;
	opts.n_columns = 3;
	opts.capacity = 1 << 22;
	opts.shards = 2;
	expect(rlv_table_create(store, "big", &opts, &table), -ENOSPC);
	expect(rlv_store_info(store, &after), 0);
	assert_int_equal(after.n_tables, 0);
	await_used_bytes(store, used);
}

CASE(table_open__unknown_name_gives_enoent)
{
	struct rlv_table *table = NULL;

	expect(rlv_table_open(open_store(*state), "nothing", &table), -ENOENT);
	assert_non_null(strstr(rlv_last_error(), "nothing"));
}

CASE(table_drop__handles_get_estale_and_memory_comes_back)
{
	struct rlv_store *store = open_store(*state);
	struct rlv_writer_opts opts = RLV_WRITER_OPTS_INIT;
	struct rlv_store_info info = { .size = sizeof(info) };
	struct rlv_table *table = make_table(store, "t", 2);
	struct rlv_writer *writer = NULL;

	expect(rlv_writer_open(table, &opts, &writer), 0);
	expect(rlv_table_drop(store, "t"), 0);
	expect(rlv_writer_end_episode(writer, 0, NULL), -ESTALE);
	(void)!rlv_writer_close(&writer);
	(void)!rlv_table_close(&table);
	expect(rlv_store_info(store, &info), 0);
	assert_int_equal(info.n_tables, 0);
	await_used_bytes(store, 0);
	expect(rlv_table_drop(store, "t"), -ENOENT);
}

CASE(store_tables__lists_all)
{
	struct rlv_store *store = open_store(*state);
	struct rlv_table *a = make_table(store, "a", 1), *b = make_table(store, "b", 1);
	char names[4][RLV_NAME_BYTES];
	bool a_is_first;
	size_t n = 4;

	expect(rlv_store_tables(store, names, &n), 0);
	assert_int_equal(n, 2);
	/* In the order of their random ids. */
	a_is_first = strcmp(names[0], "a") == 0;
	assert_string_equal(names[0], a_is_first ? "a" : "b");
	assert_string_equal(names[1], a_is_first ? "b" : "a");
	n = 0;
	expect(rlv_store_tables(store, NULL, &n), 0);
	assert_int_equal(n, 2);
	expect(rlv_table_close(&a), 0);
	expect(rlv_table_close(&b), 0);
}

CASE(writer_open__slots_run_out_and_come_back)
{
	struct rlv_store *store = open_store(*state);
	struct rlv_writer_opts wish = RLV_WRITER_OPTS_INIT;
	struct rlv_table_opts opts = RLV_TABLE_OPTS_INIT;
	struct rlv_writer *writers[3] = { NULL };
	struct rlv_table *table = NULL;

	opts.columns = columns;
	opts.n_columns = 3;
	opts.capacity = 65536;
	opts.max_clients = 2;
	expect(rlv_table_create(store, "t", &opts, &table), 0);
	expect(rlv_writer_open(table, &wish, &writers[0]), 0);
	expect(rlv_writer_open(table, &wish, &writers[1]), 0);
	expect(rlv_writer_open(table, &wish, &writers[2]), -ENOSPC);
	assert_non_null(strstr(rlv_last_error(), "max_clients"));
	expect(rlv_writer_close(&writers[0]), 0);
	expect(rlv_writer_open(table, &wish, &writers[2]), 0);
	expect(rlv_writer_close(&writers[1]), 0);
	expect(rlv_writer_close(&writers[2]), 0);
	expect(rlv_table_close(&table), 0);
}

/* -------- names and tokens -------- */

CASE(store_open__no_such_store_says_how_to_start_one)
{
	struct rlv_store *store = NULL;

	expect(rlv_store_open("shm:nobody", NULL, &store), -ENOENT);
	assert_non_null(strstr(rlv_last_error(), "relive up --store nobody"));
}

CASE(store_open__wrong_token_gives_eacces)
{
	struct rlv_store_opts opts = RLV_STORE_OPTS_INIT;
	struct control *control = *state;
	struct rlv_store *store = NULL;
	char uri[64];

	opts.token = "0000000000000000000000000000000000000000000000000000000000000000";
	expect(rlv_store_open("shm:s", &opts, &store), -EACCES);
	assert_non_null(strstr(rlv_last_error(), "token"));
	snprintf(uri, sizeof(uri), "relive://127.0.0.1:%u", control->port);
	expect(rlv_store_open(uri, &opts, &store), -EACCES);
}

CASE(store_open__over_tcp_with_the_token)
{
	struct rlv_store_opts opts = RLV_STORE_OPTS_INIT;
	struct control *control = *state;
	struct rlv_table *table;
	char uri[64], token[80];

	processes_token(&control->ps, "s", token);
	opts.token = token;
	snprintf(uri, sizeof(uri), "relive://127.0.0.1:%u", control->port);
	expect(rlv_store_open(uri, &opts, &control->store), 0);
	store_fixture_await_node(control->store);
	table = make_table(control->store, "t", 1);
	expect(rlv_table_close(&table), 0);
}

CASE(store_open__dead_server_gives_econnrefused)
{
	struct control *control = *state;
	struct rlv_store *store = NULL;

	processes_kill(&control->ps, control->metad, SIGKILL);
	expect(rlv_store_open("shm:s", NULL, &store), -ECONNREFUSED);
	assert_non_null(strstr(rlv_last_error(), "relive up"));
}

CASE(store__in_a_forked_child_gives_echild)
{
	struct rlv_store *store = open_store(*state);
	struct rlv_store_info info = { .size = sizeof(info) };
	struct control *control = *state;
	pid_t pid = fork();
	int status;

	assert_true(pid >= 0);
	if (pid == 0) {
		int ret = rlv_store_info(store, &info);

		(void)!rlv_store_close(&control->store);
		_exit(ret == -ECHILD ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	expect(rlv_store_info(store, &info), 0);
}

CASE(memnode__second_of_the_name_is_refused)
{
	const char *const args[] = { "--store", "s", "--name", "a", NULL };
	struct control *control = *state;
	pid_t second = processes_start(&control->ps, "relive-memnode", args);

	assert_int_equal(processes_wait(&control->ps, second, PROCESSES_WAIT_MS), 3);
	assert_true(processes_runs(&control->ps, control->memnode));
}

/* Of another directory, so that no lock file stands between them: the server refuses it. */
CASE(memnode__second_of_the_name_is_refused_by_the_server)
{
	struct control *control = *state;
	char uri[64], token[80], other[PROCESSES_PATH + 64];
	const char *const args[] = { "--store", "s",       "--name", "a", "--size",
				     "4M",      "--metad", uri,      NULL };
	pid_t second;

	(void)open_store(control);
	processes_token(&control->ps, "s", token);
	snprintf(uri, sizeof(uri), "relive://127.0.0.1:%u", control->port);
	processes_path(&control->ps, "other", other);
	setenv("RELIVE_RUNTIME_DIR", other, 1);
	setenv("RELIVE_TOKEN", token, 1);
	second = processes_start(&control->ps, "relive-memnode", args);
	unsetenv("RELIVE_TOKEN");
	setenv("RELIVE_RUNTIME_DIR", control->ps.dir, 1);
	assert_int_equal(processes_wait(&control->ps, second, PROCESSES_WAIT_MS), 5);
	assert_true(store_fixture_node_is_up(control->store));
}

CASE(memnode__no_memory_for_the_pool)
{
	const char *const args[] = { "--store", "s", "--name", "b", "--size", "1000T", NULL };
	struct control *control = *state;
	pid_t second = processes_start(&control->ps, "relive-memnode", args);

	assert_int_equal(processes_wait(&control->ps, second, PROCESSES_WAIT_MS), 4);
}

CASE(metad__second_of_the_store_is_refused)
{
	const char *const args[] = { "--store", "s", NULL };
	struct control *control = *state;
	pid_t second = processes_start(&control->ps, "relive-metad", args);

	assert_int_equal(processes_wait(&control->ps, second, PROCESSES_WAIT_MS), 3);
}

/* Leftovers of a killed daemon: sockets, pid files, unlocked locks. */
CASE(daemons__start_over_stale_files)
{
	const char *const node_args[] = { "--size", POOL, NULL };
	struct control *control = *state;

	processes_kill(&control->ps, control->metad, SIGKILL);
	processes_kill(&control->ps, control->memnode, SIGKILL);
	control->metad = processes_metad(&control->ps, "s", NULL);
	control->memnode = processes_memnode(&control->ps, "s", "a", node_args);
	(void)open_store(control);
}

CASE(daemons__stop_cleanly)
{
	struct control *control = *state;

	assert_int_equal(kill(control->metad, SIGTERM), 0);
	assert_int_equal(processes_wait(&control->ps, control->metad, PROCESSES_WAIT_MS), 0);
	assert_int_equal(kill(control->memnode, SIGTERM), 0);
	assert_int_equal(processes_wait(&control->ps, control->memnode, PROCESSES_WAIT_MS), 0);
}

/* -------- bad peers -------- */

static int connect_raw(const struct control *control)
{
	int fd = sockets_connect_tcp(control->port);

	assert_true(fd >= 0);
	return fd;
}

/* The server hangs up, without an answer, within the time. */
static void expect_hangup(int fd)
{
	struct pollfd ready = { .fd = fd, .events = POLLIN };
	char byte;

	assert_int_equal(poll(&ready, 1, PROCESSES_WAIT_MS), 1);
	assert_true(read(fd, &byte, 1) <= 0);
	close(fd);
}

static void expect_unharmed(struct control *control)
{
	struct rlv_table *table = make_table(open_store(control), "t", 1);

	expect(rlv_table_close(&table), 0);
	assert_true(processes_runs(&control->ps, control->metad));
}

CASE(metad__garbage_is_dropped)
{
	static const char garbage[] = "GET / HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n";
	struct control *control = *state;
	int fd = connect_raw(control);

	assert_int_equal(write(fd, garbage, sizeof(garbage)), sizeof(garbage));
	expect_hangup(fd);
	expect_unharmed(control);
}

CASE(metad__frame_too_long_is_dropped)
{
	const struct frame_header head = { .length = 512u << 20, .type = 1, .version = 1 };
	struct control *control = *state;
	int fd = connect_raw(control);

	assert_int_equal(write(fd, &head, sizeof(head)), sizeof(head));
	expect_hangup(fd);
	expect_unharmed(control);
}

CASE(metad__request_before_the_proof_is_dropped)
{
	const struct frame_header head = { .length = 0, .type = 30, .version = 1 };
	struct control *control = *state;
	int fd = connect_raw(control);

	assert_int_equal(write(fd, &head, sizeof(head)), sizeof(head));
	expect_hangup(fd);
	expect_unharmed(control);
}

CASE(metad__body_that_is_no_message_is_dropped)
{
	struct frame_header head = { .length = 64, .type = 1, .version = 1 };
	struct control *control = *state;
	uint8_t bytes[24 + 64];
	int fd = connect_raw(control);

	memcpy(bytes, &head, sizeof(head));
	memset(bytes + 24, 0xff, 64);
	assert_int_equal(write(fd, bytes, sizeof(bytes)), sizeof(bytes));
	expect_hangup(fd);
	expect_unharmed(control);
}

CASE(metad__half_closed_socket_is_dropped)
{
	const struct frame_header head = { .length = 64, .type = 1, .version = 1 };
	struct control *control = *state;
	int fd = connect_raw(control);

	assert_int_equal(write(fd, &head, 11), 11);
	assert_int_equal(shutdown(fd, SHUT_WR), 0);
	expect_hangup(fd);
	expect_unharmed(control);
}

/* A silent client is cut off after CONN_AUTH_SECONDS; others do not wait for it. */
CASE(metad__silent_peer_is_dropped)
{
	struct control *control = *state;
	int fd = connect_raw(control);

	expect_unharmed(control);
	expect_hangup(fd);
}

/* The server may not have noticed yet that a client left. */
static bool gets_in(void *ctx)
{
	return rlv_store_open("shm:few", NULL, ctx) == 0;
}

/* The third of two is hung up on at once; when one goes, there is room again. */
CASE(metad__more_connections_than_it_may_have)
{
	const char *const args[] = { "--max-conns", "2", NULL };
	struct rlv_store *second = NULL, *third = NULL;
	struct control *control = *state;

	(void)processes_metad(&control->ps, "few", args);
	assert_true(processes_until(gets_in, &control->store));
	assert_true(processes_until(gets_in, &second));
	expect(rlv_store_open("shm:few", NULL, &third), -ECONNREFUSED);
	expect(rlv_store_close(&second), 0);
	assert_true(processes_until(gets_in, &third));
	expect(rlv_store_close(&third), 0);
}

int main(void)
{
	return test_run(NULL, NULL);
}
