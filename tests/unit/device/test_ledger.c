#include "device/ledger.h"

#include <errno.h>
#include <string.h>

#include "base/mem/alloc.h"
#include "tests/support/test.h"

#define N 8u
#define BUDGET 6u

static struct ledger ledger;
static uint32_t one, two; /* jobs: quota 4, quota 8 */

static int begin(void **state)
{
	(void)state;
	assert_int_equal(ledger_init(&ledger, N, BUDGET), 0);
	assert_int_equal(ledger_attach(&ledger, "one", 1000, 4, &one), 0);
	assert_int_equal(ledger_attach(&ledger, "two", 1000, 8, &two), 0);
	return 0;
}

static int end(void **state)
{
	(void)state;
	assert_int_equal(ledger_check(&ledger), 0);
	ledger_destroy(&ledger);
	return 0;
}

static struct extent_ref lease_active(uint32_t job)
{
	struct extent_ref ref;

	assert_int_equal(ledger_lease(&ledger, job, 1, &ref), 0);
	assert_int_equal(ledger_map(&ledger, ref), 0);
	assert_int_equal(ledger_use(&ledger, ref), 0);
	return ref;
}

static struct marks marks_of(uint32_t stream)
{
	struct marks marks = { 0 };

	marks_queued(&ledger.clock, stream, ledger.clock.last + 1);
	marks_add(&marks, &ledger.clock, stream);
	return marks;
}

TEST_WITH(ledger_lease__quota_and_budget_bound_it, begin, end)
{
	struct extent_ref refs[N];

	assert_int_equal(ledger_lease(&ledger, one, 5, refs), -ENOSPC);
	assert_non_null(strstr(error_last(), "quota is 4"));
	assert_int_equal(ledger_lease(&ledger, two, 7, refs), -ENOSPC);
	assert_int_equal(ledger_lease(&ledger, one, 4, refs), 0);
	assert_int_equal(ledger_room(&ledger, one), 0);
	assert_int_equal(ledger_room(&ledger, two), 2);
	assert_int_equal(ledger_lease(&ledger, two, 3, refs), -EAGAIN);
	assert_int_equal(ledger_lease(&ledger, two, 2, refs), 0);
	assert_int_equal(ledger_lease(&ledger, two, 0, refs), -EINVAL);
	assert_int_equal(ledger_lease(&ledger, 17, 1, refs), -EINVAL);
	assert_int_equal(ledger_lease(&ledger, LEDGER_JOBS, 1, refs), -EINVAL);
}

TEST_WITH(ledger_lease__consecutive_where_there_is_a_run, begin, end)
{
	struct extent_ref refs[4], run[2];

	assert_int_equal(ledger_lease(&ledger, one, 4, refs), 0);
	assert_int_equal(ledger_give_back(&ledger, refs[0]), 0);
	assert_int_equal(ledger_give_back(&ledger, refs[2]), 0);
	assert_int_equal(ledger_lease(&ledger, two, 2, run), 0);
	assert_int_equal(run[0].extent, 4);
	assert_int_equal(run[1].extent, 5);
	assert_int_equal(ledger_lease(&ledger, two, 1, run), 0);
	assert_int_equal(run[0].extent, 0);
}

TEST_WITH(ledger_lease__scattered_where_there_is_no_run, begin, end)
{
	struct extent_ref first[4], second[2], third[2];

	ledger_limit(&ledger, N);
	assert_int_equal(ledger_lease(&ledger, two, 4, first), 0);
	assert_int_equal(ledger_lease(&ledger, one, 2, second), 0);
	assert_int_equal(ledger_lease(&ledger, one, 2, third), 0);
	assert_int_equal(ledger_give_back(&ledger, first[1]), 0);
	assert_int_equal(ledger_give_back(&ledger, first[3]), 0);
	assert_int_equal(ledger_lease(&ledger, two, 2, second), 0);
	assert_int_equal(second[0].extent, 1);
	assert_int_equal(second[1].extent, 3);
}

