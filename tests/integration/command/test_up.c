/*
 * `relive up` starts the missing daemons of a store and no others, one command at a time; `relive
 * down` does not discard items in memory without a confirmation.
 */
#include <fcntl.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/certificates.h"
#include "tests/support/fixture/cli_fixture.h"
#include "tests/support/held_items.h"
#include "tests/support/test.h"

#define METAD "\"metad_pid\":"
#define NODES "\"memnode_pids\":["
#define REFUSED 3 /* exit status of a down that would lose items */

static void expect_no_words(const char *text, const char *words)
{
	if (strstr(text, words))
		fail_msg("'%s' is in:\n%s", words, text);
}

#define ON_FIXTURE(test) TEST_WITH(test, cli_fixture_open, cli_fixture_close)

/* -------- missing daemons -------- */

ON_FIXTURE(up__after_a_killed_server_starts_it_alone)
{
	struct cli_fixture *f = *state;
	pid_t metad, node;
	int64_t items;

	cli_expect(f, "up --size 64M --store a --node-lease 7s --json", 0);
	metad = cli_pid(f, METAD);
	node = cli_pid(f, NODES);
	items = held_items_put("shm:a");
	cli_kill_daemon(metad);
	cli_expect(f, "status shm:a --timeout 1s", 1);
	cli_expect_words(f->err, "relive up --store a");
	expect_no_words(f->err, "relive down");
	cli_expect(f, "up --store a --json", 0);
	assert_true(cli_pid(f, METAD) != metad);
	assert_int_equal(cli_pid(f, NODES), node);
	held_items_check("shm:a", items, "the server was killed");
	cli_expect(f, "up --store a --node-lease 7s --size 64M", 0);
	assert_string_equal(f->out, "shm:a\n");
	cli_expect_words(f->err, "is up already");
	expect_no_words(f->err, "relive down");
}

ON_FIXTURE(up__after_a_killed_node_starts_it_as_it_was)
{
	struct cli_fixture *f = *state;
	char line[256], path[PROCESSES_PATH + 64];
	pid_t metad, node;
	int64_t items;

	processes_path(&f->ps, "pool", path);
	snprintf(line, sizeof(line), "up --store a --size 48M --json --file %s", path);
	cli_expect(f, line, 0);
	metad = cli_pid(f, METAD);
	node = cli_pid(f, NODES);
	items = held_items_put("shm:a");
	cli_expect(f, "node add shm:a extra --size 40M", 0);
	cli_kill_daemon(node);
	cli_expect(f, "up --store a --json", 0);
	assert_int_equal(cli_pid(f, METAD), metad);
	assert_true(cli_pid(f, NODES) != node);
	held_items_check("shm:a", items, "the node was killed");
	cli_expect(f, "status shm:a --json", 0);
	cli_expect_words(f->out, "\"pool_bytes\":41943040");
}

ON_FIXTURE(up__an_added_node_that_ended_is_started_again)
{
	struct cli_fixture *f = *state;
	pid_t node;

	cli_expect(f, "up --store a --size 64M", 0);
	cli_expect(f, "node add shm:a extra --size 40M --json", 0);
	node = cli_pid(f, "\"pid\":");
	cli_kill_daemon(node);
	cli_expect(f, "up --store a", 0);
	cli_expect_words(f->err, "memnode-extra");
	cli_expect(f, "node add shm:a extra --size 40M", 1);
	cli_expect_words(f->err, "runs already");
	cli_expect(f, "node drop shm:a extra", 1);
	cli_expect_words(f->err, "is up");
}

