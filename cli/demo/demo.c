#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "base/os/clock.h"
#include "cli/cli.h"
#include "cli/demo/loop.h"
#include "cli/demo/scenes.h"
#include "cli/host/host_store.h"
#include "program/interrupt.h"

#define LOOP_NS (25 * CLOCK_NS_PER_S)
#define FULL_NS (240 * CLOCK_NS_PER_S)
#define DEFAULT_NS (LOOP_NS + SCENES_NS)

int cmd_demo(int argc, char **argv)
{
	int64_t duration_ns = DEFAULT_NS;
	struct loop_opts loop = { .picture = "relive-demo.png" };
	bool full = false;
	const struct arg_option options[] = {
		{ "seconds", "T", "how long actors and learners run (default 36)", &duration_ns,
		  ARG_DURATION },
		{ "full", NULL, "learn for four minutes more", &full, ARG_FLAG },
		{ "picture", "FILE",
		  "PNG of return, throughput and device memory over time\n(default relive-demo.png)",
		  &loop.picture, ARG_TEXT },
	};
	const struct args args = {
		.usage = "demo [OPTIONS]",
		.options = options,
		.n_options = ARRAY_LEN(options),
		.summary =
			"A tour of Relive within a minute. The whole loop: actors balance poles and append steps\n"
			"to two memory nodes, two learners that share a device sample them by priority, and their\n"
			"weights go back to the actors; an actor and a node are killed on the way. Then recorded\n"
			"experience goes in and out as fast as it can. Nothing but the picture is left behind.",
	};
	int code = cli_parse(&args, argc, argv), ret;
	char name[] = "status", uri[HOST_STORE_URI_BYTES];
	char *status[] = { name, uri, NULL };
	struct host_store store = { .n_nodes = 0 };
	struct progress progress;

	if (code != CLI_CONTINUE)
		return code;
	if (duration_ns < CLOCK_NS_PER_S || duration_ns > 10 * DEFAULT_NS) {
		cli_error("--seconds: give 1 to 360");
		return CLI_USAGE;
	}
	loop.ns = (int64_t)((double)LOOP_NS * (double)duration_ns / DEFAULT_NS) +
		  (full ? FULL_NS : 0);
	interrupt_install();
	progress_begin(&progress, true);
	scene_say(&progress, "A memory node and a metadata server start");
	ret = host_store_private(1, UINT64_C(1) << 30, &store);
	if (ret)
		cli_fail_local(ret, "start a private store");
	memcpy(uri, store.uri, sizeof(uri));
	if (ret == 0)
		ret = cmd_status(2, status);
	if (ret == 0)
		ret = loop_play(&loop, &store, &progress);
	if (ret == 0)
		ret = scenes_play(&store, &progress,
				  (int64_t)((double)SCENES_NS * (double)duration_ns / DEFAULT_NS));
	host_store_close(&store);
	if (ret == 0)
		printf("\nAll of this ran on one machine. For measurements use relive bench replay.\n"
		       "The store is down and its files are gone; the picture is %s.\n",
		       loop.picture);
	return ret ? CLI_FAILURE : CLI_OK;
}
