/* Tables that are saved and loaded: the same items, priorities, counts and order. */
#include "tests/support/fixture/nodes_fixture.h"
#include "tests/support/fixture/replay_fixture.h"
#include "tests/support/must.h"
#include "tests/support/slow_load.h"
#include "tests/support/temp_dir.h"

#include "relive/save.h"

#include "client/save/zstd.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static char dir[TEMP_DIR_BYTES];
static char path[TEMP_DIR_BYTES + 16];

static int begin(void **state)
{
	(void)state;
	temp_dir_make(dir);
	snprintf(path, sizeof(path), "%s/table", dir);
	return 0;
}

static int end(void **state)
{
	(void)state;
	temp_dir_remove(dir);
	return 0;
}

/* Replaces the fixture's store by a fresh one, with the table as the file has it. */
static struct rlv_save_info load_elsewhere(struct replay_fixture *fx, uint32_t shards)
{
	struct rlv_save_info info = { .size = sizeof(info) };
	struct rlv_load_opts opts = RLV_LOAD_OPTS_INIT;

	opts.shards = shards;
	must(rlv_table_close(&fx->table), "close table");
	must(rlv_store_close(&fx->store), "close store");
	must(rlv_store_open("embed:", NULL, &fx->store), "open store");
	must(rlv_table_load(fx->store, path, &opts, &info, &fx->table), "load");
	return info;
}

static void save(struct replay_fixture *fx, const char *base, struct rlv_save_info *info)
{
	struct rlv_save_opts opts = RLV_SAVE_OPTS_INIT;

	opts.base = base;
	*info = (struct rlv_save_info){ .size = sizeof(*info) };
	must(rlv_table_save(fx->table, path, &opts, info), "save");
}

/* Draws of a view: their bytes are the oracle's, and so are the priorities of items with a TD error. */
static void check_draws(struct replay_fixture *fx, uint32_t v, const struct rlv_view *view)
{
	const struct rlv_sampler_opts opts = { .size = sizeof(opts), .view = v };
	const struct replay_look look = { view->stack ? view->stack : 1,
					  view->n_step ? view->n_step : 1, 0.99 };
	struct rlv_sampler *sampler = replay_sampler(fx, &opts);

	for (uint32_t k = 0; k < 16; k++) {
		const struct rlv_batch *batch = replay_sample(sampler, 256);

		replay_check_batch(&fx->oracle, view, &look, batch);
		for (uint32_t i = 0; i < batch->n; i++) {
			uint64_t id = replay_batch_id(batch, i);
			double td = fx->oracle.streams[id >> 32].rows[id & UINT32_MAX].td;
			double want = pow(td + 1e-6, view->alpha);

			if (view->selector == RLV_PRIORITIZED && td >= 0)
				assert_true(fabs((double)batch->priority[i] - want) <=
					    2e-6 * (1 + want));
		}
		rlv_batch_release(sampler, batch);
	}
	replay_sampler_done(&sampler);
}

static const struct rlv_view two_views[] = { { .alpha = 0.7, .stack = 3, .n_step = 3 },
					     { .selector = RLV_UNIFORM, .alpha = 1 } };

/* Episodes of several lengths in 4 streams, some of them cut, with TD errors. */
static void fill(struct replay_fixture *fx, struct rlv_writer *writer, uint32_t rounds)
{
	for (uint32_t round = 0; round < rounds; round++)
		for (uint32_t s = 0; s < 4; s++) {
			uint32_t n = 3 + (7 * round + 5 * s) % 61;

			double td[64];
			const struct replay_put put = {
				.stream = s, .n = n, .td = td, .version = round
			};

			for (uint32_t i = 0; i < n; i++)
				td[i] = (double)((i * 7919 + s * 31 + round) % 997) / 100;
			must(replay_append(fx, writer, &put), "append");
			if ((round + s) % 3)
				must(replay_end_episode(fx, writer, s, (round + s) % 2), "end");
		}
}

