#include "cli/bench.h"

#include <errno.h>
#include <string.h>

#include "base/bits.h"
#include "bench/replay/group.h"
#include "cli/cli.h"
#include "tests/support/test.h"

static int parse(struct replay_config *config, bool *given, int argc, const char *const *argv)
{
	char *copy[20];

	*given = false;
	for (int i = 0; i < argc; i++)
		copy[i] = (char *)(uintptr_t)argv[i];
	return bench_parse(config, argc, copy, given);
}

#define PARSE(config, given, ...) \
	parse(config, given, (int)ARRAY_LEN(((const char *[]){ "replay", __VA_ARGS__ })), \
	      (const char *[]){ "replay", __VA_ARGS__ })

TEST(bench_parse__how_to_run_is_no_case)
{
	struct replay_config config;
	bool given;

	assert_int_equal(PARSE(&config, &given, "--json", "--seed", "7", "--windows", "9", "--full",
			       "--seconds", "3"),
			 CLI_CONTINUE);
	assert_false(given);
	assert_int_equal(PARSE(&config, &given, "--actors", "1"), CLI_CONTINUE);
	assert_true(given);
	assert_int_equal(PARSE(&config, &given, "--check"), CLI_CONTINUE);
	assert_true(given);
}

TEST(replay_config_check__view_is_stack_and_steps)
{
	struct replay_config config;
	bool given;

	assert_int_equal(PARSE(&config, &given, "--view", "4,3"), CLI_CONTINUE);
	assert_int_equal(replay_config_check(&config), 0);
	assert_int_equal(config.stack, 4);
	assert_int_equal(config.n_step, 3);
	config.view = "4";
	assert_int_equal(replay_config_check(&config), 0);
	assert_int_equal(config.n_step, 1);
}

TEST(replay_config_check__what_does_not_agree_is_named)
{
	static const struct {
		const char *argv[4];
		const char *word;
	} bad[] = {
		{ { "--view", "4,x" }, "--view" },
		{ { "--view", "0" }, "--view" },
		{ { "--windows", "0" }, "--windows" },
		{ { "--windows", "65" }, "--windows" },
		{ { "--seconds", "1us" }, "--seconds" },
		{ { "--batch", "0" }, "--batch" },
		{ { "--actors", "65" }, "--actors" },
		{ { "--actors=0", "--learners=0" }, "--actors" },
		{ { "--loop", "--actors=2" }, "--loop" },
		{ { "--check", "--trace=x" }, "--check" },
		{ { "--check", "--envs=4" }, "--check" },
		{ { "--threads", "--store=shm:x" }, "--threads" },
		{ { "--rate", "-1" }, "--rate" },
	};

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct replay_config config;
		bool given;

		assert_int_equal(PARSE(&config, &given, bad[i].argv[0], bad[i].argv[1]),
				 CLI_CONTINUE);
		assert_int_equal(replay_config_check(&config), -EINVAL);
		if (!strstr(error_last(), bad[i].word))
			fail_msg("%s: message '%s'", bad[i].argv[0], error_last());
	}
}

TEST(replay_config_is_local__one_role_or_threads)
{
	struct replay_config config;

	replay_config_init(&config);
	assert_false(replay_config_is_local(&config));
	config.loop = true;
	assert_true(replay_config_is_local(&config));
	assert_int_equal(replay_config_roles(&config), 1);
	config.store = "shm:x";
	assert_false(replay_config_is_local(&config));
	config.store = "embed:file";
	assert_true(replay_config_is_local(&config));
}

/* The cases that run without options must be sound, and all of a group of one kind. */
TEST(bench_group__cases_are_sound)
{
	struct replay_config base;

	replay_config_init(&base);
	base.full = true;
	for (uint32_t g = 0; g < bench_groups(true); g++) {
		struct replay_group group;

		bench_group(g, &base, &group);
		assert_non_null(group.title);
		assert_in_range(group.n_cases, 1, REPLAY_GROUP_MAX);
		for (uint32_t i = 0; i < group.n_cases; i++) {
			assert_int_equal(replay_config_check(&group.cases[i]), 0);
			assert_true(group.cases[i].label[0] != 0);
			assert_true(replay_config_is_local(&group.cases[i]) ==
				    replay_config_is_local(&group.cases[0]));
		}
	}
}

int main(void)
{
	return test_run(NULL, NULL);
}
