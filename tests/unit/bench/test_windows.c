#include "bench/harness/windows.h"

#include <errno.h>
#include <string.h>

#include "tests/support/test.h"

struct recorded {
	uint32_t n, fail_at;
	uint32_t index[8];
	double done[8];
};

static int record(void *ctx, uint32_t index, double done)
{
	struct recorded *r = ctx;

	r->index[r->n] = index;
	r->done[r->n] = done;
	return ++r->n == r->fail_at ? -EIO : 0;
}

TEST(windows_run__cases_alternate)
{
	static const uint32_t order[] = { 0, 1, 2, 0, 1, 2 };
	struct recorded r = { .n = 0 };
	const struct windows windows = {
		.from = 0.5, .to = 1, .n = 2, .cases = 3, .run = record, .ctx = &r
	};

	assert_int_equal(windows_run(&windows), 0);
	assert_int_equal(r.n, 6);
	assert_memory_equal(r.index, order, sizeof(order));
	assert_true(r.done[0] == 0.5 && r.done[3] == 0.75);
}

TEST(windows_run__first_error_ends_them)
{
	struct recorded r = { .fail_at = 4 };
	const struct windows windows = { .to = 1, .n = 2, .cases = 3, .run = record, .ctx = &r };

	assert_int_equal(windows_run(&windows), -EIO);
	assert_int_equal(r.n, 4);
}

int main(void)
{
	return test_run(NULL, NULL);
}
