#include "tests/support/test.h"

#include "server/daemon/daemon.h"

#include <errno.h>
#include <getopt.h>
#include <string.h>

static int set_name(void *ctx, int option, const char *value)
{
	const char **name = ctx;

	*name = value;
	return option == 1 ? 0 : -EINVAL;
}

static struct daemon_common common;

static int parse_words(char **argv, int argc, const char **name)
{
	static const struct option options[] = {
		{ "name", required_argument, NULL, 1 },
		{ NULL, 0, NULL, 0 },
	};
	const struct daemon_program program = {
		.name = "relive-x", .usage = "usage", .options = options, .set = set_name
	};

	optind = 0; /* from the start again */
	return daemon_parse(&program, argc, argv, name, &common);
}

TEST(daemon_parse__own_option_goes_to_the_program)
{
	char *argv[] = { "relive-x", "--name", "n", NULL };
	const char *name = NULL;

	assert_int_equal(parse_words(argv, 3, &name), 0);
	assert_string_equal(name, "n");
}

TEST(daemon_parse__options_of_both_daemons_are_kept)
{
	char *argv[] = { "relive-x", "--group", "g", "--tls-key=k", "--metrics", "9117", NULL };
	const char *name = NULL;

	assert_int_equal(parse_words(argv, 6, &name), 0);
	assert_null(name);
	assert_string_equal(common.group, "g");
	assert_string_equal(common.tls.key, "k");
	assert_string_equal(common.metrics, "9117");
	assert_null(common.tls.ca);
}

TEST(daemon_parse__refuses_a_bare_argument)
{
	char *argv[] = { "relive-x", "--name", "n", "stray", NULL };
	const char *name = NULL;

	assert_int_equal(parse_words(argv, 4, &name), -EINVAL);
	assert_non_null(strstr(error_last(), "stray"));
}

TEST(daemon_parse_size__units)
{
	uint64_t bytes = 0;

	assert_int_equal(daemon_parse_size("0", &bytes), 0);
	assert_true(bytes == 0);
	assert_int_equal(daemon_parse_size("4096", &bytes), 0);
	assert_true(bytes == 4096);
	assert_int_equal(daemon_parse_size("3k", &bytes), 0);
	assert_true(bytes == 3072);
	assert_int_equal(daemon_parse_size("5M", &bytes), 0);
	assert_true(bytes == 5u << 20);
	assert_int_equal(daemon_parse_size("2G", &bytes), 0);
	assert_true(bytes == (uint64_t)2 << 30);
	assert_int_equal(daemon_parse_size("1T", &bytes), 0);
	assert_true(bytes == (uint64_t)1 << 40);
}

TEST(daemon_parse_size__refuses_what_is_none)
{
	static const char *const bad[] = {
		"", "M", "-1", " 1", "1X", "1MB", "1 M", "18446744073709551616", "99999999T",
	};
	uint64_t bytes = 4711;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		if (daemon_parse_size(bad[i], &bytes) != -EINVAL)
			fail_msg("size \"%s\" was taken", bad[i]);
	assert_true(bytes == 4711);
}

TEST(daemon_parse_seconds__fractions)
{
	uint64_t ns = 0;

	assert_int_equal(daemon_parse_seconds("0.25", &ns), 0);
	assert_true(ns == 250000000);
	assert_int_equal(daemon_parse_seconds("60", &ns), 0);
	assert_true(ns == 60000000000);
	assert_int_equal(daemon_parse_seconds("0", &ns), -EINVAL);
	assert_int_equal(daemon_parse_seconds("-1", &ns), -EINVAL);
	assert_int_equal(daemon_parse_seconds("nan", &ns), -EINVAL);
	assert_int_equal(daemon_parse_seconds("1s", &ns), -EINVAL);
}

static void expect_address(const char *text, const char *host, uint16_t port)
{
	char got[256];
	uint16_t got_port = 0;

	assert_int_equal(daemon_parse_address(text, got, &got_port), 0);
	assert_string_equal(got, host);
	assert_int_equal(got_port, port);
}

TEST(daemon_parse_address__forms)
{
	expect_address(":7200", "", 7200);
	expect_address("host:7200", "host", 7200);
	expect_address("127.0.0.1:0", "127.0.0.1", 0);
	expect_address("host", "host", 7117);
	expect_address("[::1]:7200", "::1", 7200);
	expect_address("relive://host:7200", "host", 7200);
}

TEST(daemon_parse_address__refuses_what_is_none)
{
	char host[256];
	uint16_t port;

	assert_int_equal(daemon_parse_address("host:", host, &port), -EINVAL);
	assert_int_equal(daemon_parse_address("host:x", host, &port), -EINVAL);
	assert_int_equal(daemon_parse_address("host:65536", host, &port), -EINVAL);
	assert_int_equal(daemon_parse_address("[::1", host, &port), -EINVAL);
}

int main(void)
{
	return test_run(NULL, NULL);
}
