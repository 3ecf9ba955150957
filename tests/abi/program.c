/*
 * program.c - a program that was compiled against another relive.h than the library that it runs with.
 *
 *   older/relive/relive.h   of before the last field of each struct that has a size was added
 *   newer, made in the build: of after another one, from_the_future, was added
 *
 * Every struct lies in a buffer with bytes behind it that the library must not touch.
 */
#include <relive/relive.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GUARD 0xa5

static void check(bool holds, const char *what, int line)
{
	if (holds)
		return;
	printf("line %d: %s: %s\n", line, what, rlv_last_error());
	exit(1);
}

#define CHECK(holds) check(holds, #holds, __LINE__)

/* A struct that the library fills, guarded. */
#define OUT(type, name) \
	struct { \
		struct type it; \
		uint8_t guard[64]; \
	} name; \
	memset(&(name), GUARD, sizeof(name)); \
	(name).it.size = sizeof((name).it)

static bool is_whole(const uint8_t guard[64])
{
	for (int i = 0; i < 64; i++)
		if (guard[i] != GUARD)
			return false;
	return true;
}

/* Fields unknown to the library are 0 in its answers. */
#ifdef NEWER
#define FUTURE_IS_ZERO(out) ((out).it.from_the_future == 0)
#else
#define FUTURE_IS_ZERO(out) true
#endif
#define FILLED(out) (is_whole((out).guard) && FUTURE_IS_ZERO(out))

/* A newer program that uses an unknown field gets the reason of the refusal. */
#ifdef NEWER
#define REFUSED_WITH_FUTURE(opts, call) \
	do { \
		(opts).from_the_future = 1; \
		CHECK((call) == -22); \
		CHECK(strstr(rlv_last_error(), "newer relive.h") != NULL); \
		CHECK(strstr(rlv_last_error(), "size ") != NULL); \
		(opts).from_the_future = 0; \
	} while (0)
#else
#define REFUSED_WITH_FUTURE(opts, call) ((void)0)
#endif

static struct rlv_table *make_table(struct rlv_store *store)
{
	static const struct rlv_column columns[] = {
		{ "obs", RLV_F32, RLV_OBS, 1, { 4 } },
		{ "reward", RLV_F32, RLV_REWARD, 0, { 0 } },
	};
	struct rlv_table_opts opts = RLV_TABLE_OPTS_INIT;
	struct rlv_table *table = NULL;

	opts.columns = columns;
	opts.n_columns = 2;
	opts.capacity = 1000;
	REFUSED_WITH_FUTURE(opts, rlv_table_create(store, "t", &opts, &table));
	CHECK(rlv_table_create(store, "t", &opts, &table) == 0);
	return table;
}

static void append(struct rlv_table *table)
{
	static float obs[100][4], reward[100];
	static const void *const columns[] = { obs, reward };
	struct rlv_writer_opts opts = RLV_WRITER_OPTS_INIT;
	struct rlv_steps steps = RLV_STEPS_INIT;
	struct rlv_writer *writer = NULL;
	OUT(rlv_stats, stats);

	for (int i = 0; i < 100; i++)
		obs[i][0] = reward[i] = (float)i;
	REFUSED_WITH_FUTURE(opts, rlv_writer_open(table, &opts, &writer));
	CHECK(rlv_writer_open(table, &opts, &writer) == 0);
	steps.n = 100;
	steps.columns = columns;
	REFUSED_WITH_FUTURE(steps, rlv_writer_append(writer, 0, &steps, NULL));
	CHECK(rlv_writer_append(writer, 0, &steps, NULL) == 0);
	steps.n = 1;
	REFUSED_WITH_FUTURE(steps, rlv_writer_append_vector(writer, &steps));
	CHECK(rlv_writer_append_vector(writer, &steps) == 0);
	REFUSED_WITH_FUTURE(steps, rlv_writer_end_episode(writer, 0, &steps));
	CHECK(rlv_writer_end_episode(writer, 0, &steps) == 0);
	CHECK(rlv_writer_stats(writer, &stats.it) == 0);
	CHECK(stats.it.steps == 102 && FILLED(stats));
	CHECK(rlv_writer_close(&writer) == 0);
}

