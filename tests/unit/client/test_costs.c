/*
 * Every price of costs.def, exactly: dependent round trips, work requests of each kind and their
 * bytes, of one call over a wire. The tables of the documents are made of the same file by
 * tools/costs.
 *
 * A table of 2^20 steps has two levels above its leaves. It holds 8192 items of one priority, so
 * that 256 draws fall into every node that has items and no price depends on what is drawn.
 *
 * The linker hands the library's transport_open to us (cmake/tests.cmake), so that every transport
 * of the store is wrapped.
 */
#include "relive/scan.h"

#include "tests/support/fake/wire_transport.h"
#include "tests/support/fixture/replay_fixture.h"
#include "tests/support/test.h"
#include "tests/support/wrap_open.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#define BATCH 256u
#define ROWS 8192u
#define BLOCK 1024u

struct cost {
	const char *call;
	uint64_t phases, reads, writes, cas, faa, read_bytes, write_bytes;
};

static const struct cost costs[] = {
#define COST(call, what, ...) { #call, __VA_ARGS__ },
#include "tests/unit/client/costs.def"
#undef COST
};
#define COSTS (sizeof(costs) / sizeof(*costs))
static bool measured[COSTS];

static const uint16_t wire_fanout[] = { 32, 40, 0 };

static int put_on_a_wire(struct transport **tr)
{
	*tr = wire_wrap(*tr);
	return 0;
}

WRAP_TRANSPORT_OPEN(put_on_a_wire)

/* Fails the test unless the call between two looks at a handle's counters cost what the table says. */
static void expect_cost(const char *call, struct rlv_stats before, struct rlv_stats after)
{
	const struct cost cost = {
		.phases = after.phases - before.phases,
		.reads = after.reads - before.reads,
		.writes = after.writes - before.writes,
		.cas = after.cas - before.cas,
		.faa = after.faa - before.faa,
		.read_bytes = after.read_bytes - before.read_bytes,
		.write_bytes = after.write_bytes - before.write_bytes,
	};
	const struct cost *told;
	size_t i = 0;

	while (i < COSTS && strcmp(costs[i].call, call) != 0)
		i++;
	if (i == COSTS)
		fail_msg("%s is not in costs.def", call);
	told = &costs[i];
	measured[i] = true;
	if (memcmp(&cost.phases, &told->phases, sizeof(cost) - offsetof(struct cost, phases)) != 0)
		fail_msg("costs.def has another price: COST(%s, ..., %" PRIu64 ", %" PRIu64
			 ", %" PRIu64 ", %" PRIu64 ", %" PRIu64 ", %" PRIu64 ", %" PRIu64 ")",
			 call, cost.phases, cost.reads, cost.writes, cost.cas, cost.faa,
			 cost.read_bytes, cost.write_bytes);
}

/* -------- writers -------- */

static void expect_append(struct replay_fixture *fx, struct rlv_writer *writer, const char *call,
			  uint32_t rows)
{
	struct rlv_stats before = replay_writer_stats(writer);

	replay_append_plain(fx, writer, 0, rows);
	expect_cost(call, before, replay_writer_stats(writer));
}

/* Fills the block, and the row that claims the next one is priced. */
static void expect_claim(struct replay_fixture *fx, struct rlv_writer *writer)
{
	struct rlv_stats before, after = replay_writer_stats(writer);

	do {
		before = after;
		replay_append_plain(fx, writer, 0, 1);
		after = replay_writer_stats(writer);
	} while (after.blocks_claimed == before.blocks_claimed);
	expect_cost("append_claim", before, after);
}

TEST(writer_append__costs)
{
	const struct rlv_table_opts opts = { .capacity = 1 << 20,
					     .block = BLOCK,
					     .fanout = wire_fanout };
	struct replay_fixture fx;
	struct rlv_writer *writer;

	replay_open(&fx, &opts);
	writer = replay_writer(&fx, 1);
	expect_cost("writer_open", (struct rlv_stats){ 0 }, replay_writer_stats(writer));
	expect_append(&fx, writer, "append_first", 1);
	expect_append(&fx, writer, "append_items", 1);
	expect_append(&fx, writer, "append", 1);
	expect_append(&fx, writer, "append_256", 256);
	expect_claim(&fx, writer);
	replay_end(&fx, &writer, NULL);
}

