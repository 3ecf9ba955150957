/*
 * cli_fixture.h - the relive command for tests: a runtime directory of its own, and what the last
 * command printed.
 */
#ifndef RLV_TESTS_SUPPORT_CLI_FIXTURE_H
#define RLV_TESTS_SUPPORT_CLI_FIXTURE_H

#include <sys/types.h>

#include "tests/support/processes.h"

#define CLI_OUT_BYTES 65536

struct cli_fixture {
	struct processes ps;
	char out[CLI_OUT_BYTES];
	char err[CLI_OUT_BYTES];
};

/* For setup and teardown of cmocka; the latter kills the daemons of every store there. */
int cli_fixture_open(void **state);
int cli_fixture_close(void **state);

/* Runs `relive LINE` by the shell, without a terminal; its exit status. */
int cli_run(struct cli_fixture *f, const char *line);

/* The same; the test fails if the exit status is another. */
void cli_expect(struct cli_fixture *f, const char *line, int status);

/* The number behind `key` in what the last command printed; the test fails if it is not there. */
pid_t cli_pid(const struct cli_fixture *f, const char *key);

/* Kills it, and waits until it is gone: its locks and sockets are then free. */
void cli_kill_daemon(pid_t pid);

void cli_expect_words(const char *text, const char *words);

#endif
