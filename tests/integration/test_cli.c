/*
 * The relive command as its users see it: exit codes, what it prints, what it leaves behind.
 */
#include <dirent.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/process.h"
#include "tests/support/processes.h"
#include "tests/support/test.h"

#define OUT_BYTES 65536

/* A runtime directory of its own, and what the last command said. */
struct fixture {
	struct processes ps;
	char out[OUT_BYTES];
	char err[OUT_BYTES];
};

static void read_file(const char *path, char *text)
{
	FILE *file = fopen(path, "re");
	size_t n;

	assert_non_null(file);
	n = fread(text, 1, OUT_BYTES - 1, file);
	text[n] = 0;
	fclose(file);
}

/* Runs `relive LINE` by the shell; its exit status. */
static int run(struct fixture *f, const char *line)
{
	char out[PROCESSES_PATH + 64], err[PROCESSES_PATH + 64], command[1024];
	const char *bin = getenv("RLV_BIN_DIR");
	int status;

	processes_path(&f->ps, "out", out);
	processes_path(&f->ps, "err", err);
	snprintf(command, sizeof(command), "exec timeout 120 %s/relive %s >%s 2>%s </dev/null",
		 bin ? bin : "bin", line, out, err);
	fflush(NULL);
	status = system(command); /* NOLINT(cert-env33-c): the words are ours */
	read_file(out, f->out);
	read_file(err, f->err);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void expect(struct fixture *f, const char *line, int status)
{
	int got = run(f, line);

	if (got != status)
		fail_msg("relive %s: exit %d, not %d\n%s%s", line, got, status, f->out, f->err);
}

static void expect_words(const char *text, const char *words)
{
	if (!strstr(text, words))
		fail_msg("'%s' is not in:\n%s", words, text);
}

static int open_fixture(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	processes_init(&f->ps);
	/* Private stores of the bench and the demo go there, too. */
	assert_int_equal(setenv("TMPDIR", f->ps.dir, 1), 0);
	*state = f;
	return 0;
}

static int close_fixture(void **state)
{
	static const char *const stores[] = { "default", "a", "b" };
	struct fixture *f = *state;

	for (size_t i = 0; i < ARRAY_LEN(stores); i++) {
		char line[64];

		snprintf(line, sizeof(line), "down --timeout 1s --store %s", stores[i]);
		(void)run(f, line);
	}
	processes_fini(&f->ps);
	unsetenv("TMPDIR");
	free(f);
	return 0;
}

/* -------- usage -------- */

static void relive__wrong_usage_is_2_and_says_where_help_is(void **state)
{
	static const char *const lines[] = {
		"",
		"nonsense",
		"up --nonsense",
		"up --size 1",
		"up --nodes 0",
		"up --file a --dax b",
		"up --stalled maybe",
		"up --pages maybe",
		"node add a --pages maybe",
		"down extra",
		"status shm:a extra",
		"table",
		"table nonsense",
		"table info",
		"node",
		"node drain",
		"node nonsense a",
		"up --nodes 2 --rdma-listen 10.0.0.1:7",
		"inspect a b c",
		"bench",
		"bench replay --actors x",
		"bench replay --loop --actors 2",
		"bench replay --layout window --view 1,3",
		"demo --seconds 0",
	};
	struct fixture *f = *state;

	for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
		expect(f, lines[i], 2);
		assert_true(f->err[0] != 0);
		assert_string_equal(f->out, "");
	}
}

static void relive__each_command_has_help(void **state)
{
	static const char *const commands[] = { "up",    "down",    "status", "table",
						"node",  "inspect", "demo",   "bench replay",
						"bench", "version", "" };
	struct fixture *f = *state;

	for (size_t i = 0; i < ARRAY_LEN(commands); i++) {
		char line[64];

		snprintf(line, sizeof(line), "%s --help", commands[i]);
		expect(f, line, 0);
		expect_words(f->out, "Usage: relive");
		assert_string_equal(f->err, "");
	}
}

static void relive_version__as_json(void **state)
{
	struct fixture *f = *state;

	expect(f, "version --json", 0);
	expect_words(f->out, "{\"version\":\"0.1.0\",\"commit\":\"");
}

/* -------- stores -------- */

static void relive_up__status_and_down(void **state)
{
	struct fixture *f = *state;

	expect(f, "status", 1);
	expect_words(f->err, "relive up --store default");
	expect(f, "up --size 64M --pages huge", 0); /* or what there is */
	assert_string_equal(f->out, "shm:default\n");
	expect(f, "status", 0);
	expect_words(f->out, "64 MiB");
	expect(f, "status shm:default --json", 0);
	expect_words(f->out, "\"state\":\"up\"");
	expect_words(f->out, "\"pool_bytes\":67108864");
	expect(f, "down", 0);
	expect_words(f->out, "2 daemons stopped");
	expect(f, "status", 1);
	expect(f, "down", 1);
	expect_words(f->err, "no store default");
}

