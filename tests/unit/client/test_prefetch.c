/*
 * Batches drawn ahead: they are whole, each item is where it is said to be, and nodes that go, calls
 * that fail and a clock that jumps cost no more than drawing anew.
 */
#include "tests/support/fixture/nodes_fixture.h"
#include "tests/support/test.h"

#include "client/writer/append.h"
#include "client/sampler/sampler.h"

#include "base/bits.h"

#include <errno.h>
#include <string.h>

#define BATCH 64u
#define DEPTH 3u

static const struct rlv_view plain_view = { .n_step = 2, .stack = 2 };
static const struct replay_look plain_look = { 2, 2, 0.99 };

struct rig {
	struct nodes_fixture nx;
	struct rlv_writer *writer;
	struct rlv_sampler *sampler;
};

static struct rig *open_rig(const struct rlv_view *view, enum nodes_reach reach,
			    const struct rlv_sampler_opts *how)
{
	const struct nodes_opts opts = {
		.reach = reach,
		.table = { .views = view, .n_views = 1, .capacity = 3000, .block = 32 },
	};
	static struct rig rig;

	memset(&rig, 0, sizeof(rig));
	nodes_open(&rig.nx, &opts);
	rig.writer = replay_writer(&rig.nx.fx, 1);
	for (uint32_t i = 0; i < 10; i++)
		replay_append_plain(&rig.nx.fx, rig.writer, 0, 100);
	rig.sampler = replay_sampler(&rig.nx.fx, how);
	return &rig;
}

static void close_rig(struct rig *rig)
{
	replay_sampler_done(&rig->sampler);
	replay_writer_done(&rig->writer);
	nodes_close(&rig->nx);
}

static struct rlv_sampler_opts prefetch_opts(void)
{
	return (struct rlv_sampler_opts){ .batch_size = 256, .prefetch = DEPTH, .seed = 7 };
}

/* Draws a batch, checks every byte; how many of its items are of the shard. */
static uint32_t draw(struct rig *rig, uint32_t n, uint32_t shard)
{
	const struct rlv_batch *batch = replay_sample(rig->sampler, n);
	uint32_t there = 0;

	assert_int_equal(batch->n, n);
	replay_check_batch(&rig->nx.fx.oracle, &plain_view, &plain_look, batch);
	for (uint32_t i = 0; i < n; i++)
		there += (batch->key[i] >> 46 & 1023) == shard;
	rlv_batch_release(rig->sampler, batch);
	return there;
}

TEST(sample_ahead__every_batch_is_whole)
{
	const struct rlv_sampler_opts opts = prefetch_opts();
	struct rig *rig = open_rig(&plain_view, NODES_WIRE, &opts);
	float td[BATCH];

	for (uint32_t i = 0; i < 60; i++) {
		const struct rlv_batch *batch = replay_sample(rig->sampler, BATCH);
		struct rlv_update_result result;

		assert_int_equal(rig->sampler->n_prefetched, DEPTH);
		replay_check_batch(&rig->nx.fx.oracle, &plain_view, &plain_look, batch);
		for (uint32_t k = 0; k < BATCH; k++)
			td[k] = (float)(batch->key[k] % 31);
		assert_int_equal(rlv_sampler_update(rig->sampler, batch->key, td, BATCH, &result),
				 0);
		assert_true(result.updated > 0);
		rlv_batch_release(rig->sampler, batch);
		replay_append_plain(&rig->nx.fx, rig->writer, 0, 40); /* laps of the ring go by */
	}
	close_rig(rig);
}

TEST(sample_ahead__holds_no_buffer_of_the_users)
{
	struct rlv_sampler_opts opts = prefetch_opts();
	const struct rlv_batch *held[2], *more;
	struct rig *rig;

	opts.batches = 2;
	rig = open_rig(&plain_view, NODES_WIRE, &opts);
	for (uint32_t round = 0; round < 3; round++) {
		held[0] = replay_sample(rig->sampler, BATCH);
		held[1] = replay_sample(rig->sampler, BATCH);
		assert_ptr_not_equal(held[0], held[1]);
		replay_expect(rlv_sampler_sample(rig->sampler, BATCH, 0, &more), -EBUSY, "held");
		replay_check_batch(&rig->nx.fx.oracle, &plain_view, &plain_look, held[0]);
		rlv_batch_release(rig->sampler, held[0]);
		rlv_batch_release(rig->sampler, held[1]);
	}
	close_rig(rig);
}

