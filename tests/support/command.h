/* command.h - runs the relive command in tests and captures its output. */
#ifndef RLV_TESTS_SUPPORT_COMMAND_H
#define RLV_TESTS_SUPPORT_COMMAND_H

#include "tests/support/processes.h"

#define COMMAND_BYTES 65536

struct command {
	struct processes *ps;
	char out[COMMAND_BYTES];
	char err[COMMAND_BYTES];
};

/*
 * Runs `relive LINE` by the shell, without a terminal, and returns its exit status. out and err
 * receive its output, COMMAND_BYTES each.
 */
int command_shell(const struct processes *ps, const char *line, char *out, char *err);

/* The same with a format. */
int command_run(struct command *command, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* Runs the line; fails the test, with all output, if the exit status differs from `status`. */
void command_expect(struct command *command, int status, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Fails the test if the words are not in the text. */
void command_expect_words(const char *text, const char *words);

#endif
