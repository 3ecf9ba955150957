/* print.c - the figures of a case, as JSON lines or rows. */
#include "bench/weights/weights.h"

#include <inttypes.h>
#include <stdio.h>

#include "bench/harness/result.h"
#include "bench/weights/codec.h"

static const struct {
	const char *name, *unit;
	bool higher;
} metrics[WEIGHTS_METRICS] = {
	[WEIGHTS_GBPS] = { "gbps", "GB/s", true },
	[WEIGHTS_OF_MEMCPY] = { "of_memcpy", "1", true },
	[WEIGHTS_FIRST_GBPS] = { "first_gbps", "GB/s", true },
	[WEIGHTS_PAUSE] = { "pause_us", "us", false },
	[WEIGHTS_FIRST_BYTE] = { "first_byte_us", "us", false },
	[WEIGHTS_TRIPS] = { "round_trips", "1", false },
	[WEIGHTS_WIRE] = { "wire_ratio", "1", true },
	[WEIGHTS_COPIES] = { "copies_per_byte", "1", false },
};

static void print_role(const char *role, const struct weights_config *config, const char *uri,
		       const struct series series[WEIGHTS_METRICS], struct json *json)
{
	if (!json)
		printf("%-8s %8" PRIu64 " KiB, %5.1f %%, %u actors", role, config->bytes >> 10,
		       100 * config->density, config->actors);
	for (int m = 0; m < WEIGHTS_METRICS; m++) {
		const struct result result = {
			.metric = metrics[m].name,
			.unit = metrics[m].unit,
			.higher = metrics[m].higher,
			.series = series[m],
			.params = { { .key = "role", .text = role },
				    { .key = "density",
				      .real = config->density,
				      .kind = PARAM_REAL },
				    { .key = "bytes", .number = config->bytes },
				    { .key = "actors", .number = config->actors },
				    { .key = "view", .number = config->view, .kind = PARAM_FLAG },
				    { .key = "seed", .number = config->seed },
				    { .key = "store", .text = uri } },
		};

		if (json)
			result_json(json, "weights", &result);
		else if (series[m].n)
			printf("  %s %.2f", metrics[m].name,
			       series_spread(&series[m], metrics[m].higher).median);
	}
	if (!json)
		printf("\n");
}

void weights_case_print(const struct weights_case *c, struct json *json)
{
	print_role("publish", &c->config, c->shared->uri, c->series[WEIGHTS_PUBLISH], json);
	print_role("fetch", &c->config, c->shared->uri, c->series[WEIGHTS_FETCH], json);
}

void weights_codec_print(const struct codec *codec, uint64_t seed, struct json *json)
{
	const struct weights_config config = { .bytes = codec->bytes,
					       .density = codec->density,
					       .seed = seed };

	for (int role = 0; role < CODEC_ROLES; role++) {
		struct series series[WEIGHTS_METRICS] = {
			[WEIGHTS_GBPS] = codec->gbps[role],
			[WEIGHTS_OF_MEMCPY] = codec->of_memcpy[role],
		};

		if (role == CODEC_DIFF)
			series[WEIGHTS_WIRE] = codec->wire_ratio;
		print_role(codec_role_names[role], &config, "", series, json);
	}
}
