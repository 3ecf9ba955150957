/*
 * Limits of a transport between two processes of this host, without its mapping: us of a READ of 64 bytes, a
 * CAS and a FAA, us of 256 READs of a row, and MB/s of long READs. A sample of a table over it cannot be
 * faster than its round trips times the first, plus its bytes at the last.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/harness/micro.h"

#include "transport/transport.h"

#include "base/bits.h"
#include "base/mem/chunk.h"
#include "base/stats.h"

#define CLIENT 1
#define REGION (UINT64_C(64) << 20)
#define LONG_BYTES (1u << 20)
#define LONG_READS 16u
#define ROWS 256u
#define CALLS 2000u /* of a window, at most */
#define WINDOW_NS 200000000

enum what { READ_US, CAS_US, FAA_US, ROWS_US, READ_MBPS };

struct transport_case {
	const char *name, *unit;
	enum what what;
	uint32_t bytes; /* of a READ */
};

static const struct transport_case cases[] = {
	{ "read_us", "us", READ_US, 64 },
	{ "cas_us", "us", CAS_US, 8 },
	{ "faa_us", "us", FAA_US, 8 },
	{ "rows_us", "us", ROWS_US, 64 },
	{ "rows_us", "us", ROWS_US, 512 },
	{ "rows_us", "us", ROWS_US, 4096 },
	{ "read_mbps", "MB/s", READ_MBPS, LONG_BYTES },
};

/* State that the target's process reports. */
struct place {
	char uri[TRANSPORT_URI_BYTES];
	struct region_grant grant;
};

static struct region *region;
static struct mem memory;

static int say_failure(int ret, const char *what)
{
	if (ret)
		fprintf(stderr, "micro_transport: %s: %s\n", what, error_last());
	return ret;
}

/* -------- the target's process -------- */

static int serve(const char *kind, int out)
{
	struct target_opts opts = { .pool_bytes = REGION };
	struct target_region spec = { .kind = 1, .size = REGION };
	struct transport_target *tg = NULL;
	struct place place = { .uri = "" };

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (say_failure(transport_target_open(kind, &opts, &tg), "open the target") ||
	    say_failure(tg->ops->listen(tg, ":0"), "listen") ||
	    say_failure(tg->ops->register_region(tg, &spec), "make a region") ||
	    say_failure(transport_grant(tg, CLIENT, spec.id, RIGHT_ALL, &place.grant), "grant it"))
		return 1;
	(void)snprintf(place.uri, sizeof(place.uri), "%s", tg->ops->uri(tg));
	if (write(out, &place, sizeof(place)) != (ssize_t)sizeof(place))
		return 1;
	while (tg->ops->progress(tg, CLOCK_NS_PER_S) == 0)
		continue;
	return 1;
}

/* Forks the target's process, before anybody uses a device, and attaches its region. */
static int begin(const char *kind, pid_t *pid_out)
{
	struct transport_opts opts = { .client_id = CLIENT };
	struct transport *tr = NULL;
	struct place place;
	int pipes[2];

	if (pipe(pipes))
		return -1;
	*pid_out = fork();
	if (*pid_out == 0)
		_exit(serve(kind, pipes[1]));
	close(pipes[1]);
	if (read(pipes[0], &place, sizeof(place)) != (ssize_t)sizeof(place))
		return -1; /* it has said why */
	if (say_failure(transport_open(place.uri, &opts, &tr), "connect") ||
	    say_failure(transport_attach(tr, &place.grant, &region), "attach"))
		return -1;
	memory = chunk_mem(chunk_alloc(64, LONG_READS * LONG_BYTES), LONG_READS * LONG_BYTES);
	return memory.ptr ? 0 : -1;
}

/* -------- windows -------- */

/* One call of the case: n READs side by side, or an atomic. */
static int call(const struct transport_case *c)
{
	static struct transport_io io[ROWS];
	uint32_t n = c->what == ROWS_US ? ROWS : c->what == READ_MBPS ? LONG_READS : 1;
	uint64_t old;

	if (c->what == CAS_US)
		return transport_cas_word(region, 0, 1, 1, &old);
	if (c->what == FAA_US)
		return transport_faa_word(region, 64, 1, &old);
	for (uint32_t i = 0; i < n; i++)
		io[i] = (struct transport_io){ .region = region,
					       .off = (uint64_t)i * 2 * c->bytes,
					       .dst = memory.ptr + (size_t)i * c->bytes,
					       .mem = &memory,
					       .len = c->bytes };
	return transport_read(region->tr, io, n);
}

static int run_case(struct micro_case *at)
{
	static double calls_us[CALLS];
	const struct transport_case *c = at->ctx;
	uint64_t start = time_wall_ns(), spent = 0, last;
	size_t n = 0;

	while (n < CALLS && spent < WINDOW_NS) {
		int ret = say_failure(call(c), c->name);

		if (ret)
			return ret;
		last = spent;
		spent = time_wall_ns() - start;
		calls_us[n++] = (double)(spent - last) / 1e3;
	}
	series_add(&at->result.series, c->what == READ_MBPS ? (double)n * LONG_READS * LONG_BYTES /
								      ((double)spent / 1e3)
							    : stats_median(calls_us, n));
	return 0;
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
	pid_t pid = -1;

	if (!micro_init(&b, argc, argv, &status))
		return status;
	ret = begin(b.store, &pid);
	for (size_t i = 0; ret == 0 && i < ARRAY_LEN(cases); i++) {
		const struct micro_case shown = {
			.run = run_case,
			.ctx = (void *)(uintptr_t)&cases[i],
			.result = { .metric = cases[i].name,
				    .unit = cases[i].unit,
				    .higher = cases[i].what == READ_MBPS,
				    .params = { { .key = "transport", .text = b.store },
						{ .key = "bytes", .number = cases[i].bytes } } }
		};

		(void)micro_add(&b, &shown);
	}
	if (ret == 0)
		ret = micro_run(&b, "windows");
	if (pid > 0) {
		(void)kill(pid, SIGKILL);
		(void)waitpid(pid, NULL, 0);
	}
	return micro_finish(&b, ret == 0);
}
