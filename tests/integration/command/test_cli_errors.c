/*
 * Error messages of the relive command and the daemons, and environment variables that must not
 * cause errors.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "base/bits.h"
#include "tests/support/fixture/cli_fixture.h"
#include "tests/support/test.h"

#define TOKEN "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define OTHER_TOKEN "fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210"

static int close_fixture(void **state)
{
	unsetenv("RELIVE_TOKEN");
	return cli_fixture_close(state);
}

/* -------- RELIVE_TOKEN -------- */

static void token_of(const struct cli_fixture *f, const char *store, char token_out[65])
{
	char name[64], path[PROCESSES_PATH + 64];
	FILE *file;

	snprintf(name, sizeof(name), "%s/token", store);
	processes_path(&f->ps, name, path);
	file = fopen(path, "re");
	assert_non_null(file);
	assert_int_equal(fread(token_out, 1, 64, file), 64);
	token_out[64] = 0;
	fclose(file);
}

#define ON_FIXTURE(test) TEST_WITH(test, cli_fixture_open, close_fixture)

ON_FIXTURE(up__takes_relive_token_for_a_new_store)
{
	struct cli_fixture *f = *state;
	uint16_t port = processes_free_port();
	char line[128], token[65];

	setenv("RELIVE_TOKEN", TOKEN, 1);
	snprintf(line, sizeof(line), "up --store a --size 32M --listen 127.0.0.1:%u", port);
	cli_expect(f, line, 0);
	token_of(f, "a", token);
	assert_string_equal(token, TOKEN);
	snprintf(line, sizeof(line), "status relive://127.0.0.1:%u", port);
	cli_expect(f, line, 0);
}

ON_FIXTURE(up__goes_on_with_the_token_that_a_store_has)
{
	static const char *const tokens[] = { OTHER_TOKEN, "secret", "" };
	struct cli_fixture *f = *state;
	char before[65], after[65];

	cli_expect(f, "up --store a --size 32M", 0);
	token_of(f, "a", before);
	for (size_t i = 0; i < ARRAY_LEN(tokens); i++) {
		setenv("RELIVE_TOKEN", tokens[i], 1);
		cli_expect(f, "status shm:a", 0);
		cli_expect(f, "up --store a", 0);
		cli_expect(f, "node add shm:a x --size 32M", i == 0 ? 0 : 1); /* runs already */
		token_of(f, "a", after);
		assert_string_equal(after, before);
	}
	cli_expect(f, "down --store a", 0);
	setenv("RELIVE_TOKEN", "secret", 1);
	cli_expect(f, "up --store b --size 32M", 0); /* of another store, then */
	token_of(f, "b", after);
	assert_string_not_equal(after, before);
}

/* Runs a line of the shell, BIN standing for our programs; its exit status, and its stderr. */
static int run_line(const char *line, char *err, size_t bytes)
{
	const char *bin = getenv("RLV_BIN_DIR");
	char command[1024];
	size_t n;
	FILE *pipe;

	snprintf(command, sizeof(command), "BIN=%s; exec 2>&1 >/dev/null </dev/null; %s",
		 bin ? bin : "bin", line);
	pipe = popen(command, "re"); /* NOLINT(cert-env33-c): the words are ours */
	assert_non_null(pipe);
	n = fread(err, 1, bytes - 1, pipe);
	err[n] = 0;
	return WEXITSTATUS(pclose(pipe));
}

/* -------- another pid namespace -------- */

ON_FIXTURE(inspect__of_a_node_in_another_pid_namespace_says_so)
{
	struct cli_fixture *f = *state;
	char err[4096];

	if (run_line("unshare -p -f true", err, sizeof(err)) != 0) {
		print_message("no pid namespace can be made here: %s\n", err);
		skip();
	}
	cli_expect(f, "up --store a --size 32M", 0);
	cli_expect(f, "table create shm:a t --capacity 2^12", 0);
	assert_int_equal(
		run_line("timeout 60 unshare -p -f --kill-child $BIN/relive inspect shm:a t", err,
			 sizeof(err)),
		1);
	cli_expect_words(err, "another pid namespace");
	cli_expect_words(err, "EPERM");
	cli_expect_words(err, "shareProcessNamespace");
}

/* -------- tokens -------- */

ON_FIXTURE(status__of_a_store_elsewhere_says_where_its_token_is)
{
	struct cli_fixture *f = *state;

	cli_expect(f, "status relive://127.0.0.1:1", 1);
	cli_expect_words(f->err, "relive: relive://127.0.0.1:1: no token: set RELIVE_TOKEN");
	cli_expect_words(f->err, "the file `token` of its directory on its host");
	assert_null(strstr(f->err, "run as the user"));
}

/* -------- usage -------- */

ON_FIXTURE(daemons__wrong_usage_is_one_line_and_where_help_is)
{
	static const char *const lines[][2] = {
		{ "relive-metad", "--store a --listen 127.0.0.1:99999" },
		{ "relive-metad", "--nonsense" },
		{ "relive-metad", "--store" },
		{ "relive-metad", "--store a stray" },
		{ "relive-metad", "" },
		{ "relive-memnode", "--store a --name b --metad relive://h:x" },
		{ "relive-memnode", "--nonsense" },
		{ "relive-memnode", "--size a" },
		{ "relive-memnode", "" },
	};
	char line[256], err[4096], help[64];

	for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
		const char *end;
		int status;

		snprintf(line, sizeof(line), "timeout 60 $BIN/%s %s", lines[i][0], lines[i][1]);
		status = run_line(line, err, sizeof(err));
		end = strchr(err, '\n');
		snprintf(help, sizeof(help), "\n  try: %s --help\n", lines[i][0]);
		assert_int_equal(status, 2);
		if (!end || strcmp(end, help) != 0)
			fail_msg("%s %s:\n%s", lines[i][0], lines[i][1], err);
	}
}

ON_FIXTURE(up__bad_port_is_one_line)
{
	static const char *const ports[] = { "127.0.0.1:99999", "127.0.0.1:x", ":", "[::1", "" };
	struct cli_fixture *f = *state;
	char line[128];

	for (size_t i = 0; i < ARRAY_LEN(ports); i++) {
		snprintf(line, sizeof(line), "up --size 32M --listen '%s'", ports[i]);
		cli_expect(f, line, 2);
		cli_expect_words(f->err, "--listen");
		cli_expect_words(f->err, "HOST:PORT");
		assert_true(strchr(f->err, '\n') && strlen(strchr(f->err, '\n')) < 40);
	}
}

int main(void)
{
	return test_run(NULL, NULL);
}
