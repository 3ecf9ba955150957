/*
 * Limits of a transport between two processes of this host, without its mapping: us of a READ of 64 bytes, a
 * CAS and a FAA, us of 256 READs of a row, and MB/s of long READs. A sample of a table over it cannot be
 * faster than its round trips times the first, plus its bytes at the last: micro_limit measures both.
 */
#include "bench/harness/bare.h"
#include "bench/harness/micro.h"

#include "base/bits.h"

#define ROWS 256u

struct transport_case {
	const char *name, *unit;
	struct bare_calls calls;
};

static const struct transport_case cases[] = {
	{ "read_us", "us", { .what = BARE_READS, .n = 1, .bytes = 64 } },
	{ "cas_us", "us", { .what = BARE_CAS, .n = 1, .bytes = 8 } },
	{ "faa_us", "us", { .what = BARE_FAA, .n = 1, .bytes = 8 } },
	{ "rows_us", "us", { .what = BARE_READS, .n = ROWS, .bytes = 64 } },
	{ "rows_us", "us", { .what = BARE_READS, .n = ROWS, .bytes = 512 } },
	{ "rows_us", "us", { .what = BARE_READS, .n = ROWS, .bytes = 4096 } },
	{ "read_mbps",
	  "MB/s",
	  { .what = BARE_READS, .n = BARE_LONG_READS, .bytes = BARE_LONG_BYTES } },
};

static struct bare bare;

static int run_case(struct micro_case *at)
{
	const struct transport_case *c = at->ctx;
	struct bare_window window;
	int ret = bare_measure(&bare, &c->calls, &window);

	if (ret == 0)
		series_add(&at->result.series, at->result.higher ? window.mbps : window.median_us);
	return ret;
}

int main(int argc, char **argv)
{
	static struct micro b = {
		.name = "micro_transport",
		.help = "Measures a transport between two processes of this host, as if they were "
			"on two: us of\na READ of 64 bytes, a CAS, a FAA and 256 READs of a row, "
			"MB/s of long READs. --store\nnames the transport: ofi or verbs.",
		.store = "ofi",
	};
	int status, ret;

	if (!micro_init(&b, argc, argv, &status))
		return status;
	ret = bare_open(&bare, b.store);
	for (size_t i = 0; ret == 0 && i < ARRAY_LEN(cases); i++) {
		const struct micro_case shown = {
			.run = run_case,
			.ctx = (void *)(uintptr_t)&cases[i],
			.result = { .metric = cases[i].name,
				    .unit = cases[i].unit,
				    .higher = cases[i].calls.bytes == BARE_LONG_BYTES,
				    .params = { { .key = "transport", .text = b.store },
						{ .key = "bytes",
						  .number = cases[i].calls.bytes } } }
		};

		(void)micro_add(&b, &shown);
	}
	if (ret == 0)
		ret = micro_run(&b, "windows");
	bare_close(&bare);
	return micro_finish(&b, ret == 0);
}