/* Saves a table of `from` shards, loads it with `to`, and compares all that can be seen. */
static void there_and_back(uint32_t from, uint32_t to, uint32_t rounds)
{
	const struct rlv_table_opts opts = {
		.n_views = 2, .views = two_views, .shards = from, .capacity = 8192
	};
	struct rlv_table_info before, after;
	struct rlv_save_info saved, loaded;
	struct replay_fixture fx;
	struct rlv_writer *writer;

	replay_open(&fx, &opts);
	writer = replay_writer(&fx, 4);
	fill(&fx, writer, rounds);
	before = replay_info(fx.table); /* with open blocks */
	save(&fx, NULL, &saved);
	replay_writer_done(&writer);
	loaded = load_elsewhere(&fx, to);
	after = replay_info(fx.table);
	assert_int_equal(after.shards, to);
	assert_string_equal(after.name, before.name);
	assert_int_equal(after.capacity, before.capacity);
	for (uint32_t v = 0; v < 2; v++) {
		assert_int_equal(saved.items[v], before.views[v].items);
		assert_int_equal(loaded.items[v], before.views[v].items);
		assert_true(after.views[v].priority_sum == before.views[v].priority_sum);
		assert_true(after.views[v].max_priority == before.views[v].max_priority);
		assert_int_equal(after.views[v].inserted, before.views[v].inserted);
		assert_int_equal(after.views[v].sampled, before.views[v].sampled);
		check_draws(&fx, v, &two_views[v]);
	}
	writer = replay_writer(&fx, 1); /* and it goes on */
	replay_writer_done(&writer);
	replay_close(&fx);
}

TEST_WITH(table_save__same_items_and_priorities, begin, end)
{
	there_and_back(1, 1, 12);
}

TEST_WITH(table_save__to_more_shards, begin, end)
{
	there_and_back(1, 4, 12);
}

TEST_WITH(table_save__to_fewer_shards, begin, end)
{
	there_and_back(4, 1, 12);
}

/* The ring has been filled twice: all blocks hold items, and the loaded table has room for them. */
TEST_WITH(table_save__of_a_full_table, begin, end)
{
	there_and_back(1, 1, 140);
}

TEST_WITH(table_save__of_an_empty_table, begin, end)
{
	struct rlv_save_info saved;
	struct replay_fixture fx;

	replay_open(&fx, &(struct rlv_table_opts){ 0 });
	save(&fx, NULL, &saved);
	assert_int_equal(saved.items[0], 0);
	assert_int_equal(load_elsewhere(&fx, 0).items[0], 0);
	replay_close(&fx);
}

/* -------- order, consumed items, limiters -------- */

static const struct rlv_view queue = {
	.selector = RLV_FIFO,
	.max_times_sampled = 1,
	.limiter = { .min_size = 1, .samples_per_insert = 1, .max_diff = 2000 }
};

TEST_WITH(table_save__a_queue_goes_on_where_it_was, begin, end)
{
	const struct rlv_table_opts opts = { .n_views = 1, .views = &queue };
	struct replay_fixture fx;
	struct rlv_table_info info;
	struct rlv_save_info saved;
	const struct rlv_batch *batch;
	struct rlv_sampler *sampler;
	struct rlv_writer *writer;

	replay_open(&fx, &opts);
	writer = replay_writer(&fx, 1);
	replay_append_plain(&fx, writer, 0, 901);
	sampler = replay_sampler(&fx, NULL);
	batch = replay_sample(sampler, 200);
	rlv_batch_release(sampler, batch);
	replay_sampler_done(&sampler);
	save(&fx, NULL, &saved);
	assert_int_equal(saved.items[0], 700);
	replay_writer_done(&writer);
	load_elsewhere(&fx, 0);
	info = replay_info(fx.table);
	assert_int_equal(info.views[0].inserted, 900);
	assert_int_equal(info.views[0].sampled, 200);
	sampler = replay_sampler(&fx, NULL);
	for (uint32_t next = 200; next < 900; next += 100) {
		batch = replay_sample(sampler, 100);
		assert_int_equal(batch->n, 100);
		for (uint32_t i = 0; i < batch->n; i++)
			assert_int_equal(replay_batch_id(batch, i) & UINT32_MAX, next + i);
		rlv_batch_release(sampler, batch);
	}
	expect(rlv_sampler_sample(sampler, 1, 0, &batch), -ETIMEDOUT);
	replay_sampler_done(&sampler);
	writer = replay_writer(&fx, 1); /* the limiter has room again: for 2000 items */
	replay_append_plain(&fx, writer, 0, 1000);
	replay_writer_done(&writer);
	replay_close(&fx);
}

