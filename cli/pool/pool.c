/*
 * relive pool: the memory of a device that jobs share.
 */
#include "cli/pool/pool.h"

#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "cli/cli.h"

static const struct {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *summary;
} commands[] = {
	{ "status", pool_status_command, "what a pool has, and its jobs" },
	{ "queue", pool_queue, "jobs that wait, and why" },
	{ "top", pool_top, "the status, again and again" },
	{ "limit", pool_limit_command, "set the budget, or the quota of a user or job" },
	{ "drain", pool_drain, "take no new jobs" },
	{ "simulate", pool_simulate, "replay jobs under a policy on a virtual clock" },
	{ "corun", pool_corun, "run jobs under a broker, beside what the simulator says" },
};

static void print_help(FILE *file)
{
	fputs("Usage: relive pool COMMAND [OPTIONS]\n\n"
	      "Jobs that share the memory of a device. Each command has a --help.\n\n"
	      "Commands\n",
	      file);
	for (size_t i = 0; i < ARRAY_LEN(commands); i++)
		fprintf(file, "  %-10s %s\n", commands[i].name, commands[i].summary);
	fputs("\nExamples\n"
	      "  relive-poold --size 8G & relive pool status\n"
	      "  relive pool simulate\n",
	      file);
}

int cmd_pool(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "";

	if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
		print_help(stdout);
		return CLI_OK;
	}
	for (size_t i = 0; i < ARRAY_LEN(commands); i++) {
		if (strcmp(name, commands[i].name) == 0)
			return commands[i].run(argc - 1, argv + 1);
	}
	if (!*name)
		cli_error("pool: give a command, as in: relive pool simulate");
	else
		cli_error("pool: unknown command '%.40s'", name);
	return CLI_USAGE;
}
