/*
 * Pools that meet a catalog which does not know them: every item is there afterwards, unless a person
 * has said that it may go.
 */
#include "tests/support/command.h"
#include "tests/support/items.h"
#include "tests/support/test.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define N 1000u

struct fixture {
	struct processes ps;
	struct command cmd;
	char pool[PROCESSES_PATH + 64], copy[PROCESSES_PATH + 64];
	char catalog[PROCESSES_PATH + 64], aside[PROCESSES_PATH + 64];
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	processes_init(&f->ps);
	f->cmd.ps = &f->ps;
	processes_path(&f->ps, "pool", f->pool);
	processes_path(&f->ps, "copy", f->copy);
	processes_path(&f->ps, "a/a.db", f->catalog);
	processes_path(&f->ps, "aside.db", f->aside);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	(void)command_run(&f->cmd, "down --timeout 1s --store a");
	(void)command_run(&f->cmd, "down --timeout 1s --store b");
	processes_fini(&f->ps);
	free(f);
	return 0;
}

static int try_up(struct fixture *f, const char *options)
{
	return command_run(&f->cmd, "up --store a --size 64M --file %s %s", f->pool, options);
}

static void up(struct fixture *f, const char *options)
{
	command_expect(&f->cmd, 0, "up --store a --size 64M --file %s %s", f->pool, options);
}

static void down(struct fixture *f, const char *store)
{
	command_expect(&f->cmd, 0, "down --store %s", store);
}

/* Store a with a table in its pool, down. */
static void make_pool(struct fixture *f)
{
	up(f, "");
	items_put("shm:a", "t", N);
	down(f, "a");
}

#define CASE(f) TEST_WITH(f, setup, teardown)

/* -------- the three ways in which items were lost -------- */

CASE(pool__given_to_another_store_keeps_every_item)
{
	struct fixture *f = *state;
	int code;

	make_pool(f);
	command_expect(&f->cmd, 0, "up --store b --size 16M");
	code = command_run(&f->cmd, "node add shm:b oops --file %s", f->pool);
	if (code) {
		command_expect_words(f->cmd.err, "belongs to store a");
		command_expect_words(f->cmd.err, "store b");
		command_expect_words(f->cmd.err, "tables t");
	}
	down(f, "b");
	up(f, "");
	items_expect("shm:a", "t", N);
	assert_int_equal(code, 1);
}

CASE(pool__met_by_a_new_catalog_keeps_every_item)
{
	struct fixture *f = *state;
	int code;

	make_pool(f);
	assert_int_equal(rename(f->catalog, f->aside), 0);
	code = try_up(f, "");
	if (code) {
		command_expect_words(f->cmd.err, "tables t");
		command_expect_words(f->cmd.err, "relive restore");
	}
	(void)command_run(&f->cmd, "down --store a");
	assert_int_equal(rename(f->aside, f->catalog), 0);
	up(f, "");
	items_expect("shm:a", "t", N);
	assert_int_equal(code, 1);
}

CASE(pool__of_a_node_that_was_added_later_outlives_down)
{
	struct fixture *f = *state;

	command_expect(&f->cmd, 0, "up --store a --size 16M");
	command_expect(&f->cmd, 0, "node add shm:a extra --size 64M --file %s", f->pool);
	items_put("shm:a", "t", N);
	command_expect(&f->cmd, 0, "table shards shm:a t");
	command_expect_words(f->cmd.out, "extra");
	down(f, "a");
	command_expect(&f->cmd, 0, "up --store a");
	command_expect(&f->cmd, 1, "node add shm:a extra --size 64M --file %s", f->pool);
	command_expect_words(f->cmd.err, "runs already"); /* up has started it */
	items_expect("shm:a", "t", N);
}

static pid_t start_up(struct fixture *f, const char *options)
{
	const char *at;

	command_expect(&f->cmd, 0, "up --store a --size 64M --json %s", options);
	at = strstr(f->cmd.out, "\"metad_pid\":");
	assert_non_null(at);
	return (pid_t)strtol(at + strlen("\"metad_pid\":"), NULL, 10);
}

struct metad {
	struct fixture *f;
	pid_t pid;
};

static bool has_refused(void *ctx)
{
	const struct metad *metad = ctx;

	return processes_log_has(&metad->f->ps, metad->pid, "refuse node");
}

static void move_catalog(struct fixture *f, bool aside)
{
	static const char *const tails[] = { "", "-wal" };
	char from[sizeof(f->catalog) + 8], to[sizeof(from)];

	for (int i = 0; i < 2; i++) {
		snprintf(from, sizeof(from), "%s%s", aside ? f->catalog : f->aside, tails[i]);
		snprintf(to, sizeof(to), "%s%s", aside ? f->aside : f->catalog, tails[i]);
		assert_int_equal(rename(from, to), 0);
	}
}

/* A node that lives is not emptied by a server that knows nothing. */
CASE(pool__in_memory_met_by_a_new_catalog_keeps_every_item)
{
	static const char *const none[] = { NULL };
	struct fixture *f = *state;
	struct metad fresh = { .f = f };
	pid_t metad = start_up(f, "");

	items_put("shm:a", "t", N);
	assert_int_equal(kill(metad, SIGKILL), 0);
	while (command_run(&f->cmd, "restore a /dev/null --force") != 1 ||
	       strstr(f->cmd.err, "metadata server"))
		; /* until it has ended */
	move_catalog(f, true);
	fresh.pid = processes_metad(&f->ps, "a", none);
	assert_true(processes_until(has_refused, &fresh));
	processes_kill(&f->ps, fresh.pid, SIGTERM);
	move_catalog(f, false);
	(void)processes_metad(&f->ps, "a", none);
	items_expect("shm:a", "t", N);
}

