/*
 * Shared memory is input: random words in whatever clients may write, between calls of a writer,
 * samplers and a rebuilder, in place and as over a wire. No call dies, hangs or answers with a code
 * that it does not have; no item that a block cannot have is handed over; and afterwards recovery
 * makes of whatever is there a shard without a problem.
 *
 * RLV_FUZZ_SECONDS: as long at least for each way (default: ROUNDS rounds). A round that fails is
 * repeated alone by the seed that it prints.
 */
#include "tests/support/fixture/nodes_fixture.h"
#include "tests/support/attack/noise.h"
#include "tests/support/test.h"

#include "ds/limiter/balance.h"
#include "ds/replay/settle.h"
#include "ds/replay/recover.h"
#include "ds/replay/shard_check.h"
#include "ds/part/slot.h"
#include "ds/sumtree/rebuild.h"

#include "transport/barrier.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define ROUNDS 24
#define STEPS 160
#define VIEWS 4u /* of a table, at most */
#define BATCH 24u
#define CLIENTS 12u
#define HANG_S 60 /* of a round: it takes less than one */

static const struct rlv_view spread[] = {
	{ .selector = RLV_PRIORITIZED, .stack = 4, .n_step = 3, .alpha = 0.6 },
	{ .selector = RLV_UNIFORM, .max_staleness = 100 },
	{ .selector = RLV_PRIORITIZED, .stack = 2, .max_times_sampled = 3, .alpha = 1 },
	{ .selector = RLV_UNIFORM, .stack = 8, .period = 4 },
};

static const struct rlv_view ordered[] = {
	{ .selector = RLV_FIFO, .n_step = 2 },
	{ .selector = RLV_LIFO, .stack = 8, .period = 4 },
	{ .selector = RLV_PRIORITIZED, .n_step = 3, .alpha = 0.6 },
};

/* A sampler of a consuming view: its limiter refuses both sides now and then. */
static const struct rlv_view queue[] = {
	{ .selector = RLV_FIFO,
	  .stack = 2,
	  .max_times_sampled = 1,
	  .limiter = { .min_size = 1, .samples_per_insert = 1, .min_diff = 0, .max_diff = 200 } },
	{ .selector = RLV_PRIORITIZED, .n_step = 3, .alpha = 1 },
};

static const struct table {
	const struct rlv_view *views;
	uint32_t n_views, shards;
} tables[] = { { spread, 4, 2 }, { spread, 4, 1 }, { ordered, 3, 1 }, { queue, 2, 1 } };

/* A stored next observation, longer than the bytes before the rows. */
#define COLUMNS 5u
static const struct rlv_column columns[COLUMNS] = {
	{ .name = "obs", .dtype = RLV_F32, .role = RLV_OBS, .ndim = 1, .shape = { 3 } },
	{ .name = "frame", .dtype = RLV_U8, .role = RLV_OBS, .ndim = 1, .shape = { 600 } },
	{ .name = "after", .dtype = RLV_U8, .role = RLV_NEXT, .ndim = 1, .shape = { 5000 } },
	{ .name = "reward", .dtype = RLV_F32, .role = RLV_REWARD },
	{ .name = "id", .dtype = RLV_U64 },
};

struct scene {
	struct nodes_fixture nx;
	struct rng rng;
	struct rlv_writer *writer;
	struct rlv_sampler *samplers[VIEWS];
	uint32_t n_views;
	uint32_t owner; /* the rebuilder's slot */
	uint8_t data[16][5000];
};

static struct scene sc;
static uint64_t written, calls, got[4096]; /* by -code */

static uint32_t below(uint32_t n)
{
	return (uint32_t)rng_uniform_u64(&sc.rng, n);
}

/* -------- noise -------- */

