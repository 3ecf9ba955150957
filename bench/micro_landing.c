/*
 * Batches that land in a device pool of the host's memory, beside batches in memory of the sampler itself: how
 * many a second, for small rows and for frames. The broker is one of the bench's own. On a machine with a CUDA
 * device, also those that land there by a copy of page-locked memory, with importance weights of the device or of
 * the host, and by gathers of the device: with --graphs beside gathers whose launches are recorded once for each
 * buffer, as a CUDA graph.
 */
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "relive/landing.h"

#include "base/bits.h"
#include "base/os/clock.h"
#include "bench/harness/micro.h"
#include "program/shape.h"
#include "program/spawn.h"

#define BATCH 256u
#define FILL 512u /* rows of an append */
#define UP_NS (10 * CLOCK_NS_PER_S)
#define POOL "bench"

/* Where batches are, and how they come there. */
enum way { SAMPLER, POOL_OF_HOST, CUDA_PINNED, CUDA_WEIGHTS, CUDA_GATHER, CUDA_GRAPHS, N_WAYS };
static const char *const ways[N_WAYS] = { "sampler",      "pool",
					  "cuda, pinned", "cuda, pinned, weights of the host",
					  "cuda, gather", "cuda, gather by graphs" };

static struct rows {
	const char *name, *shape; /* shape NULL: its name is one */
	uint32_t stack;
	uint64_t steps;
	enum rlv_layout layout;
	struct rlv_table *table;
	bool for_graphs;                      /* a launch for each of its four sizes of values */
	struct rlv_sampler *samplers[N_WAYS]; /* NULL: this machine has no such way */
} kinds[] = {
	{ .name = "cartpole", .stack = 1, .steps = 1 << 17, .layout = RLV_DENSE },
	{ .name = "atari", .stack = 4, .steps = 1 << 13, .layout = RLV_WINDOW },
	{ .name = "cameras",
	  .shape = "obs:u8[84,84],obs_left:u8[64,64],obs_right:u8[48,48],obs_touch:f32[256]",
	  .stack = 1,
	  .steps = 1 << 13,
	  .layout = RLV_DENSE,
	  .for_graphs = true },
};

static bool with_graphs;
static uint32_t window_ms = 400;

static struct rlv_store *store;
static struct rlv_pool *pool;
static struct rlv_landing *landings[N_WAYS];

static int failed(int ret, const char *what)
{
	if (ret)
		fprintf(stderr, "micro_landing: %s: %s\n", what, rlv_last_error());
	return ret;
}

static int fill_table(struct rows *rows, const struct shape *shape)
{
	size_t bytes = shape->row_bytes * FILL;
	uint8_t *zeros = calloc(1, bytes);
	const void *columns[RLV_MAX_COLUMNS];
	struct rlv_steps steps = RLV_STEPS_INIT;
	struct rlv_writer *writer = NULL;
	int ret = zeros ? rlv_writer_open(rows->table, NULL, &writer) : -1, closed;

	for (uint32_t c = 0; c < shape->n_columns; c++)
		columns[c] = zeros;
	steps.n = FILL;
	steps.columns = columns;
	for (uint64_t n = 0; n < rows->steps && ret == 0; n += FILL)
		ret = rlv_writer_append(writer, 0, &steps, NULL);
	closed = rlv_writer_close(&writer);
	free(zeros);
	return failed(ret ? ret : closed, "fill a table");
}

static int open_rows(struct rows *rows)
{
	struct rlv_table_opts opts = RLV_TABLE_OPTS_INIT;
	struct rlv_view view = { .stack = rows->stack };
	static struct shape shape;
	int ret = shape_parse(rows->shape ? rows->shape : rows->name, &shape);

	opts.n_columns = shape.n_columns;
	opts.columns = shape.columns;
	opts.capacity = rows->steps;
	opts.views = &view;
	opts.n_views = 1;
	if (ret == 0)
		ret = rlv_table_create(store, rows->name, &opts, &rows->table);
	if (ret)
		return failed(ret, "create a table");
	ret = fill_table(rows, &shape);
	for (int way = 0; way < N_WAYS && ret == 0; way++) {
		struct rlv_sampler_opts sampler = RLV_SAMPLER_OPTS_INIT;

		if (way != SAMPLER && !landings[way])
			continue;
		sampler.batch_size = BATCH;
		sampler.layout = rows->layout;
		sampler.seed = 1;
		sampler.dest = landings[way];
		ret = failed(rlv_sampler_open(rows->table, &sampler, &rows->samplers[way]),
			     "open a sampler");
	}
	return ret;
}

static int run_window(struct micro_case *c)
{
	struct rlv_sampler *sampler = c->ctx;
	uint64_t begin = time_wall_ns(), spent, n = 0;

	do {
		const struct rlv_batch *batch;
		int ret = rlv_sampler_sample(sampler, BATCH, UP_NS, &batch);

		if (ret)
			return failed(ret, "sample");
		rlv_batch_release(sampler, batch);
		n++;
		spent = time_wall_ns() - begin;
	} while (spent < window_ms * CLOCK_NS_PER_MS);
	series_add(&c->result.series, (double)n * 1e9 / (double)spent);
	return 0;
}