TEST_WITH(ledger_settle__only_when_the_mark_is_reached, begin, end)
{
	struct extent_ref ref = lease_active(one);
	struct marks marks = marks_of(2);

	assert_int_equal(ledger_give_back(&ledger, ref), -EINVAL);
	assert_int_equal(ledger_pend(&ledger, ref, &marks), 0);
	assert_int_equal(ledger_settle(&ledger, ref), -EAGAIN);
	assert_int_equal(ledger_give_back(&ledger, ref), -EINVAL);
	assert_non_null(strstr(error_last(), "of job one is pending"));
	assert_int_equal(marks_progress(&ledger.clock, 2, 1), 0);
	assert_int_equal(ledger_settle(&ledger, ref), 0);
	assert_int_equal(ledger_give_back(&ledger, ref), 0);
}

TEST_WITH(ledger_use__pending_is_used_again_by_its_job, begin, end)
{
	struct extent_ref ref = lease_active(one);
	struct marks marks = marks_of(2);

	assert_int_equal(ledger_pend(&ledger, ref, &marks), 0);
	assert_int_equal(ledger_use(&ledger, ref), 0);
	assert_int_equal(ledger_settle(&ledger, ref), -EINVAL);
}

TEST_WITH(ledger_give_back__earlier_lease_is_estale, begin, end)
{
	struct extent_ref old, ref;

	assert_int_equal(ledger_lease(&ledger, one, 1, &old), 0);
	assert_int_equal(ledger_give_back(&ledger, old), 0);
	assert_int_equal(ledger_give_back(&ledger, old), -ESTALE);
	assert_int_equal(ledger_lease(&ledger, two, 1, &ref), 0);
	assert_int_equal(ref.extent, old.extent);
	assert_int_equal(ledger_give_back(&ledger, old), -ESTALE);
	assert_int_equal(ledger_map(&ledger, old), -ESTALE);
	ref.extent = N;
	assert_int_equal(ledger_map(&ledger, ref), -EINVAL);
}

TEST_WITH(ledger_limit__below_what_is_held_stops_leases, begin, end)
{
	struct extent_ref refs[4], more;

	assert_int_equal(ledger_lease(&ledger, one, 4, refs), 0);
	ledger_limit(&ledger, 3);
	assert_int_equal(ledger_room(&ledger, two), 0);
	assert_int_equal(ledger_lease(&ledger, two, 1, &more), -EAGAIN);
	assert_int_equal(ledger_give_back(&ledger, refs[0]), 0);
	assert_int_equal(ledger_lease(&ledger, two, 1, &more), -EAGAIN);
	assert_int_equal(ledger_give_back(&ledger, refs[1]), 0);
	assert_int_equal(ledger_lease(&ledger, two, 1, &more), 0);
	assert_int_equal(ledger_quota(&ledger, two, 0), 0);
	assert_int_equal(ledger_room(&ledger, two), 0);
	assert_int_equal(ledger_quota(&ledger, 9, 0), -EINVAL);
}

TEST_WITH(ledger_attach__names_are_taken_and_bounded, begin, end)
{
	char name[LEDGER_NAME_BYTES + 1];
	uint32_t job;

	memset(name, 'x', sizeof(name) - 1);
	name[sizeof(name) - 1] = 0;
	assert_int_equal(ledger_attach(&ledger, "one", 0, 1, &job), -EEXIST);
	assert_int_equal(ledger_attach(&ledger, "", 0, 1, &job), -EINVAL);
	assert_int_equal(ledger_attach(&ledger, name, 0, 1, &job), -EINVAL);
	for (uint32_t i = 2; i < LEDGER_JOBS; i++) {
		snprintf(name, sizeof(name), "job %u", i);
		assert_int_equal(ledger_attach(&ledger, name, 0, 1, &job), 0);
	}
	assert_int_equal(ledger_attach(&ledger, "more", 0, 1, &job), -ENOSPC);
}