/* -------- a person's word -------- */

CASE(pool__adopted_by_a_new_catalog_has_every_item)
{
	struct fixture *f = *state;

	make_pool(f);
	assert_int_equal(unlink(f->catalog), 0);
	up(f, "--adopt");
	items_expect("shm:a", "t", N);
	command_expect(&f->cmd, 0, "inspect shm:a");
	items_put("shm:a", "u", N); /* of an id of its own */
	down(f, "a");
	up(f, "");
	items_expect("shm:a", "u", N);
}

CASE(pool__adopted_by_another_store_is_that_stores)
{
	struct fixture *f = *state;

	make_pool(f);
	command_expect(&f->cmd, 0, "up --store b --size 16M");
	command_expect(&f->cmd, 0, "node add shm:b mine --file %s --adopt", f->pool);
	down(f, "b");
	assert_int_equal(try_up(f, ""), 1);
	command_expect_words(f->cmd.err, "belongs to store b");
	command_expect(&f->cmd, 0, "up --store b");
	items_expect("shm:b", "t", N);
}

/* The word is for one registration: the same process discards nothing when it comes back. */
CASE(pool__discarded_once_is_not_discarded_again)
{
	static const char *const none[] = { NULL };
	struct fixture *f = *state;
	struct metad ignorant = { .f = f };
	char options[sizeof(f->pool) + 32];
	pid_t metad;

	make_pool(f);
	assert_int_equal(unlink(f->catalog), 0);
	snprintf(options, sizeof(options), "--file %s --discard", f->pool);
	metad = start_up(f, options);
	command_expect(&f->cmd, 1, "table info shm:a t");
	command_expect(&f->cmd, 0, "backup shm:a %s", f->aside); /* knows no table */
	items_put("shm:a", "u", N);
	command_expect(&f->cmd, 0, "backup shm:a %s", f->copy);
	assert_int_equal(kill(metad, SIGKILL), 0);
	while (command_run(&f->cmd, "restore a %s --force", f->aside) != 0)
		command_expect_words(f->cmd.err, "has a metadata server"); /* it ends just now */
	ignorant.pid = processes_metad(&f->ps, "a", none);
	assert_true(processes_until(has_refused, &ignorant));
	command_expect(&f->cmd, 1, "table info shm:a u");
	processes_kill(&f->ps, ignorant.pid, SIGTERM);
	command_expect(&f->cmd, 0, "restore a %s --force", f->copy);
	(void)processes_metad(&f->ps, "a", none);
	items_expect("shm:a", "u", N);
}

CASE(pool__newer_than_a_restored_catalog_is_refused_and_adopted)
{
	struct fixture *f = *state;

	up(f, "");
	items_put("shm:a", "t", N);
	command_expect(&f->cmd, 0, "backup shm:a %s", f->copy);
	items_put("shm:a", "later", N + 7);
	down(f, "a");
	command_expect(&f->cmd, 0, "restore a %s --force", f->copy);
	assert_int_equal(try_up(f, ""), 1);
	command_expect_words(f->cmd.err, "tables later");
	up(f, "--adopt");
	items_expect("shm:a", "t", N);
	items_expect("shm:a", "later", N + 7);
}

/* Half of a table is not a table: it is named, and stays. */
CASE(pool__with_a_part_of_a_table_is_refused_and_kept)
{
	struct fixture *f = *state;
	char second[PROCESSES_PATH + 64];

	processes_path(&f->ps, "second", second);
	up(f, "");
	command_expect(&f->cmd, 0, "node add shm:a extra --size 64M --file %s", second);
	command_expect(&f->cmd, 0, "table create shm:a parts --shards 2 --capacity 8192");
	items_put("shm:a", "t", N);
	down(f, "a");
	command_expect(&f->cmd, 1, "up --store b --size 64M --file %s --adopt", f->pool);
	command_expect_words(f->cmd.err, "table parts");
	command_expect_words(f->cmd.err, "only 1 of its 2 shards");
	command_expect(&f->cmd, 0, "up --store a");
	items_expect("shm:a", "t", N);
	command_expect(&f->cmd, 0, "inspect shm:a");
}

/* Adopts the intact one of the two tables, and discards the other. */
CASE(pool__adopted_and_discarded_keeps_what_is_whole)
{
	struct fixture *f = *state;
	char second[PROCESSES_PATH + 64];

	processes_path(&f->ps, "second", second);
	command_expect(&f->cmd, 0, "up --store a --size 64M --file %s", second);
	command_expect(&f->cmd, 0, "node add shm:a extra --size 64M --file %s", f->pool);
	command_expect(&f->cmd, 0, "table create shm:a parts --shards 2 --capacity 8192");
	down(f, "a");
	command_expect(&f->cmd, 0, "up --store b --size 64M --file %s --adopt --discard", f->pool);
	command_expect(&f->cmd, 1, "table info shm:b parts");
	items_put("shm:b", "t", N);
	items_expect("shm:b", "t", N);
}

/* Another file under a node's name is not the node: what the first one holds is not lost by that. */
CASE(pool__other_than_the_nodes_is_refused)
{
	struct fixture *f = *state;
	char other[PROCESSES_PATH + 64];

	processes_path(&f->ps, "other", other);
	make_pool(f);
	command_expect(&f->cmd, 1, "up --store a --size 64M --file %s", other);
	command_expect_words(f->cmd.err, "another pool");
	command_expect(&f->cmd, 0, "up --store a"); /* with the pool that it had */
	items_expect("shm:a", "t", N);
}

int main(void)
{
	return test_run(NULL, NULL);
}
