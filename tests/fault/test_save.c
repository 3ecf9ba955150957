/* Each allocation of a save and of a load fails once: the file before stays, there is no table, and nothing leaks. */
#include "tests/support/fixture/replay_fixture.h"
#include "tests/support/must.h"
#include "tests/support/temp_dir.h"

#include "relive/save.h"

#include "base/mem/alloc.h"

#include <errno.h>

#define MOST 2000u

struct scene {
	struct replay_fixture fx;
	char dir[TEMP_DIR_BYTES], path[TEMP_DIR_BYTES + 8];
};

static int save(struct scene *s)
{
	struct rlv_save_opts opts = RLV_SAVE_OPTS_INIT;

	opts.base = s->path;
	return rlv_table_save(s->fx.table, s->path, &opts, NULL);
}

static int load(struct scene *s)
{
	struct rlv_load_opts opts = RLV_LOAD_OPTS_INIT;
	struct rlv_table *table = NULL;
	int ret;

	opts.name = "other";
	ret = rlv_table_load(s->fx.store, s->path, &opts, NULL, &table);
	if (ret)
		return ret;
	mem_fail_after(0);
	must(rlv_table_close(&table), "close");
	must(rlv_table_drop(s->fx.store, "other"), "drop");
	return 0;
}

/* Calls again until no allocation is left to fail. */
static void fail_each(struct scene *s, int (*call)(struct scene *s), const char *what)
{
	uint32_t n = 1, failures = 0;
	int ret;

	for (bool struck = true; struck && n < MOST; n++) {
		struct rlv_table *other = NULL;

		mem_fail_after(n);
		ret = call(s);
		struck = mem_fail_fired();
		mem_fail_after(0);
		/* Some are made for a message, or the call does without. */
		assert_true(ret == -ENOMEM || ret == 0);
		assert_true(struck || ret == 0);
		failures += ret != 0;
		expect(rlv_table_open(s->fx.store, "other", &other), -ENOENT);
		must(load(s), "the file is whole");
	}
	print_message("%s: %u allocations, %u failures\n", what, n - 1, failures);
	assert_true(failures > 5 && n < MOST);
}

/* -------- a load that replaces a table -------- */

/* The table "other", empty. */
static void put_empty(struct scene *s)
{
	const struct rlv_view view = { .stack = 2 };
	const struct rlv_table_opts opts = {
		.size = sizeof(opts),
		.columns = replay_obs_columns,
		.n_columns = REPLAY_COLUMNS,
		.n_views = 1,
		.views = &view,
		.capacity = 1024,
	};
	struct rlv_table *table = NULL;
	int ret = rlv_table_drop(s->fx.store, "other");

	assert_true(ret == 0 || ret == -ENOENT);
	must(rlv_table_create(s->fx.store, "other", &opts, &table), "create");
	must(rlv_table_close(&table), "close");
}

static int64_t items_of_other(struct scene *s)
{
	struct rlv_table *table = NULL;
	int64_t items;

	must(rlv_table_open(s->fx.store, "other", &table), "open");
	items = replay_info(table).views[0].items;
	must(rlv_table_close(&table), "close");
	return items;
}

static void fail_each_of_a_replacement(struct scene *s)
{
	struct rlv_load_opts opts = RLV_LOAD_OPTS_INIT;
	uint32_t n = 1, failures = 0;

	opts.name = "other";
	opts.replace = true;
	for (bool struck = true; struck && n < MOST; n++) {
		struct rlv_table *table = NULL;
		int ret;

		put_empty(s);
		mem_fail_after(n);
		ret = rlv_table_load(s->fx.store, s->path, &opts, NULL, &table);
		struck = mem_fail_fired();
		mem_fail_after(0);
		assert_true(ret == -ENOMEM || ret == 0);
		assert_true(struck || ret == 0);
		must(rlv_table_close(&table), "close");
		assert_int_equal(items_of_other(s) > 0, ret == 0); /* the one or the other */
		failures += ret != 0;
	}
	print_message("replace: %u allocations, %u failures\n", n - 1, failures);
	assert_true(failures > 5 && n < MOST);
}

TEST(save__every_allocation_may_fail)
{
	const struct rlv_view views[] = { { .stack = 2, .n_step = 2 },
					  { .selector = RLV_UNIFORM, .max_times_sampled = 4 } };
	const struct rlv_table_opts opts = { .n_views = 2, .views = views, .capacity = 1024 };
	struct rlv_writer *writer;
	struct scene s;

	temp_dir_make(s.dir);
	snprintf(s.path, sizeof(s.path), "%s/table", s.dir);
	replay_open(&s.fx, &opts);
	writer = replay_writer(&s.fx, 1);
	replay_append_plain(&s.fx, writer, 0, 900);
	must(rlv_table_save(s.fx.table, s.path, NULL, NULL), "save");
	fail_each(&s, save, "save");
	fail_each(&s, load, "load");
	fail_each_of_a_replacement(&s);
	replay_end(&s.fx, &writer, NULL);
	temp_dir_remove(s.dir);
}

int main(void)
{
	return test_run(NULL, NULL);
}