/* A node is added, another one drained and stopped, its name dropped: what users see of it. */
static void relive_node__add_drain_and_drop(void **state)
{
	struct fixture *f = *state;

	expect(f, "up --store n --size 64M --nodes 2 --node-lease 500ms", 0);
	expect(f, "table create shm:n t --shards auto --capacity 8192", 0);
	expect_words(f->out, "2 shards");
	expect(f, "node add shm:n extra --size 64M", 0);
	expect_words(f->out, "node extra is up");
	expect(f, "node add shm:n extra --size 64M", 1);
	expect_words(f->err, "runs already");
	expect(f, "status shm:n --json", 0);
	expect_words(f->out, "\"transport\":\"shm\"");
	expect(f, "node drop shm:n 0", 1);
	expect_words(f->err, "is up");
	expect(f, "node drain shm:n nobody", 1);
	expect_words(f->err, "nobody");
	expect(f, "node drain shm:n 0 --wait 60s", 0);
	expect_words(f->out, "it may be stopped");
	expect(f, "status shm:n", 0);
	expect_words(f->out, "draining");
	expect(f, "table shards shm:n t", 0);
	expect_words(f->out, "gone");
	expect_words(f->out, "extra");
	expect(f, "table rebalance shm:n t", 0);
	expect_words(f->out, "0 new shards");
	expect(f, "down --store n", 0);
	expect_words(f->out, "4 daemons");
}

static void relive_up__twice_is_refused_and_harms_nobody(void **state)
{
	struct fixture *f = *state;

	expect(f, "up --size 64M --store a", 0);
	expect(f, "up --size 64M --store a", 1);
	expect_words(f->err, "up already");
	expect_words(f->err, "relive down --store a");
	expect(f, "status shm:a", 0);
}

static void relive_up__after_a_killed_server_asks_for_down_first(void **state)
{
	struct fixture *f = *state;
	const char *at;

	expect(f, "up --size 64M --store a --json", 0);
	at = strstr(f->out, "\"metad_pid\":");
	assert_non_null(at);
	assert_int_equal(kill((pid_t)strtol(at + strlen("\"metad_pid\":"), NULL, 10), SIGKILL), 0);
	expect(f, "status shm:a --timeout 1s", 1);
	expect_words(f->err, "relive down --store a");
	expect(f, "up --size 64M --store a", 1);
	expect_words(f->err, "memnode-0 still runs");
	expect(f, "down --store a", 0);
	expect_words(f->out, "1 daemon stopped");
	expect(f, "up --size 64M --store a", 0);
}

static void relive_up__json_names_the_pids(void **state)
{
	struct fixture *f = *state;
	const char *at;

	expect(f, "up --size 64M --nodes 2 --json", 0);
	expect_words(f->out, "\"uri\":\"shm:default\"");
	at = strstr(f->out, "\"metad_pid\":");
	assert_non_null(at);
	assert_int_equal(kill((pid_t)strtol(at + strlen("\"metad_pid\":"), NULL, 10), 0), 0);
	expect(f, "status", 0);
	expect_words(f->out, "\n1 ");
}

static void relive_up__daemon_that_fails_shows_its_log(void **state)
{
	struct fixture *f = *state;
	char line[256], path[PROCESSES_PATH + 64];

	processes_path(&f->ps, "pool", path);
	snprintf(line, sizeof(line), "up --store a --size 64M --file %s", path);
	expect(f, line, 0);
	snprintf(line, sizeof(line), "up --store b --size 64M --file %s", path);
	expect(f, line, 1);
	expect_words(f->err, "relive-memnode ended");
	expect_words(f->err, "in use");
	processes_path(&f->ps, "b", path);
	assert_int_equal(access(path, F_OK), -1);
	expect(f, "status shm:a", 0);
}

static void relive_up__file_keeps_its_tables(void **state)
{
	struct fixture *f = *state;
	char line[256], path[PROCESSES_PATH + 64];

	processes_path(&f->ps, "pool", path);
	snprintf(line, sizeof(line), "up --store a --size 64M --file %s", path);
	expect(f, line, 0);
	expect(f, "table create shm:a kept --capacity 2^14", 0);
	expect(f, "down --store a", 0);
	expect(f, line, 0);
	expect(f, "table list shm:a", 0);
	expect_words(f->out, "kept");
	expect(f, "inspect shm:a", 0);
}

