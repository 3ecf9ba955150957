/*
 * Time to open and close a store: connect, TLS over TCP, proof of the token. The
 * median of a window; nothing of it is on the data path.
 */
#include <relive/relive.h>

#include <stdio.h>
#include <stdlib.h>

#include "bench/harness/micro.h"

#define OPENS 100u /* of a window */

static int by_value(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static int time_open(const char *uri, double *ms_out)
{
	struct rlv_store *store;
	uint64_t start = bench_now_ns();
	int ret = rlv_store_open(uri, NULL, &store);

	*ms_out = (double)(bench_now_ns() - start) / 1e6;
	return ret ? ret : rlv_store_close(&store);
}

static int measure(struct bench *b, struct bench_windows *windows)
{
	double ms[OPENS];

	for (uint32_t w = 0; w < b->windows; w++) {
		bench_progress(b, w, b->windows, "open");
		for (uint32_t i = 0; i < OPENS; i++) {
			int ret = time_open(b->store, &ms[i]);

			if (ret)
				return ret;
		}
		qsort(ms, OPENS, sizeof(ms[0]), by_value);
		bench_windows_add(windows, ms[OPENS / 2]);
	}
	return 0;
}

int main(int argc, char **argv)
{
	static const struct bench_result result = { "connect_ms", "ms", false, NULL, 0 };
	struct bench b = {
		.name = "micro_connect",
		.help = "The time to open a store: --store relive://HOST:PORT with RELIVE_TOKEN, shm:NAME or\n"
			"embed:, which have no TLS.\n",
		.store = "embed:",
	};
	struct bench_windows windows = { 0 };
	int status, ret;

	if (!bench_init(&b, argc, argv, &status))
		return status;
	ret = measure(&b, &windows);
	if (ret)
		fprintf(stderr, "micro_connect: %s\n", rlv_last_error());
	else
		bench_print(&b, &result, &windows);
	return bench_finish(&b, ret == 0);
}
