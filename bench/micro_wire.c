/*
 * Limits of the network under a table: B/s of Atari windows, READs/s of small items, and the
 * latency of a sample of one item: blocking (median call, which excludes stalls of the host) and
 * prefetched (mean). Each result has the exact number of round trips and operations, to compare
 * with perftest on the same network.
 */
#include <relive/relive.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/harness/micro.h"

#include "base/mem/alloc.h"
#include "base/bits.h"
#include "base/stats.h"

#define FRAME_BYTES 7056u
#define FILL_STEPS 64u
#define CALLS 65536u /* calls per window with a recorded time */

struct wire_case {
	const char *name;
	const char *unit;
	bool higher, atari;
	uint32_t batch;
	uint32_t ahead; /* number of prefetched batches */
	enum { READ_MBPS, READS_PER_S, MEDIAN_US, MEAN_US } value; /* result of a window */
	struct rlv_table *table;
	struct rlv_sampler *sampler;
};

static struct wire_case cases[] = {
	{ "atari_read_mbps", "MB/s", true, true, 32, 0, READ_MBPS, NULL, NULL },
	{ "small_reads_per_s", "/s", true, false, 256, 0, READS_PER_S, NULL, NULL },
	{ "sample_one_us", "us", false, false, 1, 0, MEDIAN_US, NULL, NULL },
	{ "sample_one_ahead_us", "us", false, false, 1, 4, MEAN_US, NULL, NULL },
};

static int say_failure(int ret, const char *what)
{
	if (ret)
		fprintf(stderr, "micro_wire: %s: %s (%s)\n", what, rlv_last_error(),
			rlv_error_name(ret));
	return ret;
}

/* -------- tables -------- */

static int fill_table(uint64_t seed, struct wire_case *c, uint64_t capacity)
{
	static uint8_t frames[FILL_STEPS * FRAME_BYTES];
	int32_t actions[FILL_STEPS] = { 0 };
	float rewards[FILL_STEPS] = { 0 };
	const void *columns[] = { frames, actions, rewards };
	struct rlv_steps steps = RLV_STEPS_INIT;
	struct rlv_table_info info = { .size = sizeof(info) };
	struct rlv_writer *writer;
	int ret = say_failure(rlv_table_info(c->table, &info), "ask for the table");

	if (ret || info.views[0].items >= (int64_t)capacity / 2)
		return ret;
	steps.n = FILL_STEPS;
	steps.columns = columns;
	ret = say_failure(rlv_writer_open(c->table, NULL, &writer), "open a writer");
	for (uint64_t done = 0; ret == 0 && done < capacity; done += FILL_STEPS) {
		for (size_t i = 0; i < sizeof(frames); i += c->atari ? 64 : FRAME_BYTES)
			frames[i] = (uint8_t)(seed + done + i);
		ret = say_failure(rlv_writer_append(writer, 0, &steps, NULL), "append");
	}
	return say_failure(rlv_writer_close(&writer), "close the writer") ? -1 : ret;
}

static int open_case(const struct micro *b, struct rlv_store *store, struct wire_case *c)
{
	const struct rlv_column columns[] = {
		c->atari ? (struct rlv_column){ "obs", RLV_U8, RLV_OBS, 2, { 84, 84 } }
			 : (struct rlv_column){ "obs", RLV_F32, RLV_OBS, 1, { 4 } },
		{ "action", RLV_I32, RLV_PLAIN, 0, { 0 } },
		{ "reward", RLV_F32, RLV_REWARD, 0, { 0 } },
	};
	const struct rlv_view view = { .stack = c->atari ? 4 : 1 };
	struct rlv_table_opts opts = RLV_TABLE_OPTS_INIT;
	struct rlv_sampler_opts sampler_opts = RLV_SAMPLER_OPTS_INIT;
	int ret;

	opts.n_columns = ARRAY_LEN(columns);
	opts.columns = columns;
	opts.capacity = c->atari ? 1024 : b->full ? 1 << 20 : 16384;
	opts.views = &view;
	opts.n_views = 1;
	opts.max_writers = 2;
	sampler_opts.batch_size = c->batch;
	sampler_opts.prefetch = c->ahead;
	sampler_opts.seed = b->seed;
	ret = say_failure(
		rlv_table_create(store, c->atari ? "wire_atari" : "wire_small", &opts, &c->table),
		"create a table");
	if (ret == 0)
		ret = fill_table(b->seed, c, opts.capacity);
	return ret ? ret
		   : say_failure(rlv_sampler_open(c->table, &sampler_opts, &c->sampler),
				 "open a sampler");
}

