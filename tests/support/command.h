/*
 * command.h - the relive command in tests: runs a line, and has what it said.
 */
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
 * Runs `relive LINE` by the shell, without a terminal: its exit status. out and err have
 * COMMAND_BYTES each, for what it prints.
 */
int command_shell(const struct processes *ps, const char *line, char *out, char *err);

/* The same with a format. */
int command_run(struct command *command, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* Fails the test, with all that was said, if the exit status is another one. */
void command_expect(struct command *command, int status, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Fails the test if the words are not in the text. */
void command_expect_words(const char *text, const char *words);

#endif
