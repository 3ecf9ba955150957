/*
 * The n-th allocation fails, n = 1, 2, .. until a whole run of a store passes: each failure is a
 * typed error, leaks nothing, and leaves the store intact.
 */
#include "relive/scan.h"

#include "tests/support/fixture/replay_fixture.h"
#include "tests/support/test.h"

#include "base/mem/alloc.h"

#include <errno.h>
#include <string.h>

#define MOST 2000

static const struct rlv_view views[] = { { .n_step = 2 },
					 { .selector = RLV_UNIFORM, .max_times_sampled = 2 } };

struct life {
	struct rlv_store *store;
	struct rlv_table *table;
	struct rlv_writer *writer;
	struct rlv_sampler *sampler;
};

static int open_life(struct life *life, const struct rlv_table_opts *opts)
{
	struct rlv_store_opts store = RLV_STORE_OPTS_INIT;
	struct rlv_writer_opts writer = RLV_WRITER_OPTS_INIT;
	struct rlv_sampler_opts sampler = RLV_SAMPLER_OPTS_INIT;
	int rc;

	store.pages = RLV_PAGES_SMALL;
	writer.streams = 2;
	sampler.seed = 1;
	rc = rlv_store_open("embed:", &store, &life->store);
	rc = rc ? rc : rlv_table_create(life->store, "t", opts, &life->table);
	rc = rc ? rc : rlv_writer_open(life->table, &writer, &life->writer);
	return rc ? rc : rlv_sampler_open(life->table, &sampler, &life->sampler);
}

static int work(const struct life *life, const struct rlv_steps *steps)
{
	const struct rlv_batch *batch;
	const float td[8] = { 1, 2, 3, 4, 5, 6, 7, 8 };
	int rc = rlv_writer_append(life->writer, 0, steps, NULL);

	rc = rc ? rc : rlv_writer_append(life->writer, 1, steps, NULL);
	rc = rc ? rc : rlv_sampler_sample(life->sampler, 8, 0, &batch);
	rc = rc ? rc : rlv_sampler_update(life->sampler, batch->key, td, 8, NULL);
	rc = rc ? rc : rlv_sampler_scan_start(life->sampler, false, 0);
	rc = rc ? rc : rlv_sampler_scan(life->sampler, 8, 0, &batch);
	if (rc == 0)
		rlv_batch_release(life->sampler, batch);
	rc = rc ? rc : rlv_sampler_gather(life->sampler, batch->key, 8, 0, &batch);
	return rc ? rc : rlv_sampler_flush(life->sampler);
}

static void close_life(struct life *life)
{
	assert_int_equal(rlv_sampler_close(&life->sampler), 0);
	assert_int_equal(rlv_writer_close(&life->writer), 0);
	if (life->table)
		replay_verify(life->table);
	assert_int_equal(rlv_table_close(&life->table), 0);
	assert_int_equal(rlv_store_close(&life->store), 0);
}

static void usual(struct rlv_table_opts *opts)
{
	*opts = (struct rlv_table_opts)RLV_TABLE_OPTS_INIT;
	opts->columns = replay_obs_columns;
	opts->n_columns = REPLAY_COLUMNS;
	opts->capacity = 2048;
	opts->shards = 2;
	opts->views = views;
	opts->n_views = 2;
}

TEST(client__every_allocation_may_fail)
{
	const struct replay_fixture fx = { .oracle = { .has_obs = true } };
	struct rlv_steps steps = RLV_STEPS_INIT;
	struct rlv_table_opts opts;
	uint64_t n;

	usual(&opts);
	steps.n = 100;
	steps.columns = replay_columns(&fx, 0, 0, 100);
	for (n = 1; n < MOST; n++) {
		struct life life = { 0 };
		bool struck;
		int rc;

		mem_fail_after(n);
		rc = open_life(&life, &opts);
		rc = rc ? rc : work(&life, &steps);
		struck = mem_fail_fired();
		mem_fail_after(0);
		if (struck && rc != -ENOMEM)
			fail_msg("allocation %llu: %s (%s)", (unsigned long long)n,
				 rlv_error_name(rc), rlv_last_error());
		if (struck)
			assert_true(rlv_last_error()[0] != '\0');
		close_life(&life);
		if (!struck) {
			assert_int_equal(rc, 0);
			break;
		}
	}
	print_message("%llu allocations\n", (unsigned long long)n - 1);
	assert_true(n > 20 && n < MOST);
}

/* A table that is there goes on as if nothing had happened. */
TEST(client__a_failed_open_leaves_the_table_sound)
{
	const struct rlv_table_opts opts = { .views = views, .n_views = 2, .max_clients = 3 };
	struct replay_fixture fx;
	struct rlv_writer *writer;
	uint64_t n;

	replay_open(&fx, &opts);
	writer = replay_writer(&fx, 1);
	for (n = 1; n < MOST; n++) {
		struct rlv_sampler *sampler = NULL;
		struct rlv_writer *other = NULL;
		struct rlv_table *again = NULL;
		bool struck;

		mem_fail_after(n);
		if (rlv_table_open(fx.store, "t", &again) == 0 &&
		    rlv_sampler_open(again, NULL, &sampler) == 0 &&
		    rlv_writer_open(again, NULL, &other) == 0)
			assert_false(mem_fail_fired());
		struck = mem_fail_fired();
		mem_fail_after(0);
		replay_append_plain(&fx, writer, 0, 3);
		/*
		 * All slots were returned: three handles can be opened, which are all that the
		 * table has.
		 */
		assert_int_equal(rlv_sampler_close(&sampler), 0);
		assert_int_equal(rlv_writer_close(&other), 0);
		assert_int_equal(rlv_table_close(&again), 0);
		replay_verify(fx.table);
		if (!struck)
			break;
	}
	assert_true(n > 10 && n < MOST);
	replay_end(&fx, &writer, NULL);
}

/* In a steady state calls allocate nothing. */
TEST(client__steady_state_allocates_nothing)
{
	const struct rlv_table_opts opts = { .views = views, .n_views = 2, .shards = 2 };
	struct rlv_sampler_opts how = { 0 };
	const float td[64] = { 1 };
	struct replay_fixture fx;
	struct rlv_writer *writer;
	struct rlv_sampler *sampler;
	struct rlv_steps steps = RLV_STEPS_INIT;

	replay_open(&fx, &opts);
	writer = replay_writer(&fx, 1);
	sampler = replay_sampler(&fx, &how);
	steps.n = 64;
	steps.columns = replay_columns(&fx, 0, 0, 64);
	assert_int_equal(rlv_writer_append(writer, 0, &steps, NULL), 0);
	mem_fail_after(1);
	for (uint32_t i = 0; i < 300; i++) {
		const struct rlv_batch *batch;

		assert_int_equal(rlv_writer_append(writer, 0, &steps, NULL), 0);
		assert_int_equal(rlv_sampler_sample(sampler, 64, 0, &batch), 0);
		assert_int_equal(rlv_sampler_update(sampler, batch->key, td, 64, NULL), 0);
		rlv_batch_release(sampler, batch);
	}
	assert_false(mem_fail_fired());
	mem_fail_after(0);
	replay_end(&fx, &writer, &sampler);
}

int main(void)
{
	return test_run(NULL, NULL);
}
