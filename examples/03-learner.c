/*
 * Learner: TD(0) on the steps that 02-actor appends. Samples by priority, multiplies each item's error
 * by its importance weight, and sets the priorities to the new |TD errors|.
 *
 *   relive up && ./02-actor shm:default & ./03-learner shm:default
 *
 * Without an argument it runs alone: it first appends a few walks to a table in its own memory.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <relive/relive.h>

#define BATCH 64
#define CELLS 21 /* positions -1.0, -0.9, .. 1.0 */
#define RATE 0.1f

static int check(int ret, const char *what)
{
	if (ret)
		fprintf(stderr, "%s: %s (%s)\n", what, rlv_last_error(), rlv_error_name(ret));
	return ret;
}

/* Appends walks to one side and to the other, for a learner without actors. */
static int walk_alone(struct rlv_table *table)
{
	struct rlv_steps steps = RLV_STEPS_INIT;
	struct rlv_writer *writer;
	int ret = check(rlv_writer_open(table, NULL, &writer), "open a writer");

	for (int i = 0; i < 2000 && ret == 0; i++) {
		int cell = i % 10, side = i / 10 % 2;
		float obs = (float)(side ? cell : -cell) / 10, reward = side && cell == 9;
		int32_t action = side;
		uint16_t flags = cell == 9 ? RLV_TERMINATED : 0;
		const void *columns[] = { &obs, &action, &reward };

		steps.n = 1;
		steps.columns = columns;
		steps.flags = &flags;
		ret = check(rlv_writer_append(writer, 0, &steps, NULL), "append");
	}
	return check(rlv_writer_close(&writer), "close the writer") ? -1 : ret;
}

static unsigned cell_of(float position)
{
	long cell = (long)(position * 10 + CELLS / 2 + 0.5f);

	return cell < 0 ? 0 : cell >= CELLS ? CELLS - 1 : (unsigned)cell;
}

/*
 * Learns by TD(0) from `rounds` batches; the new |TD errors| are the new priorities. Prints the
 * values.
 */
static int learn(struct rlv_table *table, unsigned long rounds)
{
	struct rlv_sampler_opts opts = RLV_SAMPLER_OPTS_INIT;
	struct rlv_sampler *sampler;
	float value[CELLS] = { 0 }, td_error[BATCH];
	int ret;

	opts.batch_size = BATCH;
	ret = check(rlv_sampler_open(table, &opts, &sampler), "open a sampler");
	for (unsigned long round = 0; round < rounds && ret == 0; round++) {
		const struct rlv_batch *batch;

		ret = check(rlv_sampler_sample(sampler, BATCH, 10000000000, &batch), "sample");
		if (ret)
			break;

		const float *obs = batch->arrays[0].data, *next = batch->arrays[1].data;
		const float *reward = batch->arrays[3].data, *discount = batch->arrays[4].data;

		for (uint32_t i = 0; i < batch->n; i++) {
			float *v = &value[cell_of(obs[i])];
			float target = reward[i] + discount[i] * value[cell_of(next[i])];
			float error = target - *v;

			*v += RATE * batch->weight[i] * error;
			td_error[i] = fabsf(error);
		}
		ret = check(rlv_sampler_update(sampler, batch->key, td_error, batch->n, NULL),
			    "update");
		rlv_batch_release(sampler, batch);
	}
	for (unsigned c = 0; c < CELLS && ret == 0; c++)
		printf("%5.1f  %.3f\n", ((double)c - 10) / 10, (double)value[c]);
	return check(rlv_sampler_close(&sampler), "close the sampler") ? -1 : ret;
}

int main(int argc, char **argv)
{
	const struct rlv_column columns[] = {
		{ "obs", RLV_F32, RLV_OBS, 0, { 0 } },
		{ "action", RLV_I32, RLV_PLAIN, 0, { 0 } },
		{ "reward", RLV_F32, RLV_REWARD, 0, { 0 } },
	};
	struct rlv_table_opts opts = RLV_TABLE_OPTS_INIT;
	struct rlv_store *store;
	struct rlv_table *table;
	int ret;

	opts.n_columns = 3;
	opts.columns = columns;
	opts.capacity = 100000;
	opts.max_writers = 32;
	if (check(rlv_store_open(argc > 1 ? argv[1] : "embed:", NULL, &store), "open the store"))
		return 1;
	ret = check(rlv_table_create(store, "walk", &opts, &table), "create table walk");
	if (ret == 0) {
		ret = argc > 1 ? 0 : walk_alone(table);
		ret = ret ? ret : learn(table, argc > 2 ? strtoul(argv[2], NULL, 10) : 2000);
		ret |= check(rlv_table_close(&table), "close the table");
	}
	ret |= check(rlv_store_close(&store), "close the store");
	return ret ? 1 : 0;
}
