/*
 * How far a sample is from the limit of its transport. Windows of five kinds alternate: us of a READ of 64 bytes and
 * MB/s of long READs between two bare processes, us of a sample, and what that is in limits:
 *
 *   limit = round trips of a sample * us of a READ + bytes of a sample / MB/s
 *
 * The bare processes are on one host and use its loopback, so let the nodes of the store be there, too, with their
 * sockets out of reach (bench/README.md). Reached by a mapping, a sample has no round trips.
 */
#include <relive/relive.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/harness/bare.h"
#include "bench/harness/micro.h"

#include "base/bits.h"
#include "base/stats.h"

#define BATCH 256u
#define FRAME_BYTES 7056u
#define FILL_STEPS 256u
#define CALLS 4096u /* of a window, at most */
#define WINDOW_NS \
	50000000 /* short, so that what disturbs one disturbs those that it is compared with */
#define TIMEOUT_NS INT64_C(10000000000)

/* A table and a sampler of it. */
struct limit_load {
	const char *name;
	bool atari;
	uint32_t ahead; /* batches */
	uint64_t capacity;
	struct rlv_table *table;
	struct rlv_sampler *sampler;
	double sample_us; /* in its last window */
};

static struct limit_load loads[] = {
	{ .name = "small", .capacity = 1 << 20 },
	{ .name = "small", .ahead = 4 },
	{ .name = "atari", .capacity = 1 << 15, .atari = true },
	{ .name = "atari", .ahead = 2, .atari = true },
};

static struct bare bare;
static double read_us, read_mbps; /* in their last windows */

static int limit_said(int ret, const char *what)
{
	if (ret)
		fprintf(stderr, "micro_limit: %s: %s (%s)\n", what, rlv_last_error(),
			rlv_error_name(ret));
	return ret;
}

/* -------- tables -------- */

static int fill_table(const struct limit_load *load, uint64_t seed)
{
	static uint8_t values[FILL_STEPS * FRAME_BYTES];
	int32_t actions[FILL_STEPS] = { 0 };
	float rewards[FILL_STEPS] = { 0 };
	const void *columns[] = { values, actions, rewards };
	struct rlv_steps steps = RLV_STEPS_INIT;
	struct rlv_writer *writer;
	int ret;

	steps.n = FILL_STEPS;
	steps.columns = columns;
	ret = limit_said(rlv_writer_open(load->table, NULL, &writer), "open a writer");
	for (uint64_t done = 0; ret == 0 && done < load->capacity; done += FILL_STEPS) {
		for (size_t i = 0; load->atari && i < sizeof(values); i += 64)
			values[i] = (uint8_t)(seed + done + i);
		ret = limit_said(rlv_writer_append(writer, 0, &steps, NULL), "append");
	}
	return limit_said(rlv_writer_close(&writer), "close the writer") ? -1 : ret;
}

static int open_table(struct limit_load *load, struct rlv_store *store, uint64_t seed)
{
	const struct rlv_column columns[] = {
		load->atari ? (struct rlv_column){ "obs", RLV_U8, RLV_OBS, 2, { 84, 84 } }
			    : (struct rlv_column){ "obs", RLV_F32, RLV_OBS, 1, { 4 } },
		{ "action", RLV_I32, RLV_PLAIN, 0, { 0 } },
		{ "reward", RLV_F32, RLV_REWARD, 0, { 0 } },
	};
	const struct rlv_view view = { .stack = load->atari ? 4 : 1 };
	struct rlv_table_opts opts = RLV_TABLE_OPTS_INIT;
	char name[32];
	int ret;

	(void)snprintf(name, sizeof(name), "limit_%s", load->name);
	if (load->capacity == 0) /* the table of the load before it */
		return limit_said(rlv_table_open(store, name, &load->table), "open a table");
	opts.n_columns = ARRAY_LEN(columns);
	opts.columns = columns;
	opts.capacity = load->capacity;
	opts.views = &view;
	opts.n_views = 1;
	opts.max_writers = 2;
	ret = limit_said(rlv_table_create(store, name, &opts, &load->table), "create a table");
	return ret ? ret : fill_table(load, seed);
}

static int open_load(const struct micro *b, struct rlv_store *store, struct limit_load *load)
{
	struct rlv_sampler_opts opts = RLV_SAMPLER_OPTS_INIT;
	int ret = open_table(load, store, b->seed);

	opts.batch_size = BATCH;
	opts.prefetch = load->ahead;
	opts.seed = b->seed;
	return ret ? ret
		   : limit_said(rlv_sampler_open(load->table, &opts, &load->sampler),
				"open a sampler");
}

/* -------- windows -------- */

