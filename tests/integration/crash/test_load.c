/*
 * Loads that end early, or meet others: nobody sees a table before all of it is in, and what a killed load
 * has made is given back.
 */
#include "tests/support/items.h"
#include "tests/support/must.h"
#include "tests/support/processes.h"
#include "tests/support/store_nodes.h"

#include "relive/save.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define N 3000u
#define BEFORE 100u /* items of a table that is replaced */
#define KILLS 5u
#define PATH (PROCESSES_PATH + 64)

/* A process that loads. It is killed, or stops and waits, when its load has made that many steps. */
struct loader {
	const char *uri, *file;
	bool replace;
	uint32_t kill_at, stop_at;       /* 0 = never */
	_Atomic uint32_t *steps, *going; /* shared with it: 1 = it waits, 2 = it goes on */
};

struct fixture {
	struct processes ps;
	pid_t metad;
	char file[PATH], pool[PATH], embed[PATH + 8];
	_Atomic uint32_t *shared;
	struct rlv_store *store;
	uint64_t one; /* memory of one table, when a load begins to replace it */
};

/* -------- the process -------- */

static int step(void *ctx, uint64_t done, uint64_t total)
{
	struct loader *l = ctx;
	uint32_t n = atomic_fetch_add(l->steps, 1) + 1;

	(void)done;
	(void)total;
	if (n == l->kill_at)
		(void)raise(SIGKILL);
	if (n == l->stop_at)
		atomic_store(l->going, 1);
	for (uint32_t i = 0; atomic_load(l->going) == 1 && i < PROCESSES_WAIT_MS; i++)
		processes_sleep_ns(1000000);
	return 0;
}

/* 0, or the code, positive. */
static int load_run(void *ctx)
{
	struct loader *l = ctx;
	struct rlv_load_opts opts = RLV_LOAD_OPTS_INIT;
	struct rlv_store *store = NULL;
	struct rlv_table *table = NULL;
	int ret = rlv_store_open(l->uri, NULL, &store);

	opts.replace = l->replace;
	opts.progress = step;
	opts.ctx = l;
	if (ret == 0)
		ret = rlv_table_load(store, l->file, &opts, NULL, &table);
	if (ret)
		fprintf(stderr, "load: %s\n", rlv_last_error());
	if (ret == 0)
		ret = rlv_table_close(&table);
	return ret ? -ret : -rlv_store_close(&store);
}

/* Forks without the thread of a store: one of a sanitizer's locks may be the thread's at that moment, for ever. */
static pid_t start(struct fixture *f, struct loader *l, const char *uri)
{
	pid_t pid;

	l->uri = uri;
	l->file = f->file;
	l->steps = &f->shared[0];
	l->going = &f->shared[1];
	atomic_store(l->steps, 0);
	atomic_store(l->going, 0);
	must(rlv_store_close(&f->store), "close");
	pid = processes_fork(&f->ps, load_run, l);
	must(rlv_store_open("shm:s", NULL, &f->store), "open");
	return pid;
}

static uint32_t steps_of(struct fixture *f, const char *uri)
{
	struct loader all = { .kill_at = 0 };

	assert_int_equal(processes_wait(&f->ps, start(f, &all, uri), PROCESSES_WAIT_MS), 0);
	return atomic_load(all.steps);
}

static void kill_at(struct fixture *f, const char *uri, uint32_t at)
{
	struct loader l = { .kill_at = at };

	assert_int_equal(processes_wait(&f->ps, start(f, &l, uri), PROCESSES_WAIT_MS),
			 128 + SIGKILL);
}

/* The same, of a load that replaces the table. */
static void kill_replacing_at(struct fixture *f, uint32_t at)
{
	struct loader l = { .kill_at = at, .replace = true };

	assert_int_equal(processes_wait(&f->ps, start(f, &l, "shm:s"), PROCESSES_WAIT_MS),
			 128 + SIGKILL);
}

static bool is_stopped(void *ctx)
{
	return atomic_load(((struct loader *)ctx)->going) == 1;
}

/* A load that has put some of its items. */
static pid_t start_and_stop(struct fixture *f, struct loader *l)
{
	pid_t pid;

	l->stop_at = steps_of(f, "shm:s") - 1;
	must(rlv_table_drop(f->store, "t"), "drop");
	pid = start(f, l, "shm:s");
	assert_true(processes_until(is_stopped, l));
	return pid;
}

