/*
 * cli.h - what the subcommands share: exit codes, messages, options that all of them have.
 */
#ifndef RLV_CLI_CLI_H
#define RLV_CLI_CLI_H

#include <stdbool.h>
#include <stdint.h>

#include "relive/relive.h"

#include "base/error.h"
#include "program/args.h"

enum cli_exit { CLI_OK = 0, CLI_FAILURE = 1, CLI_USAGE = 2, CLI_REFUSED = 3 };

#define CLI_DEFAULT_URI "shm:default"
#define CLI_CONTINUE (-1)
#define CLI_STORE_BYTES 384

/* Options of every subcommand that talks to a store. */
struct cli_common {
	bool json;
	int64_t timeout_ns;
	const char *store;         /* as --store has it, or NULL */
	char uri[CLI_STORE_BYTES]; /* of it */
};
#define CLI_COMMON_INIT \
	{ \
		.timeout_ns = 5000000000 \
	}
#define CLI_OPTION_JSON(common) \
	{ \
		"json", NULL, "print JSON: an object, or an array of objects", &(common).json, \
			ARG_FLAG \
	}
#define CLI_OPTION_STORE(common) \
	{ \
		"store", "NAME", "the store: a name given to relive up on this host, or a URI", \
			&(common).store, ARG_TEXT \
	}
#define CLI_OPTION_TIMEOUT(common) \
	{ \
		"timeout", "TIME", "longest wait for an answer (default 5s)", \
			&(common).timeout_ns, ARG_DURATION \
	}

/* Parses; CLI_CONTINUE, or the exit code when --help or an error has been printed. */
int cli_parse(const struct args *args, int argc, char *const *argv);

/* The URI of a store that is given by name, as of `relive up --store`, or by its URI. */
const char *cli_store_uri(const char *store, char uri_out[CLI_STORE_BYTES]);

/*
 * The same for a command with CLI_OPTION_STORE: the URI of --store takes its place among the words,
 * where the command's own words are before it.
 */
int cli_parse_store(const struct args *args, struct cli_common *common, size_t before, int argc,
		    char *const *argv);

/*
 * The end of every command, with the exit code that it returns: where it failed and --json was given,
 * one object on stdout, {"error":{"code","name","message","hint"}}, of what stands on stderr.
 */
int cli_finish(int exit_code, int argc, char *const *argv);

/* "relive: ..." on stderr. */
void cli_error(const char *fmt, ...) RLV_PRINTF(1, 2);

/* What to do about it, on a line of its own. */
void cli_hint(const char *fmt, ...) RLV_PRINTF(1, 2);

/* Prints the library's last error with its code, and a hint where there is one. CLI_FAILURE. */
int cli_fail(int code, const char *fmt, ...) RLV_PRINTF(2, 3);

/* The same with the message of base (error_last): of files, options and daemons. */
int cli_fail_local(int code, const char *fmt, ...) RLV_PRINTF(2, 3);

/* Opens a store with a deadline; on failure says so, with what to do. Code of the library. */
int cli_store_open(const char *uri, int64_t timeout_ns, bool read_only,
		   struct rlv_store **store_out) RLV_MUST_CHECK;

/* The server does not answer, so that other questions need not be asked. */
bool cli_is_away(int code);

/* Closes, and says when that fails. */
void cli_store_close(struct rlv_store **store);
void cli_table_close(struct rlv_table **table);

int cmd_up(int argc, char **argv);
int cmd_down(int argc, char **argv);
int cmd_status(int argc, char **argv);
int cmd_clients(int argc, char **argv);
int cmd_node(int argc, char **argv);
int cmd_table(int argc, char **argv);
int cmd_token(int argc, char **argv);
int cmd_backup(int argc, char **argv);
int cmd_restore(int argc, char **argv);
int cmd_inspect(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_demo(int argc, char **argv);
int cmd_version(int argc, char **argv);

#endif