static int run_read(struct micro_case *at)
{
	static const struct bare_calls one = { BARE_READS, 1, 64, WINDOW_NS };
	static const struct bare_calls many = { BARE_READS, BARE_LONG_READS, BARE_LONG_BYTES,
						WINDOW_NS };
	bool is_rate = at->result.higher;
	struct bare_window window;
	int ret = bare_measure(&bare, is_rate ? &many : &one, &window);

	if (ret)
		return ret;
	*(is_rate ? &read_mbps : &read_us) = is_rate ? window.mbps : window.median_us;
	series_add(&at->result.series, is_rate ? window.mbps : window.median_us);
	return 0;
}

static struct rlv_stats stats_of(struct rlv_sampler *sampler)
{
	struct rlv_stats stats = { .size = sizeof(stats) };

	if (rlv_sampler_stats(sampler, &stats))
		memset(&stats, 0, sizeof(stats));
	return stats;
}

/* The median of blocking calls; the mean of those with batches ahead. */
static int run_sample(struct micro_case *at)
{
	static double calls_us[CALLS];
	struct limit_load *load = at->ctx;
	uint64_t start = time_wall_ns(), spent = 0, last;
	size_t n = 0;

	while (n < CALLS && spent < WINDOW_NS) {
		const struct rlv_batch *batch;
		int ret = limit_said(rlv_sampler_sample(load->sampler, BATCH, TIMEOUT_NS, &batch),
				     "sample");

		if (ret)
			return ret;
		rlv_batch_release(load->sampler, batch);
		last = spent;
		spent = time_wall_ns() - start;
		calls_us[n++] = (double)(spent - last) / 1e3;
	}
	load->sample_us = load->ahead ? (double)spent / 1e3 / (double)n : stats_median(calls_us, n);
	series_add(&at->result.series, load->sample_us);
	return 0;
}

static int run_ratio(struct micro_case *at)
{
	const struct limit_load *load = at->ctx;
	struct rlv_stats stats = stats_of(load->sampler);
	double calls = (double)max_u64(stats.calls, 1);
	double limit = (double)stats.phases / calls * read_us +
		       (double)stats.read_bytes / calls / read_mbps;

	at->result.params[2].real = (double)stats.phases / calls;
	at->result.params[3].number = (uint64_t)((double)stats.read_bytes / calls);
	series_add(&at->result.series, load->sample_us / limit);
	return 0;
}

static bool add_case(struct micro *b, const char *metric, int (*run)(struct micro_case *at),
		     struct limit_load *load)
{
	bool is_ratio = run == run_ratio, is_rate = run == run_read && strstr(metric, "mbps");
	struct micro_case c = { .run = run,
				.ctx = load,
				.result = { .metric = metric,
					    .unit = is_ratio  ? "limits"
						    : is_rate ? "MB/s"
							      : "us",
					    .higher = is_rate } };

	if (load) {
		c.result.params[0] = (struct param){ .key = "load", .text = load->name };
		c.result.params[1] = (struct param){ .key = "ahead", .number = load->ahead };
	}
	if (is_ratio) {
		c.result.params[2] = (struct param){ .key = "round_trips", .kind = PARAM_REAL };
		c.result.params[3].key = "bytes";
	}
	return micro_add(b, &c);
}

/* -------- the program -------- */

static int open_all(struct micro *b, struct rlv_store *store)
{
	int ret = 0;

	(void)add_case(b, "read_us", run_read, NULL);
	(void)add_case(b, "read_mbps", run_read, NULL);
	for (struct limit_load *load = loads; ret == 0 && load < loads + ARRAY_LEN(loads); load++) {
		ret = open_load(b, store, load);
		(void)add_case(b, "sample_us", run_sample, load);
		(void)add_case(b, "ratio", run_ratio, load);
	}
	return ret;
}

int main(int argc, char **argv)
{
	static struct micro b = {
		.name = "micro_limit",
		.help = "Measures samples of 256 of a store that is reached over the ofi transport, beside "
			"the\nlimit of the transport: round trips at the time of a READ, and bytes at "
			"the rate of\nlong READs, between two bare processes. Makes tables limit_small "
			"and limit_atari.",
		.store = "",
	};
	struct rlv_store *store = NULL;
	int status, ret;

	if (!micro_init(&b, argc, argv, &status))
		return status;
	if (!*b.store) { /* make bench */
		fprintf(stderr, "micro_limit: left out: give --store URI, as in bench/README.md\n");
		return EXIT_SUCCESS;
	}
	ret = bare_open(&bare, "ofi");
	if (ret == 0)
		ret = limit_said(rlv_store_open(b.store, NULL, &store), "open the store");
	if (ret == 0)
		ret = open_all(&b, store);
	if (ret == 0)
		ret = micro_run(&b, "windows");
	for (struct limit_load *load = loads; load < loads + ARRAY_LEN(loads); load++) {
		ret = limit_said(rlv_sampler_close(&load->sampler), "close a sampler") ? -1 : ret;
		ret = limit_said(rlv_table_close(&load->table), "close a table") ? -1 : ret;
	}
	ret = limit_said(rlv_store_close(&store), "close the store") ? -1 : ret;
	bare_close(&bare);
	return micro_finish(&b, ret == 0);
}