static void sample(struct rlv_table *table)
{
	struct rlv_sampler_opts opts = RLV_SAMPLER_OPTS_INIT;
	struct rlv_sample_opts next = RLV_SAMPLE_OPTS_INIT;
	struct rlv_watch watch = RLV_WATCH_INIT;
	const struct rlv_batch *batch = NULL;
	struct rlv_sampler *sampler = NULL;
	float td[32] = { 1 };
	OUT(rlv_stats, stats);

	opts.batch_size = 32;
	REFUSED_WITH_FUTURE(opts, rlv_sampler_open(table, &opts, &sampler));
	CHECK(rlv_sampler_open(table, &opts, &sampler) == 0);
	next.gamma = 0.5;
	REFUSED_WITH_FUTURE(next, rlv_sampler_set_opts(sampler, &next));
	CHECK(rlv_sampler_set_opts(sampler, &next) == 0);
	CHECK(rlv_sampler_watch(sampler, 32, &watch) == 0);
	CHECK(rlv_sampler_sample(sampler, 32, 0, &batch) == 0);
	CHECK(strcmp(batch->arrays[0].name, "obs") == 0);
	for (uint32_t i = 0; i < 32; i++)
		CHECK(((const float *)batch->arrays[0].data)[4 * i] < 100);
	CHECK(rlv_sampler_update(sampler, batch->key, td, 32, NULL) == 0);
	CHECK(rlv_sampler_stats(sampler, &stats.it) == 0);
	CHECK(stats.it.items == 32 && FILLED(stats));
	CHECK(rlv_sampler_close(&sampler) == 0);
}

static void look(struct rlv_store *store, struct rlv_table *table)
{
	struct rlv_node_info nodes[2];
	struct rlv_shard_info shards[2];
	size_t n = 2;
	OUT(rlv_store_info, store_info);
	OUT(rlv_table_info, info);
	OUT(rlv_verify_report, report);

	CHECK(rlv_store_info(store, &store_info.it) == 0);
	CHECK(store_info.it.n_nodes == 1 && FILLED(store_info));
	CHECK(rlv_table_info(table, &info.it) == 0);
	CHECK(info.it.n_columns == 2 && info.it.views[0].items > 90 && FILLED(info));
	CHECK(rlv_table_verify(table, &report.it) == 0);
	CHECK(report.it.problems == 0 && FILLED(report));
	memset(nodes, GUARD, sizeof(nodes));
	CHECK(rlv_store_nodes(store, nodes, sizeof(nodes[0]), &n) == 0);
	CHECK(n == 1 && strcmp(nodes[0].name, "embed") == 0);
	CHECK(*(const uint8_t *)&nodes[1] == GUARD);
	n = 2;
	memset(shards, GUARD, sizeof(shards));
	CHECK(rlv_table_shards(table, shards, sizeof(shards[0]), &n) == 0);
	CHECK(n == 1 && shards[0].state == RLV_SHARD_ACTIVE);
	CHECK(*(const uint8_t *)&shards[1] == GUARD);
}

int main(void)
{
	struct rlv_store_opts opts = RLV_STORE_OPTS_INIT;
	struct rlv_table *table;
	struct rlv_store *store = NULL;

	opts.pages = RLV_PAGES_SMALL;
	opts.pool_bytes = 64 << 20;
	REFUSED_WITH_FUTURE(opts, rlv_store_open("embed:", &opts, &store));
	CHECK(rlv_store_open("embed:", &opts, &store) == 0);
	table = make_table(store);
	append(table);
	sample(table);
	look(store, table);
	CHECK(rlv_table_close(&table) == 0);
	CHECK(rlv_store_close(&store) == 0);
	puts("ok");
	return 0;
}