/* A node that an operator dropped or gave up is not missing. */
ON_FIXTURE(up__a_dropped_node_stays_away)
{
	struct cli_fixture *f = *state;

	cli_expect(f, "up --store a --size 64M", 0);
	cli_expect(f, "node add shm:a extra --size 40M --json", 0);
	cli_kill_daemon(cli_pid(f, "\"pid\":"));
	while (cli_run(f, "node drop shm:a extra")) /* until the server knows that it is down */
		cli_expect_words(f->err, "is up");
	cli_expect(f, "up --store a", 0);
	expect_no_words(f->err, "extra");
	cli_expect(f, "status shm:a --json", 0);
	cli_expect_words(f->out, "\"state\":\"up\"");
	expect_no_words(strstr(f->out, "\"name\":\"0\""), "\"name\":\"extra\",\"state\":\"up\"");
}

ON_FIXTURE(up__options_that_contradict_are_an_error)
{
	static const char *const lines[][2] = {
		{ "up --store a --size 128M", "--size" },
		{ "up --store a --nodes 2", "--nodes" },
		{ "up --store a --node-lease 3s", "--node-lease" },
		{ "up --store a --stalled kill", "--stalled" },
		{ "up --store a --file /nonexistent/pool", "--file" },
	};
	struct cli_fixture *f = *state;
	int64_t items;

	cli_expect(f, "up --size 64M --store a --node-lease 7s", 0);
	items = held_items_put("shm:a");
	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		cli_expect(f, lines[i][0], 1);
		cli_expect_words(f->err, lines[i][1]);
		expect_no_words(f->err, "relive down");
		assert_string_equal(f->out, "");
	}
	cli_expect(f, "up --size 64M --store a --stalled wait --nodes 1", 0);
	held_items_check("shm:a", items, "options that contradict");
}

/* After down, the store on a file is unchanged, and options may change. */
ON_FIXTURE(up__a_store_on_a_file_is_remembered)
{
	struct cli_fixture *f = *state;
	char line[256], path[PROCESSES_PATH + 64];
	int64_t items;

	processes_path(&f->ps, "pool", path);
	snprintf(line, sizeof(line), "up --store a --size 48M --file %s", path);
	cli_expect(f, line, 0);
	items = held_items_put("shm:a");
	cli_expect(f, "down --store a", 0);
	cli_expect(f, "up --store a", 0);
	held_items_check("shm:a", items, "up without options after down");
	cli_expect(f, "down --store a", 0);
	cli_expect(f, "up --store a --node-lease 2s", 0);
	held_items_check("shm:a", items, "up with another option after down");
}

/* A relative path is relative to the directory of the command. */
ON_FIXTURE(up__a_relative_file_is_found_from_elsewhere)
{
	struct cli_fixture *f = *state;
	char here[4096];
	pid_t node;
	int64_t items;

	assert_non_null(getcwd(here, sizeof(here)));
	assert_int_equal(chdir(f->ps.dir), 0);
	cli_expect(f, "up --store a --size 48M --file pool --json", 0);
	assert_int_equal(chdir(here), 0);
	node = cli_pid(f, NODES);
	items = held_items_put("shm:a");
	cli_kill_daemon(node);
	cli_expect(f, "up --store a", 0);
	held_items_check("shm:a", items, "a relative file");
}

static void expect_tls(struct cli_fixture *f, uint16_t port, const struct certificates *certs)
{
	char line[64];

	snprintf(line, sizeof(line), "status relive://127.0.0.1:%u", port);
	cli_expect(f, line, 1);
	cli_expect_words(f->err, "RELIVE_TLS_CERT");
	setenv("RELIVE_TLS_CERT", certs->cert, 1);
	setenv("RELIVE_TLS_KEY", certs->key, 1);
	setenv("RELIVE_TLS_CA", certs->ca, 1);
	cli_expect(f, line, 0);
	unsetenv("RELIVE_TLS_CERT");
	unsetenv("RELIVE_TLS_KEY");
	unsetenv("RELIVE_TLS_CA");
}

