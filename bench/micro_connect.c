/*
 * Time to open and close a store: connect, TLS over TCP, proof of the token. Median of a window;
 * none of it is on the data path.
 */
#include <relive/relive.h>

#include <stdio.h>

#include "base/stats.h"
#include "bench/harness/micro.h"

#define OPENS 100u /* per window */

struct connect {
	const char *uri;
	struct series median_ms;
};

static int run_window(void *ctx, uint32_t index)
{
	struct connect *connect = ctx;
	double ms[OPENS];

	(void)index;
	for (uint32_t i = 0; i < OPENS; i++) {
		struct rlv_store *store;
		uint64_t start = time_wall_ns();
		int ret = rlv_store_open(connect->uri, NULL, &store);

		ms[i] = (double)(time_wall_ns() - start) / 1e6;
		if (ret == 0)
			ret = rlv_store_close(&store);
		if (ret)
			return ret;
	}
	series_add(&connect->median_ms, stats_median(ms, OPENS));
	return 0;
}

int main(int argc, char **argv)
{
	static const struct result result = { "connect_ms", "ms", false, NULL, 0 };
	struct micro b = {
		.name = "micro_connect",
		.help = "The time to open a store: --store relive://HOST:PORT with RELIVE_TOKEN, shm:NAME or\n"
			"embed:, which have no TLS.",
		.store = "embed:",
	};
	struct connect connect = { NULL, { 0 } };
	const struct micro_cases cases = { "open", 1, run_window, &connect };
	int status, ret;

	if (!micro_init(&b, argc, argv, &status))
		return status;
	connect.uri = b.store;
	ret = micro_run(&b, &cases);
	if (ret)
		fprintf(stderr, "micro_connect: %s\n", rlv_last_error());
	else
		micro_print(&b, &result, &connect.median_ms);
	return micro_finish(&b, ret == 0);
}
