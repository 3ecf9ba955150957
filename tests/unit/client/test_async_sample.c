/* Async samples alone: their phases, their ends, and rows that take more than one phase. */
#include "tests/support/fixture/nodes_fixture.h"
#include "tests/support/test.h"

#include "client/sampler/sampler.h"

#include "base/bits.h"

#include <errno.h>
#include <string.h>

#define BATCH 64u
#define LEVELS(sampler) ((sampler)->trees.trees[0].geo.levels)

struct rig {
	struct nodes_fixture nx;
	struct rlv_writer *writer;
	struct rlv_sampler *sampler;
};

static const struct rlv_view plain_view = { .n_step = 1 };

static struct rig *open_rig_on(uint32_t nodes, bool seals, const char *const *columns)
{
	const struct nodes_opts opts = {
		.nodes = nodes,
		.reach = NODES_WIRE,
		.table = { .views = &plain_view,
			   .n_views = 1,
			   .capacity = 3000,
			   .block = 32,
			   .row_crc = seals },
	};
	const struct rlv_sampler_opts how = {
		.batch_size = 256,
		.verify = seals ? RLV_VERIFY_CRC : RLV_VERIFY_LEAF,
		.columns = columns,
	};
	static struct rig rig;

	memset(&rig, 0, sizeof(rig));
	nodes_open(&rig.nx, &opts);
	rig.writer = replay_writer(&rig.nx.fx, 1);
	for (uint32_t i = 0; i < 10; i++)
		replay_append_plain(&rig.nx.fx, rig.writer, 0, 100);
	rig.sampler = replay_sampler(&rig.nx.fx, &how);
	return &rig;
}

static struct rig *open_rig(bool seals)
{
	return open_rig_on(3, seals, NULL);
}

static void close_rig(struct rig *rig)
{
	replay_sampler_done(&rig->sampler);
	replay_writer_done(&rig->writer);
	nodes_close(&rig->nx);
}

static int start(struct rig *rig, uint32_t n)
{
	struct rlv_sampler *sp = rig->sampler;
	const struct round round = { .batch = sp->batches[0], .n = n, .stratified = true };

	sp->now.s = &sp->scratch;
	sp->now.draws = &sp->rng;
	for (uint32_t i = 0; i < n; i++)
		sp->scratch.at[i] = n - 1 - i; /* anywhere in the batch */
	return async_sample_start(sp, &sp->now, &round);
}

/* How often somebody waits before it is done. */
static uint32_t fly(struct rig *rig)
{
	uint32_t waits = 1;
	int ret = async_sample_wait(rig->sampler, &rig->sampler->now);

	for (; ret == -EAGAIN; waits++)
		ret = async_sample_wait(rig->sampler, &rig->sampler->now);
	assert_int_equal(ret, 0);
	assert_int_equal(rig->sampler->now.stage, ASYNC_DONE);
	return waits;
}

/* Rows stand where `at` says, and their leaves are whole. */
static void expect_rows(const struct rig *rig, uint32_t n)
{
	const struct draw_scratch *s = rig->sampler->now.s;
	const struct batch *batch = rig->sampler->batches[0];

	assert_int_equal(rig->sampler->now.found, n);
	for (uint32_t i = 0; i < n; i++) {
		float obs[REPLAY_OBS];
		uint64_t id = replay_batch_id(&batch->pub, s->at[i]);

		assert_int_equal(leaf_gen(s->again[i]), leaf_gen(s->word[i]));
		replay_obs(id, obs);
		assert_memory_equal((const float *)replay_array(&batch->pub, "obs")->data +
					    (size_t)s->at[i] * REPLAY_OBS,
				    obs, sizeof(obs));
	}
}

TEST(async_sample__tops_levels_rows_leaves)
{
	struct rig *rig = open_rig(false);

	assert_int_equal(start(rig, BATCH), 0);
	assert_int_equal(rig->sampler->now.stage, ASYNC_DRAW);
	assert_int_equal(fly(rig), 1 + LEVELS(rig->sampler) + 2);
	expect_rows(rig, BATCH);
	close_rig(rig);
}