static int go_on(struct fixture *f, struct loader *l, pid_t pid)
{
	atomic_store(l->going, 2);
	return processes_wait(&f->ps, pid, PROCESSES_WAIT_MS);
}

/* -------- what others see -------- */

static uint32_t count_tables(struct rlv_store *store)
{
	size_t n = 0;

	must(rlv_store_tables(store, NULL, &n), "tables");
	return (uint32_t)n;
}

static void expect_no_table(struct rlv_store *store)
{
	struct rlv_table *table = NULL;

	assert_int_equal(count_tables(store), 0);
	expect(rlv_table_open(store, "t", &table), -ENOENT);
}

static uint64_t used_bytes(struct rlv_store *store)
{
	return store_node_named(store, "a").used_bytes;
}

/* There is one table, whole, with so many items. */
static void expect_items(struct rlv_store *store, int64_t n)
{
	struct rlv_table_info info = { .size = sizeof(info) };
	struct rlv_table *table = NULL;

	assert_int_equal(count_tables(store), 1);
	must(rlv_table_open(store, "t", &table), "open");
	must(rlv_table_info(table, &info), "info");
	assert_int_equal(info.views[0].items, n);
	must(rlv_table_close(&table), "close");
}

/* The memory of the other one is given back. */
struct space {
	struct rlv_store *store;
	uint64_t bytes;
};

static bool only_one_is_there(void *ctx)
{
	const struct space *space = ctx;

	return used_bytes(space->store) == space->bytes;
}

static void expect_one(struct fixture *f, uint64_t bytes, int64_t items)
{
	struct space space = { f->store, bytes };

	if (!processes_until(only_one_is_there, &space))
		fail_msg("%llu bytes are used, not %llu", (unsigned long long)used_bytes(f->store),
			 (unsigned long long)bytes);
	expect_items(f->store, items);
}

static void load_it(struct rlv_store *store, const char *file)
{
	struct rlv_table *table = NULL;

	must(rlv_table_load(store, file, NULL, NULL, &table), "load");
	must(rlv_table_close(&table), "close");
}

static void expect_refused(struct fixture *f)
{
	struct rlv_load_opts replace = RLV_LOAD_OPTS_INIT;
	struct rlv_table *table = NULL;

	replace.replace = true;
	assert_int_equal(count_tables(f->store), 0);
	expect(rlv_table_open(f->store, "t", &table), -EBUSY);
	assert_non_null(strstr(rlv_last_error(), "table t is being loaded by client "));
	expect(rlv_table_load(f->store, f->file, NULL, NULL, &table), -EBUSY);
	expect(rlv_table_load(f->store, f->file, &replace, NULL, &table), -EBUSY);
}

static bool space_is_back(void *ctx)
{
	struct rlv_store *store = ctx;
	struct rlv_table *table = NULL;

	return rlv_table_open(store, "t", &table) == -ENOENT &&
	       store_node_named(store, "a").used_bytes == 0;
}

/* A load that has put some of its items, beside a table of that name that it replaces. */
static pid_t start_replacing(struct fixture *f, struct loader *l)
{
	pid_t pid;

	l->replace = true;
	l->stop_at = steps_of(f, "shm:s") - 1;
	must(rlv_table_drop(f->store, "t"), "drop");
	assert_true(processes_until(space_is_back, f->store));
	items_put("shm:s", "t", BEFORE);
	f->one = used_bytes(f->store);
	pid = start(f, l, "shm:s");
	assert_true(processes_until(is_stopped, l));
	return pid;
}

/* -------- fixture -------- */

static void start_metad(struct fixture *f)
{
	f->metad = processes_metad(&f->ps, "s", NULL);
}

static void embed_uri(const struct processes *ps, const char *name, char uri[PATH + 8])
{
	memcpy(uri, "embed:", sizeof("embed:"));
	processes_path(ps, name, uri + sizeof("embed:") - 1);
}

static void save_items(struct fixture *f)
{
	struct rlv_table *table = NULL;
	char from[PATH + 8];

	embed_uri(&f->ps, "from", from);
	items_put(from, "t", N);
	must(rlv_store_open(from, NULL, &f->store), "open");
	must(rlv_table_open(f->store, "t", &table), "table");
	must(rlv_table_save(table, f->file, NULL, NULL), "save");
	must(rlv_table_close(&table), "close");
	must(rlv_store_close(&f->store), "close");
}