TEST(writer_append__with_a_limiter_costs)
{
	const struct rlv_view view = { .limiter = rlv_limiter_sample_to_insert(1e6, 1, 1e12) };
	const struct rlv_table_opts opts = { .capacity = 1 << 20,
					     .block = BLOCK,
					     .n_views = 1,
					     .views = &view,
					     .fanout = wire_fanout };
	struct replay_fixture fx;
	struct rlv_writer *writer;

	replay_open(&fx, &opts);
	writer = replay_writer(&fx, 1);
	replay_append_plain(&fx, writer, 0, 2);
	replay_append_plain(&fx, writer, 0, 2); /* whose count the next one waits for */
	expect_append(&fx, writer, "append_limited", 1);
	expect_append(&fx, writer, "append_limited_256", 256);
	replay_end(&fx, &writer, NULL);
}

/* -------- samplers -------- */

struct learner {
	struct replay_fixture fx;
	struct rlv_writer *writer;
	struct rlv_sampler *sampler;
};

static void open_learner(struct learner *l, const struct rlv_view *view,
			 const struct rlv_sampler_opts *how)
{
	const struct rlv_table_opts opts = {
		.capacity = 1 << 20,
		.block = BLOCK,
		.n_views = 1,
		.views = view,
		.fanout = wire_fanout,
		.row_crc = how && how->verify == RLV_VERIFY_CRC ? 1 : 2,
	};

	replay_open(&l->fx, &opts);
	l->writer = replay_writer(&l->fx, 1);
	for (uint32_t done = 0; done < ROWS; done += BLOCK)
		replay_append_plain(&l->fx, l->writer, 0, BLOCK);
	l->sampler = replay_sampler(&l->fx, how);
}

static void close_learner(struct learner *l)
{
	replay_end(&l->fx, &l->writer, &l->sampler);
}

/* Measures the second sample: the first one has reached min_size. */
static void expect_sample(struct learner *l, const char *call)
{
	struct rlv_stats before;
	const struct rlv_batch *batch;

	rlv_batch_release(l->sampler, replay_sample(l->sampler, BATCH));
	before = replay_sampler_stats(l->sampler);
	batch = replay_sample(l->sampler, BATCH);
	expect_cost(call, before, replay_sampler_stats(l->sampler));
	rlv_batch_release(l->sampler, batch);
}

TEST(sampler_sample__costs)
{
	const struct rlv_limiter bounds = rlv_limiter_sample_to_insert(1e6, 1, 1e12);
	const struct rlv_limiter queue = rlv_limiter_queue(1 << 20);
	const struct rlv_sampler_opts seals = { .verify = RLV_VERIFY_CRC };
	const struct {
		const char *call;
		struct rlv_view view;
		const struct rlv_sampler_opts *how;
	} cases[] = {
		{ "sample", { .n_step = 1 }, NULL },
		{ "sample_sealed", { .n_step = 1 }, &seals },
		{ "sample_limited", { .limiter = bounds }, NULL },
		{ "sample_uniform", { .selector = RLV_UNIFORM }, NULL },
		{ "sample_fifo", { .selector = RLV_FIFO }, NULL },
		{ "take", { .max_times_sampled = 1 }, NULL },
		{ "take_fifo", { .selector = RLV_FIFO, .max_times_sampled = 1 }, NULL },
		{ "take_queue",
		  { .selector = RLV_FIFO, .max_times_sampled = 1, .limiter = queue },
		  NULL },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct learner l;

		open_learner(&l, &cases[i].view, cases[i].how);
		expect_sample(&l, cases[i].call);
		close_learner(&l);
	}
}

static void expect_scan(struct learner *l, const char *call, uint64_t keys[BATCH])
{
	struct rlv_stats before = replay_sampler_stats(l->sampler);
	const struct rlv_batch *batch;

	assert_int_equal(rlv_sampler_scan(l->sampler, BATCH, 0, &batch), 0);
	expect_cost(call, before, replay_sampler_stats(l->sampler));
	memcpy(keys, batch->key, BATCH * sizeof(*keys));
	rlv_batch_release(l->sampler, batch);
}

