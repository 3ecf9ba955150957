/*
 * Duration of calls when no node answers: one deadline bounds all waits and retries of a call. The
 * clock moves when it is read, and while a request is unanswered.
 */
#include "tests/support/fixture/nodes_fixture.h"
#include "tests/support/test.h"

#include "client/writer/append.h"
#include "client/sampler/sampler.h"

#include "ds/part/slot.h"

#include <errno.h>
#include <string.h>

#define TIMEOUT_NS (3 * CLOCK_NS_PER_S)
#define GRACE_NS CLOCK_NS_PER_S /* least time that an operation gets */
#define BATCH 64

struct rig {
	struct nodes_fixture nx;
	struct rlv_writer *writer;
	struct rlv_sampler *sampler;
};

static int setup(void **state)
{
	const struct nodes_opts opts = { .reach = NODES_WIRE };
	struct rlv_writer_opts how = RLV_WRITER_OPTS_INIT;
	static struct rig rig;

	memset(&rig, 0, sizeof(rig));
	how.timeout_ns = TIMEOUT_NS;
	nodes_open(&rig.nx, &opts);
	assert_int_equal(rlv_writer_open(rig.nx.fx.table, &how, &rig.writer), 0);
	for (uint32_t i = 0; i < 20; i++)
		replay_append_plain(&rig.nx.fx, rig.writer, 0, 100);
	rig.sampler = replay_sampler(&rig.nx.fx, NULL);
	rlv_batch_release(rig.sampler, replay_sample(rig.sampler, BATCH));
	nodes_time(&rig.nx, &rig.writer->h);
	nodes_time(&rig.nx, &rig.sampler->h);
	*state = &rig;
	return 0;
}

/* Closes the handles over nodes that are gone. */
static int teardown(void **state)
{
	struct rig *rig = *state;

	rig->nx.server_mute = false;
	for (uint32_t n = 0; n < rig->nx.n_nodes; n++)
		rig->nx.nodes[n].mute = false;
	nodes_return(&rig->nx, 0);
	(void)!rlv_sampler_close(&rig->sampler);
	(void)!rlv_writer_close(&rig->writer);
	nodes_fence_all(&rig->nx);
	nodes_close(&rig->nx);
	return 0;
}

static void mute_all(struct rig *rig)
{
	rig->nx.server_mute = true;
	for (uint32_t n = 0; n < rig->nx.n_nodes; n++)
		nodes_mute(&rig->nx, n);
}

static uint64_t now(const struct rig *rig)
{
	return atomic_load(&rig->nx.clock.time_ns);
}

static int append_one(struct rig *rig)
{
	struct rlv_steps steps = RLV_STEPS_INIT;

	steps.n = 1;
	steps.columns = replay_columns(&rig->nx.fx, 0, 0, 1);
	return rlv_writer_append(rig->writer, 0, &steps, NULL);
}

static int sample(struct rig *rig, int64_t timeout_ns)
{
	const struct rlv_batch *batch;
	int ret = rlv_sampler_sample(rig->sampler, BATCH, timeout_ns, &batch);

	if (ret == 0)
		rlv_batch_release(rig->sampler, batch);
	return ret;
}

#define RIG_TEST(f) TEST_WITH(f, setup, teardown)

RIG_TEST(sample__nobody_answers_ends_at_its_deadline)
{
	struct rig *rig = *state;
	uint64_t began = now(rig);

	mute_all(rig);
	replay_expect(sample(rig, TIMEOUT_NS), -EHOSTDOWN, "");
	assert_in_range(now(rig) - began, TIMEOUT_NS, TIMEOUT_NS + GRACE_NS);
	assert_true(rig->nx.unanswered >= 3);
}

RIG_TEST(sample__one_silent_node_leaves_time_for_the_others)
{
	struct rig *rig = *state;
	uint64_t began = now(rig);

	nodes_mute(&rig->nx, 1);
	assert_int_equal(sample(rig, TIMEOUT_NS), 0);
	assert_true(now(rig) - began < TIMEOUT_NS);
	assert_int_equal(replay_sampler_stats(rig->sampler).shards_lost, 1);
}

