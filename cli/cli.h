/*
 * cli.h - shared code of the subcommands: exit codes, messages, common options.
 */
#ifndef RLV_CLI_CLI_H
#define RLV_CLI_CLI_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "relive/relive.h"

#include "base/error.h"
#include "base/json.h"
#include "bench/harness/result.h"
#include "program/args.h"

enum cli_exit { CLI_OK = 0, CLI_FAILURE = 1, CLI_USAGE = 2, CLI_REFUSED = 3 };

#define CLI_DEFAULT_URI "shm:default"
#define CLI_CONTINUE (-1)
#define CLI_STORE_BYTES 384
#define CLI_REMEDY_BYTES 512

/* Options of each subcommand that uses a store. */
struct cli_common {
	bool json;
	int64_t timeout_ns;
	const char *store; /* value of --store, or NULL */
	const char *uri;   /* of the store, set by cli_take_uri */
	char uri_of_store[CLI_STORE_BYTES];
};
#define CLI_COMMON_INIT \
	{ \
		.timeout_ns = 5000000000 \
	}
/* Options of a command, and those of each command that opens a store. */
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
#define CLI_OPTIONS(common) \
	CLI_OPTION_STORE(common), CLI_OPTION_JSON(common), \
	{ \
		"timeout", "TIME", "longest wait for an answer (default 5s)", \
			&(common).timeout_ns, ARG_DURATION \
	}

/* Parses options. CLI_CONTINUE, or the exit code if --help or an error was printed. */
int cli_parse(const struct args *args, int argc, char *const *argv);

/* Begins the object that a command prints on stdout with --json. Static; cli_json_end ends it. */
struct json *cli_json_begin(void);
/* Ends the object of cli_json_begin and its line. CLI_OK, or CLI_FAILURE if stdout failed. */
int cli_json_end(struct json *json);

/*
 * Prints the result of a command: if json an object of the n values, else the text of fmt. CLI_OK,
 * or CLI_FAILURE if the object could not be written.
 */
int cli_result(bool json, const struct param *values, size_t n, const char *fmt, ...)
	RLV_PRINTF(4, 5);

/*
 * Writes the URI of a store to uri_out and returns it: store itself if it has a colon, else
 * shm:STORE.
 */
const char *cli_store_uri(const char *store, char uri_out[CLI_STORE_BYTES]);

/*
 * Sets common->uri: to that of --store; else to the first of `room` words, which is then removed,
 * if there are more than the `own` words of the command; else to the default. CLI_CONTINUE, or
 * CLI_USAGE: --store and a URI are given.
 */
int cli_take_uri(struct cli_common *common, const char **words, size_t room, size_t own);

/*
 * As cli_parse and then cli_take_uri, for a command with a store: its own words are the
 * args->min_positional ones that must be given.
 */
int cli_parse_store(const struct args *args, struct cli_common *common, int argc,
		    char *const *argv);

/*
 * Ends a command: returns its exit code. After a failure with --json it prints one object on stdout
 * with the messages of stderr: {"error":{"code","name","message","hint"}}.
 */
int cli_finish(int exit_code, int argc, char *const *argv);

/* Prints "relive: " and the message on stderr, and keeps the message for cli_finish. */
void cli_error(const char *fmt, ...) RLV_PRINTF(1, 2);

/*
 * Prints "try: " and a remedy on stderr, on a line of its own, and keeps the remedy for cli_finish.
 */
void cli_hint(const char *fmt, ...) RLV_PRINTF(1, 2);

/* Prints the text, rlv_last_error() and the name of code on stderr. Returns CLI_FAILURE. */
int cli_fail(int code, const char *fmt, ...) RLV_PRINTF(2, 3);

/* As cli_fail, with error_last() if that is of code: for failures of files, options and daemons. */
int cli_fail_local(int code, const char *fmt, ...) RLV_PRINTF(2, 3);

/*
 * Writes the remedy for an error of rlv_store_open, the last call of the library, to text_out and
 * returns it; "": none is known.
 */
const char *cli_open_remedy(const char *uri, int code, char text_out[CLI_REMEDY_BYTES]);

/*
 * Opens a store within timeout_ns; prints a failure with a remedy. 0, or the error of
 * rlv_store_open.
 */
int cli_store_open(const char *uri, int64_t timeout_ns, bool read_only,
		   struct rlv_store **store_out) RLV_MUST_CHECK;

/*
 * Calls run for each table of the store, and stops when one returns that the server does not
 * answer. json: where an array is put around them, or NULL. run prints its failures and returns
 * their code. CLI_OK, or CLI_FAILURE: a run failed, or the names could not be read.
 */
int cli_each_table(struct rlv_store *store, struct json *json,
		   int (*run)(struct rlv_store *store, const char *name, void *ctx), void *ctx);

/*
 * Finds a file of recorded data and writes its path: in the source tree, or in the data folder of
 * `make install`. False: it is in none.
 */
bool cli_data_file(const char *name, char path[PATH_MAX]);

/* Prints that closing the `what`, a store or table, failed, if ret is an error. */
void cli_closed(int ret, const char *what);

int cmd_up(int argc, char **argv);
int cmd_down(int argc, char **argv);
int cmd_status(int argc, char **argv);
int cmd_doctor(int argc, char **argv);
int cmd_clients(int argc, char **argv);
int cmd_node(int argc, char **argv);
int cmd_table(int argc, char **argv);
int cmd_token(int argc, char **argv);
int cmd_pool(int argc, char **argv);
int cmd_backup(int argc, char **argv);
int cmd_restore(int argc, char **argv);
int cmd_inspect(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_demo(int argc, char **argv);
int cmd_version(int argc, char **argv);

#endif
