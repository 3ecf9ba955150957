/*
 * The `relive` command: one file for each subcommand.
 */
#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "cli/cli.h"

static const struct {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *summary;
} commands[] = {
	{ "up", cmd_up, "start a store on this host, or those of its daemons that are missing" },
	{ "down", cmd_down, "stop a store on this host" },
	{ "status", cmd_status, "nodes, tables and clients of a store" },
	{ "doctor", cmd_doctor, "check this host, and the way from here to a store" },
	{ "clients", cmd_clients, "clients of a store, with the slots and streams that they hold" },
	{ "node", cmd_node, "add, drain, drop and forget memory nodes of a running store" },
	{ "table", cmd_table, "list, describe, create, rebalance and drop tables" },
	{ "token", cmd_token, "print tokens of roles: read, learn, write, node, admin" },
	{ "pool", cmd_pool, "the memory of a device that jobs share: simulate" },
	{ "backup", cmd_backup, "copy the catalog of a running store into a file" },
	{ "restore", cmd_restore, "replace the catalog of a stopped store by such a copy" },
	{ "inspect", cmd_inspect, "check every invariant of tables" },
	{ "bench", cmd_bench, "measure throughput and latency: relive bench replay" },
	{ "demo", cmd_demo, "a tour in one minute, on recorded experience" },
	{ "version", cmd_version, "print version and commit" },
};

static void print_help(FILE *file)
{
	fputs("Usage: relive COMMAND [OPTIONS]\n\n"
	      "Relive is a replay store for reinforcement learning: actors append steps and learners\n"
	      "sample them, in memory that outlives both. Each command has a --help.\n\n"
	      "Commands\n",
	      file);
	for (size_t i = 0; i < ARRAY_LEN(commands); i++)
		fprintf(file, "  %-10s %s\n", commands[i].name, commands[i].summary);
	fputs("\nWith --json, stdout is JSON: one object; an array of objects for lists; one object a\n"
	      "line for bench. A command that fails prints\n"
	      "{\"error\":{\"code\",\"name\",\"message\",\"hint\"}}, and the message on stderr.\n"
	      "\nExit codes\n"
	      "  0  done\n"
	      "  1  failed\n"
	      "  2  wrong usage\n"
	      "  3  refused: down would lose items\n"
	      "\nEnvironment\n"
	      "  RELIVE_RUNTIME_DIR  where daemons put sockets, logs and tokens (default\n"
	      "                      $XDG_RUNTIME_DIR/relive)\n"
	      "  RELIVE_TOKEN        the token of a store on another host, or of a role. For a new store\n"
	      "                      on this host: the token to give it, 64 hexadecimal digits\n"
	      "  RELIVE_TLS_CERT, RELIVE_TLS_KEY, RELIVE_TLS_CA\n"
	      "                      PEM files, if the server on another host asks for certificates\n"
	      "\nFiles\n"
	      "  RELIVE_RUNTIME_DIR/STORE/token     token of the store\n"
	      "  RELIVE_RUNTIME_DIR/STORE/STORE.db  its catalog\n"
	      "  RELIVE_RUNTIME_DIR/STORE/*.log     logs of its daemons\n"
	      "\nExamples\n"
	      "  relive up --size 8G\n"
	      "  relive table create frames --columns atari --stack 4 --n-step 3\n"
	      "  relive status\n"
	      "  relive down\n",
	      file);
}

int cmd_version(int argc, char **argv)
{
	struct cli_common common = CLI_COMMON_INIT;
	const struct arg_option options[] = { CLI_OPTION_JSON(common) };
	const struct args args = {
		.usage = "version [--json]",
		.summary = "Prints the version of the command and of the library that it runs on.",
		.options = options,
		.n_options = ARRAY_LEN(options),
	};
	int code = cli_parse(&args, argc, argv);

	if (code != CLI_CONTINUE)
		return code;
	return cli_result(common.json,
			  (const struct param[]){ { .key = "version", .text = rlv_version() },
						  { .key = "commit", .text = RLV_COMMIT } },
			  2, "relive %d.%d.%d (library %s, commit %s)\n", RLV_VERSION_MAJOR,
			  RLV_VERSION_MINOR, RLV_VERSION_PATCH, rlv_version(), RLV_COMMIT);
}

int main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "";

	if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
		print_help(stdout);
		return CLI_OK;
	}
	if (strcmp(name, "--version") == 0)
		name = "version";
	for (size_t i = 0; i < ARRAY_LEN(commands); i++) {
		if (strcmp(name, commands[i].name) == 0)
			return cli_finish(commands[i].run(argc - 1, argv + 1), argc, argv);
	}
	if (!*name) {
		print_help(stderr);
		return CLI_USAGE;
	}
	cli_error("unknown command '%.40s'", name);
	cli_hint("relive --help");
	return cli_finish(CLI_USAGE, argc, argv);
}
