/*
 * Time to open and close a store: connect, TLS over TCP, proof of the token. Median of a window;
 * none of it is on the data path.
 */
#include <relive/relive.h>

#include <stdio.h>

#include "base/stats.h"
#include "bench/harness/micro.h"

#define OPENS 100u /* per window */

static int run_window(struct micro_case *c)
{
	double ms[OPENS];

	for (uint32_t i = 0; i < OPENS; i++) {
		struct rlv_store *store;
		uint64_t start = time_wall_ns();
		int ret = rlv_store_open(c->micro->store, NULL, &store);

		ms[i] = (double)(time_wall_ns() - start) / 1e6;
		if (ret == 0)
			ret = rlv_store_close(&store);
		if (ret) {
			fprintf(stderr, "micro_connect: %s\n", rlv_last_error());
			return ret;
		}
	}
	series_add(&c->result.series, stats_median(ms, OPENS));
	return 0;
}

int main(int argc, char **argv)
{
	static struct micro b = {
		.name = "micro_connect",
		.help = "The time to open a store: --store relive://HOST:PORT with RELIVE_TOKEN, shm:NAME or\n"
			"embed:, which have no TLS.",
		.store = "embed:",
	};
	const struct micro_case connect = { .run = run_window,
					    .result = { .metric = "connect_ms", .unit = "ms" } };
	int status;

	if (!micro_init(&b, argc, argv, &status))
		return status;
	micro_add(&b, &connect);
	return micro_finish(&b, micro_run(&b, "open") == 0);
}
