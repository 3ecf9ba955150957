/* Scans and gathers: items that are read, not drawn. */
#include "relive/scan.h"

#include "tests/support/fixture/nodes_fixture.h"
#include "tests/support/test.h"

#include "client/sampler/sampler.h"

#include <errno.h>
#include <string.h>

#define BATCH 48u
#define ITEMS_MAX 8192u
#define PATIENCE_NS 10000000000ll /* of a call that waits for a shard, which comes */

static const struct rlv_view three_step = { .n_step = 3, .stack = 2, .selector = RLV_UNIFORM };
static const struct replay_look three_look = { 2, 3, 0.99 };

/* Ids of items, in the order of a scan. */
struct seen {
	uint64_t id[ITEMS_MAX];
	uint64_t key[ITEMS_MAX];
	uint32_t n, batches;
};

static void start(struct nodes_rig *rig)
{
	replay_expect(rlv_sampler_scan_start(rig->sampler, false, PATIENCE_NS), 0, NULL);
}

static void see(struct seen *seen, const struct rlv_batch *batch)
{
	assert_true(seen->n + batch->n <= ITEMS_MAX);
	for (uint32_t i = 0; i < batch->n; i++) {
		seen->id[seen->n] = replay_batch_id(batch, i);
		seen->key[seen->n++] = batch->key[i];
		assert_true(batch->priority[i] > 0);
		assert_true(batch->probability[i] == 1 && batch->weight[i] == 1);
	}
	seen->batches++;
}

/* One batch of the scan, every byte checked. */
static int next(struct nodes_rig *rig, struct seen *seen, int64_t timeout_ns)
{
	const struct rlv_batch *batch;
	int rc = rlv_sampler_scan(rig->sampler, BATCH, timeout_ns, &batch);

	if (rc)
		return rc;
	assert_in_range(batch->n, 1, BATCH);
	replay_check_batch(&rig->nx.fx.oracle, &three_step, &three_look, batch);
	see(seen, batch);
	rlv_batch_release(rig->sampler, batch);
	return 0;
}

static void finish(struct nodes_rig *rig, struct seen *seen)
{
	int rc;

	while ((rc = next(rig, seen, PATIENCE_NS)) == 0)
		;
	replay_expect(rc, -ENODATA, "rlv_sampler_scan_start");
}

static void scan_all(struct nodes_rig *rig, struct seen *seen)
{
	seen->n = seen->batches = 0;
	start(rig);
	finish(rig, seen);
}

/* Some steps, an episode that is truncated, and some more. */
static void append_some(struct nodes_rig *rig, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		replay_append_plain(&rig->nx.fx, rig->writer, 0, 70);
		replay_append_episode(&rig->nx.fx, rig->writer, 0, 23, RLV_TRUNCATED, true);
	}
}

/* Fails unless the scan saw each item of stream 0 from row `from` on, once, in their order. */
static void expect_in_order(const struct nodes_rig *rig, const struct seen *seen, size_t from)
{
	uint32_t at = 0;

	while (at < seen->n && seen->id[at] < replay_id(0, from))
		at++;
	for (size_t row = from; row < rig->nx.fx.oracle.streams[0].n; row++) {
		if (!replay_is_item(&rig->nx.fx.oracle, 0, row, &three_step))
			continue;
		if (at == seen->n || seen->id[at] != replay_id(0, row))
			fail_msg("item %u of the scan is not that of row %zu", at, row);
		at++;
	}
	assert_int_equal(at, seen->n);
}

static void expect_scan_in_order(enum nodes_reach reach, uint32_t nodes)
{
	struct nodes_rig *rig = nodes_rig_open(&three_step, reach, nodes);
	uint64_t before = replay_sampler_stats(rig->sampler).phases;
	static struct seen seen;

	append_some(rig, 20);
	scan_all(rig, &seen);
	expect_in_order(rig, &seen, 0);
	assert_int_equal(seen.batches, (seen.n + BATCH - 1) / BATCH);
	/* Headers of all shards, all leaves, then rows and leaves of each batch. */
	if (reach == NODES_WIRE)
		assert_int_equal(replay_sampler_stats(rig->sampler).phases - before,
				 2 + 2 * seen.batches);
	nodes_rig_close(rig);
}