RIG_TEST(sample__that_waits_for_nobody_has_the_time_of_the_store)
{
	struct rig *rig = *state;
	uint64_t began = now(rig);

	mute_all(rig);
	replay_expect(sample(rig, 0), -EHOSTDOWN, "");
	assert_true(now(rig) - began <= (uint64_t)(rig->nx.fx.store->timeout_ns + GRACE_NS));
}

RIG_TEST(append__nobody_answers_ends_at_its_deadline)
{
	struct rig *rig = *state;
	uint64_t began = now(rig);

	mute_all(rig);
	replay_expect(append_one(rig), -EHOSTDOWN, "");
	assert_in_range(now(rig) - began, TIMEOUT_NS, TIMEOUT_NS + GRACE_NS);
}

RIG_TEST(append__one_silent_node_leaves_time_for_the_others)
{
	struct rig *rig = *state;
	uint64_t began;

	for (uint32_t n = 0; n < 2; n++)
		nodes_mute(&rig->nx, n);
	began = now(rig);
	assert_int_equal(append_one(rig), 0);
	assert_true(now(rig) - began < TIMEOUT_NS + GRACE_NS);
}

/* The connection to the stream's block ends at the deadline: no loop retries a lost one. */
RIG_TEST(append__cut_at_any_call_without_time_left_ends)
{
	struct rig *rig = *state;

	for (uint64_t n = 1; n <= 12; n++) {
		int ret;

		nodes_cut(&rig->nx, 0, n);
		nodes_cut(&rig->nx, 1, n);
		nodes_cut(&rig->nx, 2, n);
		atomic_store(&rig->nx.clock.step_ns, TIMEOUT_NS);
		ret = append_one(rig);
		nodes_time(&rig->nx, &rig->writer->h);
		assert_true(ret == 0 || ret == -EHOSTDOWN);
		for (uint32_t i = 0; i < rig->nx.n_nodes; i++)
			nodes_return(&rig->nx, i);
		fake_clock_advance(&rig->nx.clock, TIMEOUT_NS);
		assert_int_equal(append_one(rig), 0);
		nodes_time(&rig->nx, &rig->writer->h);
	}
}

RIG_TEST(update__nobody_answers_ends_within_the_time_of_the_store)
{
	struct rig *rig = *state;
	const struct rlv_batch *batch = replay_sample(rig->sampler, BATCH);
	struct rlv_update_result result;
	uint64_t began = now(rig);
	float td[BATCH] = { 0 };

	mute_all(rig);
	assert_int_equal(rlv_sampler_update(rig->sampler, batch->key, td, BATCH, &result), 0);
	assert_int_equal(result.updated, 0);
	assert_true(now(rig) - began <= (uint64_t)(rig->nx.fx.store->timeout_ns + GRACE_NS));
	rlv_batch_release(rig->sampler, batch);
}

RIG_TEST(writer_close__nobody_answers_ends_at_its_deadline)
{
	struct rig *rig = *state;
	uint64_t began = now(rig);

	mute_all(rig);
	assert_int_not_equal(rlv_writer_close(&rig->writer), 0);
	assert_true(now(rig) - began <= TIMEOUT_NS + GRACE_NS);
}

/* The pin of an update stays in a shard whose connection ends, and which is back in time. */
RIG_TEST(sampler_close__a_node_comes_back_meanwhile)
{
	struct rig *rig = *state;

	rig->nx.back_at_put = true;
	for (uint64_t n = 1; n <= 12; n++) {
		const struct rlv_batch *batch = replay_sample(rig->sampler, BATCH);
		uint32_t slot = rig->sampler->h.slot.owner - 1;
		float td[BATCH] = { 0 };

		nodes_cut(&rig->nx, 1, n);
		assert_int_equal(rlv_sampler_update(rig->sampler, batch->key, td, BATCH, NULL), 0);
		rlv_batch_release(rig->sampler, batch);
		replay_sampler_done(&rig->sampler);
		nodes_return(&rig->nx, 1);
		for (uint32_t s = 0; s < rig->nx.n_shards; s++) {
			struct slot_info info;

			assert_int_equal(slot_read(&rig->nx.shards[s]->part, slot, &info), 0);
			assert_int_equal(info.state, SLOT_FREE);
		}
		rig->sampler = replay_sampler(&rig->nx.fx, NULL);
		nodes_time(&rig->nx, &rig->sampler->h);
	}
}

int main(void)
{
	return test_run(NULL, NULL);
}