static void relive_up__listens_for_other_hosts(void **state)
{
	struct fixture *f = *state;
	uint16_t port = processes_free_port();
	char line[128];

	snprintf(line, sizeof(line), "up --size 64M --listen 127.0.0.1:%u", port);
	expect(f, line, 0);
	snprintf(line, sizeof(line), "status relive://127.0.0.1:%u", port);
	expect(f, line, 0);
}

static void relive_down__kills_what_does_not_end(void **state)
{
	struct fixture *f = *state;
	const char *at;
	struct process_id id;
	pid_t pid;

	expect(f, "up --size 64M --json", 0);
	at = strstr(f->out, "\"memnode_pids\":[");
	assert_non_null(at);
	pid = (pid_t)strtol(at + strlen("\"memnode_pids\":["), NULL, 10);
	assert_int_equal(process_read((uint32_t)pid, &id), 0);
	assert_int_equal(kill(pid, SIGSTOP), 0);
	expect(f, "down --timeout 200ms", 0);
	assert_true(process_is_gone(&id));
}

/* -------- tables -------- */

static void relive_table__create_info_list_drop(void **state)
{
	struct fixture *f = *state;

	expect(f, "up --size 128M", 0);
	expect(f, "table list", 0);
	expect(f, "table create frames --columns atari --capacity 4096 --stack 4 --n-step 3", 0);
	expect_words(f->out, "u8[84,84]");
	expect(f, "table create shm:default other --shards 2", 0);
	expect(f, "table list", 0);
	expect_words(f->out, "frames");
	expect_words(f->out, "other");
	expect(f, "table info frames --json", 0);
	expect_words(f->out, "\"capacity\":4096");
	expect_words(f->out, "\"stack\":4,\"n_step\":3");
	expect(f, "table create frames", 1);
	expect_words(f->err, "EEXIST");
	expect(f, "table drop frames", 0);
	expect(f, "table info frames", 1);
	expect_words(f->err, "ENOENT");
	expect(f, "table create huge --capacity 2^22 --columns atari", 1);
	expect_words(f->err, "ENOSPC");
	expect(f, "table create bad --columns a:f31", 1);
	expect_words(f->err, "f31");
}

static void relive_inspect__sound_tables_are_0(void **state)
{
	struct fixture *f = *state;

	expect(f, "up --size 64M", 0);
	expect(f, "inspect", 0);
	expect(f, "table create one --capacity 2^14", 0);
	expect(f, "inspect", 0);
	expect_words(f->out, "one: 0 items");
	expect(f, "inspect shm:default one --json", 0);
	expect_words(f->out, "\"problems\":0");
	expect(f, "inspect shm:default two", 1);
}

/* -------- bench -------- */

/* A directory in ours: of a private store of the bench or the demo. */
static bool private_store_is_up(void *ctx)
{
	const struct fixture *f = ctx;
	DIR *folder = opendir(f->ps.dir);
	const struct dirent *entry;
	bool found = false;

	assert_non_null(folder);
	while ((entry = readdir(folder)) != NULL)
		found |= strncmp(entry->d_name, "relive-", 7) == 0;
	closedir(folder);
	return found;
}

#define SHORT "--seconds 0.5 --windows 5 --capacity 2^14 "

static void relive_bench__processes_as_json(void **state)
{
	static const char *const words[] = {
		"\"metric\":\"items_per_s\"",
		"\"metric\":\"bytes_per_s\"",
		"\"metric\":\"p50_us\"",
		"\"metric\":\"p99_us\"",
		"\"metric\":\"bytes_per_op\"",
		"\"metric\":\"round_trips_per_op\"",
		"\"metric\":\"calib_line_ns\"",
		"\"metric\":\"memcpy_gbps\"",
		"\"role\":\"insert\"",
		"\"role\":\"sample\"",
		"\"role\":\"update\"",
		"\"commit\":\"",
		"\"seed\":1",
	};
	struct fixture *f = *state;

	expect(f, "bench replay --actors 2 --learners 1 --json " SHORT, 0);
	for (size_t i = 0; i < ARRAY_LEN(words); i++)
		expect_words(f->out, words[i]);
	for (const char *line = f->out; *line; line = strchr(line, '\n') + 1) {
		assert_memory_equal(line, "{\"bench\":\"replay\",", 18);
		assert_non_null(strchr(line, '\n'));
	}
	assert_false(private_store_is_up(f));
}

static void relive_bench__trace_and_threads(void **state)
{
	struct fixture *f = *state;
	char line[512];

	snprintf(line, sizeof(line),
		 "bench replay --trace %s/tests/data/pong-small.rlvt --threads " SHORT,
		 RLV_TEST_SOURCE_DIR);
	expect(f, line, 0);
	expect_words(f->out, "memcpy");
}