TEST_WITH(table_save__items_keep_their_times_sampled, begin, end)
{
	const struct rlv_view view = { .selector = RLV_UNIFORM, .max_times_sampled = 3 };
	const struct rlv_table_opts opts = { .n_views = 1, .views = &view };
	struct replay_fixture fx;
	struct rlv_save_info saved;
	const struct rlv_batch *batch;
	struct rlv_sampler *sampler;
	struct rlv_writer *writer;
	uint32_t sum = 0;

	replay_open(&fx, &opts);
	writer = replay_writer(&fx, 1);
	replay_append_plain(&fx, writer, 0, 301);
	sampler = replay_sampler(&fx, NULL);
	for (uint32_t k = 0; k < 4; k++) {
		batch = replay_sample(sampler, 100);
		sum += batch->n;
		rlv_batch_release(sampler, batch);
	}
	replay_sampler_done(&sampler);
	save(&fx, NULL, &saved);
	replay_writer_done(&writer);
	load_elsewhere(&fx, 0);
	sampler = replay_sampler(&fx, NULL);
	while (rlv_sampler_sample(sampler, 50, 0, &batch) == 0) {
		sum += batch->n;
		rlv_batch_release(sampler, batch);
	}
	assert_int_equal(sum, 3 * 300);
	replay_sampler_done(&sampler);
	replay_close(&fx);
}

/* -------- base -------- */

TEST_WITH(table_save__rows_of_an_earlier_file_are_copied, begin, end)
{
	const struct rlv_table_opts opts = { .n_views = 2, .views = two_views, .capacity = 8192 };
	struct rlv_table_info before;
	struct rlv_save_info first, second;
	struct replay_fixture fx;
	struct rlv_writer *writer;

	replay_open(&fx, &opts);
	writer = replay_writer(&fx, 4);
	fill(&fx, writer, 30);
	save(&fx, NULL, &first);
	assert_int_equal(first.reused_bytes, 0);
	fill(&fx, writer, 3);
	save(&fx, path, &second);
	before = replay_info(fx.table);
	assert_true(second.reused_bytes > first.bytes / 2);
	assert_true(second.items[0] > first.items[0]);
	replay_writer_done(&writer);
	load_elsewhere(&fx, 0);
	assert_true(replay_info(fx.table).views[0].priority_sum == before.views[0].priority_sum);
	check_draws(&fx, 0, &two_views[0]);
	save(&fx, path, &second); /* of another table, though it has the same items */
	assert_int_equal(second.reused_bytes, 0);
	replay_close(&fx);
}

static void flip(off_t at)
{
	int fd = open(path, O_RDWR);
	uint8_t byte;

	assert_int_equal(pread(fd, &byte, 1, at), 1);
	byte ^= 4;
	assert_int_equal(pwrite(fd, &byte, 1, at), 1);
	close(fd);
}

/* Damage in base does not spread: those rows come from the table. */
TEST_WITH(table_save__a_damaged_base_is_not_copied, begin, end)
{
	const struct rlv_table_opts opts = { .n_views = 2, .views = two_views, .capacity = 8192 };
	struct rlv_save_info first, second;
	struct replay_fixture fx;
	struct rlv_writer *writer;

	replay_open(&fx, &opts);
	writer = replay_writer(&fx, 4);
	fill(&fx, writer, 30);
	save(&fx, NULL, &first);
	flip((off_t)first.bytes / 2);
	save(&fx, path, &second);
	replay_writer_done(&writer);
	assert_int_equal(second.items[0], first.items[0]);
	assert_true(second.reused_bytes > 0);
	load_elsewhere(&fx, 0);
	check_draws(&fx, 0, &two_views[0]);
	replay_close(&fx);
}

TEST_WITH(table_save__compressed, begin, end)
{
	const struct rlv_table_opts opts = { .n_views = 2, .views = two_views, .capacity = 8192 };
	struct rlv_save_opts how = RLV_SAVE_OPTS_INIT;
	struct rlv_save_info plain, packed = { .size = sizeof(packed) };
	struct replay_fixture fx;
	struct rlv_writer *writer;

	if (test_skips_msan("zstd") || zstd_load())
		skip();
	replay_open(&fx, &opts);
	writer = replay_writer(&fx, 4);
	fill(&fx, writer, 12);
	save(&fx, NULL, &plain);
	how.compress = 3;
	must(rlv_table_save(fx.table, path, &how, &packed), "save");
	replay_writer_done(&writer);
	assert_true(packed.bytes < plain.bytes);
	load_elsewhere(&fx, 0);
	check_draws(&fx, 0, &two_views[0]);
	how.compress = 20;
	replay_expect(rlv_table_save(fx.table, path, &how, NULL), -EINVAL, "opts.compress 20");
	replay_close(&fx);
}

/* -------- refused, ended -------- */

static int stop(void *ctx, uint64_t done, uint64_t total)
{
	int *left = ctx;

	assert_true(done <= total);
	return --*left <= 0;
}

