/*
 * Random operations while memory nodes leave and return: no call fails, no byte is wrong, and in
 * the end the sums are exact and draws follow the priorities of the remaining items.
 */
#include "tests/support/fixture/nodes_fixture.h"
#include "tests/support/test.h"

#include "client/writer/append.h"
#include "client/sampler/sampler.h"

#include "ds/part/slot.h"
#include "ds/sumtree/rebuild.h"

#include "base/rng.h"

#include <errno.h>
#include <string.h>

#define ROUNDS 12
#define STEPS 150
#define STREAMS 3
#define BATCH 64
#define BUCKETS 40
#define DRAWS 20000

static const struct rlv_view view = { .n_step = 2, .stack = 2 };
static const struct replay_look look = { 2, 2, 0.99 };

struct model {
	struct rng rng;
	struct nodes_fixture nx;
	struct rlv_writer *writer;
	struct rlv_sampler *sampler;
	uint64_t keys[BATCH];
	uint32_t n_keys;
};

static uint32_t below(struct model *m, uint32_t n)
{
	return (uint32_t)rng_uniform_u64(&m->rng, n);
}

static void open_model(struct model *m)
{
	const struct nodes_opts opts = {
		.nodes = 2 + below(m, 3),
		.reach = below(m, 4) ? NODES_WIRE : NODES_IN_PLACE,
		.table = { .views = &view,
			   .n_views = 1,
			   .block = 32,
			   .capacity = 4000,
			   .max_writers = STREAMS,
			   .row_crc = 1 },
	};
	struct rlv_sampler_opts how = { .batch_size = 256, .seed = 1 + below(m, 1000) };

	nodes_open(&m->nx, &opts);
	how.verify = below(m, 2) ? RLV_VERIFY_CRC : RLV_VERIFY_LEAF;
	m->n_keys = 0;
	m->writer = replay_writer(&m->nx.fx, STREAMS);
	m->sampler = replay_sampler(&m->nx.fx, &how);
	for (uint32_t i = 0; i < STREAMS; i++)
		replay_append_plain(&m->nx.fx, m->writer, i, 100);
}

static void append(struct model *m)
{
	double td[40];
	struct replay_put put = { .stream = below(m, STREAMS), .n = 1 + below(m, 40), .td = td };

	for (uint32_t i = 0; i < put.n; i++)
		td[i] = 0.01 * (1 + below(m, 300));
	replay_expect(replay_append(&m->nx.fx, m->writer, &put), 0, NULL);
}

static void sample(struct model *m)
{
	const struct rlv_batch *batch;

	replay_expect(rlv_sampler_sample(m->sampler, BATCH, -1, &batch), 0, NULL);
	replay_check_batch(&m->nx.fx.oracle, &view, &look, batch);
	memcpy(m->keys, batch->key, sizeof(m->keys));
	m->n_keys = batch->n;
	rlv_batch_release(m->sampler, batch);
}

static void update(struct model *m)
{
	struct rlv_update_result result;
	float td[BATCH];

	for (uint32_t i = 0; i < BATCH; i++)
		td[i] = 0.01f * (float)(1 + below(m, 300));
	replay_expect(rlv_sampler_update(m->sampler, m->keys, td, m->n_keys, &result), 0, NULL);
	assert_in_range(result.updated + result.stale, 0, m->n_keys);
}

/* The control shard moves away first: its loss would be waited for. */
static void cut(struct model *m)
{
	uint32_t node = below(m, m->nx.n_nodes);
	uint32_t other = (node + 1) % m->nx.n_nodes;

	for (uint32_t n = 0; n < m->nx.n_nodes; n++)
		if (!m->nx.nodes[n].reachable)
			return;
	if (m->nx.control == node)
		nodes_move_control(&m->nx, other);
	nodes_cut(&m->nx, node, 1 + below(m, 30));
}

static void give_back(struct model *m)
{
	for (uint32_t n = 0; n < m->nx.n_nodes; n++)
		if (!m->nx.nodes[n].reachable)
			nodes_return(&m->nx, n);
}

static void step(struct model *m)
{
	switch (below(m, 12)) {
	case 0:
		cut(m);
		break;
	case 1:
		give_back(m);
		break;
	case 2:
	case 3:
		replay_expect(replay_append_vector(&m->nx.fx, m->writer, STREAMS, NULL, NULL), 0,
			      NULL);
		break;
	case 4:
	case 5:
	case 6:
		append(m);
		break;
	case 7:
	case 8:
		if (m->n_keys)
			update(m);
		break;
	default:
		sample(m);
	}
}

static bool is_whole(const struct model *m)
{
	uint32_t n = m->nx.n_shards;

	return m->writer->h.set.n_up == n && m->sampler->h.set.n_up == n;
}