TEST(sample_ahead__of_another_return_begins_anew)
{
	const struct rlv_sampler_opts opts = prefetch_opts();
	struct rig *rig = open_rig(&plain_view, NODES_WIRE, &opts);

	for (uint32_t i = 0; i < 12; i++) {
		const struct replay_look look = { 2, 1 + i / 2 % 2, i % 3 ? 0.99 : 0.5 };
		struct rlv_sample_opts set = { sizeof(set), look.n_step, look.gamma, 0 };
		const struct rlv_batch *batch;

		assert_int_equal(rlv_sampler_set_opts(rig->sampler, &set), 0);
		batch = replay_sample(rig->sampler, BATCH);
		replay_check_batch(&rig->nx.fx.oracle, &plain_view, &look, batch);
		rlv_batch_release(rig->sampler, batch);
	}
	close_rig(rig);
}

/* Prefetching continues while the user holds all batches. */
TEST(sample_ahead__of_as_many_as_are_held)
{
	struct rlv_sampler_opts opts = prefetch_opts();
	const struct rlv_batch *held[20];
	struct rig *rig;

	opts.batches = RLV_BATCHES_ANY;
	rig = open_rig(&plain_view, NODES_WIRE, &opts);
	for (uint32_t i = 0; i < 20; i++) {
		held[i] = replay_sample(rig->sampler, BATCH);
		assert_int_equal(rig->sampler->n_prefetched, DEPTH);
	}
	for (uint32_t i = 0; i < 20; i++)
		replay_check_batch(&rig->nx.fx.oracle, &plain_view, &plain_look, held[i]);
	close_rig(rig);
}

TEST(sample_ahead__of_another_size_begins_anew)
{
	static const uint32_t sizes[] = { 64, 64, 7, 256, 256, 1, 64 };
	const struct rlv_sampler_opts opts = prefetch_opts();
	struct rig *rig = open_rig(&plain_view, NODES_WIRE, &opts);

	for (uint32_t i = 0; i < ARRAY_LEN(sizes); i++) {
		draw(rig, sizes[i], 0);
		assert_int_equal(rig->sampler->n_prefetched, DEPTH);
	}
	close_rig(rig);
}

TEST(sample_ahead__in_place_there_is_nothing_of_it)
{
	const struct rlv_sampler_opts opts = prefetch_opts();
	struct rig *rig = open_rig(&plain_view, NODES_IN_PLACE, &opts);
	uint32_t ready = 9;

	draw(rig, BATCH, 0);
	assert_int_equal(rig->sampler->n_prefetched, 0);
	assert_int_equal(rlv_sampler_poll(rig->sampler, &ready), 0);
	assert_int_equal(ready, 0);
	assert_int_equal(rlv_sampler_ahead(rig->sampler), 0);
	assert_null(rig->sampler->prefetched); /* no memory either */
	close_rig(rig);
}

/* Keys of the next sample of n. */
static void draw_keys(struct rig *rig, uint32_t n, uint64_t *keys)
{
	const struct rlv_batch *batch = replay_sample(rig->sampler, n);

	replay_check_batch(&rig->nx.fx.oracle, &plain_view, &plain_look, batch);
	memcpy(keys, batch->key, n * sizeof(*keys));
	rlv_batch_release(rig->sampler, batch);
}

TEST(sample_ahead__a_sample_may_leave_them)
{
	static const uint32_t sizes[] = { BATCH, 7, 256 };
	const struct rlv_sampler_opts opts = prefetch_opts();
	struct rig *rig = open_rig(&plain_view, NODES_WIRE, &opts);
	uint64_t keys[256], again[256];

	draw(rig, BATCH, 0);
	for (uint32_t i = 0; i < ARRAY_LEN(sizes); i++) {
		assert_int_equal(rlv_sampler_set_ahead(rig->sampler, RLV_AHEAD_LEAVE), 0);
		draw_keys(rig, sizes[i], keys);
		assert_int_equal(rlv_sampler_ahead(rig->sampler), DEPTH);
	}
	assert_int_equal(rlv_sampler_set_ahead(rig->sampler, RLV_AHEAD_REFILL), 0);
	for (uint32_t i = 0; i < 2 * DEPTH; i++) {
		draw_keys(rig, BATCH, again);
		assert_memory_not_equal(keys, again, BATCH * sizeof(*keys));
	}
	assert_int_equal(rlv_sampler_ahead(rig->sampler), DEPTH);
	close_rig(rig);
}

