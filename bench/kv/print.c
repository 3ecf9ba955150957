/* print.c - the figures of a case, as JSON lines or rows. */
#include "bench/kv/kv.h"

#include <stdio.h>

#include "bench/harness/result.h"
#include "bench/kv/batch.h"

static const struct {
	const char *name, *unit, *role;
	bool higher;
} metrics[KV_METRICS] = {
	[KV_OPS_PER_S] = { "ops_per_s", "1/s", "client", true },
	[KV_P50] = { "p50_us", "us", "client", false },
	[KV_P99] = { "p99_us", "us", "client", false },
	[KV_ROUND_TRIPS] = { "round_trips_per_op", "1", "client", false },
	[KV_BYTES] = { "bytes_per_op", "B", "client", false },
	[KV_CPU] = { "cpu_us_per_kop", "us", "client", false },
	[KV_SERVER] = { "ms_calls_per_kop", "1", "client", false },
	[KV_SERVER_CPU] = { "cpu_us_per_kop", "us", "server", false },
};

static void print_row(const struct kv_case *c, enum kv_op op)
{
	struct spread ops = series_spread(&c->series[op][KV_OPS_PER_S], true);
	struct spread p99 = series_spread(&c->series[op][KV_P99], false);
	struct spread cpu = series_spread(&c->series[op][KV_CPU], false);
	struct spread server = series_spread(&c->series[op][KV_SERVER_CPU], false);

	printf("%-41s %-4s %12.0f %12.0f %10.2f %8.0f %8.0f\n", c->label, kv_op_names[op], ops.best,
	       ops.median, p99.median, cpu.median, server.median);
}

void kv_case_print(const struct kv_case *c, struct json *json)
{
	const char workload[2] = { c->config.workload, 0 };

	for (int op = 0; op < KV_OPS; op++) {
		if (!c->series[op][KV_OPS_PER_S].n)
			continue;
		if (!json)
			print_row(c, (enum kv_op)op);
		for (int m = 0; json && m < KV_METRICS; m++) {
			const struct result result = {
				.metric = metrics[m].name,
				.unit = metrics[m].unit,
				.higher = metrics[m].higher,
				.series = c->series[op][m],
				.params = { { .key = "mode",
					      .text = kv_mode_names[c->config.mode] },
					    { .key = "op", .text = kv_op_names[op] },
					    { .key = "workload", .text = workload },
					    { .key = "role", .text = metrics[m].role },
					    { .key = "distribution",
					      .text = kv_dist_names[c->config.dist] },
					    { .key = "value_bytes", .number = c->config.value },
					    { .key = "keys", .number = c->config.keys },
					    { .key = "clients", .number = c->config.clients },
					    { .key = "copies", .number = c->config.copies },
					    { .key = "writers",
					      .text = kv_writers_names[c->config.writers] },
					    { .key = "keys_per_call",
					      .number = c->config.batched ? KV_BATCH : 1 },
					    { .key = "seed", .number = c->config.seed },
					    { .key = "store", .text = c->shared->uri } },
			};

			result_json(json, "kv", &result);
		}
	}
}
