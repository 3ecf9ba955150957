/*
 * Random operations on tables with random options, against the oracle.
 */
#include "tests/support/fixture/replay_fixture.h"
#include "tests/support/test.h"

#include "base/rng.h"

#include <errno.h>
#include <string.h>

#define ROUNDS 40
#define STEPS 120

static uint32_t below(struct rng *rng, uint32_t n)
{
	return (uint32_t)(rng_uniform_u64(rng, n));
}

struct model {
	struct rng rng;
	struct replay_fixture fx;
	struct rlv_view views[3];
	struct rlv_table_opts opts;
	struct rlv_writer *writer;
	struct rlv_sampler *samplers[3];
	struct replay_look looks[3];
	uint32_t streams;
};

static void random_view(struct model *m, struct rlv_view *view, bool has_obs)
{
	*view = (struct rlv_view){
		.selector = below(&m->rng, 2) ? RLV_UNIFORM : RLV_PRIORITIZED,
		.n_step = 1 + below(&m->rng, 5),
		.stack = has_obs ? 1 + below(&m->rng, 4) : 1,
		.period = 1 + below(&m->rng, 3),
		.alpha = 0.3 + 0.1 * below(&m->rng, 10),
	};
}

static void open_model(struct model *m)
{
	bool has_obs = below(&m->rng, 4) != 0;

	m->streams = 1 + below(&m->rng, 5);
	m->opts = (struct rlv_table_opts){
		.n_views = 1 + below(&m->rng, 3),
		.views = m->views,
		.shards = 1 + below(&m->rng, 3),
		.max_writers = m->streams,
		.row_crc = 1 + below(&m->rng, 2),
		.capacity = 3000 + below(&m->rng, 4000),
		.columns = has_obs ? replay_obs_columns : replay_next_columns,
		.n_columns = has_obs ? REPLAY_COLUMNS : REPLAY_NEXT_COLUMNS,
	};
	for (uint32_t v = 0; v < m->opts.n_views; v++)
		random_view(m, &m->views[v], has_obs);
	replay_open(&m->fx, &m->opts);
	m->writer = replay_writer(&m->fx, m->streams);
	for (uint32_t v = 0; v < m->opts.n_views; v++) {
		struct rlv_sampler_opts how = {
			.view = v,
			.n_step = 1 + below(&m->rng, m->views[v].n_step),
			.gamma = 0.9,
			.seed = 1 + below(&m->rng, 1000),
			.independent = below(&m->rng, 2) != 0,
		};

		if (how.n_step == 1 && below(&m->rng, 2))
			how.layout = RLV_WINDOW;
		m->samplers[v] = replay_sampler(&m->fx, &how);
		m->looks[v] = (struct replay_look){ m->views[v].stack, how.n_step, how.gamma };
	}
}

static void random_append(struct model *m)
{
	uint16_t flags[64] = { 0 };
	double td[64];
	struct replay_put put = { .stream = below(&m->rng, m->streams),
				  .n = below(&m->rng, 64),
				  .flags = flags,
				  .version = below(&m->rng, 100) };
	bool given = below(&m->rng, 2) != 0;

	for (uint32_t i = 0; i < put.n; i++) {
		td[i] = below(&m->rng, 1000) / 100.0;
		if (below(&m->rng, 8) == 0) {
			flags[i] = below(&m->rng, 2) ? RLV_TERMINATED : RLV_TRUNCATED;
			if (i + 1 < put.n && below(&m->rng, 2)) {
				flags[++i] = RLV_FINAL;
				td[i] = 0;
			}
		}
	}
	put.td = given ? td : NULL;
	assert_int_equal(replay_append(&m->fx, m->writer, &put), 0);
}

static void random_vector(struct model *m)
{
	uint16_t flags[REPLAY_STREAMS] = { 0 };

	for (uint32_t i = 0; i < m->streams; i++)
		if (below(&m->rng, 10) == 0)
			flags[i] = RLV_TERMINATED;
	assert_int_equal(replay_append_vector(&m->fx, m->writer, m->streams, flags, NULL), 0);
}

static void random_sample(struct model *m)
{
	uint32_t v = below(&m->rng, m->opts.n_views);
	const struct rlv_batch *batch;
	float td[256];
	struct rlv_update_result result;
	int rc = rlv_sampler_sample(m->samplers[v], 1 + below(&m->rng, 256), 0, &batch);

	if (replay_info(m->fx.table).views[v].inserted == 0) {
		replay_expect(rc, -ENODATA, NULL);
		return;
	}
	replay_expect(rc, 0, NULL);
	replay_check_batch(&m->fx.oracle, &m->views[v], &m->looks[v], batch);
	for (uint32_t i = 0; i < batch->n; i++)
		td[i] = (float)below(&m->rng, 500) / 50;
	if (m->views[v].selector == RLV_PRIORITIZED) {
		replay_expect(rlv_sampler_update(m->samplers[v], batch->key, td, batch->n, &result),
			      0, NULL);
		assert_int_equal(result.stale, 0);
	}
	rlv_batch_release(m->samplers[v], batch);
}

static void random_step(struct model *m)
{
	switch (below(&m->rng, 8)) {
	case 0:
		assert_int_equal(replay_end_episode(&m->fx, m->writer, below(&m->rng, m->streams),
						    below(&m->rng, 2) != 0),
				 0);
		break;
	case 1:
		random_vector(m);
		break;
	case 2:
	case 3:
	case 4:
		random_append(m);
		break;
	default:
		random_sample(m);
	}
}

static void flush_and_verify(struct model *m)
{
	for (uint32_t v = 0; v < m->opts.n_views; v++)
		assert_int_equal(rlv_sampler_flush(m->samplers[v]), 0);
	replay_verify(m->fx.table);
}

/* Before the ring goes round, every item is there; never more than were ever complete. */
static void count_items(struct model *m)
{
	struct rlv_table_info info = replay_info(m->fx.table);

	for (uint32_t v = 0; v < m->opts.n_views; v++) {
		size_t want = 0;

		for (uint32_t s = 0; s < m->streams; s++)
			want += replay_count_items(&m->fx.oracle, s, 0, &m->views[v]);
		assert_int_equal(info.views[v].inserted, want);
		assert_true(info.views[v].items <= (int64_t)want);
	}
}

static void close_model(struct model *m)
{
	for (uint32_t v = 0; v < m->opts.n_views; v++)
		replay_sampler_done(&m->samplers[v]);
	replay_writer_done(&m->writer);
	replay_close(&m->fx);
}

TEST(replay__random_operations)
{
	static struct model m;
	uint64_t seed = test_seed("replay", 20261121);

	for (uint32_t round = 0; round < ROUNDS; round++) {
		rng_seed(&m.rng, seed + round, 0);
		open_model(&m);
		for (uint32_t i = 0; i < STEPS; i++) {
			random_step(&m);
			if (i % 16 == 0)
				flush_and_verify(&m);
			if (i % 8 == 0)
				count_items(&m);
		}
		close_model(&m);
	}
}

int main(void)
{
	return test_run(NULL, NULL);
}
