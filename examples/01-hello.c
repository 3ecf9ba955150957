/*
 * Hello: one process, no daemon. Creates a table of CartPole-like steps in memory, appends an
 * episode, samples a batch by priority and updates the priorities.
 *
 *   cc 01-hello.c $(pkg-config --cflags --libs relive) -o hello && ./hello
 */
#include <stdio.h>

#include <relive/relive.h>

#define STEPS 500
#define BATCH 8

/* Returns ret; if it is an error, prints what failed and why. */
static int check(int ret, const char *what)
{
	if (ret)
		fprintf(stderr, "%s: %s (%s)\n", what, rlv_last_error(), rlv_error_name(ret));
	return ret;
}

/* Appends an episode of STEPS steps; new items take the largest priority so far. */
static int act(struct rlv_table *table)
{
	static float obs[STEPS][4], reward[STEPS];
	static int32_t action[STEPS];
	static uint16_t flags[STEPS];
	const void *columns[] = { obs, action, reward };
	struct rlv_steps steps = RLV_STEPS_INIT;
	struct rlv_writer *writer;
	int ret, closed;

	for (int i = 0; i < STEPS; i++) {
		obs[i][0] = (float)i;
		action[i] = i % 2;
		reward[i] = 1;
	}
	flags[STEPS - 1] = RLV_TERMINATED;
	steps.n = STEPS;
	steps.columns = columns;
	steps.flags = flags;
	if (check(rlv_writer_open(table, NULL, &writer), "open a writer"))
		return -1;
	ret = check(rlv_writer_append(writer, 0, &steps, NULL), "append");
	closed = check(rlv_writer_close(&writer), "close the writer");
	return ret ? ret : closed;
}

static int learn(struct rlv_table *table)
{
	struct rlv_sampler_opts opts = RLV_SAMPLER_OPTS_INIT;
	const struct rlv_batch *batch;
	struct rlv_sampler *sampler;
	float td_error[BATCH];
	int ret, closed;

	opts.batch_size = BATCH;
	opts.seed = 1;
	if (check(rlv_sampler_open(table, &opts, &sampler), "open a sampler"))
		return -1;
	ret = check(rlv_sampler_sample(sampler, BATCH, 1000000000, &batch), "sample");
	if (ret == 0) {
		const float *obs = batch->arrays[0].data, *next = batch->arrays[1].data;
		const float *reward = batch->arrays[3].data;

		printf("%u of %lld items\n  step  3 later  return  weight\n", batch->n,
		       (long long)batch->table_size);
		for (uint32_t i = 0; i < batch->n; i++) {
			printf("  %4.0f  %7.0f  %6.3f  %6.3f\n", (double)obs[4 * i],
			       (double)next[4 * i], (double)reward[i], (double)batch->weight[i]);
			td_error[i] = 0.1f * (float)(i + 1);
		}
		ret = check(rlv_sampler_update(sampler, batch->key, td_error, batch->n, NULL),
			    "update");
		rlv_batch_release(sampler, batch);
	}
	closed = check(rlv_sampler_close(&sampler), "close the sampler");
	return ret ? ret : closed;
}

int main(void)
{
	const struct rlv_column columns[] = {
		{ "obs", RLV_F32, RLV_OBS, 1, { 4 } },
		{ "action", RLV_I32, RLV_PLAIN, 0, { 0 } },
		{ "reward", RLV_F32, RLV_REWARD, 0, { 0 } },
	};
	/* Items are 3-step returns, drawn in proportion to (|TD error| + eps)^0.6. */
	const struct rlv_view view = { .n_step = 3, .alpha = 0.6 };
	struct rlv_table_opts opts = RLV_TABLE_OPTS_INIT;
	struct rlv_store *store;
	struct rlv_table *table;
	int ret;

	opts.n_columns = 3;
	opts.columns = columns;
	opts.capacity = 10000;
	opts.n_views = 1;
	opts.views = &view;
	if (check(rlv_store_open("embed:", NULL, &store), "open"))
		return 1;
	ret = check(rlv_table_create(store, "hello", &opts, &table), "create");
	if (ret == 0) {
		ret = act(table) || learn(table);
		ret |= check(rlv_table_close(&table), "close the table");
	}
	ret |= check(rlv_store_close(&store), "close");
	return ret ? 1 : 0;
}