TEST(sampler_scan__all_items_in_order)
{
	expect_scan_in_order(NODES_IN_PLACE, 1);
	expect_scan_in_order(NODES_WIRE, 1);
}

TEST(sampler_scan__one_writer_in_order_over_all_shards)
{
	expect_scan_in_order(NODES_IN_PLACE, 3);
	expect_scan_in_order(NODES_WIRE, 3);
}

/* -------- items that go and come meanwhile -------- */

TEST(sampler_scan__consumes_nothing)
{
	const struct rlv_view queue = { .stack = 2,
					.n_step = 3,
					.selector = RLV_FIFO,
					.max_times_sampled = 2,
					.limiter = rlv_limiter_min_size(10) };
	struct nodes_rig *rig = nodes_rig_open(&queue, NODES_WIRE, 1);
	static struct seen seen, again;
	const struct rlv_batch *batch;
	const uint32_t *times;
	uint64_t before;

	append_some(rig, 2);
	scan_all(rig, &seen);
	rlv_batch_release(rig->sampler, replay_sample(rig->sampler, 20));
	before = replay_info(rig->nx.fx.table).views[0].sampled;
	scan_all(rig, &again);
	assert_int_equal(again.n, seen.n);
	assert_memory_equal(again.key, seen.key, seen.n * sizeof(*seen.key));
	start(rig);
	assert_int_equal(rlv_sampler_scan(rig->sampler, BATCH, 0, &batch), 0);
	times = rlv_batch_times_sampled(batch);
	assert_non_null(times);
	for (uint32_t i = 0; i < BATCH; i++)
		assert_int_equal(times[i], i < 20); /* FIFO: the oldest 20 */
	rlv_batch_release(rig->sampler, batch);
	assert_int_equal(replay_info(rig->nx.fx.table).views[0].sampled, before);
	assert_int_equal(replay_info(rig->nx.fx.table).views[0].items, seen.n);
	/* The second sample is their last: they are not seen any more. */
	batch = replay_sample(rig->sampler, 20);
	assert_null(rlv_batch_times_sampled(batch));
	rlv_batch_release(rig->sampler, batch);
	scan_all(rig, &again);
	assert_int_equal(again.n, seen.n - 20);
	assert_memory_equal(again.key, seen.key + 20, again.n * sizeof(*seen.key));
	nodes_rig_close(rig);
}

TEST(sampler_scan__items_that_stay_are_seen_whatever_is_appended)
{
	for (uint32_t wire = 0; wire < 2; wire++) {
		struct nodes_rig *rig =
			nodes_rig_open(&three_step, wire ? NODES_WIRE : NODES_IN_PLACE, 2);
		static struct seen seen;
		uint32_t there, at = 0;

		append_some(rig, 4);
		there = (uint32_t)replay_info(rig->nx.fx.table).views[0].items;
		memset(&seen, 0, sizeof(seen));
		start(rig);
		while (next(rig, &seen, PATIENCE_NS) == 0)
			append_some(rig, 1);
		for (size_t row = 0; at < there; row++)
			if (replay_is_item(&rig->nx.fx.oracle, 0, row, &three_step))
				assert_int_equal(seen.id[at++], replay_id(0, row));
		/* Of what was appended, no more than the block had room for. */
		assert_in_range(seen.n, there, there + 32);
		nodes_rig_close(rig);
	}
}

