/* Loads that replace a table: it is there, whole and in use, until the new one is. */
#include "tests/support/fixture/replay_fixture.h"
#include "tests/support/must.h"
#include "tests/support/slow_load.h"
#include "tests/support/temp_dir.h"

#include "relive/kv.h"
#include "relive/save.h"

#include "client/meta/embed.h"
#include "client/store/store.h"

#include <errno.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SAVED 900u
#define MORE 300u

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

/* -------- helpers -------- */

/* A table "t" that was saved, and has more items since. */
static void open_saved(struct replay_fixture *fx)
{
	const struct rlv_table_opts opts = { .capacity = 4096 };
	struct rlv_writer *writer;

	replay_open(fx, &opts);
	writer = replay_writer(fx, 1);
	replay_append_plain(fx, writer, 0, SAVED);
	must(rlv_table_save(fx->table, path, NULL, NULL), "save");
	replay_append_plain(fx, writer, 0, MORE);
	replay_writer_done(&writer);
}

static uint64_t items_of(struct rlv_store *store)
{
	struct rlv_table *table = NULL;
	uint64_t items;
	size_t n = 0;

	must(rlv_store_tables(store, NULL, &n), "tables");
	assert_int_equal(n, 1);
	must(rlv_table_open(store, "t", &table), "open");
	items = (uint64_t)replay_info(table).views[0].items;
	replay_verify(table);
	must(rlv_table_close(&table), "close");
	return items;
}

static uint64_t used_bytes(struct rlv_store *store)
{
	struct rlv_node_info node = { .regions = 0 };
	size_t n = 1;

	must(rlv_store_nodes(store, &node, sizeof(node), &n), "nodes");
	return node.used_bytes;
}

static int load(struct rlv_store *store, rlv_save_progress progress, void *ctx,
		struct rlv_table **table_out)
{
	struct rlv_load_opts opts = RLV_LOAD_OPTS_INIT;

	opts.replace = true;
	opts.progress = progress;
	opts.ctx = ctx;
	return rlv_table_load(store, path, &opts, NULL, table_out);
}

static void close_replaced(struct replay_fixture *fx)
{
	must(rlv_table_close(&fx->table), "close table");
	must(rlv_store_close(&fx->store), "close store");
	replay_oracle_fini(&fx->oracle);
}

/* -------- a load that stops half way -------- */

static int sample(struct rlv_sampler *sampler)
{
	const struct rlv_batch *batch = NULL;
	int ret = rlv_sampler_sample(sampler, 64, 0, &batch);

	if (ret == 0)
		rlv_batch_release(sampler, batch);
	return ret;
}

static int append(struct replay_fixture *fx, struct rlv_writer *writer)
{
	const struct replay_put put = { .first_stream = 1, .n = 1 };

	return replay_append(fx, writer, &put);
}

TEST_WITH(table_load__replace_leaves_the_earlier_one_in_use, begin, end)
{
	struct slow_load slow = { .path = path, .opts = RLV_LOAD_OPTS_INIT };
	struct replay_fixture fx;
	struct rlv_table *table = NULL;
	struct rlv_sampler *sampler;
	struct rlv_writer *writer;
	uint64_t items, used;

	open_saved(&fx);
	sampler = replay_sampler(&fx, NULL);
	writer = replay_writer(&fx, 1);
	items = items_of(fx.store);
	used = used_bytes(fx.store);
	slow.store = fx.store;
	slow.opts.replace = true;
	slow_load_begin(&slow);
	assert_int_equal(items_of(fx.store), items);
	assert_true(used_bytes(fx.store) > used);
	must(sample(sampler), "sample");
	must(append(&fx, writer), "append");
	replay_expect(load(fx.store, NULL, NULL, &table), -EBUSY, "is being loaded");
	must(slow_load_end(&slow), "load");
	/* Who had the earlier one hears that it was dropped. */
	replay_expect(sample(sampler), -ESTALE, "dropped");
	replay_expect(append(&fx, writer), -ESTALE, "dropped");
	assert_true(items_of(fx.store) < items);
	expect(rlv_sampler_close(&sampler), -ESTALE);
	expect(rlv_writer_close(&writer), -ESTALE);
	must(rlv_table_close(&fx.table), "close table");
	assert_int_equal(used_bytes(fx.store), used); /* it is freed when nobody has it mapped */
	close_replaced(&fx);
}

/* -------- loads that fail -------- */

