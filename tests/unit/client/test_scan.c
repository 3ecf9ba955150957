/* Scans and gathers: items that are read, not drawn. */
#include "relive/scan.h"

#include "tests/support/fixture/nodes_fixture.h"
#include "tests/support/test.h"

#include "client/sampler/sampler.h"

#include <errno.h>
#include <string.h>

#define BATCH 48u
#define ITEMS_MAX 8192u
#define SECOND 1000000000ll

static const struct rlv_view three_step = { .n_step = 3, .stack = 2, .selector = RLV_UNIFORM };
static const struct replay_look three_look = { 2, 3, 0.99 };

struct rig {
	struct nodes_fixture nx;
	struct rlv_writer *writer;
	struct rlv_sampler *sampler;
};

static struct rig *open_rig(const struct rlv_view *view, enum nodes_reach reach, uint32_t nodes)
{
	const struct nodes_opts opts = {
		.nodes = nodes,
		.reach = reach,
		.table = { .views = view, .n_views = 1, .block = 32, .capacity = 3000 },
	};
	const struct rlv_sampler_opts how = { .batch_size = 64 };
	static struct rig rig;

	memset(&rig, 0, sizeof(rig));
	nodes_open(&rig.nx, &opts);
	rig.writer = replay_writer(&rig.nx.fx, 1);
	rig.sampler = replay_sampler(&rig.nx.fx, &how);
	return &rig;
}

static void close_rig(struct rig *rig)
{
	nodes_end(&rig->nx, &rig->writer, &rig->sampler);
}

/* Ids of items, in the order of a scan. */
struct seen {
	uint64_t id[ITEMS_MAX];
	uint64_t key[ITEMS_MAX];
	uint32_t n, batches;
};

static void start(struct rig *rig)
{
	replay_expect(rlv_sampler_scan_start(rig->sampler, false, SECOND), 0, NULL);
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
static int next(struct rig *rig, struct seen *seen, int64_t timeout_ns)
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

static void finish(struct rig *rig, struct seen *seen)
{
	int rc;

	while ((rc = next(rig, seen, SECOND)) == 0)
		;
	replay_expect(rc, -ENODATA, "rlv_sampler_scan_start");
}

static void scan_all(struct rig *rig, struct seen *seen)
{
	seen->n = seen->batches = 0;
	start(rig);
	finish(rig, seen);
}

/* Some steps, an episode that is truncated, and some more. */
static void append_some(struct rig *rig, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		replay_append_plain(&rig->nx.fx, rig->writer, 0, 70);
		replay_append_episode(&rig->nx.fx, rig->writer, 0, 23, RLV_TRUNCATED, true);
	}
}

/* Fails unless the scan saw each item of stream 0 from row `from` on, once, in their order. */
static void expect_in_order(const struct rig *rig, const struct seen *seen, size_t from)
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
	struct rig *rig = open_rig(&three_step, reach, nodes);
	static struct seen seen;

	append_some(rig, 20);
	scan_all(rig, &seen);
	expect_in_order(rig, &seen, 0);
	assert_int_equal(seen.batches, (seen.n + BATCH - 1) / BATCH);
	close_rig(rig);
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

int main(void)
{
	return test_run(NULL, NULL);
}