static int setup(void **state)
{
	static const char *const size[] = { "--size", "64M", NULL };
	static struct fixture fixture;
	struct fixture *f = &fixture;

	memset(f, 0, sizeof(*f));
	processes_init(&f->ps);
	processes_path(&f->ps, "saved", f->file);
	processes_path(&f->ps, "to", f->pool);
	embed_uri(&f->ps, "to", f->embed);
	f->shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(f->shared != MAP_FAILED);
	save_items(f);
	start_metad(f);
	(void)processes_memnode(&f->ps, "s", "a", size);
	must(rlv_store_open("shm:s", NULL, &f->store), "open");
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	(void)!rlv_store_close(&f->store);
	munmap(f->shared, 4096);
	processes_fini(&f->ps);
	return 0;
}

#define CASE(f) TEST_WITH(f, setup, teardown)

/* -------- cases -------- */

CASE(load__killed_leaves_no_table_in_a_file)
{
	struct fixture *f = *state;
	struct rlv_store *store = NULL;
	uint32_t steps = steps_of(f, f->embed);

	items_expect(f->embed, "t", N);
	assert_true(steps > 2 * KILLS);
	(void)unlink(f->pool);
	for (uint32_t k = 1; k <= KILLS; k++) {
		kill_at(f, f->embed, k * steps / KILLS);
		must(rlv_store_open(f->embed, NULL, &store), "open");
		expect_no_table(store);
		must(rlv_store_close(&store), "close");
	}
	must(rlv_store_open(f->embed, NULL, &store), "open");
	load_it(store, f->file);
	must(rlv_store_close(&store), "close");
	items_expect(f->embed, "t", N);
}

CASE(load__killed_gives_its_memory_back)
{
	struct fixture *f = *state;
	uint32_t steps = steps_of(f, "shm:s");

	must(rlv_table_drop(f->store, "t"), "drop");
	for (uint32_t k = 1; k <= KILLS; k++) {
		kill_at(f, "shm:s", k * steps / KILLS);
		assert_true(processes_until(space_is_back, f->store));
		expect_no_table(f->store);
	}
	load_it(f->store, f->file);
	items_expect("shm:s", "t", N);
}

CASE(load__of_two_at_once_one_is_refused)
{
	struct loader first = { .kill_at = 0 };
	struct fixture *f = *state;
	struct rlv_table *table = NULL;
	pid_t pid = start_and_stop(f, &first);

	expect_refused(f);
	assert_int_equal(go_on(f, &first, pid), 0);
	assert_int_equal(count_tables(f->store), 1);
	expect(rlv_table_load(f->store, f->file, NULL, NULL, &table), -EEXIST);
	items_expect("shm:s", "t", N);
}

CASE(load__goes_on_over_a_restart_of_the_server)
{
	struct loader l = { .kill_at = 0 };
	struct fixture *f = *state;
	pid_t pid = start_and_stop(f, &l);

	processes_kill(&f->ps, f->metad, SIGKILL);
	start_metad(f);
	expect_refused(f);
	assert_int_equal(go_on(f, &l, pid), 0);
	items_expect("shm:s", "t", N);
}

CASE(load__killed_while_no_server_runs_is_found_by_the_next)
{
	struct loader l = { .kill_at = 0 };
	struct fixture *f = *state;
	pid_t pid = start_and_stop(f, &l);

	processes_kill(&f->ps, f->metad, SIGKILL);
	processes_kill(&f->ps, pid, SIGKILL);
	start_metad(f);
	assert_true(processes_until(space_is_back, f->store));
	load_it(f->store, f->file);
	items_expect("shm:s", "t", N);
}

CASE(load__is_ended_by_a_drop)
{
	struct loader l = { .kill_at = 0 };
	struct fixture *f = *state;
	pid_t pid = start_and_stop(f, &l);

	must(rlv_table_drop(f->store, "t"), "drop");
	load_it(f->store, f->file);
	assert_int_equal(go_on(f, &l, pid), ESTALE);
	items_expect("shm:s", "t", N); /* the other's end took nothing of it */
}

/* -------- loads that replace a table -------- */

