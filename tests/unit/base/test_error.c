#include "base/error.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "tests/support/test.h"

static int clear(void **state)
{
	(void)state;
	error_clear();
	return 0;
}

TEST_WITH(error_set__keeps_code_text_and_errno, clear, NULL)
{
	errno = 77;
	assert_int_equal(error_set(-EINVAL, "capacity %d: must be at least %d", 0, 1), -EINVAL);
	assert_int_equal(errno, 77);
	assert_string_equal(error_last(), "capacity 0: must be at least 1");
	assert_int_equal(error_last_code(), -EINVAL);
}

TEST_WITH(error_set__may_take_the_last_message, clear, NULL)
{
	(void)error_set(-EINVAL, "inner");
	(void)error_set(-EPROTO, "outer (%s)", error_last());
	assert_string_equal(error_last(), "outer (inner)");
}

TEST_WITH(error_set__long_text_is_cut, clear, NULL)
{
	char text[2 * ERROR_TEXT_BYTES];

	memset(text, 'x', sizeof(text));
	text[sizeof(text) - 1] = '\0';
	(void)error_set(-EINVAL, "%s", text);
	assert_int_equal(strlen(error_last()), ERROR_TEXT_BYTES - 1);
	(void)error_prefix(-EINVAL, "y");
	assert_int_equal(strlen(error_last()), ERROR_TEXT_BYTES - 1);
	assert_int_equal(error_last()[0], 'y');
	(void)error_prefix(-EINVAL, "%s", text);
	assert_int_equal(strlen(error_last()), ERROR_TEXT_BYTES - 1);
}

TEST_WITH(error_prefix__puts_words_in_front, clear, NULL)
{
	(void)error_set(-ENOENT, "no such table");
	assert_int_equal(error_prefix(-ENOENT, "open %s: ", "replay"), -ENOENT);
	assert_string_equal(error_last(), "open replay: no such table");
}

TEST_WITH(error_clear__empties, clear, NULL)
{
	(void)error_set(-EINVAL, "x");
	error_clear();
	assert_string_equal(error_last(), "");
	assert_int_equal(error_last_code(), 0);
}

/* The message is kept over clean-up calls after a failure. */
TEST_WITH(error_restore__puts_the_message_back, clear, NULL)
{
	struct error_kept kept;

	(void)error_set(-EINVAL, "of the call");
	error_keep(&kept);
	(void)error_set(-EIO, "of closing");
	error_restore(&kept);
	assert_string_equal(error_last(), "of the call");
	assert_int_equal(error_last_code(), -EINVAL);
}

static void *look_and_set(void *arg)
{
	bool *was_empty = arg;

	*was_empty = error_last()[0] == '\0';
	(void)error_set(-EIO, "theirs");
	return NULL;
}

TEST_WITH(error_last__is_of_this_thread, clear, NULL)
{
	pthread_t thread;
	bool was_empty = false;

	(void)error_set(-EINVAL, "mine");
	assert_int_equal(pthread_create(&thread, NULL, look_and_set, &was_empty), 0);
	pthread_join(thread, NULL);
	assert_true(was_empty);
	assert_string_equal(error_last(), "mine");
}

TEST(error_name__known_and_unknown)
{
	assert_string_equal(error_name(0), "OK");
	assert_string_equal(error_name(-ESTALE), "ESTALE");
	assert_string_equal(error_name(-EHOSTDOWN), "EHOSTDOWN");
	assert_string_equal(error_name(-123456), "E?");
	assert_string_equal(error_name(EINVAL), "E?");
}

/* A flipped bit of a status must not become a code that no caller knows. */
TEST(error_is_code__of_linux_alone)
{
	assert_true(error_is_code(0));
	assert_true(error_is_code(-EHWPOISON));
	assert_false(error_is_code(-EHWPOISON - 1));
	assert_false(error_is_code(EACCES));
	assert_false(error_is_code(INT64_MIN));
}

int main(void)
{
	return test_run(NULL, NULL);
}
