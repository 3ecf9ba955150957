#include "bench/harness/bare.h"

#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/harness/time.h"

#include "base/mem/chunk.h"
#include "base/stats.h"

#define CLIENT 1
#define REGION (UINT64_C(64) << 20)
#define READS 256u
#define CALLS 2000u /* of a window, at most */
#define WINDOW_NS 200000000

/* State that the target's process reports. */
struct place {
	char uri[TRANSPORT_URI_BYTES];
	struct region_grant grant;
};

static int bare_said(int ret, const char *what)
{
	if (ret)
		fprintf(stderr, "transport: %s: %s\n", what, error_last());
	return ret ? -1 : 0;
}

/* -------- the target's process -------- */

static int serve(const char *kind, int out)
{
	struct target_opts opts = { .pool_bytes = REGION };
	struct target_region spec = { .kind = 1, .size = REGION };
	struct transport_target *tg = NULL;
	struct place place = { .uri = "" };

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (bare_said(transport_target_open(kind, &opts, &tg), "open the target") ||
	    bare_said(tg->ops->listen(tg, ":0"), "listen") ||
	    bare_said(tg->ops->register_region(tg, &spec), "make a region") ||
	    bare_said(transport_grant(tg, CLIENT, spec.id, RIGHT_ALL, &place.grant), "grant it"))
		return 1;
	(void)snprintf(place.uri, sizeof(place.uri), "%s", tg->ops->uri(tg));
	if (write(out, &place, sizeof(place)) != (ssize_t)sizeof(place))
		return 1;
	while (tg->ops->progress(tg, CLOCK_NS_PER_S) == 0)
		continue;
	return 1;
}

int bare_open(struct bare *bare, const char *kind)
{
	struct transport_opts opts = { .client_id = CLIENT };
	struct place place;
	int pipes[2];
	bool told;

	*bare = (struct bare){ .pid = 0 };
	if (pipe(pipes))
		return -1;
	bare->pid = fork();
	if (bare->pid == 0)
		_exit(serve(kind, pipes[1]));
	close(pipes[1]);
	told = read(pipes[0], &place, sizeof(place)) == (ssize_t)sizeof(place);
	close(pipes[0]);
	if (!told) /* the process has said why */
		return -1;
	if (bare_said(transport_open(place.uri, &opts, &bare->tr), "connect") ||
	    bare_said(transport_attach(bare->tr, &place.grant, &bare->region), "attach"))
		return -1;
	bare->memory = chunk_mem(chunk_alloc(64, BARE_LONG_READS * BARE_LONG_BYTES),
				 BARE_LONG_READS * BARE_LONG_BYTES);
	return bare->memory.ptr ? 0 : -1;
}

void bare_close(struct bare *bare)
{
	if (bare->pid <= 0)
		return;
	(void)kill(bare->pid, SIGKILL);
	(void)waitpid(bare->pid, NULL, 0);
	bare->pid = 0;
}

/* -------- windows -------- */

static int bare_call(const struct bare *bare, const struct bare_calls *calls)
{
	static struct transport_io io[READS];
	uint64_t old;

	if (calls->what == BARE_CAS)
		return transport_cas_word(bare->region, 0, 1, 1, &old);
	if (calls->what == BARE_FAA)
		return transport_faa_word(bare->region, 64, 1, &old);
	for (uint32_t i = 0; i < calls->n; i++)
		io[i] = (struct transport_io){ .region = bare->region,
					       .off = (uint64_t)i * 2 * calls->bytes,
					       .dst = bare->memory.ptr + (size_t)i * calls->bytes,
					       .mem = &bare->memory,
					       .len = calls->bytes };
	return transport_read(bare->region->tr, io, calls->n);
}

int bare_measure(const struct bare *bare, const struct bare_calls *calls,
		 struct bare_window *window_out)
{
	static double calls_us[CALLS];
	uint64_t start = time_wall_ns(), spent = 0, last,
		 most = calls->for_ns ? calls->for_ns : WINDOW_NS;
	size_t n = 0;

	while (n < CALLS && spent < most) {
		if (bare_said(bare_call(bare, calls), "call"))
			return -1;
		last = spent;
		spent = time_wall_ns() - start;
		calls_us[n++] = (double)(spent - last) / 1e3;
	}
	window_out->median_us = stats_median(calls_us, n);
	window_out->mbps = (double)n * calls->n * calls->bytes / ((double)spent / 1e3);
	return 0;
}