/* And where rows are many, or not small, they are copied while their leaves come. */
TEST(async_sample__few_small_rows_and_their_leaves_are_one_wait)
{
	struct rig *rig = open_rig_on(1, false, NULL);
	uint32_t levels = LEVELS(rig->sampler);

	for (uint32_t n = 1; n < 12; n++) {
		uint64_t before = replay_sampler_stats(rig->sampler).phases;

		assert_int_equal(start(rig, n), 0);
		assert_int_equal(fly(rig), 1 + levels + (n <= 8 ? 1 : 2));
		assert_int_equal(replay_sampler_stats(rig->sampler).phases - before,
				 1 + levels + 2);
		expect_rows(rig, n);
	}
	close_rig(rig);
}

TEST(async_sample__with_seals_leaves_are_not_read_again)
{
	struct rig *rig = open_rig(true);

	assert_int_equal(start(rig, 256), 0);
	assert_int_equal(fly(rig), 1 + LEVELS(rig->sampler) + 1);
	expect_rows(rig, 256);
	close_rig(rig);
}

TEST(async_sample__without_columns_ends_with_the_leaves)
{
	const char *const none = NULL;
	struct rig *rig = open_rig_on(3, false, &none);
	const struct draw_scratch *s = &rig->sampler->scratch;

	assert_int_equal(start(rig, BATCH), 0);
	assert_int_equal(fly(rig), 1 + LEVELS(rig->sampler));
	for (uint32_t i = 0; i < BATCH; i++)
		assert_int_equal(s->again[i], s->word[i]);
	close_rig(rig);
}

TEST(async_sample_look__goes_on_with_what_has_come)
{
	struct rig *rig = open_rig(false);
	uint32_t looks = 0;
	int ret;

	assert_int_equal(async_sample_look(rig->sampler, &rig->sampler->now), -EAGAIN); /* idle */
	assert_int_equal(start(rig, BATCH), 0);
	do
		ret = async_sample_look(rig->sampler, &rig->sampler->now);
	while (ret == -EAGAIN && ++looks < 10000);
	assert_int_equal(ret, 0);
	assert_int_equal(async_sample_look(rig->sampler, &rig->sampler->now), 0);
	expect_rows(rig, BATCH);
	close_rig(rig);
}

TEST(async_sample_cancel__at_any_stage_and_another_one_starts)
{
	struct rig *rig = open_rig(false);
	uint32_t stages = 1 + LEVELS(rig->sampler) + 2;

	for (uint32_t n = 0; n < stages; n++) {
		assert_int_equal(start(rig, 1 + n * 50), 0);
		for (uint32_t i = 0; i < n; i++)
			assert_int_equal(async_sample_wait(rig->sampler, &rig->sampler->now),
					 -EAGAIN);
		async_sample_cancel(&rig->sampler->now);
		assert_int_equal(rig->sampler->now.stage, ASYNC_IDLE);
		assert_int_equal(rig->sampler->now.reads.n, 0);
	}
	assert_int_equal(start(rig, 256), 0);
	fly(rig);
	expect_rows(rig, 256);
	close_rig(rig);
}

TEST(async_sample__a_lost_connection_ends_it_at_any_stage)
{
	for (uint64_t call = 1; call < 400; call += 37) {
		struct rig *rig = open_rig(false);
		int ret;

		nodes_cut(&rig->nx, 1, call);
		ret = start(rig, BATCH);
		while (ret == 0 || ret == -EAGAIN) {
			ret = async_sample_wait(rig->sampler, &rig->sampler->now);
			if (ret == 0) /* the cut comes later */
				break;
		}
		if (ret) {
			assert_int_equal(ret, -ECONNRESET);
			assert_int_equal(rig->sampler->now.stage, ASYNC_IDLE);
		}
		nodes_cut(&rig->nx, 1, 1);
		nodes_return(&rig->nx, 1);
		replay_info(rig->nx.fx.table);
		close_rig(rig);
	}
}

