/*
 * relive backup and restore: copies the catalog of a store to a file and back.
 */
#include <errno.h>
#include <stdio.h>
#include <sys/wait.h>

#include "base/bits.h"
#include "base/json.h"
#include "base/os/runtime_dir.h"
#include "cli/cli.h"
#include "cli/host/host_files.h"
#include "program/spawn.h"

static int print_done(bool as_json, const char *done, const char *store, const char *file)
{
	struct json *json;

	if (!as_json) {
		printf("%s: %s %s\n", store, done, file);
		return CLI_OK;
	}
	json = cli_json_begin();
	json_put_string(json, "store", store);
	json_put_string(json, "file", file);
	return cli_json_end(json);
}

/* -------- backup -------- */

int cmd_backup(int argc, char **argv)
{
	struct cli_common common = CLI_COMMON_INIT;
	const char *words[2] = { NULL, NULL };
	const struct arg_option options[] = { CLI_OPTION_STORE(common), CLI_OPTION_JSON(common),
					      CLI_OPTION_TIMEOUT(common) };
	const struct args args = {
		.usage = "backup [URI] FILE [OPTIONS]",
		.summary = "Copies the catalog of a store that runs (default " CLI_DEFAULT_URI
			   ") into FILE: tables, and where\ntheir shards are; no items. FILE is "
			   "written completely or not at all. relive restore puts it back.",
		.options = options,
		.n_options = ARRAY_LEN(options),
		.examples = "relive backup --store replay /srv/replay.catalog",
		.positional = words,
		.min_positional = 1,
		.max_positional = 2,
	};
	int code = cli_parse_store(&args, &common, 0, argc, argv), ret;
	const char *uri = words[1] ? words[0] : CLI_DEFAULT_URI;
	const char *file = words[1] ? words[1] : words[0];
	struct rlv_store *store;

	if (code != CLI_CONTINUE)
		return code;
	if (cli_store_open(uri, common.timeout_ns, true, &store))
		return CLI_FAILURE;
	ret = rlv_store_backup(store, file);
	code = ret ? cli_fail(ret, "backup of %s", uri)
		   : print_done(common.json, "its catalog is saved in", uri, file);
	cli_store_close(&store);
	return code;
}

/* -------- restore -------- */

/* Runs the server's program, which owns the catalog. Its messages go to our stderr. */
static int run_restore(const char *store, const char *file, bool force, int *status_out)
{
	const char *const argv[] = { "relive-metad",           "--store", store, "--restore", file,
				     force ? "--force" : NULL, NULL };
	const struct spawn_daemon program = { .binary = argv[0], .argv = argv };
	pid_t pid;
	int ret = spawn_daemon(&program, &pid);

	if (ret == 0)
		*status_out = spawn_wait(pid);
	return ret;
}

int cmd_restore(int argc, char **argv)
{
	struct cli_common common = CLI_COMMON_INIT;
	const char *words[2] = { NULL, NULL };
	bool force = false;
	const struct arg_option options[] = {
		{ "force", NULL,
		  "even if the store has a catalog, which is kept as NAME.db.replaced", &force,
		  ARG_FLAG },
		CLI_OPTION_JSON(common),
	};
	const struct args args = {
		.usage = "restore STORE FILE [OPTIONS]",
		.summary =
			"Replaces the catalog of STORE, a stopped store of this host, by FILE, which "
			"relive backup made.\nA damaged FILE changes nothing. Then start the store with "
			"relive up.",
		.options = options,
		.n_options = ARRAY_LEN(options),
		.examples = "relive restore replay /srv/replay.catalog && relive up --store replay",
		.positional = words,
		.min_positional = 2,
		.max_positional = 2,
		.notes =
			"If the pool of a memory node holds tables that are not in FILE, the node is "
			"refused until it\nis started with --adopt, which adds them to the catalog.",
	};
	int code = cli_parse(&args, argc, argv), status = 0, ret;
	struct runtime_dir dir;

	if (code != CLI_CONTINUE)
		return code;
	ret = run_restore(words[0], words[1], force, &status);
	if (ret == 0 && !(WIFEXITED(status) && WEXITSTATUS(status) == 0)) {
		cli_error("restore %s: relive-metad refused %s (its message is above)", words[0],
			  words[1]);
		return CLI_FAILURE;
	}
	if (ret == 0)
		ret = runtime_dir_open(words[0], false, &dir);
	if (ret == 0)
		ret = host_files_keep(
			&dir); /* `down` must not delete a catalog restored on purpose */
	return ret ? cli_fail_local(ret, "restore %s", words[0])
		   : print_done(common.json, "its catalog was replaced by", words[0], words[1]);
}
