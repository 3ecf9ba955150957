/*
 * `staleness` of data and `publish_lag` of weights, as `relive status` and the server's metrics show
 * them: a learner and actors with a store of each, of which some lag.
 */
#include "tests/support/command.h"
#include "tests/support/fake/fake_cuda.h"
#include "tests/support/fixture/store_fixture.h"
#include "tests/support/must.h"
#include "tests/support/processes.h"
#include "tests/support/sockets.h"

#include "relive/admin.h"
#include "relive/landing.h"
#include "relive/weights.h"

#include <string.h>

#define SECOND ((int64_t)1000000000)
#define LEARNER 0
#define ACTORS 2

struct fixture {
	struct processes ps;
	struct command command;
	struct rlv_store *stores[1 + ACTORS];
	uint16_t port; /* of the metrics */
	const char *words;
};

static int setup(void **state)
{
	static struct fixture fx;
	char port[8];
	const char *const metad[] = { "--lease", "0.6", "--metrics", port, NULL };
	static const char *const node[] = { "--size", "64M", NULL };

	memset(&fx, 0, sizeof(fx));
	*state = &fx;
	processes_init(&fx.ps);
	fx.command.ps = &fx.ps;
	fx.port = processes_free_port();
	(void)snprintf(port, sizeof(port), "%u", fx.port);
	(void)processes_metad(&fx.ps, "s", metad);
	(void)processes_memnode(&fx.ps, "s", "a", node);
	for (size_t i = 0; i < 1 + ACTORS; i++)
		must(rlv_store_open("shm:s", NULL, &fx.stores[i]), "rlv_store_open");
	store_fixture_await_node(fx.stores[LEARNER]);
	return 0;
}

static int teardown(void **state)
{
	struct fixture *fx = *state;

	for (size_t i = 0; i < 1 + ACTORS; i++)
		(void)!rlv_store_close(&fx->stores[i]);
	processes_fini(&fx->ps);
	return 0;
}

static bool status_has(void *ctx)
{
	struct fixture *fx = ctx;

	return command_run(&fx->command, "status shm:s --json") == 0 &&
	       strstr(fx->command.out, fx->words);
}

static void await_status(struct fixture *fx, const char *words)
{
	fx->words = words;
	if (!processes_until(status_has, fx))
		fail_msg("no %s in:\n%s%s", words, fx->command.out, fx->command.err);
}

static bool page_has(void *ctx)
{
	const struct fixture *fx = ctx;

	return sockets_metrics_have(fx->port, fx->words);
}

/* The server has been told, and its page says the same; on a busy host a client may be late once more. */
static void expect_metric(struct fixture *fx, const char *line)
{
	fx->words = line;
	if (!processes_until(page_has, fx))
		fail_msg("the metrics have no %s", line);
}

/* -------- staleness -------- */

static struct rlv_table *create_table(struct rlv_store *store)
{
	static const struct rlv_column columns[] = { { "obs", RLV_F32, RLV_OBS, 1, { 4 } } };
	static const struct rlv_view view = { .selector = RLV_UNIFORM };
	struct rlv_table_opts opts = RLV_TABLE_OPTS_INIT;
	struct rlv_table *table;

	opts.columns = columns;
	opts.n_columns = 1;
	opts.capacity = 1024;
	opts.views = &view;
	opts.n_views = 1;
	must(rlv_table_create(store, "t", &opts, &table), "rlv_table_create");
	return table;
}

static void append(struct rlv_writer *writer, uint32_t version)
{
	static const float obs[8][4];
	const void *columns[] = { obs };
	const struct rlv_steps steps = {
		.size = sizeof(steps), .n = 8, .columns = columns, .policy_version = version
	};

	must(rlv_writer_append(writer, 0, &steps, NULL), "rlv_writer_append");
}

TEST_WITH(status__shows_the_staleness_of_last_batches, setup, teardown)
{
	struct fixture *fx = *state;
	struct rlv_table *written, *read;
	struct rlv_writer *writer;
	struct rlv_sampler *sampler;
	const struct rlv_batch *batch;

	written = create_table(fx->stores[1]);
	must(rlv_writer_open(written, NULL, &writer), "rlv_writer_open");
	append(writer, 3);
	must(rlv_table_open(fx->stores[LEARNER], "t", &read), "rlv_table_open");
	must(rlv_sampler_open(read, NULL, &sampler), "rlv_sampler_open");
	must(rlv_sampler_sample(sampler, 4, 10 * SECOND, &batch), "rlv_sampler_sample");
	await_status(fx, "\"staleness\":[{\"table\":\"t\",\"policy_version\":3,\"samplers\":1,"
			 "\"least\":0,\"mean\":0,\"most\":0}]");
	/* What the writer appends makes the batch stale: the sampler has not seen it. */
	append(writer, 10);
	await_status(fx, "\"staleness\":[{\"table\":\"t\",\"policy_version\":10,\"samplers\":1,"
			 "\"least\":7,\"mean\":7,\"most\":7}]");
	expect_metric(fx, "relive_table_policy_version{table=\"t\"} 10\n");
	expect_metric(fx, "relive_table_samplers{table=\"t\"} 1\n");
	expect_metric(fx, "relive_table_staleness{table=\"t\",of=\"mean\"} 7.000\n");
	command_expect(&fx->command, 0, "status shm:s");
	command_expect_words(fx->command.out, "staleness: least");
	must(rlv_sampler_close(&sampler), "rlv_sampler_close");
	await_status(fx, "\"policy_version\":10,\"samplers\":0,\"least\":0,\"mean\":0,\"most\":0");
	must(rlv_writer_close(&writer), "rlv_writer_close");
	must(rlv_table_close(&written), "rlv_table_close");
	must(rlv_table_close(&read), "rlv_table_close");
}