ON_FIXTURE(up__relative_certificates_are_found_from_elsewhere)
{
	struct cli_fixture *f = *state;
	uint16_t port = processes_free_port();
	struct certificates certs;
	char here[4096], line[160];
	pid_t metad;

	certificates_make(&certs, f->ps.dir, "us");
	assert_non_null(getcwd(here, sizeof(here)));
	assert_int_equal(chdir(f->ps.dir), 0);
	snprintf(line, sizeof(line),
		 "up --size 64M --json --listen 127.0.0.1:%u --tls-cert us.pem --tls-key us.key "
		 "--tls-ca us-ca.pem",
		 port);
	cli_expect(f, line, 0);
	assert_int_equal(chdir(here), 0);
	metad = cli_pid(f, METAD);
	expect_tls(f, port, &certs);
	cli_kill_daemon(metad);
	cli_expect(f, "up", 0);
	expect_tls(f, port, &certs);
}

ON_FIXTURE(up__certificates_are_all_or_none)
{
	struct cli_fixture *f = *state;

	cli_expect(f, "up --listen 127.0.0.1:0 --tls-cert us.pem", 2);
	cli_expect_words(f->err, "give all three");
	cli_expect(f, "up --tls-cert us.pem --tls-key us.key --tls-ca us-ca.pem", 1);
	cli_expect_words(f->err, "give --listen, too");
}

/* -------- daemons without a record -------- */

ON_FIXTURE(up__of_daemons_started_by_hand)
{
	static const char *const size[] = { "--size", "64M", NULL };
	struct cli_fixture *f = *state;
	pid_t metad = processes_metad(&f->ps, "a", NULL);
	pid_t node = processes_memnode(&f->ps, "a", "hand", size);
	int64_t items;

	cli_expect(f, "up --store a", 0);
	cli_expect_words(f->err, "up already: 1 memory node");
	items = held_items_put("shm:a");
	processes_kill(&f->ps, metad, SIGKILL);
	cli_expect(f, "up --store a --json", 0);
	cli_expect_words(f->out, "\"started\":1");
	assert_int_equal(cli_pid(f, NODES), node);
	held_items_check("shm:a", items, "a server by hand was killed");
	cli_expect(f, "down --store a", REFUSED);
	processes_kill(&f->ps, node, SIGKILL);
	cli_expect(f, "down --store a", 0);
}

/* A server with an empty catalog would take the node's regions for leftovers. */
ON_FIXTURE(up__does_not_guess_where_the_catalog_is)
{
	struct cli_fixture *f = *state;
	char path[PROCESSES_PATH + 64];
	const char *const dir[] = { "--dir", path, NULL };
	static const char *const size[] = { "--size", "64M", NULL };
	pid_t metad;
	int64_t items;

	processes_path(&f->ps, "catalogs", path);
	metad = processes_metad(&f->ps, "a", dir);
	(void)processes_memnode(&f->ps, "a", "hand", size);
	cli_expect(f, "up --store a", 0); /* waits for the node */
	items = held_items_put("shm:a");
	processes_kill(&f->ps, metad, SIGKILL);
	cli_expect(f, "up --store a", 1);
	cli_expect_words(f->err, "start relive-metad by hand");
	(void)processes_metad(&f->ps, "a", dir);
	cli_expect(f, "up --store a", 0);
	held_items_check("shm:a", items, "a catalog elsewhere");
}

/* -------- items in memory -------- */

ON_FIXTURE(down__of_items_in_memory_wants_force)
{
	struct cli_fixture *f = *state;
	char words[64];
	int64_t items;

	cli_expect(f, "up --size 64M --store a", 0);
	items = held_items_put("shm:a");
	cli_expect(f, "down --store a", REFUSED);
	snprintf(words, sizeof(words), "%lld items in 1 table", (long long)items);
	cli_expect_words(f->err, words);
	cli_expect_words(f->err, "--force");
	held_items_check("shm:a", items, "down was refused");
	cli_expect(f, "down --store a --force", 0);
	cli_expect_words(f->out, "2 daemons stopped");
	cli_expect(f, "status shm:a", 1);
}