static int stop(void *ctx, uint64_t done, uint64_t total)
{
	int *left = ctx;

	(void)done;
	(void)total;
	return --*left <= 0;
}

TEST_WITH(table_load__replace_that_fails_leaves_the_earlier_one, begin, end)
{
	struct replay_fixture fx;
	struct rlv_table *table = NULL;
	uint64_t items, used;
	int at = 1, left = 1;

	open_saved(&fx);
	items = items_of(fx.store);
	used = used_bytes(fx.store);
	for (int ret; (ret = load(fx.store, stop, &left, &table)) != 0;) {
		assert_int_equal(ret, -EINTR);
		assert_int_equal(items_of(fx.store), items);
		assert_int_equal(used_bytes(fx.store), used);
		left = ++at;
	}
	assert_true(at > 8);
	must(rlv_table_close(&table), "close");
	assert_true(items_of(fx.store) < items);
	close_replaced(&fx);
}

TEST_WITH(table_load__replace_without_room_for_both_leaves_the_earlier_one, begin, end)
{
	struct rlv_store_opts opts = RLV_STORE_OPTS_INIT;
	struct rlv_table *table = NULL;
	struct rlv_store *tight = NULL;
	struct replay_fixture fx;
	uint64_t items;

	open_saved(&fx);
	opts.pool_bytes = used_bytes(fx.store) * 3 / 2;
	must(rlv_store_open("embed:", &opts, &tight), "open");
	must(load(tight, NULL, NULL, &table), "load");
	must(rlv_table_close(&table), "close");
	items = items_of(tight);
	replay_expect(load(tight, NULL, NULL, &table), -ENOSPC, "drop it first, or add memory");
	assert_int_equal(items_of(tight), items);
	must(rlv_table_drop(tight, "t"), "drop");
	must(load(tight, NULL, NULL, &table), "load");
	must(rlv_table_close(&table), "close");
	must(rlv_store_close(&tight), "close");
	replay_close(&fx);
}

TEST_WITH(table_load__does_not_replace_values, begin, end)
{
	struct rlv_kv_opts opts = RLV_KV_OPTS_INIT;
	struct rlv_table *table = NULL;
	struct rlv_store *store = NULL;
	struct rlv_kv *kv = NULL;
	struct replay_fixture fx;

	open_saved(&fx);
	must(rlv_store_open("embed:", NULL, &store), "open");
	must(rlv_kv_create(store, "t", &opts, &kv), "kv");
	replay_expect(load(store, NULL, NULL, &table), -EEXIST, "t cannot be replaced");
	must(rlv_kv_close(&kv), "close");
	must(rlv_kv_open(store, "t", &kv), "kv");
	must(rlv_kv_close(&kv), "close");
	must(rlv_store_close(&store), "close");
	replay_close(&fx);
}

/* -------- the last request -------- */

static const struct meta_ops *real;

static int commit_and_lose_the_answer(struct meta *meta, const struct meta_object *object)
{
	must(real->commit(meta, object), "commit");
	return error_set(-ETIMEDOUT, "the answer was lost");
}

static int commit_never(struct meta *meta, const struct meta_object *object)
{
	(void)meta;
	(void)object;
	return error_set(-ETIMEDOUT, "the request was lost");
}

/* The commit of a load in this store is that one. */
static int load_with(struct rlv_store *store, struct rlv_table **table_out,
		     int (*commit)(struct meta *meta, const struct meta_object *object))
{
	struct meta_ops ops = *store->meta->ops;
	int ret;

	real = store->meta->ops;
	ops.commit = commit;
	store->meta->ops = &ops;
	ret = load(store, NULL, NULL, table_out);
	store->meta->ops = real;
	return ret;
}

/* The earlier table is gone then: to undo the load would leave none. */
TEST_WITH(table_load__whose_last_answer_is_lost_is_done, begin, end)
{
	struct rlv_table *table = NULL;
	struct replay_fixture fx;
	uint64_t items, used;

	open_saved(&fx);
	items = items_of(fx.store);
	used = used_bytes(fx.store);
	replay_expect(load_with(fx.store, &table, commit_never), -ETIMEDOUT,
		      "the request was lost");
	assert_int_equal(items_of(fx.store), items);
	assert_int_equal(used_bytes(fx.store), used);
	must(load_with(fx.store, &table, commit_and_lose_the_answer), "load");
	assert_int_equal((uint64_t)replay_info(table).views[0].items, items_of(fx.store));
	assert_true(items_of(fx.store) < items);
	must(rlv_table_close(&table), "close");
	close_replaced(&fx);
}