/* One sampler's batches come to a (fake) device, another's do not. */
TEST_WITH(status__shows_how_batches_land, setup, teardown)
{
	struct fixture *fx = *state;
	struct rlv_sampler_opts opts = RLV_SAMPLER_OPTS_INIT;
	struct rlv_landing *landing;
	struct rlv_table *table;
	struct rlv_writer *writer;
	struct rlv_sampler *samplers[2];
	const struct rlv_batch *batch;

	(void)fake_cuda_open();
	table = create_table(fx->stores[1]);
	must(rlv_writer_open(table, NULL, &writer), "rlv_writer_open");
	append(writer, 3);
	must(rlv_landing_open(NULL, &landing), "rlv_landing_open");
	for (int i = 0; i < 2; i++) {
		opts.dest = i ? landing : NULL;
		must(rlv_sampler_open(table, &opts, &samplers[i]), "rlv_sampler_open");
		must(rlv_sampler_sample(samplers[i], 4, 10 * SECOND, &batch), "rlv_sampler_sample");
		await_status(fx, i ? "\"samplers\":2,\"least\":0,\"mean\":0,\"most\":0,"
				     "\"landings\":{\"pinned\":1}}]"
				   : "\"samplers\":1,\"least\":0,\"mean\":0,\"most\":0}]");
	}
	command_expect(&fx->command, 0, "status shm:s");
	command_expect_words(fx->command.out, "pinned 1");
	for (int i = 0; i < 2; i++)
		must(rlv_sampler_close(&samplers[i]), "rlv_sampler_close");
	must(rlv_landing_close(&landing), "rlv_landing_close");
	must(rlv_writer_close(&writer), "rlv_writer_close");
	must(rlv_table_close(&table), "rlv_table_close");
}

/* -------- publish_lag -------- */

static void publish(struct rlv_generations *weights, uint64_t version)
{
	static const float data[64];
	const struct rlv_tensor tensor = { .size = sizeof(tensor),
					   .dtype = RLV_F32,
					   .ndim = 1,
					   .shape = { 64 },
					   .name = "w",
					   .data = data,
					   .bytes = sizeof(data) };

	must(rlv_weights_publish(weights, &tensor, 1, version, 0), "rlv_weights_publish");
}

static void fetch(struct rlv_generations *weights, uint64_t version)
{
	struct rlv_generation got = RLV_GENERATION_INIT;

	must(rlv_weights_fetch(weights, 0, 10 * SECOND, &got), "rlv_weights_fetch");
	assert_int_equal(got.version, version);
	rlv_generation_release(&got);
}

TEST_WITH(status__shows_the_publish_lag_of_readers, setup, teardown)
{
	struct fixture *fx = *state;
	struct rlv_weights_opts opts = RLV_WEIGHTS_OPTS_INIT;
	struct rlv_generations *learner, *actors[ACTORS];

	opts.bytes = 1 << 20;
	must(rlv_weights_create(fx->stores[LEARNER], "w", &opts, &learner), "rlv_weights_create");
	publish(learner, 10);
	for (size_t i = 0; i < ACTORS; i++) {
		must(rlv_weights_open(fx->stores[1 + i], "w", &actors[i]), "rlv_weights_open");
		fetch(actors[i], 10);
	}
	await_status(fx, "\"publish_lag\":[{\"weights\":\"w\",\"version\":10,\"readers\":2,"
			 "\"least\":0,\"mean\":0,\"most\":0}]");
	for (uint64_t version = 20; version <= 50; version += 10)
		publish(learner, version);
	fetch(actors[1], 50);
	await_status(fx, "\"publish_lag\":[{\"weights\":\"w\",\"version\":50,\"readers\":2,"
			 "\"least\":0,\"mean\":2,\"most\":4}]");
	expect_metric(fx, "relive_weights_version{weights=\"w\"} 50\n");
	expect_metric(fx, "relive_weights_readers{weights=\"w\"} 2\n");
	expect_metric(fx, "relive_weights_publish_lag{weights=\"w\",of=\"mean\"} 2.000\n");
	expect_metric(fx, "relive_weights_publish_lag{weights=\"w\",of=\"most\"} 4.000\n");
	/* The lag of the actor stays in view when neither the learner nor the other actor is there. */
	must(rlv_weights_close(&learner), "rlv_weights_close");
	must(rlv_weights_close(&actors[1]), "rlv_weights_close");
	await_status(fx, "\"version\":50,\"readers\":1,\"least\":4,\"mean\":4,\"most\":4");
	fetch(actors[0], 50);
	await_status(fx, "\"version\":50,\"readers\":1,\"least\":0,\"mean\":0,\"most\":0");
	must(rlv_weights_close(&actors[0]), "rlv_weights_close");
	/* A heap that is made anew under that name has no version. */
	must(rlv_kv_drop(fx->stores[LEARNER], "w"), "rlv_kv_drop");
	must(rlv_weights_create(fx->stores[LEARNER], "w", &opts, &learner), "rlv_weights_create");
	await_status(fx, "\"publish_lag\":[]");
	must(rlv_weights_close(&learner), "rlv_weights_close");
}

int main(void)
{
	return test_run(NULL, NULL);
}