TEST(sample_ahead__none_is_started_while_they_are_drained)
{
	const struct rlv_sampler_opts opts = prefetch_opts();
	struct rig *rig = open_rig(&plain_view, NODES_WIRE, &opts);

	draw(rig, BATCH, 0);
	assert_int_equal(rlv_sampler_set_ahead(rig->sampler, RLV_AHEAD_DRAIN), 0);
	for (uint32_t left = DEPTH; left-- > 0;) {
		draw(rig, BATCH, 0);
		assert_int_equal(rlv_sampler_ahead(rig->sampler), left);
	}
	draw(rig, BATCH, 0);
	assert_int_equal(rlv_sampler_ahead(rig->sampler), 0);
	replay_expect(rlv_sampler_set_ahead(rig->sampler, RLV_AHEAD_LEAVE + 1), -EINVAL, "ahead 3");
	assert_int_equal(rlv_sampler_set_ahead(rig->sampler, RLV_AHEAD_REFILL), 0);
	draw(rig, BATCH, 0);
	assert_int_equal(rlv_sampler_ahead(rig->sampler), DEPTH);
	assert_int_equal(rlv_sampler_ahead(NULL), 0);
	replay_expect(rlv_sampler_set_ahead(NULL, RLV_AHEAD_LEAVE), -EINVAL, "NULL");
	close_rig(rig);
}

/* A seed gives the same batches, whichever of them are prefetched. */
TEST(sample_ahead__draws_are_those_of_the_seed)
{
	const struct rlv_sampler_opts opts = prefetch_opts();
	uint64_t keys[2][10][BATCH];

	for (uint32_t run = 0; run < 2; run++) {
		struct rig *rig = open_rig(&plain_view, NODES_WIRE, &opts);

		for (uint32_t i = 0; i < 10; i++) {
			uint32_t mode = run == 0 || i % 4 == 1 ? RLV_AHEAD_DRAIN : RLV_AHEAD_REFILL;

			assert_int_equal(rlv_sampler_set_ahead(rig->sampler, mode), 0);
			draw_keys(rig, BATCH, keys[run][i]);
		}
		close_rig(rig);
	}
	assert_memory_equal(keys[0], keys[1], sizeof(keys[0]));
}

TEST(sampler_poll__finishes_all_without_waiting)
{
	const struct rlv_sampler_opts opts = prefetch_opts();
	struct rig *rig = open_rig(&plain_view, NODES_WIRE, &opts);
	struct rlv_stats before, after;
	uint32_t ready = 0;

	draw(rig, BATCH, 0);
	before = replay_sampler_stats(rig->sampler);
	for (uint32_t i = 0; i < 10000 && ready < DEPTH; i++)
		assert_int_equal(rlv_sampler_poll(rig->sampler, &ready), 0);
	after = replay_sampler_stats(rig->sampler);
	assert_int_equal(ready, DEPTH);
	assert_int_equal(after.phases, before.phases);
	draw(rig, BATCH, 0);
	assert_int_equal(rlv_sampler_poll(NULL, &ready), -EINVAL);
	close_rig(rig);
}

/* -------- faults -------- */

TEST(sample_ahead__a_node_lost_at_any_call_is_left_out)
{
	const struct rlv_sampler_opts opts = prefetch_opts();

	for (uint64_t call = 1; call < 120; call += 7) {
		struct rig *rig = open_rig(&plain_view, NODES_WIRE, &opts);
		uint32_t lost_at = UINT32_MAX;

		draw(rig, BATCH, 1);
		nodes_cut(&rig->nx, 1, call);
		for (uint32_t i = 0; i < 12; i++) {
			uint32_t there = draw(rig, BATCH, 1);

			if (replay_sampler_stats(rig->sampler).shards_lost && lost_at > i)
				lost_at = i;
			assert_true(i <= lost_at || there == 0);
		}
		assert_int_not_equal(lost_at, UINT32_MAX);
		nodes_return(&rig->nx, 1);
		replay_info(rig->nx.fx.table);
		close_rig(rig);
	}
}

