/* A permit: what job and broker see of it, in each order of their steps. */
#include "wire/lease_permit.h"

#include "tests/support/test.h"

static struct lease_permit permit;

static int fresh(void **state)
{
	(void)state;
	(void)lease_permit_recall(&permit);
	return 0;
}

static void expect_use(uint64_t ended, uint64_t used_ns, bool runs)
{
	struct lease_permit_use use = lease_permit_recall(&permit);

	assert_int_equal(use.ended, ended);
	assert_int_equal(use.runs, runs);
	if (ended)
		assert_int_equal(use.used_ns, used_ns);
}

TEST_WITH(lease_permit__none_allows_nothing, fresh, NULL)
{
	assert_false(lease_permit_allows(&permit));
	assert_false(lease_permit_begin(&permit, 1));
	assert_false(lease_permit_end(&permit, 2));
	lease_permit_drop(&permit);
	expect_use(0, 0, false);
}

TEST_WITH(lease_permit__counts_iterations_and_their_time, fresh, NULL)
{
	lease_permit_lend(&permit, 100);
	assert_false(lease_permit_allows(&permit)); /* one runs */
	assert_false(lease_permit_begin(&permit, 101));
	assert_true(lease_permit_end(&permit, 110));
	assert_true(lease_permit_allows(&permit));
	assert_false(lease_permit_end(&permit, 111)); /* none runs */
	assert_true(lease_permit_begin(&permit, 200));
	assert_true(lease_permit_end(&permit, 205));
	expect_use(2, 15, false);
	assert_false(lease_permit_begin(&permit, 300));

	lease_permit_lend(&permit, 400);
	expect_use(0, 0, true);
}

TEST_WITH(lease_permit_recall__between_the_times_and_the_end_has_the_former_times, fresh, NULL)
{
	struct lease_permit_use use;

	lease_permit_lend(&permit, 100);
	assert_true(lease_permit_end(&permit, 110));
	assert_true(lease_permit_begin(&permit, 200));
	permit.used_ns[0] = 77; /* as of the next end, whose CAS has not come */
	use = lease_permit_recall(&permit);
	assert_true(use.runs);
	assert_int_equal(use.ended, 1);
	assert_int_equal(use.used_ns, 10);
	assert_int_equal(use.began_ns, 200);
	assert_false(lease_permit_end(&permit, 210));
}

TEST_WITH(lease_permit_drop__leaves_an_iteration_that_runs, fresh, NULL)
{
	lease_permit_lend(&permit, 1);
	lease_permit_drop(&permit);
	assert_true(lease_permit_end(&permit, 2));
	lease_permit_drop(&permit);
	assert_false(lease_permit_begin(&permit, 3));
}

int main(void)
{
	return test_run(NULL, NULL);
}
