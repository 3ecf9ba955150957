/*
 * relive backup and restore: copies the catalog of a store to a file and back.
 */
#include <stdio.h>
#include <sys/wait.h>

#include "base/bits.h"
#include "base/os/runtime_dir.h"
#include "cli/cli.h"
#include "cli/host/host_files.h"
#include "program/spawn.h"

static int print_done(bool json, const char *done, const char *store, const char *file)
{
	return cli_result(json,
			  (const struct param[]){ { .key = "store", .text = store },
						  { .key = "file", .text = file } },
			  2, "%s: %s %s\n", store, done, file);
}

/* -------- backup -------- */

int cmd_backup(int argc, char **argv)
{
	struct cli_common common = CLI_COMMON_INIT;
	const char *words[2] = { NULL, NULL };
	const struct arg_option options[] = { CLI_OPTIONS(common) };
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
	int code = cli_parse_store(&args, &common, argc, argv), ret;
	struct rlv_store *store;

	if (code != CLI_CONTINUE)
		return code;
	if (cli_store_open(common.uri, common.timeout_ns, true, &store))
		return CLI_FAILURE;
	ret = rlv_store_backup(store, words[0]);
	code = ret ? cli_fail(ret, "backup of %s", common.uri)
		   : print_done(common.json, "its catalog is saved in", common.uri, words[0]);
	cli_closed(rlv_store_close(&store), "store");
	return code;
}

/* -------- restore -------- */

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
	/* The server's program owns the catalog. Its messages go to our stderr. */
	const char *const line[] = {
		"relive-metad",           "--store", words[0], "--restore", words[1],
		force ? "--force" : NULL, NULL,
	};
	const struct spawn_daemon program = { .binary = line[0], .argv = line };
	struct runtime_dir dir;
	pid_t pid;

	if (code != CLI_CONTINUE)
		return code;
	ret = spawn_daemon(&program, &pid);
	if (ret == 0)
		status = spawn_wait(pid);
	if (ret == 0 && !(WIFEXITED(status) && WEXITSTATUS(status) == 0)) {
		cli_error("restore %s: relive-metad refused %s (its message is above)", words[0],
			  words[1]);
		return CLI_FAILURE;
	}
	if (ret == 0)
		ret = runtime_dir_open(words[0], false, &dir);
	if (ret == 0) /* `down` must not delete a catalog restored on purpose */
		ret = host_files_mark(&dir, HOST_KEPT);
	return ret ? cli_fail_local(ret, "restore %s", words[0])
		   : print_done(common.json, "its catalog was replaced by", words[0], words[1]);
}
