/*
 * relive pool simulate: jobs under the gate's policies, on a virtual clock.
 */
#include <errno.h>

#include "base/bits.h"
#include "cli/cli.h"
#include "cli/pool.h"

int pool_simulate(int argc, char **argv)
{
	struct cli_common common = CLI_COMMON_INIT;
	const struct arg_option options[] = {
		{ "json", NULL, "print JSON: one object a line", &common.json, ARG_FLAG },
	};
	const struct args args = {
		.usage = "pool simulate [OPTIONS]",
		.summary = "Replays jobs under the gate's policies, on a virtual clock.",
		.options = options,
		.n_options = ARRAY_LEN(options),
	};
	int code = cli_parse(&args, argc, argv);

	if (code != CLI_CONTINUE)
		return code;
	return cli_fail_local(error_set(-ENOTSUP, "there is no simulator yet"), "pool simulate");
}
