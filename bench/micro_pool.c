/*
 * Time for memory of a device pool to go from one job to another in trusted mode: one frees a tensor of an
 * extent, the other allocates one. Both jobs are in this process, on the host backend; with a broker there is
 * a message for each side.
 */
#include <stdio.h>

#include "base/error.h"
#include "base/stats.h"
#include "bench/harness/micro.h"
#include "device/host/backend_host.h"
#include "device/pool.h"

#define EXTENT ((uint64_t)2 << 20)
#define HANDOVERS 10000u /* per window */

static struct backend *device;
static struct pool *pool;
static uint32_t jobs[2], streams[2];

static int pool_begin(void)
{
	const struct backend_host_opts host = { .device_bytes = EXTENT };
	static const char *const names[] = { "one", "two" };
	struct pool_opts opts = { .extent_bytes = EXTENT };
	int ret = backend_host_open(&host, &device);

	opts.backend = device;
	if (ret == 0)
		ret = pool_open(&opts, &pool);
	for (int i = 0; i < 2 && ret == 0; i++) {
		ret = pool_attach(pool, &(struct pool_job){ .name = names[i] }, &jobs[i]);
		if (ret == 0)
			ret = pool_stream(pool, jobs[i], NULL, &streams[i]);
	}
	return ret;
}

static int run_window(struct micro_case *c)
{
	struct pool_stats before, after;
	uint64_t start = time_wall_ns(), va;
	int ret = 0;

	pool_stats(pool, &before);
	for (uint32_t i = 0; i < HANDOVERS && ret == 0; i++) {
		const struct pool_tensor tensor = { .job = jobs[i % 2],
						    .stream = streams[i % 2],
						    .class = TENSOR_ITERATION,
						    .bytes = EXTENT };

		ret = pool_alloc(pool, &tensor, &va);
		if (ret == 0)
			ret = pool_free(pool, tensor.job, va);
		backend_host_advance(device, 0);
	}
	pool_stats(pool, &after);
	if (ret == 0 && after.handovers - before.handovers + 1 < HANDOVERS)
		ret = error_set(-1, "%llu hand-overs",
				(unsigned long long)(after.handovers - before.handovers));
	if (ret) {
		fprintf(stderr, "micro_pool: %s\n", error_last());
		return ret;
	}
	series_add(&c->result.series, (double)(time_wall_ns() - start) / 1e3 / HANDOVERS);
	return 0;
}

int main(int argc, char **argv)
{
	static struct micro b = {
		.name = "micro_pool",
		.help = "The time for an extent to go from one job to another in trusted mode.",
	};
	const struct micro_case handover = { .run = run_window,
					     .result = { .metric = "handover_us", .unit = "us" } };
	int status;

	if (!micro_init(&b, argc, argv, &status))
		return status;
	if (pool_begin()) {
		fprintf(stderr, "micro_pool: %s\n", error_last());
		return 1;
	}
	micro_add(&b, &handover);
	return micro_finish(&b, micro_run(&b, "pool") == 0);
}
