#include "tests/support/held_items.h"

#include <string.h>

#include "relive/relive.h"

#include "tests/support/attack/crash_rows.h"
#include "tests/support/processes.h"
#include "tests/support/fixture/store_fixture.h"
#include "tests/support/test.h"

#define CAPACITY 4096
#define APPENDS 10u
#define BATCHES 4

static void must(int ret, const char *when, const char *what)
{
	if (ret)
		fail_msg("%s: %s: %s: %s", when, what, rlv_error_name(ret), rlv_last_error());
}

static struct rlv_store *open_store(const char *uri, const char *when)
{
	struct rlv_store_opts opts = RLV_STORE_OPTS_INIT;
	struct rlv_store *store = NULL;

	opts.timeout_ns = PROCESSES_WAIT_MS * INT64_C(1000000);
	must(rlv_store_open(uri, &opts, &store), when, "open the store");
	return store;
}

static int64_t count(struct rlv_table *table, const char *when)
{
	struct rlv_table_info info = { .size = sizeof(info) };

	must(rlv_table_info(table, &info), when, "information of the table");
	return info.views[CRASH_UNIFORM].items;
}

static void append(struct rlv_table *table)
{
	static struct crash_rows rows;
	struct rlv_writer *writer = NULL;

	must(rlv_writer_open(table, NULL, &writer), "put", "open a writer");
	for (uint32_t i = 0; i < APPENDS; i++) {
		crash_rows_fill(&rows, 1, i * 2 * CRASH_EPISODE, 2 * CRASH_EPISODE);
		must(rlv_writer_append(writer, 0, &rows.steps, NULL), "put", "append");
	}
	must(rlv_writer_close(&writer), "put", "close the writer");
}

int64_t held_items_put(const char *uri)
{
	struct rlv_store *store = open_store(uri, "put");
	struct rlv_table *table = store_fixture_crash_table(store, CAPACITY, 0);
	int64_t items;

	append(table);
	items = count(table, "put");
	assert_true(items > 0);
	must(rlv_table_close(&table), "put", "close the table");
	must(rlv_store_close(&store), "put", "close the store");
	return items;
}

static bool is_sound(void *table)
{
	struct rlv_verify_report report = { .size = sizeof(report) };

	return rlv_table_verify(table, &report) == 0 && report.problems == 0;
}

static void draw(struct rlv_table *table, const char *when)
{
	struct rlv_sampler_opts opts = RLV_SAMPLER_OPTS_INIT;
	struct rlv_sampler *sampler = NULL;
	const struct rlv_batch *batch;
	char why[CRASH_WHY];

	opts.gamma = 1;
	must(rlv_sampler_open(table, &opts, &sampler), when, "open a sampler");
	for (int i = 0; i < BATCHES; i++) {
		must(rlv_sampler_sample(sampler, 256, 0, &batch), when, "sample");
		if (crash_batch_check(batch, why))
			fail_msg("%s: a wrong item: %s", when, why);
		rlv_batch_release(sampler, batch);
	}
	must(rlv_sampler_close(&sampler), when, "close the sampler");
}

void held_items_check(const char *uri, int64_t items, const char *when)
{
	struct rlv_store *store = open_store(uri, when);
	struct rlv_table *table = NULL;
	int64_t now;

	must(rlv_table_open(store, "t", &table), when, "open the table");
	now = count(table, when);
	if (now != items)
		fail_msg("%s: %lld items of %lld", when, (long long)now, (long long)items);
	if (!processes_until(is_sound, table))
		fail_msg("%s: the table is not sound", when);
	draw(table, when);
	must(rlv_table_close(&table), when, "close the table");
	must(rlv_store_close(&store), when, "close the store");
}