ON_FIXTURE(down__of_tables_without_items_asks_nothing)
{
	struct cli_fixture *f = *state;

	cli_expect(f, "up --size 64M --store a", 0);
	cli_expect(f, "table create shm:a t --capacity 4096", 0);
	cli_expect(f, "down --store a", 0);
}

ON_FIXTURE(down__of_a_pool_on_a_file_asks_nothing)
{
	struct cli_fixture *f = *state;
	char line[256], path[PROCESSES_PATH + 64];
	int64_t items;

	processes_path(&f->ps, "pool", path);
	snprintf(line, sizeof(line), "up --store a --size 48M --file %s", path);
	cli_expect(f, line, 0);
	items = held_items_put("shm:a");
	cli_expect(f, "down --store a", 0);
	cli_expect(f, line, 0);
	held_items_check("shm:a", items, "down and up");
}

/* The catalog is what a pool on a file needs: it stays although the store began in memory. */
ON_FIXTURE(down__keeps_the_catalog_of_an_added_file)
{
	struct cli_fixture *f = *state;
	char line[256], path[PROCESSES_PATH + 64];
	int64_t items;

	cli_expect(f, "up --store a --size 64M", 0);
	processes_path(&f->ps, "pool", path);
	snprintf(line, sizeof(line), "node add shm:a kept --size 48M --file %s", path);
	cli_expect(f, line, 0);
	cli_expect(f, "node drain shm:a 0 --wait 20s", 0);
	items = held_items_put("shm:a");
	cli_expect(f, "down --store a", 0);
	cli_expect(f, "up --store a", 0);
	held_items_check("shm:a", items, "a file that was added");
}

ON_FIXTURE(down__without_a_server_cannot_know)
{
	struct cli_fixture *f = *state;
	int64_t items;

	cli_expect(f, "up --size 64M --store a --json", 0);
	items = held_items_put("shm:a");
	cli_kill_daemon(cli_pid(f, METAD));
	cli_expect(f, "down --store a", REFUSED);
	cli_expect_words(f->err, "cannot count");
	cli_expect_words(f->err, "--force");
	cli_expect(f, "up --store a", 0);
	held_items_check("shm:a", items, "down without a server was refused");
}

ON_FIXTURE(down__of_a_node_that_does_not_answer_cannot_know)
{
	struct cli_fixture *f = *state;
	int64_t items;
	pid_t node;

	cli_expect(f, "up --size 64M --store a --json", 0);
	node = cli_pid(f, NODES);
	items = held_items_put("shm:a");
	assert_int_equal(kill(node, SIGSTOP), 0);
	do /* until the server knows */
		cli_expect(f, "status shm:a --json", 0);
	while (!strstr(f->out, "\"state\":\"down\""));
	cli_expect(f, "down --store a", REFUSED);
	cli_expect_words(f->err, "runs and does not answer");
	assert_int_equal(kill(node, SIGCONT), 0);
	cli_expect(f, "up --store a", 0);
	held_items_check("shm:a", items, "a node that was stopped");
}

ON_FIXTURE(down__says_nothing_is_lost_where_the_memory_is_gone)
{
	struct cli_fixture *f = *state;

	cli_expect(f, "up --size 64M --store a --json", 0);
	(void)held_items_put("shm:a");
	cli_kill_daemon(cli_pid(f, NODES));
	cli_expect(f, "down --store a", 0);
	cli_expect_words(f->out, "1 daemon stopped");
}