static void relive_bench__environments_and_loop(void **state)
{
	struct fixture *f = *state;

	expect(f, "bench replay --actors 1 --learners 0 --envs 16 " SHORT, 0);
	expect_words(f->out, "insert");
	expect(f, "bench replay --loop --view 2,1 --defer 16 --inflight 4 --layout window " SHORT,
	       0);
	expect_words(f->out, "update");
}

static void relive_bench__check_of_processes(void **state)
{
	struct fixture *f = *state;

	expect(f, "bench replay --actors 2 --learners 2 --check --view 3,3 " SHORT, 0);
	expect_words(f->out, " 0 wrong; 0 broken invariants");
	expect_words(f->out, "learner 1: chi-square");
}

static void relive_bench__check_of_frames_and_shards(void **state)
{
	struct fixture *f = *state;

	expect(f,
	       "bench replay --shape obs:u8[20,20],action:i32,reward:f64,done:bool --view 4,1 --shards 3 "
	       "--check --json --layout window " SHORT,
	       0);
	expect_words(f->out, "\"items_wrong\":0,\"problems\":0");
	expect_words(f->out, "\"check\":\"chi_square\"");
}

static void relive_bench__limiter_holds_the_ratio(void **state)
{
	struct fixture *f = *state;

	expect(f, "bench replay --spi 4 " SHORT, 0);
	expect_words(f->out, "limiter waits");
}

static void relive_bench__store_that_is_up(void **state)
{
	struct fixture *f = *state;

	expect(f, "up --size 128M", 0);
	expect(f, "bench replay --store shm:default --actors 1 --learners 1 " SHORT, 0);
	expect(f, "table list --json", 0);
	assert_string_equal(f->out, "");
	expect(f, "bench replay --store shm:nothing " SHORT, 1);
}

static void relive_bench__interrupt_leaves_nothing(void **state)
{
	struct fixture *f = *state;
	const char *const args[] = { "bench", "replay", "--actors", "1", "--seconds", "60", NULL };
	pid_t pid = processes_start(&f->ps, "relive", args);

	assert_true(processes_until(private_store_is_up, f));
	usleep(300000);
	assert_int_equal(kill(pid, SIGINT), 0);
	assert_int_equal(processes_wait(&f->ps, pid, PROCESSES_WAIT_MS), 1);
	assert_false(private_store_is_up(f));
}

static void relive_demo__shows_a_kill_and_an_exact_tree(void **state)
{
	struct fixture *f = *state;

	expect(f, "demo --seconds 3", 0);
	expect_words(f->out, "kill -9");
	expect_words(f->out, "every leaf, sum, block and counter is exact");
	expect_words(f->out, "Throughputs");
	expect_words(f->err, " steps/s in");
	assert_false(private_store_is_up(f));
}

#define ON_FIXTURE(test) cmocka_unit_test_setup_teardown(test, open_fixture, close_fixture)

int main(void)
{
	const struct CMUnitTest tests[] = {
		ON_FIXTURE(relive__wrong_usage_is_2_and_says_where_help_is),
		ON_FIXTURE(relive__each_command_has_help),
		ON_FIXTURE(relive_version__as_json),
		ON_FIXTURE(relive_up__status_and_down),
		ON_FIXTURE(relive_node__add_drain_and_drop),
		ON_FIXTURE(relive_up__twice_is_refused_and_harms_nobody),
		ON_FIXTURE(relive_up__after_a_killed_server_asks_for_down_first),
		ON_FIXTURE(relive_up__json_names_the_pids),
		ON_FIXTURE(relive_up__daemon_that_fails_shows_its_log),
		ON_FIXTURE(relive_up__file_keeps_its_tables),
		ON_FIXTURE(relive_up__listens_for_other_hosts),
		ON_FIXTURE(relive_down__kills_what_does_not_end),
		ON_FIXTURE(relive_table__create_info_list_drop),
		ON_FIXTURE(relive_inspect__sound_tables_are_0),
		ON_FIXTURE(relive_bench__processes_as_json),
		ON_FIXTURE(relive_bench__trace_and_threads),
		ON_FIXTURE(relive_bench__environments_and_loop),
		ON_FIXTURE(relive_bench__check_of_processes),
		ON_FIXTURE(relive_bench__check_of_frames_and_shards),
		ON_FIXTURE(relive_bench__limiter_holds_the_ratio),
		ON_FIXTURE(relive_bench__store_that_is_up),
		ON_FIXTURE(relive_bench__interrupt_leaves_nothing),
		ON_FIXTURE(relive_demo__shows_a_kill_and_an_exact_tree),
	};

	return TEST_RUN(tests, NULL, NULL);
}