/* Rebuilds a dirty shard, as the server does. */
static void rebuild(struct model *m, uint32_t s)
{
	const struct rebuild_opts opts = { .owner = m->nx.desc.max_clients };
	struct rebuild_report report = { 0 };
	struct process_id self;

	assert_int_equal(process_self(&self), 0);
	assert_int_equal(slot_take(&m->nx.shards[s]->part, opts.owner - 1, &self, 1), 0);
	replay_expect(sumtree_rebuild_until_clean(m->nx.shards[s], &opts, 4, &report), 0, NULL);
	assert_int_equal(slot_release(&m->nx.shards[s]->part, opts.owner - 1), 0);
}

static uint64_t priority_of(struct model *m, uint32_t s, uint32_t slot)
{
	struct shard *shard = m->nx.shards[s];
	uint64_t leaf;

	assert_int_equal(transport_load(shard->tree, shard_leaf_off(shard, 0, slot), &leaf), 0);
	return leaf_priority(leaf);
}

/* Prefix sums of the priorities of the remaining items. */
struct masses {
	uint64_t total;
	uint64_t *before[NODES_SHARDS];
};

static void weigh(struct model *m, struct masses *mass)
{
	uint32_t slots = m->nx.desc.slots;

	memset(mass, 0, sizeof(*mass));
	for (uint32_t s = 0; s < m->nx.n_shards; s++) {
		if (m->nx.states[s] != RLV_SHARD_ACTIVE)
			continue;
		mass->before[s] = calloc(slots, sizeof(uint64_t));
		assert_non_null(mass->before[s]);
		for (uint32_t i = 0; i < slots; i++) {
			mass->before[s][i] = mass->total;
			mass->total += priority_of(m, s, i);
		}
	}
}

static uint32_t bucket_of(const struct masses *mass, uint32_t s, uint32_t slot)
{
	return (uint32_t)((unsigned __int128)mass->before[s][slot] * BUCKETS / mass->total);
}

static void expect(struct model *m, const struct masses *mass, double expected[BUCKETS])
{
	for (uint32_t s = 0; s < m->nx.n_shards; s++)
		for (uint32_t i = 0; mass->before[s] && i < m->nx.desc.slots; i++) {
			uint64_t priority = priority_of(m, s, i);

			if (priority)
				expected[bucket_of(mass, s, i)] +=
					(double)priority * DRAWS / (double)mass->total;
		}
}

/* Draws of single items follow the priorities over all nodes that are left. */
static double chi_square(struct model *m)
{
	const struct rlv_sampler_opts how = { .batch_size = 1000, .independent = true };
	struct rlv_sampler *sampler = replay_sampler(&m->nx.fx, &how);
	double expected[BUCKETS] = { 0 };
	uint64_t seen[BUCKETS] = { 0 };
	struct masses mass;

	weigh(m, &mass);
	expect(m, &mass, expected);
	for (uint32_t d = 0; d < DRAWS; d += 1000) {
		const struct rlv_batch *batch = replay_sample(sampler, 1000);

		for (uint32_t i = 0; i < batch->n; i++) {
			uint64_t key = batch->key[i];

			seen[bucket_of(&mass, key_shard(key), key_slot(key))]++;
		}
		rlv_batch_release(sampler, batch);
	}
	for (uint32_t s = 0; s < m->nx.n_shards; s++)
		free(mass.before[s]);
	replay_sampler_done(&sampler);
	return test_chi_square_z(seen, expected, BUCKETS);
}

static void end_model(struct model *m)
{
	uint32_t gone = below(m, m->nx.n_nodes);

	give_back(m);
	while (!is_whole(m)) {
		sample(m);
		append(m);
	}
	replay_sampler_done(&m->sampler);
	replay_writer_done(&m->writer);
	for (uint32_t i = 0; i < STREAMS; i++)
		replay_oracle_end(&m->nx.fx.oracle, i);
	for (uint32_t s = 0; s < m->nx.n_shards; s++) {
		rebuild(m, s);
		assert_true(nodes_items(&m->nx, s, 0) > 0);
	}
	if (m->nx.control == gone)
		nodes_move_control(&m->nx, (gone + 1) % m->nx.n_nodes);
	nodes_lose(&m->nx, gone);
	assert_true(chi_square(m) < 5);
	nodes_close(&m->nx);
}

TEST(nodes__go_and_come_under_random_operations)
{
	uint64_t seed = test_seed("nodes", 20261121);

	for (uint32_t round = 0; round < ROUNDS; round++) {
		static struct model m;

		memset(&m, 0, sizeof(m));
		rng_seed(&m.rng, seed, round);
		open_model(&m);
		for (uint32_t i = 0; i < STEPS; i++)
			step(&m);
		end_model(&m);
	}
}

int main(void)
{
	return test_run(NULL, NULL);
}