TEST_WITH(ledger_detach__holder_is_ebusy, begin, end)
{
	struct extent_ref ref;

	assert_int_equal(ledger_lease(&ledger, one, 1, &ref), 0);
	assert_int_equal(ledger_detach(&ledger, one), -EBUSY);
	assert_int_equal(ledger_give_back(&ledger, ref), 0);
	assert_int_equal(ledger_detach(&ledger, one), 0);
	assert_int_equal(ledger_detach(&ledger, one), -EINVAL);
}

TEST_WITH(ledger_adopt__takes_over_what_an_earlier_ledger_had, begin, end)
{
	struct extent_ref ref = { 3, 7 }, taken;

	ledger.extents[3].generation = 7;
	assert_int_equal(ledger_adopt(&ledger, one, (struct extent_ref){ N, 1 }), -EINVAL);
	assert_int_equal(ledger_adopt(&ledger, one, (struct extent_ref){ 3, 6 }), -ESTALE);
	assert_int_equal(ledger_adopt(&ledger, one, ref), 0);
	assert_int_equal(ledger_adopt(&ledger, two, ref), -EBUSY);
	assert_int_equal(ledger.jobs[one].held, 1);
	/* Leases pass it over. */
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(ledger_lease(&ledger, two, 1, &taken), 0);
	assert_int_equal(ledger_lease(&ledger, two, 1, &taken), 0);
	assert_int_equal(taken.extent, 4);
	assert_int_equal(ledger_check(&ledger), 0);
}

TEST_WITH(ledger_reclaim__frees_all_of_a_job_in_any_state, begin, end)
{
	struct extent_ref refs[2], theirs = lease_active(two);
	struct marks marks = marks_of(1);
	struct extent_ref pending = lease_active(one);

	assert_int_equal(ledger_pend(&ledger, pending, &marks), 0);
	(void)lease_active(one);
	assert_int_equal(ledger_lease(&ledger, one, 2, refs), 0);
	ledger_reclaim(&ledger, one);
	assert_int_equal(ledger.jobs[one].held, 0);
	assert_int_equal(ledger.held, 1);
	assert_int_equal(ledger.extents[theirs.extent].state, EXTENT_ACTIVE);
	assert_int_equal(ledger_give_back(&ledger, refs[0]), -ESTALE);
	assert_int_equal(ledger_detach(&ledger, one), 0);
}

TEST_WITH(ledger_settle__by_the_clock_of_its_job, begin, end)
{
	struct mark_clock clock = { 0 };
	struct extent_ref ref = lease_active(one);
	struct marks marks = { 0 };

	ledger.jobs[one].clock = &clock;
	marks_queued(&clock, 2, 5);
	marks_add(&marks, &clock, 2);
	assert_int_equal(ledger_pend(&ledger, ref, &marks), 0);
	assert_int_equal(ledger_settle(&ledger, ref), -EAGAIN);
	assert_int_equal(marks_progress(&clock, 2, 5), 0);
	assert_int_equal(ledger_settle(&ledger, ref), 0);
	assert_int_equal(ledger_give_back(&ledger, ref), 0);
}

TEST(ledger_check__finds_two_books_that_differ)
{
	struct extent_ref ref;

	begin(NULL);
	assert_int_equal(ledger_lease(&ledger, one, 1, &ref), 0);
	ledger.held++;
	assert_int_equal(ledger_check(&ledger), -EPROTO);
	ledger.held--;
	ledger.extents[ref.extent].job = two;
	assert_int_equal(ledger_check(&ledger), -EPROTO);
	ledger.extents[ref.extent].job = LEDGER_NOBODY;
	assert_int_equal(ledger_check(&ledger), -EPROTO);
	ledger_destroy(&ledger);
}

TEST(ledger_init__no_memory_is_enomem)
{
	assert_int_equal(ledger_init(&ledger, 0, 1), -EINVAL);
	mem_fail_after(1);
	assert_int_equal(ledger_init(&ledger, 4, 1), -ENOMEM);
	mem_fail_after(0);
}

int main(void)
{
	return test_run(NULL, NULL);
}
