/*
 * relive token: role tokens of a store, and token epochs.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"

#include "relive/admin.h"
#include "base/json.h"
#include "cli/cli.h"

struct request {
	struct cli_common common;
	const char *role; /* or "rotate" */
	const char *out;  /* NULL = stdout */
};

/* Never overwrites a file, whose mode could be too open. */
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
	struct json *json;
	int ret = rlv_store_token(store, request->role, token);

	if (ret)
		return cli_fail(ret, "token %s", request->role);
	if (request->out) {
		ret = write_token(request->out, token);
		return ret ? cli_fail_local(ret, "token %s", request->role) : CLI_OK;
	}
	if (!request->common.json) {
		printf("%s\n", token);
		return CLI_OK;
	}
	json = cli_json_begin();
	json_put_string(json, "role", request->role);
	json_put_string(json, "token", token);
	return cli_json_end(json);
}

static int rotate(struct rlv_store *store, const struct request *request)
{
	struct json *json;
	uint32_t epoch;
	int ret = rlv_store_rotate_tokens(store, &epoch);

	if (ret)
		return cli_fail(ret, "token rotate");
	if (!request->common.json) {
		printf("role tokens are now of epoch %u; older ones are refused\n", epoch);
		return CLI_OK;
	}
	json = cli_json_begin();
	json_put_u64(json, "epoch", epoch);
	return cli_json_end(json);
}

int cmd_token(int argc, char **argv)
{
	struct request request = { .common = CLI_COMMON_INIT };
	const char *words[2] = { NULL, NULL };
	const struct arg_option options[] = {
		{ "out", "FILE", "write the token to FILE (mode 0600), which must not exist",
		  &request.out, ARG_TEXT },
		CLI_OPTION_STORE(request.common),
		CLI_OPTION_JSON(request.common),
		CLI_OPTION_TIMEOUT(request.common),
	};
	const struct args args = {
		.usage = "token [URI] read|learn|write|node|admin|rotate [OPTIONS]",
		.summary =
			"Prints the token of a role for a running store (default " CLI_DEFAULT_URI
			"). Use it in place of the\nstore's own token: RELIVE_TOKEN, opts.token, or "
			"token= in Python. read: sample views that do\nnot count samples. learn: sample "
			"all views, update priorities. write: also append. node:\nregister memory nodes. "
			"admin: everything, as creating and dropping tables.",
		.options = options,
		.n_options = ARRAY_LEN(options),
		.notes =
			"rotate starts a new epoch: older role tokens are refused and clients that "
			"use them are\ndisconnected. Memory that a process of this host has mapped "
			"stays mapped until it ends. Nodes\nstay registered, and need a new token to "
			"reconnect. The store's own token does not change: to\nreplace it, run relive "
			"down, remove the file `token` in the store's directory if it is still\nthere, "
			"and start the store again; then all tokens are new.",
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
