/*
 * args.h - command lines: options from a table, from which --help is made, too, and from that the man
 * page (tools/help2man).
 *
 * Options may stand anywhere: --name VALUE, --name=VALUE; "--" ends them. What is not an option
 * is positional. An option that is not given leaves its variable alone.
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
	ARG_HEADING,  /* a line in --help */
};

struct arg_option {
	const char *name;  /* without dashes */
	const char *value; /* what --help calls the value; the list of an ARG_CHOICE */
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
	uint64_t *seen;          /* bit i is set when options[i] is given, i < 64; or NULL */
	const char *notes;       /* a paragraph after the options, or NULL */
	const char *examples;    /* lines of a shell, or NULL */
	const char **positional; /* max_positional of them, NULL where none is given */
	size_t min_positional;
	size_t max_positional;
};

#define ARGS_HELP 1 /* --help was given */

/* argv[0] is the subcommand. 0, ARGS_HELP, or -EINVAL: the message names the argument. */
int args_parse(const struct args *args, int argc, char *const *argv) RLV_MUST_CHECK;

void args_print_help(const struct args *args, FILE *file);

#endif