TEST(sampler_scan__items_that_are_overwritten_are_left_out)
{
	for (uint32_t wire = 0; wire < 2; wire++) {
		struct nodes_rig *rig =
			nodes_rig_open(&three_step, wire ? NODES_WIRE : NODES_IN_PLACE, 1);
		static struct seen seen;
		size_t rows;

		append_some(rig, 20);
		memset(&seen, 0, sizeof(seen));
		start(rig);
		replay_expect(next(rig, &seen, PATIENCE_NS), 0, NULL);
		rows = rig->nx.fx.oracle.streams[0].n;
		append_some(rig, 35); /* the table's slots but a few blocks: some old items stay */
		finish(rig, &seen);
		assert_in_range(seen.n, BATCH, 1200);
		for (uint32_t i = BATCH; i < seen.n; i++)
			assert_in_range(seen.id[i], seen.id[i - 1] + 1, replay_id(0, rows + 32));
		append_some(rig, 40);
		finish(rig, &seen); /* it is over, and stays so */
		scan_all(rig, &seen);
		expect_in_order(rig, &seen, seen.id[0]);
		nodes_rig_close(rig);
	}
}

/* -------- shards that go and come -------- */

/* The items of shard s, by the keys of a scan. */
static uint32_t of_shard(const struct seen *seen, uint32_t s)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < seen->n; i++)
		n += key_shard(seen->key[i]) == s;
	return n;
}

static void expect_same(const struct seen *seen, const struct seen *want)
{
	assert_int_equal(seen->n, want->n);
	assert_memory_equal(seen->key, want->key, want->n * sizeof(*want->key));
}

TEST(sampler_scan__waits_for_a_shard_that_is_down)
{
	struct nodes_rig *rig = nodes_rig_open(&three_step, NODES_WIRE, 3);
	static struct seen all, seen;

	append_some(rig, 10);
	scan_all(rig, &all);
	memset(&seen, 0, sizeof(seen));
	start(rig);
	replay_expect(next(rig, &seen, PATIENCE_NS), 0, NULL);
	nodes_cut(&rig->nx, 1, 1);
	while (next(rig, &seen, 0) == 0)
		;
	replay_expect(next(rig, &seen, 0), -EHOSTDOWN, "shard 1 is down");
	replay_expect(
		rlv_sampler_gather(rig->sampler, all.key, 50, 0, &(const struct rlv_batch *){ 0 }),
		-EHOSTDOWN, "shard 1");
	assert_true(seen.n < all.n);
	nodes_return(&rig->nx, 1);
	finish(rig, &seen);
	expect_same(&seen, &all);
	nodes_rig_close(rig);
}

TEST(sampler_scan__leaves_out_what_cannot_be_reached_if_told_so)
{
	struct nodes_rig *rig = nodes_rig_open(&three_step, NODES_WIRE, 3);
	static struct seen all, seen;

	append_some(rig, 10);
	scan_all(rig, &all);
	nodes_cut(&rig->nx, 2, 1);
	replay_expect(rlv_sampler_scan_start(rig->sampler, false, 0), -EHOSTDOWN, "shard 2");
	replay_expect(next(rig, &seen, 0), -ENODATA, NULL);
	memset(&seen, 0, sizeof(seen));
	replay_expect(rlv_sampler_scan_start(rig->sampler, true, 0), 0, NULL);
	replay_expect(next(rig, &seen, 0), 0, NULL);
	nodes_cut(&rig->nx, 1, 1); /* in the midst of it, too */
	if (rig->nx.control)
		nodes_move_control(&rig->nx, 0);
	finish(rig, &seen);
	assert_int_equal(of_shard(&seen, 2), 0);
	assert_int_equal(of_shard(&seen, 0), of_shard(&all, 0));
	assert_in_range(of_shard(&seen, 1), 1, of_shard(&all, 1) - 1);
	nodes_return(&rig->nx, 1);
	nodes_return(&rig->nx, 2);
	nodes_rig_close(rig);
}

TEST(sampler_scan__without_a_shard_that_is_lost)
{
	struct nodes_rig *rig = nodes_rig_open(&three_step, NODES_WIRE, 3);
	static struct seen all, seen;
	const struct rlv_batch *batch;

	append_some(rig, 10);
	scan_all(rig, &all);
	if (rig->nx.control == 1)
		nodes_move_control(&rig->nx, 0);
	nodes_lose(&rig->nx, 1);
	scan_all(rig, &seen);
	assert_int_equal(seen.n, all.n - of_shard(&all, 1));
	assert_int_equal(of_shard(&seen, 1), 0);
	replay_expect(rlv_sampler_gather(rig->sampler, all.key, 64, PATIENCE_NS, &batch), 0, NULL);
	for (uint32_t i = 0; i < 64; i++)
		assert_int_equal(batch->key[i], key_shard(all.key[i]) == 1 ? 0 : all.key[i]);
	rlv_batch_release(rig->sampler, batch);
	nodes_rig_close(rig);
}

