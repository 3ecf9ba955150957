/*
 * args.h - parses command lines by a table of options. --help is generated from the same table, and
 * the man page from --help (tools/help2man).
 *
 * Options may stand anywhere: --name VALUE, --name=VALUE; "--" ends them. Other arguments are
 * positional. The variable of an absent option is unchanged.
 */
#ifndef RLV_PROGRAM_ARGS_H
#define RLV_PROGRAM_ARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/error.h"

enum arg_kind {
	ARG_FLAG,     /* bool *, takes no value */
	ARG_TEXT,     /* const char ** */
	ARG_COUNT,    /* uint64_t *, units_parse_count */
	ARG_COUNT32,  /* uint32_t * */
	ARG_BYTES,    /* uint64_t *, units_parse_bytes */
	ARG_NUMBER,   /* double * */
	ARG_DURATION, /* int64_t * ns, units_parse_duration */
	ARG_CHOICE,   /* uint32_t *, index in `value`, a list "wait|kill" */
	ARG_WORD,     /* const char **, one of the words of such a list */
	ARG_HEADING,  /* a line in --help */
};

struct arg_option {
	const char *name;  /* without dashes */
	const char *value; /* name of the value in --help; the choices of ARG_CHOICE, ARG_WORD */
	const char *help;
	void *out;
	enum arg_kind kind;
};

struct args {
	const char *program; /* NULL = "relive" */
	const char *usage;   /* "status [URI]" */
	const char *summary; /* a paragraph */
	const struct arg_option *options;
	size_t n_options;
	uint64_t *seen;          /* bit i is set if options[i] was given, i < 64; or NULL */
	const char *notes;       /* a paragraph after the options, or NULL */
	const char *examples;    /* shell lines, or NULL */
	const char **positional; /* array of max_positional, NULL where absent */
	size_t min_positional;
	size_t max_positional;
};

#define ARGS_HELP 1 /* --help was given */

/*
 * Parses options and arguments into args; argv[0], the subcommand, is skipped. 0, ARGS_HELP (--help
 * was given), or -EINVAL: the message names the argument.
 */
int args_parse(const struct args *args, int argc, char *const *argv) RLV_MUST_CHECK;

void args_print_help(const struct args *args, FILE *file);

#endif
