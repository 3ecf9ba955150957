#include "device/marks.h"

#include <errno.h>

#include "tests/support/test.h"

TEST(marks_reached__waits_for_each_stream)
{
	struct mark_clock clock = { 0 };
	struct marks marks = { 0 };

	assert_true(marks_reached(&marks, &clock));
	marks_queued(&clock, 3, 1);
	marks_add(&marks, &clock, 3);
	marks_queued(&clock, 7, 2);
	marks_add(&marks, &clock, 7);
	assert_false(marks_reached(&marks, &clock));
	assert_int_equal(marks_progress(&clock, 3, 1), 0);
	assert_false(marks_reached(&marks, &clock));
	assert_int_equal(marks_progress(&clock, 7, 2), 0);
	assert_true(marks_reached(&marks, &clock));
}

TEST(marks_add__replaces_the_earlier_mark_of_a_stream)
{
	struct mark_clock clock = { 0 };
	struct marks marks = { 0 };

	marks_queued(&clock, 3, 1);
	marks_add(&marks, &clock, 3);
	marks_queued(&clock, 3, 2);
	marks_add(&marks, &clock, 3);
	assert_int_equal(marks.n, 1);
	assert_int_equal(marks_progress(&clock, 3, 1), 0);
	assert_false(marks_reached(&marks, &clock));
}

TEST(marks_add__fifth_stream_joins_them)
{
	struct mark_clock clock = { 0 };
	struct marks marks = { 0 };

	for (uint32_t i = 0; i <= MARKS_ROOM; i++) {
		marks_queued(&clock, i, i + 1);
		marks_add(&marks, &clock, i);
	}
	assert_true(marks.joined);
	for (uint32_t i = 0; i < MARKS_ROOM; i++)
		assert_int_equal(marks_progress(&clock, i, i + 1), 0);
	assert_false(marks_reached(&marks, &clock));
	assert_int_equal(marks_progress(&clock, MARKS_ROOM, MARKS_ROOM + 1), 0);
	assert_true(marks_reached(&marks, &clock));
}

TEST(marks_reached__joined_does_not_wait_for_later_marks)
{
	struct mark_clock clock = { 0 };
	struct marks marks = { .n = 1, .joined = true, .seq = { 2 } };

	marks_queued(&clock, 0, 1);
	marks_queued(&clock, 1, 2);
	marks_queued(&clock, 0, 3);
	marks_queued(&clock, 2, 4); /* its stream has none up to 2, which cannot be told */
	assert_int_equal(marks_progress(&clock, 0, 3), 0);
	assert_int_equal(marks_progress(&clock, 1, 2), 0);
	assert_false(marks_reached(&marks, &clock));
	assert_int_equal(marks_progress(&clock, 2, 4), 0);
	assert_true(marks_reached(&marks, &clock));
}

TEST(marks_progress__outside_the_marks_is_eproto)
{
	struct mark_clock clock = { 0 };

	marks_queued(&clock, 0, 5);
	assert_int_equal(marks_progress(&clock, 0, 6), -EPROTO);
	assert_int_equal(marks_progress(&clock, 0, 4), 0);
	assert_int_equal(marks_progress(&clock, 0, 3), -EPROTO);
}

int main(void)
{
	return test_run(NULL, NULL);
}