TEST_WITH(table_load__after_an_error_there_is_no_table, begin, end)
{
	const struct rlv_table_opts table_opts = { .n_views = 2,
						   .views = two_views,
						   .capacity = 8192 };
	struct rlv_save_opts save_opts = RLV_SAVE_OPTS_INIT;
	struct rlv_load_opts opts = RLV_LOAD_OPTS_INIT;
	struct rlv_save_info saved;
	struct replay_fixture fx;
	struct rlv_table *table;
	struct rlv_writer *writer;
	int left = 3;

	replay_open(&fx, &table_opts);
	writer = replay_writer(&fx, 4);
	fill(&fx, writer, 12);
	replay_writer_done(&writer);
	save(&fx, NULL, &saved);
	save_opts.progress = stop;
	save_opts.ctx = &left;
	expect(rlv_table_save(fx.table, path, &save_opts, NULL), -EINTR);
	replay_expect(rlv_table_load(fx.store, path, NULL, NULL, &table), -EEXIST, "opts.name");
	opts.name = "other";
	opts.progress = stop;
	opts.ctx = &left;
	for (int at = 1, ret = -EINTR; ret; at += 7) { /* while it checks, and while it fills */
		left = at;
		ret = rlv_table_load(fx.store, path, &opts, NULL, &table);
		if (ret == 0)
			break;
		expect(ret, -EINTR);
		expect(rlv_table_open(fx.store, "other", &table), -ENOENT);
	}
	must(rlv_table_close(&table), "close");
	opts.progress = NULL;
	opts.replace = true;
	must(rlv_table_load(fx.store, path, &opts, NULL, &table), "replace");
	must(rlv_table_close(&table), "close");
	flip((off_t)saved.bytes / 2);
	opts.name = "third";
	expect(rlv_table_load(fx.store, path, &opts, NULL, &table), -EBADMSG);
	expect(rlv_table_open(fx.store, "third", &table), -ENOENT);
	replay_close(&fx);
}

TEST_WITH(table_load__is_not_seen_before_it_is_whole, begin, end)
{
	const struct rlv_table_opts table_opts = { .capacity = 8192 };
	struct rlv_load_opts opts = RLV_LOAD_OPTS_INIT;
	struct rlv_store_info info = { .size = sizeof(info) };
	struct slow_load slow = { .path = path, .opts = RLV_LOAD_OPTS_INIT };
	struct replay_fixture fx;
	struct rlv_table *table = NULL;
	struct rlv_writer *writer;
	size_t n = 0;

	replay_open(&fx, &table_opts);
	writer = replay_writer(&fx, 4);
	fill(&fx, writer, 12);
	replay_writer_done(&writer);
	must(rlv_table_save(fx.table, path, NULL, NULL), "save");
	slow.store = fx.store;
	slow.opts.name = opts.name = "other";
	slow_load_begin(&slow);
	replay_expect(rlv_table_open(fx.store, "other", &table), -EBUSY, "is being loaded");
	expect(rlv_table_load(fx.store, path, &opts, NULL, &table), -EBUSY);
	must(rlv_store_tables(fx.store, NULL, &n), "tables");
	must(rlv_store_info(fx.store, &info), "info");
	must(slow_load_end(&slow), "load");
	assert_int_equal(n, 1);
	assert_int_equal(info.n_tables, 1);
	must(rlv_table_open(fx.store, "other", &table), "open");
	assert_int_equal(replay_info(table).views[0].items, replay_info(fx.table).views[0].items);
	must(rlv_table_close(&table), "close");
	replay_close(&fx);
}

/* -------- nodes -------- */

/* A save has all items or fails: of a node that may come back; what is lost has none. */
TEST_WITH(table_save__waits_for_no_node, begin, end)
{
	static struct nodes_fixture nx;
	struct rlv_save_info saved = { .size = sizeof(saved) };
	struct rlv_writer *writer;

	nodes_open(&nx, &(struct nodes_opts){ .reach = NODES_IN_PLACE });
	writer = replay_writer(&nx.fx, 1);
	replay_append_plain(&nx.fx, writer, 0, 2001);
	replay_writer_done(&writer);
	must(rlv_table_save(nx.fx.table, path, NULL, &saved), "save");
	assert_int_equal(saved.items[0], 2000);
	nodes_cut(&nx, 1, 1);
	replay_expect(rlv_table_save(nx.fx.table, path, NULL, NULL), -EHOSTDOWN, "shard 1");
	nodes_return(&nx, 1);
	must(rlv_table_save(nx.fx.table, path, NULL, &saved), "save");
	assert_int_equal(saved.items[0], 2000);
	nodes_lose(&nx, 1);
	must(rlv_table_save(nx.fx.table, path, NULL, &saved), "save");
	assert_true(saved.items[0] < 2000);
	nodes_close(&nx);
}

int main(void)
{
	return test_run(NULL, NULL);
}
