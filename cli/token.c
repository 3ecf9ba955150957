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
#include "cli/cli.h"

struct request {
	struct cli_common common;
	const char *role; /* or "rotate" */
	const char *out;  /* NULL = stdout */
};

static int token_give(struct rlv_store *store, const struct request *request)
{
	char token[RLV_TOKEN_BYTES];
	int fd, ret = rlv_store_token(store, request->role, token);

	if (ret)
		return cli_fail(ret, "token %s", request->role);
	if (!request->out)
		return cli_result(request->common.json,
				  (const struct param[]){ { .key = "role", .text = request->role },
							  { .key = "token", .text = token } },
				  2, "%s\n", token);
	/* Never overwrites a file, whose mode could be too open. */
	fd = open(request->out, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return cli_fail_local(-errno, "token %s: create %s", request->role, request->out);
	if (dprintf(fd, "%s\n", token) < 0 || fsync(fd)) {
		ret = cli_fail_local(errno ? -errno : -EIO, "token %s: write %s", request->role,
				     request->out);
		(void)unlink(request->out);
	}
	close(fd);
	return ret;
}

int cmd_token(int argc, char **argv)
{
	struct request request = { .common = CLI_COMMON_INIT };
	const char *words[2] = { NULL, NULL };
	const struct arg_option options[] = {
		{ "out", "FILE", "write the token to FILE (mode 0600), which must not exist",
		  &request.out, ARG_TEXT },
		CLI_OPTIONS(request.common),
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
	int code = cli_parse_store(&args, &request.common, argc, argv);
	struct rlv_store *store;
	uint32_t epoch = 0;
	int ret;

	if (code != CLI_CONTINUE)
		return code;
	request.role = words[0];
	if (cli_store_open(request.common.uri, request.common.timeout_ns, false, &store))
		return CLI_FAILURE;
	if (strcmp(request.role, "rotate") == 0) {
		ret = rlv_store_rotate_tokens(store, &epoch);
		code = ret ? cli_fail(ret, "token rotate")
			   : cli_result(request.common.json,
					&(const struct param){ .key = "epoch", .number = epoch }, 1,
					"role tokens are now of epoch %u; older ones are refused\n",
					epoch);
	} else {
		code = token_give(store, &request);
	}
	cli_closed(rlv_store_close(&store), "store");
	return code;
}
