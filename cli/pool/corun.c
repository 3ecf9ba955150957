/*
 * relive pool corun: real jobs under a broker's gate, beside what the simulator says of them.
 */
#include <errno.h>

#include "base/bits.h"
#include "bench/pool/corun.h"
#include "cli/cli.h"
#include "cli/pool/pool.h"

static int corun(const struct corun *request, bool as_json)
{
	static struct traces traces;
	char path[PATH_MAX];
	struct corun run = *request;
	struct json json;
	struct report report = { .bench = "pool_corun" };
	int ret = cli_data_file("pool-traces.txt", path)
			  ? traces_read(path, &traces)
			  : error_set(-ENOENT, "no pool-traces.txt is installed");

	json_init(&json, stdout);
	report.json = as_json ? &json : NULL;
	run.traces = &traces;
	run.report = &report;
	if (ret == 0)
		ret = corun_run(&run);
	if (as_json && json_finish(&json) && ret == 0)
		ret = error_set(-EIO, "write the results");
	return ret ? cli_fail_local(ret, "pool corun") : CLI_OK;
}

int pool_corun(int argc, char **argv)
{
	struct corun run = { .set = "all", .rounds = 5 };
	bool as_json = false;
	const struct arg_option options[] = {
		{ "set", CORUN_SETS, "what is run (default all)", &run.set, ARG_WORD },
		{ "rounds", "N", "how often (default 5)", &run.rounds, ARG_COUNT32 },
		{ "limit", CORUN_LIMITS,
		  "memory of the set learners (default auto: address space of\neach process where no cgroup can be made)",
		  &run.limit, ARG_CHOICE },
		{ "quick", NULL, "a few short iterations: that it works, no times", &run.quick,
		  ARG_FLAG },
		{ "json", NULL, "print JSON: one object a line", &as_json, ARG_FLAG },
	};
	const struct args args = {
		.usage = "pool corun [OPTIONS]",
		.summary =
			"Runs jobs that replay recorded traces under a broker of its own, and says "
			"what the\nsimulator predicts of them. The set learners has memory for 1.3 of its "
			"two.",
		.options = options,
		.n_options = ARRAY_LEN(options),
		.examples = "relive pool corun --set tight --json",
	};
	int code = cli_parse(&args, argc, argv);

	if (code == CLI_CONTINUE && (run.rounds == 0 || run.rounds > CORUN_ROUNDS)) {
		cli_error("pool corun: --rounds 1 to %u", CORUN_ROUNDS);
		return CLI_USAGE;
	}
	return code == CLI_CONTINUE ? corun(&run, as_json) : code;
}
