/*
 * test_shard_shares.c - the test of shares tells draws by mass from others.
 */
#include "tests/support/fixture/replay_fixture.h"
#include "tests/support/shard_shares.h"
#include "tests/support/test.h"

#define BATCHES 50
#define STEPS 600u

/* Two shards of a table in this process. */
struct scene {
	struct replay_fixture fx;
	struct rlv_writer *writer;
	struct rlv_sampler *sampler;
	struct shard_shares shares;
};

static int begin(void **state)
{
	struct rlv_table_opts opts = RLV_TABLE_OPTS_INIT;
	struct rlv_sampler_opts sampler = RLV_SAMPLER_OPTS_INIT;
	struct scene *scene = calloc(1, sizeof(*scene));

	assert_non_null(scene);
	*state = scene;
	opts.shards = 2;
	opts.max_writers = 2;
	replay_open(&scene->fx, &opts);
	scene->writer = replay_writer(&scene->fx, 1);
	sampler.batch_size = 64;
	sampler.seed = 7;
	scene->sampler = replay_sampler(&scene->fx, &sampler);
	return 0;
}

static int end(void **state)
{
	struct scene *scene = *state;

	replay_end(&scene->fx, &scene->writer, &scene->sampler);
	free(scene);
	return 0;
}

static void draw(struct scene *scene)
{
	for (int i = 0; i < BATCHES; i++) {
		const struct rlv_batch *batch;

		replay_append_plain(&scene->fx, scene->writer, 0, STEPS / BATCHES);
		shard_shares_look(&scene->shares, scene->sampler);
		batch = replay_sample(scene->sampler, 64);
		shard_shares_count(&scene->shares, batch);
		rlv_batch_release(scene->sampler, batch);
	}
	shard_shares_look(&scene->shares, scene->sampler);
}

#define SHARES_TEST(fn) TEST_WITH(fn, begin, end)

SHARES_TEST(shard_shares_p__draws_by_mass_pass_while_it_moves)
{
	struct scene *scene = *state;

	replay_append_plain(&scene->fx, scene->writer, 0, STEPS);
	draw(scene);
	assert_true(scene->shares.seen[0] > 0 && scene->shares.seen[1] > 0);
	assert_int_equal(scene->shares.seen[0] + scene->shares.seen[1], BATCHES * 64);
	assert_true(shard_shares_p(&scene->shares) > 1e-3);
}

SHARES_TEST(shard_shares_p__draws_of_one_shard_fail)
{
	struct scene *scene = *state;

	replay_append_plain(&scene->fx, scene->writer, 0, STEPS);
	draw(scene);
	scene->shares.seen[0] += scene->shares.seen[1];
	scene->shares.seen[1] = 0;
	assert_true(shard_shares_p(&scene->shares) < 1e-6);
}

SHARES_TEST(shard_shares_look__leaves_a_batch_out_when_shards_change)
{
	struct scene *scene = *state;
	const struct rlv_batch *batch;

	replay_append_plain(&scene->fx, scene->writer, 0, STEPS);
	shard_shares_look(&scene->shares, scene->sampler);
	batch = replay_sample(scene->sampler, 64);
	shard_shares_count(&scene->shares, batch);
	rlv_batch_release(scene->sampler, batch);
	scene->shares.last.version++;
	shard_shares_look(&scene->shares, scene->sampler);
	assert_int_equal(scene->shares.seen[0] + scene->shares.seen[1], 0);
	assert_true(shard_shares_p(&scene->shares) == 1);
}

int main(void)
{
	return test_run(NULL, NULL);
}
