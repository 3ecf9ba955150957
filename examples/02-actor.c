/*
 * Actor: steps eight environments and appends one step of each at a time, with the version of the
 * policy that acted and the actor's own estimate of each TD error.
 *
 *   relive up && ./02-actor shm:default & ./03-learner shm:default
 *
 * Without an argument it runs alone for a short while, with a table in its own memory.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <relive/relive.h>

#define ENVS 8
#define MAX_STEPS 200

/* A walk on a line that ends at either side: an environment as small as they get. */
struct walk {
	float position;
	unsigned steps;
};

static int check(int ret, const char *what)
{
	if (ret)
		fprintf(stderr, "%s: %s (%s)\n", what, rlv_last_error(), rlv_error_name(ret));
	return ret;
}

/*
 * Takes one step of a walk: fills row i, whose flags say whether the episode is over; then the walk
 * starts anew.
 */
static void step(struct walk *walk, uint32_t i, float *obs, int32_t *action, float *reward,
		 uint16_t *flags)
{
	obs[i] = walk->position;
	action[i] = rand() % 2; /* NOLINT: no secret */
	walk->position += action[i] ? 0.1f : -0.1f;
	walk->steps++;
	reward[i] = walk->position >= 1 ? 1 : 0;
	flags[i] = 0;
	if (fabsf(walk->position) >= 1)
		flags[i] = RLV_TERMINATED;
	else if (walk->steps == MAX_STEPS)
		flags[i] = RLV_TRUNCATED;
	if (flags[i]) {
		walk->position = 0;
		walk->steps = 0;
	}
}

static int act(struct rlv_table *table, unsigned long rounds)
{
	struct walk walks[ENVS] = { { 0, 0 } };
	float obs[ENVS], reward[ENVS];
	int32_t action[ENVS];
	uint16_t flags[ENVS];
	double td_error[ENVS];
	const void *columns[] = { obs, action, reward };
	struct rlv_steps steps = RLV_STEPS_INIT;
	struct rlv_writer_opts opts = RLV_WRITER_OPTS_INIT;
	struct rlv_stats stats = { .size = sizeof(stats) };
	struct rlv_writer *writer;
	int ret;

	opts.streams = ENVS;
	ret = check(rlv_writer_open(table, &opts, &writer), "open a writer");
	steps.n = ENVS;
	steps.columns = columns;
	steps.flags = flags;
	steps.td_error = td_error;
	for (unsigned long round = 0; round < rounds && ret == 0; round++) {
		steps.policy_version = (uint32_t)(round / 1000);
		for (uint32_t i = 0; i < ENVS; i++) {
			step(&walks[i], i, obs, action, reward, flags);
			td_error[i] = 0.1 + (double)reward[i];
		}
		ret = check(rlv_writer_append_vector(writer, &steps), "append");
	}
	if (ret == 0 && check(rlv_writer_stats(writer, &stats), "counters") == 0)
		printf("%llu steps of %d environments in %llu blocks\n",
		       (unsigned long long)stats.steps, ENVS,
		       (unsigned long long)stats.blocks_claimed);
	return check(rlv_writer_close(&writer), "close the writer") ? -1 : ret;
}

int main(int argc, char **argv)
{
	const char *uri = argc > 1 ? argv[1] : "embed:";
	unsigned long rounds = argc > 2 ? strtoul(argv[2], NULL, 10) : 20000;
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
	opts.max_writers = 4 * ENVS;
	if (check(rlv_store_open(uri, NULL, &store), uri))
		return 1;
	/* Or opens the one that another actor or the learner has created. */
	ret = check(rlv_table_create(store, "walk", &opts, &table), "create table walk");
	if (ret == 0) {
		ret = act(table, rounds);
		ret |= check(rlv_table_close(&table), "close the table");
	}
	ret |= check(rlv_store_close(&store), "close the store");
	return ret ? 1 : 0;
}
