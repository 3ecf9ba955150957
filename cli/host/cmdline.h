/*
 * cmdline.h - command line of a daemon as one text: built, compared, written and read.
 *
 * The format is that of /proc/PID/cmdline: each argument ends with a 0 byte. The first argument is
 * the program; each further option has a value: --name value.
 */
#ifndef RLV_CLI_HOST_CMDLINE_H
#define RLV_CLI_HOST_CMDLINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"

#define CMDLINE_BYTES 8192
#define CMDLINE_MAX_ARGS 48

/* Zero-initialized: empty. */
struct cmdline {
	int error; /* the first of a change, 0 while all is well: -E2BIG, errors of getcwd(3) */
	size_t len;
	char text[CMDLINE_BYTES];
};

/* Appends an argument. line->error keeps the first error of all functions that change a line. */
void cmdline_add(struct cmdline *line, const char *arg);

/* The argument after arg, or the first one if arg is NULL. NULL at the end. */
const char *cmdline_next(const struct cmdline *line, const char *arg);

/* Value of the option name, as "--file"; NULL: the line does not have it. */
const char *cmdline_get(const struct cmdline *line, const char *name);

/*
 * Appends the option name, as "--file", and its value, and removes a former one. A NULL value
 * changes nothing.
 */
void cmdline_set(struct cmdline *line, const char *name, const char *value);
void cmdline_set_bytes(struct cmdline *line, const char *name, uint64_t bytes);
/*
 * Sets an option to ns in seconds; INT64_MAX is written as 0. Here and in cmdline_set_bytes, 0
 * changes nothing.
 */
void cmdline_set_ns(struct cmdline *line, const char *name, int64_t ns);
/* Sets an option to an absolute path, made from the working directory; the file need not exist. */
void cmdline_set_path(struct cmdline *line, const char *name, const char *path);

/*
 * Sets every option of other in line, in place of a former value, and takes its error if line has
 * none.
 */
void cmdline_merge(struct cmdline *line, const struct cmdline *other);

bool cmdline_equals(const struct cmdline *a, const struct cmdline *b);

/* Fills argv, NULL at the end, with pointers into line; returns the count. */
size_t cmdline_argv(const struct cmdline *line, const char *argv[CMDLINE_MAX_ARGS + 1]);

/*
 * cmdline_read reads a file of cmdline_write, cmdline_of_process the command line of a process.
 * -ENOENT: there is none; -EPROTO: the file holds no command line.
 */
int cmdline_read(const char *path, struct cmdline *line_out) RLV_MUST_CHECK;
int cmdline_of_process(pid_t pid, struct cmdline *line_out) RLV_MUST_CHECK;

/* Writes line to a file, atomically: a kill leaves the old or the new file. */
int cmdline_write(const char *path, const struct cmdline *line) RLV_MUST_CHECK;

#endif