/* For n = 1, 2, .. the n-th operation fails: calls return an error or a correct batch. */
TEST(sample_ahead__any_call_may_fail)
{
	const struct rlv_sampler_opts opts = prefetch_opts();
	struct rig *rig = open_rig(&plain_view, NODES_WIRE, &opts);
	uint32_t failed = 0;

	for (uint64_t n = 1; n < 400; n += 3) {
		const struct rlv_batch *batch;
		int ret;

		nodes_fail(&rig->nx, n % 3 ? 0 : 2, n);
		for (uint32_t i = 0; i < 3; i++) {
			ret = rlv_sampler_sample(rig->sampler, BATCH, 0, &batch);
			failed += ret != 0;
			if (ret)
				continue;
			replay_check_batch(&rig->nx.fx.oracle, &plain_view, &plain_look, batch);
			rlv_batch_release(rig->sampler, batch);
		}
	}
	for (uint32_t node = 0; node < 3; node++)
		nodes_fail(&rig->nx, node, 0);
	assert_true(failed < 100); /* errors of prefetches are not returned by calls */
	draw(rig, BATCH, 0);
	draw(rig, BATCH, 0);
	close_rig(rig);
}

TEST(sample_ahead__longer_ago_than_generations_take_to_come_round)
{
	const struct rlv_sampler_opts opts = prefetch_opts();
	struct rig *rig = open_rig(&plain_view, NODES_WIRE, &opts);
	uint64_t wrap_ns = sampler_wrap_ns(rig->sampler->h.desc);

	nodes_time(&rig->nx, &rig->sampler->h);
	draw(rig, BATCH, 0);
	draw(rig, BATCH, 0);
	assert_int_equal(replay_sampler_stats(rig->sampler).redraws, 0);
	fake_clock_advance(&rig->nx.clock, wrap_ns / 2);
	draw(rig, BATCH, 0);
	assert_int_equal(replay_sampler_stats(rig->sampler).redraws, 0);
	fake_clock_advance(&rig->nx.clock, wrap_ns);
	draw(rig, BATCH, 0); /* all are drawn again, now */
	assert_int_equal(replay_sampler_stats(rig->sampler).redraws, BATCH);
	close_rig(rig);
}

/* A row takes 10 ns at least: so long until the ring has gone round once for each generation. */
TEST(sampler_wrap_ns__is_a_lap_for_each_generation)
{
	const struct table_desc desc = { .slots = 1000 };

	assert_int_equal(sampler_wrap_ns(&desc), (uint64_t)1000 * ((1 << 22) - 1) * 10);
}

/* -------- views that count their samples -------- */

/* Hands out batches, `most` at most, none of whose items was seen before. How many items. */
static uint64_t drain(struct rlv_sampler *sampler, uint32_t most, bool seen[1024])
{
	const struct rlv_batch *batch;
	uint64_t n = 0;

	while (most-- > 0 && rlv_sampler_sample(sampler, BATCH, 0, &batch) == 0) {
		for (uint32_t i = 0; i < batch->n; i++) {
			uint64_t row = replay_batch_id(batch, i) - replay_id(0, 0);

			assert_true(row < 1024 && !seen[row]);
			seen[row] = true;
		}
		n += batch->n;
		rlv_batch_release(sampler, batch);
	}
	return n;
}

/* Prefetched items that are never handed over are there for others. */
TEST(sample_ahead__items_are_taken_when_handed_over)
{
	const struct rlv_view once = { .n_step = 2, .stack = 2, .max_times_sampled = 1 };
	const struct rlv_sampler_opts opts = prefetch_opts(), plain = { .batch_size = BATCH };
	struct rig *rig = open_rig(&once, NODES_WIRE, &opts);
	bool seen[1024] = { false };
	uint64_t n;

	assert_int_equal(handle_flush(&rig->writer->h), 0);
	n = drain(rig->sampler, 5, seen);
	assert_int_equal(n, 5 * BATCH);
	assert_int_equal(rig->sampler->n_prefetched, DEPTH);
	replay_sampler_done(&rig->sampler);
	rig->sampler = replay_sampler(&rig->nx.fx, &plain);
	n += drain(rig->sampler, UINT32_MAX, seen);
	assert_int_equal(n, replay_writer_stats(rig->writer).items);
	close_rig(rig);
}

TEST(sample_ahead__counted_views_hand_out_all_to_the_end)
{
	const struct rlv_view once = { .n_step = 2, .stack = 2, .max_times_sampled = 1 };
	const struct rlv_sampler_opts opts = prefetch_opts();
	struct rig *rig = open_rig(&once, NODES_WIRE, &opts);
	bool seen[1024] = { false };

	assert_int_equal(handle_flush(&rig->writer->h), 0);
	assert_int_equal(drain(rig->sampler, UINT32_MAX, seen),
			 replay_writer_stats(rig->writer).items);
	close_rig(rig);
}

int main(void)
{
	return test_run(NULL, NULL);
}
