/*
 * kill -9 of `relive up`, `down`, `node add` and `table create` at their steps: the next command
 * works, and no item of a table is lost.
 *
 * RLV_TEST_KILLS: kills of all cases together (48), spread over the steps; enough of them are one
 * at each step; "all": one at every system call.
 */
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/bits.h"
#include "tests/support/fixture/cli_fixture.h"
#include "tests/support/held_items.h"
#include "tests/support/attack/kill_step.h"
#include "tests/support/test.h"

#define CASES 8
#define SIZE "32M"

struct kill_case {
	const char *name;
	const char *words; /* of the command that is killed */
	void (*prepare)(struct cli_fixture *f, const struct kill_case *c);
	void (*follow)(struct cli_fixture *f, const struct kill_case *c, const char *when);
	bool on_file;
	int64_t items;
};

/* "up --store a ..." with the pool of the case. */
static const char *up_line(const struct cli_fixture *f, const struct kill_case *c)
{
	static char line[512];
	char path[PROCESSES_PATH + 64];

	processes_path(&f->ps, "pool", path);
	snprintf(line, sizeof(line), "up --store a --size " SIZE " %s %s",
		 c->on_file ? "--file" : "", c->on_file ? path : "");
	return line;
}

static void kill_daemon(struct cli_fixture *f, const char *name)
{
	char file[64], path[PROCESSES_PATH + 64], text[16] = { 0 };
	FILE *pid;

	snprintf(file, sizeof(file), "a/%.40s.pid", name);
	processes_path(&f->ps, file, path);
	pid = fopen(path, "re");
	assert_non_null(pid);
	assert_non_null(fgets(text, sizeof(text), pid));
	fclose(pid);
	cli_kill_daemon((pid_t)strtol(text, NULL, 10));
}

static bool is_finest(void)
{
	const char *text = getenv("RLV_TEST_KILLS");

	return text && strcmp(text, "all") == 0;
}

/* Runs the command of the case to its end, or to its kill before that step. */
static bool run_killed(struct cli_fixture *f, const struct kill_case *c, uint64_t at,
		       uint64_t *steps_out)
{
	char log[PROCESSES_PATH + 64], path[512], words[512];
	const char *argv[32] = { path }, *bin = getenv("RLV_BIN_DIR");
	const struct kill_step step = {
		.path = path, .argv = argv, .log = log, .finest = is_finest(), .at = at
	};
	struct kill_step_report report;
	size_t n = 1;
	char *rest = words;

	processes_path(&f->ps, "killed.log", log);
	snprintf(path, sizeof(path), "%s/relive", bin ? bin : "bin");
	snprintf(words, sizeof(words), "%s", c->words ? c->words : up_line(f, c));
	for (char *word; (word = strtok_r(rest, " ", &rest)) != NULL;)
		argv[n++] = word;
	kill_step_run(&step, &report);
	*steps_out = report.steps;
	return report.killed;
}

static uint64_t wanted_kills(void)
{
	const char *text = getenv("RLV_TEST_KILLS");
	uint64_t n = text && *text ? strtoull(text, NULL, 10) / CASES : 6;

	if (is_finest())
		return UINT64_MAX;
	return n ? n : 1;
}

/* One round: the command is killed, or not; the commands after it must work. */
static bool one_round(struct cli_fixture *f, const struct kill_case *c, uint64_t at,
		      uint64_t *steps_out)
{
	char when[96];
	bool killed;

	c->prepare(f, c);
	killed = run_killed(f, c, at, steps_out);
	snprintf(when, sizeof(when), "%.40s %s step %llu", c->name, killed ? "killed at" : "whole,",
		 (unsigned long long)*steps_out + 1);
	c->follow(f, c, when);
	return killed;
}

/*
 * How many steps there are differs from run to run, as it waits for others: all steps are done when
 * a run has ended before its kill.
 */
static void run_case(struct cli_fixture *f, const struct kill_case *c)
{
	uint64_t wanted = wanted_kills(), total, steps, at = 1;
	uint32_t kills = 0;

	(void)one_round(f, c, 0, &total);
	if (wanted >= total) {
		while (one_round(f, c, at++, &steps))
			kills++;
	} else {
		for (uint64_t i = 0; i < wanted; i++)
			kills += one_round(f, c, 1 + i * total / wanted, &steps);
	}
	print_message("%s: killed %u times, %llu steps in a whole run, 0 items of %lld lost\n",
		      c->name, kills, (unsigned long long)total, (long long)c->items);
	assert_true(kills > 0);
}

/* -------- up -------- */

static void nothing(struct cli_fixture *f, const struct kill_case *c)
{
	(void)f;
	(void)c;
}

static void expect_all_of_it(struct cli_fixture *f, const struct kill_case *c, const char *when)
{
	(void)when;
	cli_expect(f, up_line(f, c), 0);
	cli_expect(f, "status shm:a", 0);
	cli_expect(f, "down --store a", 0);
	cli_expect_words(f->out, "2 daemons stopped");
}