/* `relive down` on a terminal, where `answer` is typed; its exit status. */
static int down_on_a_terminal(struct cli_fixture *f, const char *answer)
{
	const char *bin = getenv("RLV_BIN_DIR");
	size_t n = 0;
	int fd, status;
	pid_t pid;

	fflush(NULL);
	pid = forkpty(&fd, NULL, NULL, NULL);
	assert_true(pid >= 0);
	if (pid == 0) {
		char path[512];

		snprintf(path, sizeof(path), "%s/relive", bin ? bin : "bin");
		execl(path, path, "down", "--store", "a", (char *)NULL);
		_exit(127);
	}
	/* The end of its output is the end of it: EIO on Linux. */
	for (bool asked = false; n < sizeof(f->out) - 1;) {
		ssize_t got = read(fd, f->out + n, sizeof(f->out) - 1 - n);

		if (got <= 0)
			break;
		f->out[n += (size_t)got] = 0;
		if (asked || !strstr(f->out, "[y/N]"))
			continue;
		asked = true;
		assert_int_equal(write(fd, answer, strlen(answer)), strlen(answer));
	}
	f->out[n] = 0;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	close(fd);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

ON_FIXTURE(down__asks_on_a_terminal)
{
	struct cli_fixture *f = *state;
	int64_t items;

	cli_expect(f, "up --size 64M --store a", 0);
	items = held_items_put("shm:a");
	assert_int_equal(down_on_a_terminal(f, "n\n"), REFUSED);
	cli_expect_words(f->out, "items in 1 table");
	assert_int_equal(down_on_a_terminal(f, "\n"), REFUSED);
	held_items_check("shm:a", items, "the answer was no");
	assert_int_equal(down_on_a_terminal(f, "y\n"), 0);
	cli_expect_words(f->out, "is down");
	cli_expect(f, "status shm:a", 1);
}

/* -------- one at a time -------- */

#define ROUNDS 7

static pid_t start(struct cli_fixture *f, const char *verb)
{
	const char *const up[] = { "up", "--store", "a", "--size", "64M", NULL };
	const char *const down[] = { "down", "--store", "a", "--force", NULL };

	return processes_start(&f->ps, "relive", strcmp(verb, "up") == 0 ? up : down);
}

ON_FIXTURE(up__two_at_once_both_succeed)
{
	struct cli_fixture *f = *state;

	for (int i = 0; i < ROUNDS; i++) {
		pid_t first = start(f, "up"), second = start(f, "up");
		int a = processes_wait(&f->ps, first, 3 * PROCESSES_WAIT_MS);
		int b = processes_wait(&f->ps, second, 3 * PROCESSES_WAIT_MS);

		if (a || b)
			fail_msg("round %d: exit %d and %d", i, a, b);
		cli_expect(f, "status shm:a", 0);
		cli_expect(f, "down --store a", 0);
		cli_expect_words(f->out, "2 daemons stopped");
	}
}

ON_FIXTURE(up__says_whom_it_waits_for_and_how_long)
{
	struct cli_fixture *f = *state;
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	char words[64], path[PROCESSES_PATH + 64];
	int fd;

	processes_path(&f->ps, ".a.lock", path);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	assert_int_equal(fcntl(fd, F_SETLK, &lock), 0);
	cli_expect(f, "up --store a --size 64M --timeout 1500ms", 1);
	snprintf(words, sizeof(words), "waiting for pid %d", (int)getpid());
	cli_expect_words(f->err, words);
	cli_expect_words(f->err, "ETIMEDOUT");
	close(fd);
	cli_expect(f, "up --store a --size 64M", 0);
}

/* Both commands succeed in either order, and the result is complete. */
ON_FIXTURE(up__beside_down_leaves_all_or_nothing)
{
	struct cli_fixture *f = *state;

	for (int i = 0; i < ROUNDS; i++) {
		pid_t up, down;

		cli_expect(f, "up --size 64M --store a", 0);
		down = start(f, "down");
		up = start(f, "up");
		assert_int_equal(processes_wait(&f->ps, up, 3 * PROCESSES_WAIT_MS), 0);
		assert_int_equal(processes_wait(&f->ps, down, 3 * PROCESSES_WAIT_MS), 0);
		if (cli_run(f, "status shm:a") == 0) {
			cli_expect(f, "down --store a", 0);
			cli_expect_words(f->out, "2 daemons stopped");
		} else {
			cli_expect(f, "down --store a", 1);
		}
	}
}

int main(void)
{
	return test_run(NULL, NULL);
}
