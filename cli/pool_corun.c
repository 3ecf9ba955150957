/*
 * relive pool corun: real jobs under a broker's gate, beside what the simulator says of them.
 */
#include <errno.h>

#include "base/bits.h"
#include "bench/pool/corun.h"
#include "cli/cli.h"
#include "cli/pool.h"

static int corun(const char *set, bool as_json)
{
	static struct traces traces;
	char path[PATH_MAX];
	struct json json;
	struct report report = { NULL };
	int ret = cli_data_file("pool-traces.txt", path)
			  ? traces_read(path, &traces)
			  : error_set(-ENOENT, "no pool-traces.txt is installed");

	json_init(&json, stdout);
	report.json = as_json ? &json : NULL;
	report.bench = "pool_corun";
	if (ret == 0)
		ret = corun_run(set, &traces, &report);
	if (as_json && json_finish(&json) && ret == 0)
		ret = error_set(-EIO, "write the results");
	return ret ? cli_fail_local(ret, "pool corun") : CLI_OK;
}

int pool_corun(int argc, char **argv)
{
	const char *set = "all";
	bool as_json = false;
	const struct arg_option options[] = {
		{ "set", CORUN_SETS, "what is run (default all)", &set, ARG_WORD },
		{ "json", NULL, "print JSON: one object a line", &as_json, ARG_FLAG },
	};
	const struct args args = {
		.usage = "pool corun [OPTIONS]",
		.summary =
			"Runs jobs that replay recorded traces under a broker of its own, and says "
			"what the\nsimulator predicts of them. It takes 30 s on a quiet machine with "
			"two processors.",
		.options = options,
		.n_options = ARRAY_LEN(options),
		.examples = "relive pool corun --set tight --json",
	};
	int code = cli_parse(&args, argc, argv);

	return code == CLI_CONTINUE ? corun(set, as_json) : code;
}