static void write_noise(uint32_t n)
{
	while (n--) {
		struct shard *shard = sc.nx.shards[below(sc.nx.n_shards)];
		enum noise_class class = (enum noise_class)below(NOISE_CLASSES);
		struct noise_place place;
		const struct rword64 *word;

		if (!noise_pick(&sc.rng, shard, class, &place))
			continue;
		word = (const void *)(place.region->base + place.off);
		rword64_announce((struct rword64 *)(uintptr_t)word,
				 noise_word(&sc.rng, &shard->desc, rword64_load_relaxed(word)));
		written++;
	}
}

/* -------- calls -------- */

/* Codes that a call may return when the memory was corrupted. */
static void expect(const char *call, int ret, const int *codes)
{
	calls++;
	got[-ret]++;
	for (uint32_t i = 0; ret && codes[i]; i++)
		if (codes[i] == ret)
			return;
	if (ret)
		fail_msg("%s: %s: %s", call, rlv_error_name(ret), rlv_last_error());
}

static const int append_codes[] = { -ETIMEDOUT, -EOWNERDEAD, 0 };
static const int sample_codes[] = { -ETIMEDOUT, -ENODATA, 0 };
static const int repair_codes[] = { -EAGAIN, -EBUSY, 0 };
static const int open_codes[] = { -ENOSPC, 0 }; /* slots that could not be given back */
static const int close_codes[] = { -ETIMEDOUT, -EOWNERDEAD, -EBUSY, 0 };
static const int no_codes[] = { 0 };

static void open_writer(void)
{
	struct rlv_writer_opts opts = RLV_WRITER_OPTS_INIT;

	opts.streams = 2;
	opts.timeout_ns = CLOCK_NS_PER_MS;
	expect("writer open", rlv_writer_open(sc.nx.fx.table, &opts, &sc.writer), open_codes);
}

static void open_sampler(uint32_t v)
{
	struct rlv_sampler_opts opts = RLV_SAMPLER_OPTS_INIT;

	opts.view = v;
	opts.batch_size = BATCH;
	opts.seed = 1 + rng_next_u64(&sc.rng) % 1000;
	opts.layout = below(2) ? RLV_WINDOW : RLV_DENSE;
	opts.verify = below(4) ? RLV_VERIFY_LEAF : RLV_VERIFY_CRC;
	opts.prefetch = below(3) ? 0 : 2;
	opts.short_batch = below(2);
	expect("sampler open", rlv_sampler_open(sc.nx.fx.table, &opts, &sc.samplers[v]),
	       open_codes);
}

static void append(void)
{
	struct rlv_steps steps = RLV_STEPS_INIT;
	const void *data[COLUMNS] = { sc.data, sc.data, sc.data, sc.data, sc.data };
	uint16_t flags[16];
	int ret;

	steps.n = 1 + below(16);
	steps.columns = data;
	steps.flags = flags;
	steps.policy_version = below(3);
	for (uint32_t i = 0; i < steps.n; i++)
		flags[i] = below(8) ? 0 : below(2) ? RLV_TERMINATED : RLV_TRUNCATED;
	if (!sc.writer)
		open_writer();
	if (!sc.writer)
		return;
	ret = rlv_writer_append(sc.writer, below(2), &steps, NULL);
	expect("append", ret, append_codes);
	if (ret == -EOWNERDEAD || below(40) == 0)
		expect("writer close", rlv_writer_close(&sc.writer), close_codes);
}

/* Whatever its bytes, the item must be one that a block can have. */
static void check_batch(const struct rlv_batch *batch, uint32_t v)
{
	const struct table_desc *desc = &sc.nx.desc;
	const uint32_t *steps = replay_array(batch, "steps")->data;

	assert_true(batch->n >= 1 && batch->n <= BATCH);
	assert_true(batch->table_size >= 0);
	for (uint32_t i = 0; i < batch->n; i++) {
		uint32_t slot = key_slot(batch->key[i]);

		assert_true(slot < desc->slots);
		assert_true(key_shard(batch->key[i]) < sc.nx.n_shards);
		assert_true(slot % desc->block + 1 >= desc->views[v].window);
		assert_true(key_gen(batch->key[i]) != 0);
		assert_true(steps[i] >= 1 && steps[i] <= desc->views[v].n_step);
	}
}