#define ON_FIXTURE(test) TEST_WITH(test, cli_fixture_open, cli_fixture_close)

ON_FIXTURE(up__of_a_new_store)
{
	const struct kill_case c = {
		.name = "up of a new store",
		.prepare = nothing,
		.follow = expect_all_of_it,
	};

	run_case(*state, &c);
}

static void expect_items(struct cli_fixture *f, const struct kill_case *c, const char *when)
{
	cli_expect(f, up_line(f, c), 0);
	held_items_check("shm:a", c->items, when);
}

static void stop_store(struct cli_fixture *f, const struct kill_case *c)
{
	(void)c;
	cli_expect(f, "down --store a", 0);
}

ON_FIXTURE(up__of_a_store_on_a_file)
{
	struct kill_case c = {
		.name = "up of a store on a file",
		.prepare = stop_store,
		.follow = expect_items,
		.on_file = true,
	};

	cli_expect(*state, up_line(*state, &c), 0);
	c.items = held_items_put("shm:a");
	run_case(*state, &c);
}

static void kill_metad(struct cli_fixture *f, const struct kill_case *c)
{
	(void)c;
	kill_daemon(f, "metad");
}

ON_FIXTURE(up__of_a_store_without_its_server)
{
	struct kill_case c = {
		.name = "up of a store without its server",
		.prepare = kill_metad,
		.follow = expect_items,
	};

	cli_expect(*state, up_line(*state, &c), 0);
	c.items = held_items_put("shm:a");
	run_case(*state, &c);
}

/* -------- down -------- */

ON_FIXTURE(down__of_a_store_on_a_file)
{
	struct kill_case c = {
		.name = "down of a store on a file",
		.words = "down --store a",
		.prepare = nothing,
		.follow = expect_items,
		.on_file = true,
	};

	cli_expect(*state, up_line(*state, &c), 0);
	c.items = held_items_put("shm:a");
	run_case(*state, &c);
}

/* Nothing is told to end before somebody has said that it may. */
ON_FIXTURE(down__that_is_refused)
{
	struct kill_case c = {
		.name = "down that is refused",
		.words = "down --store a",
		.prepare = nothing,
		.follow = expect_items,
	};

	cli_expect(*state, up_line(*state, &c), 0);
	c.items = held_items_put("shm:a");
	run_case(*state, &c);
}

static void start_with_items(struct cli_fixture *f, const struct kill_case *c)
{
	cli_expect(f, up_line(f, c), 0);
	(void)held_items_put("shm:a");
}

static void expect_a_store(struct cli_fixture *f, const struct kill_case *c, const char *when)
{
	(void)when;
	cli_expect(f, up_line(f, c), 0);
	cli_expect(f, "status shm:a", 0);
	cli_expect(f, "down --store a --force", 0);
	cli_expect_words(f->out, "2 daemons stopped");
}

ON_FIXTURE(down__of_items_by_force)
{
	const struct kill_case c = {
		.name = "down --force",
		.words = "down --store a --force",
		.prepare = start_with_items,
		.follow = expect_a_store,
	};

	run_case(*state, &c);
}

/* -------- node add, table create -------- */

static void expect_node(struct cli_fixture *f, const struct kill_case *c, const char *when)
{
	expect_items(f, c, when);
	if (cli_run(f, c->words))
		cli_expect_words(f->err, "runs already");
	held_items_check("shm:a", c->items, when);
	kill_daemon(f, "memnode-extra");
	while (cli_run(f, "node drop shm:a extra")) /* until the server knows that it is down */
		cli_expect_words(f->err, "is up");
}

ON_FIXTURE(node_add__beside_items)
{
	struct kill_case c = {
		.name = "node add",
		.words = "node add shm:a extra --size " SIZE,
		.prepare = nothing,
		.follow = expect_node,
	};

	cli_expect(*state, up_line(*state, &c), 0);
	c.items = held_items_put("shm:a");
	run_case(*state, &c);
}

static void expect_table(struct cli_fixture *f, const struct kill_case *c, const char *when)
{
	if (cli_run(f, c->words))
		cli_expect_words(f->err, "EEXIST");
	cli_expect(f, "inspect shm:a new", 0);
	cli_expect(f, "table drop shm:a new", 0);
	expect_items(f, c, when);
}

ON_FIXTURE(table_create__beside_items)
{
	struct kill_case c = {
		.name = "table create",
		.words = "table create shm:a new --capacity 4096",
		.prepare = nothing,
		.follow = expect_table,
	};

	cli_expect(*state, up_line(*state, &c), 0);
	c.items = held_items_put("shm:a");
	run_case(*state, &c);
}

int main(void)
{
	if (test_skips_valgrind("a program that is traced already"))
		return TEST_EXIT_SKIP;
	return test_run(NULL, NULL);
}