/* Starts the broker in a runtime directory of its own, which ends with this process, and joins its pool. */
static int open_pool(char dir[], pid_t *broker_out)
{
	const char *const argv[] = { "relive-poold", "--name",   POOL, "--device",
				     "host:256M",    "--extent", "2M", NULL };
	const struct spawn_daemon daemon = {
		.binary = argv[0], .argv = argv, .log_path = "/dev/null", .tied = true
	};
	uint64_t deadline = deadline_after(clock_monotonic(), UP_NS);
	struct rlv_pool_info info = RLV_POOL_INFO_INIT;
	struct rlv_landing_opts opts = RLV_LANDING_OPTS_INIT;
	int ret;

	if (!mkdtemp(dir) || setenv("RELIVE_RUNTIME_DIR", dir, 1) ||
	    spawn_daemon(&daemon, broker_out))
		return fprintf(stderr, "micro_landing: cannot start relive-poold\n"), -1;
	while (rlv_pool_status(POOL, &info) && !deadline_expired(clock_monotonic(), deadline))
		usleep(10000);
	ret = failed(rlv_pool_open(POOL, "learner", NULL, &pool), "join the pool");
	opts.pool = pool;
	return ret ? ret
		   : failed(rlv_landing_open(&opts, &landings[POOL_OF_HOST]), "open a landing");
}

/* On the first CUDA device, if there is one; for graphs there must be. */
static int open_cuda(void)
{
	static const uint32_t paths[N_WAYS] = { [CUDA_PINNED] = RLV_LANDING_PINNED,
						[CUDA_WEIGHTS] = RLV_LANDING_PINNED,
						[CUDA_GATHER] = RLV_LANDING_GATHER,
						[CUDA_GRAPHS] = RLV_LANDING_GATHER };
	int ret = 0;

	for (int way = CUDA_PINNED; way < (with_graphs ? N_WAYS : CUDA_GRAPHS) && ret == 0; way++) {
		struct rlv_landing_opts opts = RLV_LANDING_OPTS_INIT;

		opts.path = paths[way];
		opts.graph = way == CUDA_GRAPHS;
		opts.weights = way == CUDA_WEIGHTS ? RLV_LANDING_WEIGHTS_HOST : 0;
		ret = rlv_landing_open(&opts, &landings[way]);
		if ((ret == -ENOTSUP || ret == -ENODEV) && !with_graphs)
			return 0;
	}
	return failed(ret, "open a landing on cuda:0");
}

/* -EBADMSG: graphs were measured, but not launched. */
static int check_graphs(void)
{
	struct rlv_landing_info plain = RLV_LANDING_INFO_INIT, info = RLV_LANDING_INFO_INIT;
	int ret = with_graphs ? rlv_landing_info(landings[CUDA_GRAPHS], &info) : 0;

	if (ret == 0 && with_graphs)
		ret = rlv_landing_info(landings[CUDA_GATHER], &plain);
	if (ret == 0 && plain.gathered_bytes && !info.graph_launches) {
		fprintf(stderr, "micro_landing: no graph was launched\n");
		ret = -EBADMSG;
	}
	return ret;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	(void)remove(path);
	return 0;
}

static void close_all(void)
{
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
		for (int way = 0; way < N_WAYS; way++)
			(void)failed(rlv_sampler_close(&kinds[i].samplers[way]), "close a sampler");
		if (kinds[i].table)
			(void)failed(rlv_table_close(&kinds[i].table), "close a table");
	}
	for (int way = 0; way < N_WAYS; way++)
		(void)failed(rlv_landing_close(&landings[way]), "close a landing");
	(void)failed(rlv_pool_close(&pool), "leave the pool");
	(void)failed(rlv_store_close(&store), "close the store");
}

static int measure(struct micro *b)
{
	int ret = 0;

	for (size_t i = 0; i < ARRAY_LEN(kinds) && ret == 0; i++) {
		if (kinds[i].for_graphs && !with_graphs)
			continue;
		ret = open_rows(&kinds[i]);
		for (int way = 0; way < N_WAYS && ret == 0; way++) {
			const struct micro_case c = {
				.run = run_window,
				.ctx = kinds[i].samplers[way],
				.result = { .metric = "batches_per_s",
					    .unit = "1/s",
					    .higher = true,
					    .params = { { .key = "rows", .text = kinds[i].name },
							{ .key = "memory", .text = ways[way] } } },
			};

			if (c.ctx)
				micro_add(b, &c);
		}
		if (ret == 0)
			ret = micro_run(b, kinds[i].name);
	}
	return ret ? ret : check_graphs();
}

int main(int argc, char **argv)
{
	static const struct arg_option options[] = {
		{ "graphs", NULL, "gathers by CUDA graphs, too, and rows with four sizes of values",
		  &with_graphs, ARG_FLAG },
		{ "window-ms", "N", "length of a window (default 400)", &window_ms, ARG_COUNT32 },
	};
	static struct micro b = {
		.name = "micro_landing",
		.help = "Batches a second that land in a pool of the host's memory, or on a CUDA device where there "
			"is one, and the sampler's own rate.",
		.options = options,
		.n_options = ARRAY_LEN(options),
	};
	char dir[] = "/tmp/relive-XXXXXX";
	pid_t broker = 0;
	int status, ret;

	if (!micro_init(&b, argc, argv, &status))
		return status;
	ret = open_pool(dir, &broker);
	if (ret == 0)
		ret = open_cuda();
	if (ret == 0)
		ret = failed(rlv_store_open("embed:", NULL, &store), "open a store");
	if (ret == 0)
		ret = measure(&b);
	status = micro_finish(&b, ret == 0);
	close_all();
	spawn_stop(broker, UP_NS);
	(void)nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
	return status;
}