CASE(load__that_replaces_killed_leaves_the_earlier_one)
{
	struct loader all = { .replace = true };
	struct fixture *f = *state;
	uint32_t steps = steps_of(f, "shm:s");
	uint64_t bytes;

	must(rlv_table_drop(f->store, "t"), "drop");
	assert_true(processes_until(space_is_back, f->store));
	items_put("shm:s", "t", BEFORE);
	bytes = used_bytes(f->store);
	for (uint32_t k = 1; k <= KILLS; k++) {
		kill_replacing_at(f, k * steps / KILLS);
		expect_one(f, bytes, BEFORE);
	}
	items_expect("shm:s", "t", BEFORE);
	assert_int_equal(processes_wait(&f->ps, start(f, &all, "shm:s"), PROCESSES_WAIT_MS), 0);
	items_expect("shm:s", "t", N);
}

CASE(load__that_replaces_leaves_the_earlier_one_to_samplers)
{
	struct loader l = { .kill_at = 0 };
	struct fixture *f = *state;
	struct rlv_sampler_opts opts = RLV_SAMPLER_OPTS_INIT;
	const struct rlv_batch *batch = NULL;
	struct rlv_sampler *sampler = NULL;
	struct rlv_table *table = NULL;
	pid_t pid = start_replacing(f, &l);

	opts.gamma = 1;
	must(rlv_table_open(f->store, "t", &table), "open");
	must(rlv_sampler_open(table, &opts, &sampler), "sampler");
	must(rlv_sampler_sample(sampler, BEFORE / 2, 0, &batch), "sample");
	rlv_batch_release(sampler, batch);
	assert_int_equal(go_on(f, &l, pid), 0);
	expect(rlv_sampler_sample(sampler, BEFORE / 2, 0, &batch), -ESTALE);
	(void)!rlv_sampler_close(&sampler);
	must(rlv_table_close(&table), "close");
	expect_items(f->store, N);
	items_expect("shm:s", "t", N);
}

CASE(load__that_replaces_goes_on_over_a_restart_of_the_server)
{
	struct loader l = { .kill_at = 0 };
	struct fixture *f = *state;
	pid_t pid = start_replacing(f, &l);

	processes_kill(&f->ps, f->metad, SIGKILL);
	start_metad(f);
	expect_items(f->store, BEFORE);
	assert_int_equal(go_on(f, &l, pid), 0);
	items_expect("shm:s", "t", N);
}

CASE(load__that_replaces_killed_while_no_server_runs_leaves_the_earlier_one)
{
	struct loader l = { .kill_at = 0 };
	struct fixture *f = *state;
	pid_t pid = start_replacing(f, &l);

	processes_kill(&f->ps, f->metad, SIGKILL);
	processes_kill(&f->ps, pid, SIGKILL);
	start_metad(f);
	expect_one(f, f->one, BEFORE);
	items_expect("shm:s", "t", BEFORE);
}

/* The server is killed about when it is asked to commit, and the loader's request goes on at the next one. */
CASE(load__that_replaces_has_a_server_killed_about_its_end)
{
	struct fixture *f = *state;

	for (uint32_t k = 0; k < KILLS; k++) {
		struct loader l = { .kill_at = 0 };
		pid_t pid = start_replacing(f, &l);

		atomic_store(l.going, 2);
		processes_sleep_ns((int64_t)k * 1000000);
		processes_kill(&f->ps, f->metad, SIGKILL);
		start_metad(f);
		assert_int_equal(processes_wait(&f->ps, pid, PROCESSES_WAIT_MS), 0);
		expect_one(f, f->one, N);
		items_expect("shm:s", "t", N);
		must(rlv_table_drop(f->store, "t"), "drop");
		assert_true(processes_until(space_is_back, f->store));
	}
}

CASE(load__that_replaces_ends_what_has_no_earlier_one_any_more)
{
	struct loader l = { .kill_at = 0 };
	struct fixture *f = *state;
	struct rlv_table *table = NULL;
	pid_t pid = start_replacing(f, &l);

	must(rlv_table_drop(f->store, "t"), "drop"); /* the earlier one: the load goes on */
	expect(rlv_table_open(f->store, "t", &table), -EBUSY);
	assert_int_equal(go_on(f, &l, pid), 0);
	items_expect("shm:s", "t", N);
}

int main(void)
{
	return test_run(NULL, NULL);
}
