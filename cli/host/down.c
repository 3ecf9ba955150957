#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/json.h"
#include "cli/cli.h"
#include "cli/host/host_store.h"

struct request {
	const char *store;
	bool force;
};

static void print_loss(const char *store, const struct host_loss *loss)
{
	if (loss->items)
		cli_error(
			"store %s holds %llu items in %u table%s in memory; stopping it loses them",
			store, (unsigned long long)loss->items, loss->tables,
			loss->tables == 1 ? "" : "s");
	if (loss->unknown[0])
		cli_error("store %s: cannot count the items in its memory nodes: %s", store,
			  loss->unknown);
}

/* Asks for confirmation on the terminal; without a terminal --force is required. */
static bool ask_user(void *ctx, const struct host_loss *loss)
{
	const struct request *request = ctx;
	char answer[16];

	if (request->force)
		return true;
	print_loss(request->store, loss);
	if (!isatty(STDIN_FILENO) || !isatty(STDERR_FILENO)) {
		cli_error(
			"nothing was stopped: there is no terminal to ask for confirmation (see --force)");
		if (loss->unknown[0])
			cli_hint(
				"relive up --store %s, which starts missing daemons, so that down can count",
				request->store);
		return false;
	}
	fprintf(stderr, "Stop it and lose them? [y/N] ");
	if (fgets(answer, sizeof(answer), stdin) && (answer[0] == 'y' || answer[0] == 'Y'))
		return true;
	cli_error("nothing was stopped");
	return false;
}

int cmd_down(int argc, char **argv)
{
	struct cli_common common = CLI_COMMON_INIT;
	struct request request = { .store = "default" };
	const struct arg_option options[] = {
		{ "store", "NAME", "name of the store (default: default)", &request.store,
		  ARG_TEXT },
		CLI_OPTION_JSON(common),
		{ "timeout", "TIME",
		  "time that daemons have to stop before they are killed (default 5s)",
		  &common.timeout_ns, ARG_DURATION },
		{ "force", NULL, "stop even if items in memory are lost; do not ask",
		  &request.force, ARG_FLAG },
	};
	const struct args args = {
		.usage = "down [OPTIONS]",
		.summary =
			"Stops the daemons of a store on this host and removes their sockets, logs "
			"and token.\nItems in memory are lost; a pool in a directory or on a device is kept, "
			"with its catalog.",
		.options = options,
		.n_options = ARRAY_LEN(options),
		.notes =
			"If memory nodes hold items, or these cannot be counted, the command asks on the "
			"terminal. Without\na terminal it stops nothing, and exits with 3, unless "
			"--force is given.",
		.examples = "relive down --store replay",
	};
	int code = cli_parse(&args, argc, argv), ret;
	struct host_down_opts opts = { .confirm = ask_user, .ctx = &request };
	struct json *json;
	uint32_t stopped = 0;

	if (code != CLI_CONTINUE)
		return code;
	opts.store = request.store;
	opts.timeout_ns = common.timeout_ns;
	ret = host_store_down(&opts, &stopped);
	if (ret == -ENOENT) {
		(void)error_set(ret, "no store %s runs on this host", request.store);
		return cli_fail_local(ret, "down");
	}
	if (ret == -ECANCELED)
		return CLI_REFUSED;
	if (ret)
		return cli_fail_local(ret, "down");
	if (!common.json) {
		printf("store %s is down, %u daemon%s stopped\n", request.store, stopped,
		       stopped == 1 ? "" : "s");
		return CLI_OK;
	}
	json = cli_json_begin();
	json_put_string(json, "store", request.store);
	json_put_u64(json, "stopped", stopped);
	return cli_json_end(json);
}