/* -------- many rows -------- */

#define WIDE 16384u /* bytes of a row, nearly */
#define WIDE_BATCH 2500u

static void append_wide(struct rlv_writer *writer, uint32_t n)
{
	static uint64_t wide[WIDE / 8];
	const void *columns[] = { wide };
	struct rlv_steps steps = RLV_STEPS_INIT;

	steps.n = 1;
	steps.columns = columns;
	for (uint64_t row = 0; row < n; row++) {
		for (uint64_t k = 0; k < WIDE / 8; k++)
			wide[k] = row << 32 | k;
		assert_int_equal(rlv_writer_append(writer, 0, &steps, NULL), 0);
	}
}

/* A table of 300 wide rows: row i is in slot i. */
struct wide {
	struct nodes_fixture nx;
	struct rlv_writer *writer;
	struct rlv_sampler *sampler;
};

static struct wide *open_wide(uint32_t batch, bool seals)
{
	const struct rlv_column column = { "wide", RLV_U64, RLV_PLAIN, 1, { WIDE / 8 } };
	const struct rlv_view view = { .selector = RLV_UNIFORM };
	const struct nodes_opts opts = {
		.nodes = 1,
		.reach = NODES_WIRE,
		.table = { .views = &view,
			   .n_views = 1,
			   .columns = &column,
			   .n_columns = 1,
			   .capacity = 512,
			   .block = 16,
			   .row_crc = seals,
			   .max_writers = 1 },
	};
	const struct rlv_sampler_opts how = { .batch_size = batch,
					      .batches = 1,
					      .verify = seals ? RLV_VERIFY_CRC : RLV_VERIFY_LEAF };
	static struct wide wide;

	memset(&wide, 0, sizeof(wide));
	nodes_open(&wide.nx, &opts);
	wide.writer = replay_writer(&wide.nx.fx, 1);
	append_wide(wide.writer, 300);
	wide.sampler = replay_sampler(&wide.nx.fx, &how);
	return &wide;
}

static void expect_wide(const struct rlv_batch *batch, uint32_t at, uint64_t slot)
{
	const uint64_t *row =
		(const uint64_t *)replay_array(batch, "wide")->data + (size_t)at * (WIDE / 8);

	assert_int_equal(row[0], slot << 32);
	assert_int_equal(row[WIDE / 8 - 1], row[0] | (WIDE / 8 - 1));
}

/* 40 MB of rows: 32 MiB, then the rest, then all leaves. */
TEST(async_sample__rows_beyond_a_phase_come_in_the_next)
{
	struct wide *wide = open_wide(WIDE_BATCH, false);
	struct rlv_sampler *sampler = wide->sampler;
	const struct rlv_batch *batch;
	uint64_t before;

	rlv_batch_release(sampler, replay_sample(sampler, 1));
	before = replay_sampler_stats(sampler).phases;
	batch = replay_sample(sampler, WIDE_BATCH);
	assert_int_equal(replay_sampler_stats(sampler).phases - before,
			 1 + LEVELS(sampler) + 2 + 1);
	for (uint32_t i = 0; i < WIDE_BATCH; i++)
		expect_wide(batch, i, key_slot(batch->key[i]));
	rlv_batch_release(sampler, batch);
	nodes_end(&wide->nx, &wide->writer, &wide->sampler);
}

/* -------- rows in lots -------- */

#define LOTS_BATCH 256u /* 4 MiB */

static int start_wide(struct rlv_sampler *sp)
{
	const struct round round = { .batch = sp->batches[0], .n = LOTS_BATCH, .stratified = true };

	sp->now.s = &sp->scratch;
	sp->now.draws = &sp->rng;
	for (uint32_t i = 0; i < LOTS_BATCH; i++)
		sp->scratch.at[i] = LOTS_BATCH - 1 - i;
	return async_sample_start(sp, &sp->now, &round);
}

