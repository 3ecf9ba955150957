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
	replay_end(&s.fx, &writer, NULL);
	temp_dir_remove(s.dir);
}

int main(void)
{
	return test_run(NULL, NULL);
}