static void expect_gather(struct learner *l, const char *call, const uint64_t keys[BATCH])
{
	struct rlv_stats before = replay_sampler_stats(l->sampler);
	const struct rlv_batch *batch;

	assert_int_equal(rlv_sampler_gather(l->sampler, keys, BATCH, 0, &batch), 0);
	expect_cost(call, before, replay_sampler_stats(l->sampler));
	rlv_batch_release(l->sampler, batch);
}

TEST(sampler_scan_and_gather__cost)
{
	const struct rlv_sampler_opts seals = { .verify = RLV_VERIFY_CRC };
	const struct rlv_view view = { .n_step = 1 };
	const struct rlv_batch *batch;
	struct rlv_stats before;
	struct learner l;
	uint64_t keys[BATCH];

	open_learner(&l, &view, NULL);
	before = replay_sampler_stats(l.sampler);
	assert_int_equal(rlv_sampler_scan_start(l.sampler, false, 0), 0);
	expect_cost("scan_start", before, replay_sampler_stats(l.sampler));
	expect_scan(&l, "scan_leaves", keys);
	expect_scan(&l, "scan", keys);
	expect_gather(&l, "gather", keys);
	close_learner(&l);
	open_learner(&l, &view, &seals);
	assert_int_equal(rlv_sampler_scan_start(l.sampler, false, 0), 0);
	assert_int_equal(rlv_sampler_scan(l.sampler, BATCH, 0, &batch), 0); /* reads leaves ahead */
	rlv_batch_release(l.sampler, batch);
	expect_scan(&l, "scan_sealed", keys);
	expect_gather(&l, "gather_sealed", keys);
	close_learner(&l);
}

TEST(sampler_open_and_flush__cost)
{
	const struct rlv_view view = { .n_step = 1 };
	struct rlv_stats before;
	struct learner l;

	open_learner(&l, &view, NULL);
	expect_cost("sampler_open", (struct rlv_stats){ 0 }, replay_sampler_stats(l.sampler));
	rlv_batch_release(l.sampler, replay_sample(l.sampler, BATCH));
	before = replay_sampler_stats(l.sampler);
	assert_int_equal(rlv_sampler_flush(l.sampler), 0);
	expect_cost("flush", before, replay_sampler_stats(l.sampler));
	before = replay_sampler_stats(l.sampler);
	assert_int_equal(rlv_sampler_flush(l.sampler), 0);
	expect_cost("flush_of_nothing", before, replay_sampler_stats(l.sampler));
	close_learner(&l);
}

/* -------- updates -------- */

static void expect_update(struct learner *l, const char *call, const uint64_t *keys, uint32_t n)
{
	struct rlv_stats before = replay_sampler_stats(l->sampler);
	float td[BATCH];

	for (uint32_t i = 0; i < n; i++)
		td[i] = 0.001f * (float)(1 + i); /* below the running maximum */
	assert_int_equal(rlv_sampler_update(l->sampler, keys, td, n, NULL), 0);
	expect_cost(call, before, replay_sampler_stats(l->sampler));
}

TEST(sampler_update__costs)
{
	const struct rlv_view view = { .n_step = 1 };
	const struct rlv_sampler_opts how = { .batches = 2 };
	const struct rlv_batch *batch;
	uint64_t keys[BATCH];
	struct learner l;

	open_learner(&l, &view, &how);
	rlv_batch_release(l.sampler, replay_sample(l.sampler, BATCH));
	batch = replay_sample(l.sampler, BATCH);
	for (uint32_t i = 1; i < BATCH; i++)
		assert_int_not_equal(batch->key[i], batch->key[i - 1]);
	memcpy(keys, batch->key, sizeof(keys));
	expect_update(&l, "update", batch->key, BATCH);
	rlv_batch_release(l.sampler, batch);
	expect_update(&l, "update_again", keys, BATCH);
	close_learner(&l);
}

/* Last. */
TEST(costs__are_all_measured)
{
	for (size_t i = 0; i < COSTS; i++)
		if (!measured[i])
			fail_msg("costs.def has a call that nothing measures: %s", costs[i].call);
}

int main(void)
{
	return test_run(NULL, NULL);
}
