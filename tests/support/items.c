#include "tests/support/items.h"

#include "tests/support/must.h"

#include "relive/relive.h"

#include <errno.h>

#define CAPACITY 8192
#define AT_ONCE 64
#define WAIT_NS 10000000000

static struct rlv_store *open_store(const char *uri)
{
	struct rlv_store_opts opts = RLV_STORE_OPTS_INIT;
	struct rlv_store *store = NULL;

	opts.timeout_ns = WAIT_NS;
	must(rlv_store_open(uri, &opts, &store), uri);
	return store;
}

static void put_all(struct rlv_table *table, uint32_t n)
{
	struct rlv_writer *writer = NULL;
	int64_t number[AT_ONCE];
	const void *columns[] = { number };
	struct rlv_steps steps = RLV_STEPS_INIT;

	steps.columns = columns;
	must(rlv_writer_open(table, NULL, &writer), "writer");
	for (uint32_t done = 0; done < n; done += steps.n) {
		steps.n = n - done < AT_ONCE ? n - done : AT_ONCE;
		for (uint32_t i = 0; i < steps.n; i++)
			number[i] = done + i;
		must(rlv_writer_append(writer, 0, &steps, NULL), "append");
	}
	must(rlv_writer_end_episode(writer, 0, NULL), "end of the episode");
	must(rlv_writer_close(&writer), "writer close");
}

void items_put(const char *uri, const char *name, uint32_t n)
{
	const struct rlv_column column = { .name = "number", .dtype = RLV_I64 };
	const struct rlv_view view = { .selector = RLV_FIFO, .max_times_sampled = 1 };
	struct rlv_table_opts opts = RLV_TABLE_OPTS_INIT;
	struct rlv_store *store = open_store(uri);
	struct rlv_table *table = NULL;

	opts.columns = &column;
	opts.n_columns = 1;
	opts.views = &view;
	opts.n_views = 1;
	opts.capacity = CAPACITY;
	must(rlv_table_create(store, name, &opts, &table), "create");
	put_all(table, n);
	must(rlv_table_close(&table), "table close");
	must(rlv_store_close(&store), "store close");
}

/* How many came; they follow each other from `next`. */
static uint32_t take_some(struct rlv_sampler *sampler, uint32_t next)
{
	const struct rlv_batch *batch = NULL;
	int ret = rlv_sampler_sample(sampler, AT_ONCE, 0, &batch);
	const int64_t *number;
	uint32_t n;

	if (ret == -ETIMEDOUT || ret == -EAGAIN || ret == -ENODATA)
		return 0;
	must(ret, "sample");
	number = batch->arrays[0].data;
	n = batch->n;
	for (uint32_t i = 0; i < n; i++)
		assert_int_equal(number[i], next + i);
	rlv_batch_release(sampler, batch);
	return n;
}

void items_expect(const char *uri, const char *name, uint32_t n)
{
	struct rlv_sampler_opts opts = RLV_SAMPLER_OPTS_INIT;
	struct rlv_store *store = open_store(uri);
	struct rlv_sampler *sampler = NULL;
	struct rlv_table *table = NULL;
	uint32_t seen = 0, got;

	opts.gamma = 1;
	opts.short_batch = true;
	must(rlv_table_open(store, name, &table), "open");
	must(rlv_sampler_open(table, &opts, &sampler), "sampler");
	while ((got = take_some(sampler, seen)) > 0)
		seen += got;
	if (seen != n)
		fail_msg("%s table %s: %u items, not %u", uri, name, seen, n);
	must(rlv_sampler_close(&sampler), "sampler close");
	must(rlv_table_close(&table), "table close");
	must(rlv_store_close(&store), "store close");
}