/* A connection that ends at any call: the scan goes on at its place when the node is back. */
TEST(sampler_scan__a_node_cut_at_any_call_loses_and_repeats_nothing)
{
	for (uint64_t call = 1; call < 40; call += 3) {
		struct nodes_rig *rig = nodes_rig_open(&three_step, NODES_WIRE, 2);
		static struct seen all, seen;
		int rc;

		append_some(rig, 6);
		scan_all(rig, &all);
		memset(&seen, 0, sizeof(seen));
		nodes_cut(&rig->nx, 1, call);
		rc = rlv_sampler_scan_start(rig->sampler, false, 0);
		while (rc == 0)
			rc = next(rig, &seen, 0);
		if (rc != -ENODATA) {
			assert_int_equal(rc, -EHOSTDOWN);
			nodes_return(&rig->nx, 1);
			if (seen.n == 0)
				start(rig);
			finish(rig, &seen);
		}
		expect_same(&seen, &all);
		nodes_cut(&rig->nx, 1, 1);
		nodes_return(&rig->nx, 1);
		nodes_rig_close(rig);
	}
}

/* An operation that fails is the error of its call; the next call is of the same items. */
TEST(sampler_scan__any_operation_may_fail_once)
{
	struct nodes_rig *rig = nodes_rig_open(&three_step, NODES_WIRE, 2);
	static struct seen all, seen;
	uint64_t call = 0;
	uint32_t errors;

	append_some(rig, 6);
	scan_all(rig, &all);
	do {
		int rc;

		errors = 0;
		memset(&seen, 0, sizeof(seen));
		nodes_fail(&rig->nx, 1, ++call);
		while ((rc = rlv_sampler_scan_start(rig->sampler, false, 0)) == -ETIMEDOUT)
			errors++;
		for (; rc == 0 || rc == -ETIMEDOUT; errors += rc == -ETIMEDOUT)
			rc = next(rig, &seen, 0);
		assert_int_equal(rc, -ENODATA);
		assert_in_range(errors, 0, 1);
		expect_same(&seen, &all);
	} while (errors);
	assert_in_range(call, 10, 200);
	nodes_fail(&rig->nx, 1, 0);
	nodes_rig_close(rig);
}

#define SLOTS_MAX 8192

static void put_words(struct shard *shard, uint64_t off, const uint64_t *words, uint32_t n)
{
	const struct transport_io io = {
		.region = shard->tree, .off = off, .src = words, .len = n * 8
	};

	assert_int_equal(transport_write(shard->tree->tr, &io, 1), 0);
}

/* What lies in shared memory is input: headers and leaves of any value give whole rows or none. */
TEST(sampler_scan__words_of_any_value_do_no_harm)
{
	for (uint32_t wire = 0; wire < 2; wire++) {
		struct nodes_rig *rig =
			nodes_rig_open(&three_step, wire ? NODES_WIRE : NODES_IN_PLACE, 1);
		struct shard *shard = rig->nx.shards[0];
		uint32_t blocks = shard->desc.blocks, slots = shard->desc.slots, n = 0;
		uint64_t leaves_off = shard_leaf_off(shard, 0, 0);
		static uint64_t headers[SLOTS_MAX], leaves[SLOTS_MAX], words[SLOTS_MAX];
		const struct rlv_batch *batch;
		uint64_t word = 1;
		int rc;

		append_some(rig, 2);
		assert_in_range(slots, blocks, SLOTS_MAX);
		assert_int_equal(shard_read_headers(shard, headers), 0);
		assert_int_equal(transport_fetch(shard->tree, leaves_off, leaves, slots * 8), 0);
		for (uint32_t b = 0; b < blocks; b++) {
			word = word * 6364136223846793005u + 1442695040888963407u;
			put_words(shard, shard_header_off(shard, b), &word, 1);
			for (uint32_t i = 0; i < shard->desc.block; i++)
				words[b * shard->desc.block + i] =
					leaf_make(0, block_gen(block_seq(word), blocks), i + 1);
		}
		put_words(shard, leaves_off, words, slots);
		start(rig);
		while ((rc = rlv_sampler_scan(rig->sampler, BATCH, 0, &batch)) == 0) {
			n += batch->n;
			rlv_batch_release(rig->sampler, batch);
		}
		assert_int_equal(rc, -ENODATA);
		/* Every row that can have an item: not those at the head of a block. */
		assert_int_equal(n,
				 blocks * (shard->desc.block - (shard->desc.views[0].window - 1u)));
		put_words(shard, shard_header_off(shard, 0), headers, blocks);
		put_words(shard, leaves_off, leaves, slots);
		nodes_rig_close(rig);
	}
}

