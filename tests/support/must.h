/*
 * must.h - fails the test, with the code's name and the message, if a call of the API returns
 * another code than expected.
 */
#ifndef RLV_TESTS_SUPPORT_MUST_H
#define RLV_TESTS_SUPPORT_MUST_H

#include "tests/support/test.h"

#include "relive/relive.h"

static inline void must(int ret, const char *what)
{
	if (ret)
		fail_msg("%s: %s: %s", what, rlv_error_name(ret), rlv_last_error());
}

static inline void expect(int got, int want)
{
	if (got != want)
		fail_msg("%s (%s), want %s", rlv_error_name(got), rlv_last_error(),
			 rlv_error_name(want));
}

#endif
