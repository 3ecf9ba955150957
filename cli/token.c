/*
 * relive token: tokens of roles of a store, and their epochs.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/json.h"
#include "cli/cli.h"

struct request {
	struct cli_common common;
	const char *role; /* or "rotate" */
	const char *out;  /* NULL = stdout */
};

static int print_token(const struct request *request, const char *token)
{
	struct json json;

	if (!request->common.json) {
		printf("%s\n", token);
		return CLI_OK;
	}
	json_init(&json, stdout);
	json_object_begin(&json);
	json_put_string(&json, "role", request->role);
	json_put_string(&json, "token", token);
	json_object_end(&json);
	json_newline(&json);
	return json_finish(&json) ? CLI_FAILURE : CLI_OK;
}

/* A file of that name is not written over: its mode may be another. */
static int write_token(const char *path, const char *token)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	int ret = 0;

	if (fd < 0)
		return error_set(-errno, "create %s: %s", path, strerror(errno));
	if (dprintf(fd, "%s\n", token) < 0 || fsync(fd))
		ret = error_set(errno ? -errno : -EIO, "write %s: %s", path, strerror(errno));
	close(fd);
	if (ret)
		(void)unlink(path);
	return ret;
}

static int give(struct rlv_store *store, const struct request *request)
{
	char token[RLV_TOKEN_BYTES];
	int ret = rlv_store_token(store, request->role, token);

	if (ret)
		return cli_fail(ret, "token %s", request->role);
	if (!request->out)
		return print_token(request, token);
	ret = write_token(request->out, token);
	return ret ? cli_fail_local(ret, "token %s", request->role) : CLI_OK;
}

static int rotate(struct rlv_store *store, const struct request *request)
{
	struct json json;
	uint32_t epoch;
	int ret = rlv_store_rotate_tokens(store, &epoch);

	if (ret)
		return cli_fail(ret, "token rotate");
	if (!request->common.json) {
		printf("tokens of roles are of epoch %u now, earlier ones are refused\n", epoch);
		return CLI_OK;
	}
	json_init(&json, stdout);
	json_object_begin(&json);
	json_put_u64(&json, "epoch", epoch);
	json_object_end(&json);
	json_newline(&json);
	return json_finish(&json) ? CLI_FAILURE : CLI_OK;
}

int cmd_token(int argc, char **argv)
{
	struct request request = { .common = CLI_COMMON_INIT };
	const char *words[2] = { NULL, NULL };
	const struct arg_option options[] = {
		{ "out", "FILE", "write the token to FILE, which must not exist, with mode 0600",
		  &request.out, ARG_TEXT },
		CLI_OPTION_STORE(request.common),
		CLI_OPTION_JSON(request.common),
		CLI_OPTION_TIMEOUT(request.common),
	};
	const struct args args = {
		.usage = "token [URI] read|learn|write|node|admin|rotate [OPTIONS]",
		.summary =
			"Prints the token of a role of a store that runs (default " CLI_DEFAULT_URI
			"), to be given where\nthe store's own is: RELIVE_TOKEN, opts.token, token= "
			"in Python. read samples views that do not\ncount samples; learn samples all "
			"and updates priorities; write appends, too; node registers\nmemory nodes; "
			"admin creates and drops tables and may do everything else.",
		.options = options,
		.n_options = ARRAY_LEN(options),
		.notes =
			"rotate begins a new epoch: tokens of roles that were printed before are "
			"refused from then on,\nand clients that use them cut off. Memory that a "
			"process of this host has mapped stays mapped\nuntil it ends; nodes that have "
			"registered stay, and want a new token when they connect again.\nThe store's "
			"own token stays as it is. To replace it, stop the store with relive down, "
			"remove the\nfile token in its directory, if there is one still, and start it "
			"again: all tokens are new then.",
		.positional = words,
		.min_positional = 1,
		.max_positional = 2,
	};
	int code = cli_parse_store(&args, &request.common, 0, argc, argv);
	const char *uri = words[1] ? words[0] : CLI_DEFAULT_URI;
	struct rlv_store *store;

	if (code != CLI_CONTINUE)
		return code;
	request.role = words[1] ? words[1] : words[0];
	if (cli_store_open(uri, request.common.timeout_ns, false, &store))
		return CLI_FAILURE;
	code = strcmp(request.role, "rotate") == 0 ? rotate(store, &request)
						   : give(store, &request);
	cli_store_close(&store);
	return code;
}
