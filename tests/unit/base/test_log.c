#include <relive/relive.h>

#include "base/log.h"

#include <errno.h>
#include <string.h>

#include "tests/support/test.h"

struct seen {
	int calls;
	enum log_level level;
	char where[64];
	char text[LOG_TEXT_BYTES];
};

static void record(void *ctx, enum log_level level, const char *where, const char *text)
{
	struct seen *seen = ctx;

	seen->calls++;
	seen->level = level;
	snprintf(seen->where, sizeof(seen->where), "%s", where);
	snprintf(seen->text, sizeof(seen->text), "%s", text);
	errno = 99; /* a callback may clobber it */
}

static int silence(void **state)
{
	(void)state;
	log_set(NULL, NULL, LOG_LEVEL_NONE);
	return 0;
}

TEST(log__says_nothing_by_default)
{
	assert_false(log_enabled(LOG_LEVEL_ERROR));
	log_error("nobody hears %d", 1);
}

TEST_WITH(log__level_is_a_limit, NULL, silence)
{
	struct seen seen = { 0 };

	log_set(record, &seen, LOG_LEVEL_WARN);
	log_info("no");
	log_debug("no");
	assert_int_equal(seen.calls, 0);
	log_warn("slot %d pid %d", 3, 4);
	assert_int_equal(seen.calls, 1);
	assert_int_equal(seen.level, LOG_LEVEL_WARN);
	assert_string_equal(seen.text, "slot 3 pid 4");
	assert_string_equal(seen.where, __func__);
	log_error("yes");
	assert_int_equal(seen.calls, 2);
	log_set(record, &seen, LOG_LEVEL_DEBUG);
	log_debug("yes");
	assert_int_equal(seen.calls, 3);
}

static int side_effects;

static int touch(void)
{
	return ++side_effects;
}

TEST(log__disabled_does_not_evaluate_arguments)
{
	side_effects = 0;
	log_error("never %d", touch());
	assert_int_equal(side_effects, 0);
}

TEST_WITH(log__percent_m_is_the_callers_errno, NULL, silence)
{
	struct seen seen = { 0 };

	log_set(record, &seen, LOG_LEVEL_ERROR);
	errno = ENOENT;
	log_error("open: %m");
	assert_int_equal(errno, ENOENT);
	assert_string_equal(seen.text, "open: No such file or directory");
}

TEST_WITH(log__long_text_is_cut, NULL, silence)
{
	struct seen seen = { 0 };
	char text[2 * LOG_TEXT_BYTES];

	memset(text, 'x', sizeof(text));
	text[sizeof(text) - 1] = '\0';
	log_set(record, &seen, LOG_LEVEL_ERROR);
	log_error("%s", text);
	assert_int_equal(strlen(seen.text), LOG_TEXT_BYTES - 1);
}

TEST_WITH(log_set__null_silences, NULL, silence)
{
	struct seen seen = { 0 };

	log_set(record, &seen, LOG_LEVEL_DEBUG);
	log_set(NULL, &seen, LOG_LEVEL_DEBUG);
	assert_false(log_enabled(LOG_LEVEL_ERROR));
	log_write(LOG_LEVEL_ERROR, "direct", "no");
	assert_int_equal(seen.calls, 0);
}

/* The callback may log, and change the callback, without a deadlock. */
static void unhook(void *ctx, enum log_level level, const char *where, const char *text)
{
	(void)level;
	(void)where;
	(void)text;
	++*(int *)ctx;
	log_set(NULL, NULL, LOG_LEVEL_NONE);
	log_error("from inside");
}

TEST_WITH(log_set__from_the_callback, NULL, silence)
{
	int calls = 0;

	log_set(unhook, &calls, LOG_LEVEL_ERROR);
	log_error("once");
	log_error("twice");
	assert_int_equal(calls, 1);
}

TEST(log_level_name__knows_its_levels)
{
	assert_string_equal(log_level_name(LOG_LEVEL_ERROR), "error");
	assert_string_equal(log_level_name(LOG_LEVEL_DEBUG), "debug");
	assert_string_equal(log_level_name((enum log_level)99), "?");
}

static const char *const rlv_log_names[] = { "error", "warn", "info", "debug" };

static void hear(void *ctx, enum rlv_log_level level, const char *line)
{
	uint32_t *heard = ctx;

	assert_non_null(strstr(line, rlv_log_names[level]));
	*heard |= 1u << level;
}

/* The callback of the public header, whose levels begin with 0. */
TEST(rlv_log_set__gives_the_levels_asked_for)
{
	for (int most = RLV_LOG_ERROR; most <= RLV_LOG_DEBUG; most++) {
		uint32_t heard = 0;

		rlv_log_set(hear, &heard, (enum rlv_log_level)most);
		log_error("error");
		log_warn("warn");
		log_info("info");
		log_debug("debug");
		rlv_log_set(NULL, NULL, RLV_LOG_ERROR);
		assert_int_equal(heard, (2u << most) - 1);
	}
}

int main(void)
{
	return test_run(NULL, NULL);
}
