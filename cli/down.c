#include <errno.h>
#include <stdio.h>

#include "base/bits.h"
#include "base/json.h"
#include "cli/cli.h"
#include "cli/host_store.h"

static int print_down(const char *store, uint32_t stopped, bool as_json)
{
	struct json json;

	if (!as_json) {
		printf("store %s is down, %u daemon%s stopped\n", store, stopped,
		       stopped == 1 ? "" : "s");
		return CLI_OK;
	}
	json_init(&json, stdout);
	json_object_begin(&json);
	json_put_string(&json, "store", store);
	json_put_u64(&json, "stopped", stopped);
	json_object_end(&json);
	json_newline(&json);
	return json_finish(&json) ? CLI_FAILURE : CLI_OK;
}

int cmd_down(int argc, char **argv)
{
	struct cli_common common = CLI_COMMON_INIT;
	const char *store = "default";
	const struct arg_option options[] = {
		{ "store", "NAME", "name of the store (default: default)", &store, ARG_TEXT },
		CLI_OPTION_JSON(common),
		{ "timeout", "TIME",
		  "how long daemons may take before they are killed (default 5s)",
		  &common.timeout_ns, ARG_DURATION },
	};
	const struct args args = {
		.usage = "down [OPTIONS]",
		.summary =
			"Stops the daemons of a store on this host and removes their sockets, logs "
			"and token.\nWhat was in memory is gone; a pool on a file or device stays.",
		.options = options,
		.n_options = ARRAY_LEN(options),
	};
	int code = cli_parse(&args, argc, argv), ret;
	uint32_t stopped = 0;

	if (code != CLI_CONTINUE)
		return code;
	ret = host_store_down(store, common.timeout_ns, &stopped);
	if (ret == -ENOENT) {
		cli_error("no store %s is up here", store);
		return CLI_FAILURE;
	}
	if (ret)
		return cli_fail_local(ret, "down");
	return print_down(store, stopped, common.json);
}