/* -------- by key -------- */

TEST(sampler_gather__items_of_the_keys_in_their_order)
{
	for (uint32_t wire = 0; wire < 2; wire++) {
		struct nodes_rig *rig =
			nodes_rig_open(&three_step, wire ? NODES_WIRE : NODES_IN_PLACE, 3);
		static struct seen all;
		const struct rlv_batch *batch;
		uint64_t keys[64], absent = 0;

		append_some(rig, 10);
		scan_all(rig, &all);
		for (uint32_t i = 0; i < 64; i++)
			keys[i] = all.key[(i * 37 + 5) % all.n];
		keys[9] = keys[3];
		keys[20] += 1ull << 24; /* of a later generation */
		keys[30] &= ~31ull;     /* the head of its block, where no item is */
		replay_expect(rlv_sampler_gather(rig->sampler, keys, 64, 0, &batch), 0, NULL);
		assert_int_equal(batch->n, 64);
		for (uint32_t i = 0; i < 64; i++) {
			absent += batch->key[i] == 0;
			if (i == 20 || i == 30) {
				assert_int_equal(batch->key[i], 0);
				assert_true(batch->priority[i] == 0);
				assert_int_equal(replay_batch_id(batch, i), 0);
				continue;
			}
			assert_int_equal(batch->key[i], keys[i]);
			if (i != 9)
				assert_int_equal(replay_batch_id(batch, i),
						 all.id[(i * 37 + 5) % all.n]);
		}
		assert_int_equal(replay_batch_id(batch, 9), replay_batch_id(batch, 3));
		assert_int_equal(absent, 2);
		rlv_batch_release(rig->sampler, batch);
		replay_expect(rlv_sampler_gather(rig->sampler, all.key, 40, 0, &batch), 0, NULL);
		replay_check_batch(&rig->nx.fx.oracle, &three_step, &three_look, batch);
		rlv_batch_release(rig->sampler, batch);
		nodes_rig_close(rig);
	}
}

TEST(sampler_gather__without_columns_tells_which_items_are_there)
{
	static const struct rlv_view once = { .stack = 2, .n_step = 3, .max_times_sampled = 1 };
	const struct rlv_sampler_opts how = { .columns = &(const char *const){ NULL } };
	struct nodes_rig *rig = nodes_rig_open(&once, NODES_WIRE, 2);
	struct rlv_sampler *keys_only = replay_sampler(&rig->nx.fx, &how);
	const struct rlv_batch *batch, *taken;
	static struct seen all;
	uint64_t keys[10];

	append_some(rig, 4);
	scan_all(rig, &all);
	taken = replay_sample(rig->sampler, 10);
	memcpy(keys, taken->key, sizeof(keys));
	rlv_batch_release(rig->sampler, taken);
	replay_expect(rlv_sampler_gather(keys_only, all.key, 256, 0, &batch), 0, NULL);
	for (uint32_t i = 0; i < 256; i++) {
		bool gone = false;

		for (uint32_t k = 0; k < 10; k++)
			gone |= keys[k] == all.key[i];
		assert_int_equal(batch->key[i], gone ? 0 : all.key[i]);
		assert_int_equal(batch->priority[i] > 0, !gone);
	}
	rlv_batch_release(keys_only, batch);
	replay_sampler_done(&keys_only);
	nodes_rig_close(rig);
}

