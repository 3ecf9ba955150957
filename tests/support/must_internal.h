/*
 * must_internal.h - the same as must.h, for calls below the API.
 */
#ifndef RLV_TESTS_SUPPORT_MUST_INTERNAL_H
#define RLV_TESTS_SUPPORT_MUST_INTERNAL_H

#include "tests/support/test.h"

#include "base/error.h"

static inline void must(int ret)
{
	if (ret)
		fail_msg("%s: %s", error_name(ret), error_last());
}

#endif
