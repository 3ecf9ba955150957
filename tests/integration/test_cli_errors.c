/*
 * What the relive command and the daemons say when something is wrong, and what the environment may
 * hold without making it so.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "tests/support/cli_fixture.h"
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

static void up__takes_relive_token_for_a_new_store(void **state)
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

static void up__goes_on_with_the_token_that_a_store_has(void **state)
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

#define ON_FIXTURE(test) cmocka_unit_test_setup_teardown(test, cli_fixture_open, close_fixture)

int main(void)
{
	const struct CMUnitTest tests[] = {
		ON_FIXTURE(up__takes_relive_token_for_a_new_store),
		ON_FIXTURE(up__goes_on_with_the_token_that_a_store_has),
	};

	return TEST_RUN(tests, NULL, NULL);
}