static void update(struct rlv_sampler *sampler, const struct rlv_batch *batch)
{
	float td[BATCH];

	for (uint32_t i = 0; i < batch->n; i++)
		td[i] = (float)below(100) / 10;
	expect("update", rlv_sampler_update(sampler, batch->key, td, batch->n, NULL), no_codes);
}

static void sample(uint32_t v)
{
	const struct rlv_batch *batch;
	int64_t timeout_ns = below(8) ? 0 : CLOCK_NS_PER_MS;
	int ret;

	if (!sc.samplers[v])
		open_sampler(v);
	if (!sc.samplers[v])
		return;
	ret = rlv_sampler_sample(sc.samplers[v], 1 + below(BATCH), timeout_ns, &batch);
	expect("sample", ret, sample_codes);
	if (ret == 0) {
		check_batch(batch, v);
		if (sc.nx.desc.views[v].selector == SELECT_PRIORITIZED)
			update(sc.samplers[v], batch);
		rlv_batch_release(sc.samplers[v], batch);
	}
	if (below(40) == 0)
		expect("sampler close", rlv_sampler_close(&sc.samplers[v]), close_codes);
}

/* Settles and rebuilds, as the server does. */
static void repair(void)
{
	struct shard *shards[NODES_SHARDS];
	struct shard *shard = sc.nx.shards[below(sc.nx.n_shards)];
	const struct rebuild_opts opts = { .owner = sc.owner };
	struct rebuild_report report = { 0 };
	uint32_t v = below(sc.n_views);
	int64_t moved;

	expect("rebuild", sumtree_rebuild_pass(shard, &opts, &report), repair_codes);
	memcpy(shards, sc.nx.shards, sizeof(shards));
	if (balance_applies(&sc.nx.desc.views[v]))
		expect("balance", balance_view(shards, sc.nx.n_shards, v, &moved), repair_codes);
}

static void look(void)
{
	struct rlv_table_info info = { .size = sizeof(info) };
	struct rlv_verify_report report = { .size = sizeof(report) };

	expect("info", rlv_table_info(sc.nx.fx.table, &info), no_codes);
	expect("verify", rlv_table_verify(sc.nx.fx.table, &report), no_codes);
}

static void any_call(void)
{
	uint32_t what = below(16);

	if (what < 5)
		append();
	else if (what < 13)
		sample(below(sc.n_views));
	else if (what < 15)
		repair();
	else
		look();
}

/* -------- a round -------- */

static void open_scene(enum nodes_reach reach, uint64_t seed)
{
	const struct table *table;
	struct nodes_opts opts = { .nodes = 1, .reach = reach };

	memset(&sc, 0, sizeof(sc));
	rng_seed(&sc.rng, seed, 0);
	table = &tables[below(sizeof(tables) / sizeof(tables[0]))];
	sc.n_views = table->n_views;
	opts.table = (struct rlv_table_opts){ .columns = columns,
					      .n_columns = COLUMNS,
					      .capacity = 600,
					      .block = 24,
					      .shards = table->shards,
					      .max_writers = 2,
					      .max_clients = CLIENTS,
					      .row_crc = 1,
					      .views = table->views,
					      .n_views = sc.n_views };
	nodes_open(&sc.nx, &opts);
	sc.owner = CLIENTS;
	for (uint32_t s = 0; s < sc.nx.n_shards; s++)
		assert_int_equal(slot_take(&sc.nx.shards[s]->part, sc.owner - 1,
					   &(struct process_id){ .pid = 1 }, 1),
				 0);
}

static void recover(struct shard *shard);

/*
 * Generations that contradict each other: recovery cannot know which of them are noise. Without
 * leaves there is nothing left that it would have to believe.
 */