static void wait_for_rows(struct rlv_sampler *sp)
{
	while (sp->now.stage == ASYNC_DRAW)
		assert_int_equal(async_sample_wait(sp, &sp->now), -EAGAIN);
	assert_int_equal(sp->now.stage, ASYNC_ROWS);
	assert_int_equal(sp->now.lots, 4);
}

static void expect_all_wide(const struct rlv_sampler *sp)
{
	const struct draw_scratch *s = sp->now.s;

	assert_int_equal(sp->now.stage, ASYNC_DONE);
	for (uint32_t i = 0; i < LOTS_BATCH; i++) {
		assert_int_equal(leaf_gen(s->again[i]), leaf_gen(s->word[i]));
		expect_wide(&sp->batches[0]->pub, s->at[i], s->slot[i]);
	}
}

/* Also with seals, and with looks instead of waits. */
TEST(async_sample__a_lot_is_copied_while_later_ones_come)
{
	for (uint32_t kind = 0; kind < 4; kind++) {
		struct wide *wide = open_wide(LOTS_BATCH, kind & 1);
		struct rlv_sampler *sp = wide->sampler;
		uint32_t between = 0;
		uint64_t phases;
		int ret;

		assert_int_equal(start_wide(sp), 0);
		wait_for_rows(sp);
		phases = replay_sampler_stats(sp).phases;
		do {
			ret = kind & 2 ? async_sample_look(sp, &sp->now)
				       : async_sample_wait(sp, &sp->now);
			between += ret == -EAGAIN && sp->now.stage == ASYNC_ROWS &&
				   sp->now.lots_copied > 0 && sp->now.reads.n > 0;
		} while (ret == -EAGAIN);
		assert_int_equal(ret, 0);
		expect_all_wide(sp);
		if (kind & 2)
			assert_true(between > 0);
		else
			assert_int_equal(replay_sampler_stats(sp).phases - phases,
					 kind & 1 ? 1 : 2); /* rows; leaves */
		nodes_end(&wide->nx, &wide->writer, &wide->sampler);
	}
}

TEST(async_sample_cancel__amid_the_lots_and_another_one_starts)
{
	struct wide *wide = open_wide(LOTS_BATCH, false);
	struct rlv_sampler *sp = wide->sampler;

	assert_int_equal(start_wide(sp), 0);
	wait_for_rows(sp);
	while (sp->now.lots_copied == 0)
		assert_int_equal(async_sample_look(sp, &sp->now), -EAGAIN);
	async_sample_cancel(&sp->now);
	assert_int_equal(sp->now.stage, ASYNC_IDLE);
	assert_int_equal(sp->now.reads.n, 0);
	assert_int_equal(start_wide(sp), 0);
	while (async_sample_wait(sp, &sp->now) == -EAGAIN)
		continue;
	expect_all_wide(sp);
	nodes_end(&wide->nx, &wide->writer, &wide->sampler);
}

TEST(async_sample__a_connection_lost_amid_the_lots_ends_it)
{
	struct wide *wide = open_wide(LOTS_BATCH, false);
	struct rlv_sampler *sp = wide->sampler;
	int ret = -EAGAIN;

	assert_int_equal(start_wide(sp), 0);
	wait_for_rows(sp);
	nodes_cut(&wide->nx, 0, 1);
	while (ret == -EAGAIN)
		ret = async_sample_wait(sp, &sp->now);
	assert_int_equal(ret, -ECONNRESET);
	assert_int_equal(sp->now.stage, ASYNC_IDLE);
	assert_int_equal(sp->now.reads.n, 0);
	nodes_return(&wide->nx, 0);
	nodes_end(&wide->nx, &wide->writer, &wide->sampler);
}

int main(void)
{
	return test_run(NULL, NULL);
}
