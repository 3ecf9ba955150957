#include "program/args.h"

#include <errno.h>
#include <string.h>

#include "base/bits.h"
#include "tests/support/test.h"

/* One of each kind. */
struct values {
	bool flag;
	const char *text;
	uint64_t count, bytes;
	uint32_t small, choice;
	const char *level;
	double number;
	int64_t duration_ns;
	const char *words[2];
};

static int parse(struct values *v, int argc, const char *const *argv)
{
	const struct arg_option options[] = {
		{ "flag", NULL, "a flag", &v->flag, ARG_FLAG },
		{ NULL, NULL, "Others", NULL, ARG_HEADING },
		{ "text", "TEXT", "words", &v->text, ARG_TEXT },
		{ "count", "N", "how many", &v->count, ARG_COUNT },
		{ "small", "N", "few", &v->small, ARG_COUNT32 },
		{ "size", "BYTES", "how large", &v->bytes, ARG_BYTES },
		{ "number", "X", "a number", &v->number, ARG_NUMBER },
		{ "time", "TIME", "how long", &v->duration_ns, ARG_DURATION },
		{ "stalled", "wait|kill", "what then", &v->choice, ARG_CHOICE },
		{ "level", "warn|info", "how much", &v->level, ARG_WORD },
	};
	const struct args args = {
		.usage = "test [WORD]",
		.summary = "A test.",
		.options = options,
		.n_options = ARRAY_LEN(options),
		.positional = v->words,
		.max_positional = 2,
	};
	char *copy[20];

	for (int i = 0; i < argc; i++)
		copy[i] = (char *)(uintptr_t)argv[i];
	return args_parse(&args, argc, copy);
}

#define PARSE(v, ...) \
	parse(v, (int)ARRAY_LEN(((const char *[]){ "test", __VA_ARGS__ })), \
	      (const char *[]){ "test", __VA_ARGS__ })

TEST(args_parse__every_kind)
{
	struct values v = { 0 };

	assert_int_equal(PARSE(&v, "--flag", "--text", "a b", "--count=2M", "--small", "64",
			       "--size", "1G", "--number=-0.5", "--time", "20ms", "--stalled",
			       "kill"),
			 0);
	assert_true(v.flag);
	assert_string_equal(v.text, "a b");
	assert_true(v.count == 2000000);
	assert_int_equal(v.small, 64);
	assert_true(v.bytes == UINT64_C(1) << 30);
	assert_true(v.number == -0.5);
	assert_true(v.duration_ns == 20000000);
	assert_int_equal(v.choice, 1);
}

TEST(args_parse__a_word_is_one_of_the_list)
{
	struct values v = { 0 };

	assert_int_equal(PARSE(&v, "--level", "info"), 0);
	assert_string_equal(v.level, "info");
	assert_int_equal(PARSE(&v, "--level", "inf"), -EINVAL);
	assert_non_null(strstr(error_last(), "'inf' is not one of warn|info"));
}

TEST(args_parse__words_stand_anywhere)
{
	struct values v = { 0 };

	assert_int_equal(PARSE(&v, "one", "--flag", "two"), 0);
	assert_string_equal(v.words[0], "one");
	assert_string_equal(v.words[1], "two");
	memset(&v, 0, sizeof(v));
	assert_int_equal(PARSE(&v, "--", "--flag"), 0);
	assert_false(v.flag);
	assert_string_equal(v.words[0], "--flag");
}

static void check_refused(const char *word, int ret)
{
	assert_int_equal(ret, -EINVAL);
	if (!strstr(error_last(), word))
		fail_msg("message '%s' lacks '%s'", error_last(), word);
}

TEST(args_parse__mistakes_are_named)
{
	struct values v = { 0 };

	check_refused("--nothing", PARSE(&v, "--nothing"));
	check_refused("--fla", PARSE(&v, "--fla"));
	check_refused("--flags", PARSE(&v, "--flags"));
	check_refused("-x", PARSE(&v, "-x"));
	check_refused("--text needs a value", PARSE(&v, "--text"));
	check_refused("--flag takes no value", PARSE(&v, "--flag=1"));
	check_refused("--count", PARSE(&v, "--count", "x"));
	check_refused("--small", PARSE(&v, "--small", "5000000000"));
	check_refused("'later' is not one of wait|kill", PARSE(&v, "--stalled", "later"));
	check_refused("'three'", PARSE(&v, "one", "two", "three"));
}

TEST(args_parse__help_wins)
{
	struct values v = { 0 };

	assert_int_equal(PARSE(&v, "--flag", "--help", "--nothing"), ARGS_HELP);
	assert_int_equal(PARSE(&v, "-h"), ARGS_HELP);
}

TEST(args_print_help__names_every_option)
{
	const struct arg_option options[] = {
		{ "quiet", NULL, "says less", NULL, ARG_FLAG },
		{ NULL, NULL, "Others", NULL, ARG_HEADING },
		{ "a-very-long-name-of-an-option", "VALUE", "first\nsecond", NULL, ARG_TEXT },
	};
	const struct args args = { .usage = "test [WORD]",
				   .summary = "A test.",
				   .options = options,
				   .n_options = ARRAY_LEN(options),
				   .notes = "The end." };
	char text[1024] = "";
	FILE *file = fmemopen(text, sizeof(text), "w");

	assert_non_null(file);
	args_print_help(&args, file);
	fclose(file);
	assert_non_null(strstr(text, "Usage: relive test [WORD]\n"));
	assert_non_null(strstr(text, "\n  --quiet                     says less\n"));
	assert_non_null(strstr(text, "\nOthers\n"));
	assert_non_null(strstr(text, "--a-very-long-name-of-an-option VALUE\n"));
	assert_non_null(strstr(text, "\n                              second\n"));
	assert_non_null(strstr(text, "\nThe end.\n"));
}

int main(void)
{
	return test_run(NULL, NULL);
}