static void forget_leaves(struct shard *shard)
{
	for (uint32_t v = 0; v < shard->desc.n_views; v++)
		for (uint32_t slot = 0; slot < shard->desc.slots; slot++)
			assert_int_equal(transport_store(shard->tree,
							 shard_leaf_off(shard, v, slot),
							 &(uint64_t){ 0 }, 8),
					 0);
	recover(shard);
}

/*
 * Recovers the shard as the next opening of a pool does: it has no problem then, whatever it
 * contained.
 */
static void recover(struct shard *shard)
{
	const struct recover_opts scan = { .scan_rows = true };
	/* Noise counts on any shard. */
	const struct shard_check_opts all = { .crc = true,
					      .control = shard->desc.shard,
					      .limit_slack = UINT64_MAX / 2 };
	const uint64_t head = 1u << 20;
	struct shard_check_report report;
	int ret = recover_shard(shard, &scan, NULL);

	if (ret == -EPROTO) { /* the head is no ticket, which is refused */
		uint64_t off = shard_word_off(shard, offsetof(struct shard_words, head));

		assert_int_equal(transport_store(shard->tree, off, &head, sizeof(head)), 0);
		ret = recover_shard(shard, &scan, NULL);
	}
	expect("recover", ret, no_codes);
	expect("check", shard_check(shard, &all, &report), no_codes);
	if (report.problems != report.wrong_leaves)
		fail_msg("after recovery: %s", report.text[0]);
	if (report.problems)
		forget_leaves(shard);
}

static void close_scene(void)
{
	if (sc.writer)
		expect("writer close", rlv_writer_close(&sc.writer), close_codes);
	for (uint32_t v = 0; v < sc.n_views; v++)
		if (sc.samplers[v])
			expect("sampler close", rlv_sampler_close(&sc.samplers[v]), close_codes);
	for (uint32_t s = 0; s < sc.nx.n_shards; s++)
		recover(sc.nx.shards[s]);
	nodes_close(&sc.nx);
}

static void one_round(enum nodes_reach reach, uint64_t seed)
{
	uint32_t quiet = 40;

	alarm(HANG_S);
	open_scene(reach, seed);
	for (uint32_t i = 0; i < quiet; i++)
		any_call();
	for (uint32_t i = 0; i < STEPS; i++) {
		write_noise(1 + below(i % 8 ? 2 : 40));
		any_call();
	}
	close_scene();
	alarm(0);
}

static void print_codes(const char *name)
{
	print_message("\n%s: %llu words, %llu calls:", name, (unsigned long long)written,
		      (unsigned long long)calls);
	for (uint32_t i = 0; i < sizeof(got) / sizeof(got[0]); i++)
		if (got[i])
			print_message(" %s %llu", i ? rlv_error_name(-(int)i) : "ok",
				      (unsigned long long)got[i]);
	print_message("\n");
}

static void run(const char *name, enum nodes_reach reach)
{
	const char *text = getenv("RLV_FUZZ_SECONDS");
	uint64_t seconds = text ? strtoull(text, NULL, 10) : 0;
	uint64_t seed = test_seed(name, 1), began = clock_now_ns(clock_monotonic()), took = 0;
	uint64_t rounds = getenv("RLV_TEST_SEED") ? 1 : ROUNDS;

	written = calls = 0;
	memset(got, 0, sizeof(got));
	for (uint64_t i = 0; i < rounds || (rounds > 1 && took < seconds * CLOCK_NS_PER_S); i++) {
		print_message("%llu ", (unsigned long long)(seed + i)); /* the last one failed */
		one_round(reach, seed + i);
		took = clock_now_ns(clock_monotonic()) - began;
	}
	print_codes(name);
}

TEST(noise__in_place)
{
	run("noise__in_place", NODES_IN_PLACE);
}

TEST(noise__over_a_wire)
{
	run("noise__over_a_wire", NODES_WIRE);
}

int main(void)
{
	return test_run(NULL, NULL);
}