/* -------- arguments and buffers -------- */

TEST(sampler_scan__bad_input_names_the_argument)
{
	struct nodes_rig *rig = nodes_rig_open(&three_step, NODES_IN_PLACE, 1);
	const struct rlv_batch *batch, *held[2];
	static struct seen all;
	uint64_t key;

	replay_expect(rlv_sampler_scan(rig->sampler, 1, 0, &batch), -ENODATA, "scan_start");
	append_some(rig, 2);
	scan_all(rig, &all);
	replay_expect(rlv_sampler_scan_start(NULL, false, 0), -EINVAL, "sampler");
	replay_expect(rlv_sampler_scan(NULL, 1, 0, &batch), -EINVAL, "sampler");
	replay_expect(rlv_sampler_scan(rig->sampler, 1, 0, NULL), -EINVAL, "batch_out");
	replay_expect(rlv_sampler_scan(rig->sampler, 0, 0, &batch), -EINVAL, "n 0");
	replay_expect(rlv_sampler_scan(rig->sampler, 65, 0, &batch), -EINVAL, "1..64");
	replay_expect(rlv_sampler_gather(rig->sampler, NULL, 1, 0, &batch), -EINVAL, "keys");
	key = all.key[0] ^ 1ull << 63;
	replay_expect(rlv_sampler_gather(rig->sampler, &key, 1, 0, &batch), -EINVAL, "keys[0]");
	key = all.key[0] | 0xffffff;
	replay_expect(rlv_sampler_gather(rig->sampler, &key, 1, 0, &batch), -EINVAL, "keys[0]");
	start(rig);
	for (uint32_t i = 0; i < 2; i++)
		replay_expect(rlv_sampler_scan(rig->sampler, 8, 0, &held[i]), 0, NULL);
	replay_expect(rlv_sampler_scan(rig->sampler, 8, 0, &batch), -EBUSY, "held");
	rlv_batch_release(rig->sampler, held[0]);
	replay_expect(rlv_sampler_scan(rig->sampler, 8, 0, &batch), 0, NULL);
	assert_int_equal(batch->key[0], all.key[16]);
	assert_null(rlv_batch_times_sampled(NULL));
	nodes_rig_close(rig);
}

/* Scans between samples that are drawn ahead, and updates of what a scan saw. */
TEST(sampler_scan__between_samples_and_updates)
{
	const struct rlv_view prioritized = { .stack = 2, .n_step = 3 };
	const struct rlv_sampler_opts how = { .batch_size = 64, .prefetch = 2 };
	struct nodes_rig *rig = nodes_rig_open(&prioritized, NODES_WIRE, 2);
	struct rlv_sampler *ahead = replay_sampler(&rig->nx.fx, &how);
	struct rlv_update_result result;
	const float td[16] = { 1 };

	append_some(rig, 4);
	replay_expect(rlv_sampler_scan_start(ahead, false, 0), 0, NULL);
	for (uint32_t i = 0; i < 5; i++) {
		const struct rlv_batch *drawn = replay_sample(ahead, 16), *read;

		replay_expect(rlv_sampler_scan(ahead, 16, 0, &read), 0, NULL);
		replay_check_batch(&rig->nx.fx.oracle, &prioritized, &three_look, drawn);
		replay_check_batch(&rig->nx.fx.oracle, &prioritized, &three_look, read);
		replay_expect(rlv_sampler_update(ahead, read->key, td, 16, &result), 0, NULL);
		assert_int_equal(result.updated, 16);
		rlv_batch_release(ahead, drawn);
		rlv_batch_release(ahead, read);
	}
	replay_sampler_done(&ahead);
	nodes_rig_close(rig);
}

int main(void)
{
	return test_run(NULL, NULL);
}