/* -------- windows -------- */

static struct rlv_stats stats_of(struct rlv_sampler *sampler)
{
	struct rlv_stats stats = { .size = sizeof(stats) };

	if (rlv_sampler_stats(sampler, &stats))
		memset(&stats, 0, sizeof(stats));
	return stats;
}

static int run_case(struct micro_case *at)
{
	static double calls_us[CALLS];
	struct wire_case *c = at->ctx;
	struct rlv_stats before = stats_of(c->sampler), delta;
	uint64_t start = time_wall_ns(), spent = 0, last, calls;
	double seconds, value = 0;
	size_t n = 0;

	do {
		const struct rlv_batch *batch;
		int ret = say_failure(rlv_sampler_sample(c->sampler, c->batch, 10000000000, &batch),
				      "sample");

		if (ret)
			return ret;
		rlv_batch_release(c->sampler, batch);
		last = spent;
		spent = time_wall_ns() - start;
		calls_us[n++ % CALLS] = (double)(spent - last) / 1e3;
	} while (spent < 300000000);
	seconds = (double)spent / 1e9;
	delta = stats_of(c->sampler);
	calls = delta.calls ? delta.calls : 1;
	/* Per call, over all windows so far. */
	at->result.params[3].number = (delta.phases + calls / 2) / calls;
	at->result.params[4].number = (delta.reads + calls / 2) / calls;
	at->result.params[5].number = (delta.read_bytes + calls / 2) / calls;
	switch (c->value) {
	case READ_MBPS:
		value = (double)(delta.read_bytes - before.read_bytes) / seconds / 1e6;
		break;
	case READS_PER_S:
		value = (double)(delta.reads - before.reads) / seconds;
		break;
	case MEAN_US:
		value = seconds * 1e6 / (double)(delta.calls - before.calls);
		break;
	case MEDIAN_US:
		value = stats_median(calls_us, n < CALLS ? n : CALLS);
		break;
	}
	series_add(&at->result.series, value);
	return 0;
}

int main(int argc, char **argv)
{
	static struct micro b = {
		.name = "micro_wire",
		.help = "Measures the network under a table: MB/s of Atari windows, READs a "
			"second of small\nitems, us of a sample of one item, alone and drawn "
			"ahead. Tables wire_atari and\nwire_small are made and filled where they "
			"are missing.",
		.store = "embed:",
	};
	struct rlv_store *store;
	int status, ret = 0;

	if (!micro_init(&b, argc, argv, &status))
		return status;
	if (say_failure(rlv_store_open(b.store, NULL, &store), "open the store"))
		return EXIT_FAILURE;
	for (struct wire_case *c = cases; ret == 0 && c < cases + ARRAY_LEN(cases); c++) {
		const struct micro_case shown = {
			.run = run_case,
			.ctx = c,
			.result = { .metric = c->name,
				    .unit = c->unit,
				    .higher = c->higher,
				    .params = { { .key = "store", .text = b.store },
						{ .key = "batch", .number = c->batch },
						{ .key = "ahead", .number = c->ahead },
						{ .key = "round_trips" },
						{ .key = "reads" },
						{ .key = "read_bytes" } } }
		};

		if (micro_add(&b, &shown))
			ret = open_case(&b, store, c);
	}
	if (ret == 0)
		ret = micro_run(&b, "windows");
	for (struct wire_case *c = cases; c < cases + ARRAY_LEN(cases); c++) {
		ret = say_failure(rlv_sampler_close(&c->sampler), "close a sampler") ? -1 : ret;
		ret = say_failure(rlv_table_close(&c->table), "close a table") ? -1 : ret;
	}
	ret = say_failure(rlv_store_close(&store), "close the store") ? -1 : ret;
	return micro_finish(&b, ret == 0);
}