/* -------- a process that ends within the last request, of a store in a file -------- */

#define SHARDS 2u

/* Steps of the commit that are done; what is found when the file is opened next. */
enum stage {
	STAGE_NOTHING,
	STAGE_ONE_WORD, /* from here on back: the earlier table */
	STAGE_WORDS,    /* from here on: the new one */
	STAGE_ONE_PART_DROPPED,
	STAGE_DROPPED,
	STAGE_ONE_WORD_CLEARED,
	STAGE_ALL,
};

static enum stage stage;

static int commit_in_part(struct meta *meta, const struct meta_object *object)
{
	struct embed *embed = (struct embed *)meta;
	struct catalog_object *earlier = catalog_find(&embed->cat, "t"), *made;

	must(catalog_find_named(&embed->cat, earlier->kind, "t", object->uuid, &made), "made");
	assert_ptr_not_equal(made, earlier);
	assert_int_equal(made->n_parts, SHARDS);
	if (stage == STAGE_ALL)
		must(real->commit(meta, object), "commit");
	for (uint32_t s = 0; s < SHARDS && stage != STAGE_ALL; s++)
		if (stage >= STAGE_WORDS || (stage == STAGE_ONE_WORD && s == 0))
			must(part_set_loaded(made->attached[s], region_replaces(earlier->uuid)),
			     "word");
	if (stage == STAGE_ONE_PART_DROPPED)
		must(part_set_state(earlier->attached[0], REGION_DROPPED), "drop");
	if (stage == STAGE_DROPPED || stage == STAGE_ONE_WORD_CLEARED)
		must(embed_drop_object(embed, earlier), "drop");
	if (stage == STAGE_ONE_WORD_CLEARED)
		must(part_set_loaded(made->attached[0], 0), "word");
	_exit(0);
}

static void load_in_a_child(const char *uri)
{
	struct rlv_store *store = NULL;
	struct rlv_table *table = NULL;
	pid_t pid = fork();
	int status = 0;

	if (pid == 0) {
		must(rlv_store_open(uri, NULL, &store), "open");
		must(load_with(store, &table, commit_in_part), "load");
		_exit(1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* A table of two shards in a file, as open_saved. */
static void put_in_file(const char *uri)
{
	const struct rlv_table_opts opts = { .capacity = 4096, .shards = SHARDS };
	struct replay_fixture fx;
	struct rlv_writer *writer;

	replay_open_at(&fx, uri, &opts);
	writer = replay_writer(&fx, 1);
	replay_append_plain(&fx, writer, 0, SAVED);
	must(rlv_table_save(fx.table, path, NULL, NULL), "save");
	replay_append_plain(&fx, writer, 0, MORE);
	replay_writer_done(&writer);
	replay_close(&fx);
}

static bool all_words_are_clear(struct rlv_store *store)
{
	const struct embed *embed = (const struct embed *)store->meta;
	const struct catalog_object *object = catalog_find(&embed->cat, "t");
	uint64_t words = 0, word;

	for (uint32_t s = 0; s < object->n_parts; s++) {
		must(transport_load(object->attached[s]->slots,
				    offsetof(struct region_superblock, loading), &word),
		     "word");
		words |= word;
	}
	return words == 0;
}

TEST_WITH(table_load__replace_that_is_killed_in_a_file_is_done_or_undone, begin, end)
{
	char file[TEMP_DIR_BYTES + 16], uri[TEMP_DIR_BYTES + 32];
	uint64_t before, used;

	snprintf(file, sizeof(file), "%s/pool", dir);
	snprintf(uri, sizeof(uri), "embed:%s", file);
	for (stage = STAGE_NOTHING; stage <= STAGE_ALL; stage++) {
		struct rlv_store *store = NULL;

		put_in_file(uri);
		must(rlv_store_open(uri, NULL, &store), "open");
		before = items_of(store);
		used = used_bytes(store);
		must(rlv_store_close(&store), "close");
		load_in_a_child(uri);
		for (int again = 0; again < 2; again++) {
			must(rlv_store_open(uri, NULL, &store), "open");
			assert_int_equal(items_of(store) == before, stage < STAGE_WORDS);
			assert_int_equal(used_bytes(store), used);
			assert_true(all_words_are_clear(store));
			must(rlv_store_close(&store), "close");
		}
		assert_int_equal(unlink(file), 0);
	}
}

int main(void)
{
	return test_run(NULL, NULL);
}
