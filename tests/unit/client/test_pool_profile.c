/* The profile of a job's first iterations. */
#include "tests/support/test.h"

#include <string.h>

#include "client/pool/profile.h"

#define MS 1000000ull

static struct profile profile;
static struct lease_profile out;

/* An iteration of so many ms that holds 10, and from half of it on `later`. */
static void iteration(uint64_t begin, uint64_t ms, uint64_t later)
{
	profile_begin(&profile, begin, 100);
	profile_held(&profile, begin, 110);
	profile_held(&profile, begin + ms * MS / 2, 100 + later);
	profile_held(&profile, begin + ms * MS / 2 + 1, 105); /* freed, and not given back */
	profile_end(&profile, begin + ms * MS);
}

static void reset(void)
{
	memset(&profile, 0, sizeof(profile));
	memset(&out, 0, sizeof(out));
}

TEST(profile__has_the_most_of_what_iterations_hold)
{
	reset();
	iteration(5, 1000, 999); /* not measured: it warms up */
	iteration(7 * MS, 10, 30);
	iteration(20 * MS, 20, 40);
	assert_false(profile_is_complete(&profile));
	iteration(50 * MS, 30, 20);
	assert_true(profile_is_complete(&profile));
	profile_end(&profile, 90 * MS); /* one more changes nothing */
	profile_fill(&profile, 1000, 16, &out);
	assert_int_equal(out.period_ns, 20 * MS);
	for (unsigned i = 0; i < LEASE_BINS; i++)
		assert_int_equal(out.bins[i], i < LEASE_BINS / 2 ? 10 : 40);
}

TEST(profile__rounds_down_what_extents_round_up)
{
	reset();
	for (int i = 0; i < 4; i++)
		iteration(1, 10, 40);
	profile_fill(&profile, 30, 16, &out);
	assert_int_equal(out.bins[LEASE_BINS - 1], 30);
	profile_fill(&profile, 20, 16,
		     &out); /* more than an extent above: the broker is to see it */
	assert_int_equal(out.bins[LEASE_BINS - 1], 40);
	assert_int_equal(out.bins[0], 10);
}

TEST(profile__of_many_steps_keeps_the_most)
{
	reset();
	for (int k = 0; k < 4; k++) {
		profile_begin(&profile, 0, 0);
		for (uint64_t i = 1; i <= 2 * PROFILE_STEPS; i++)
			profile_held(&profile, i, i);
		profile_end(&profile, 2 * PROFILE_STEPS + 1);
	}
	profile_fill(&profile, 10 * PROFILE_STEPS, 1, &out);
	assert_int_equal(out.bins[LEASE_BINS - 1], 2 * PROFILE_STEPS);
	for (unsigned i = 1; i < LEASE_BINS; i++)
		assert_true(out.bins[i] >= out.bins[i - 1]);
}

TEST(profile__of_no_time_and_no_memory)
{
	reset();
	for (int k = 0; k < 4; k++) {
		profile_begin(&profile, 9, 5);
		profile_held(&profile, 9, 5);
		profile_end(&profile, 9);
	}
	profile_fill(&profile, 0, 1, &out);
	assert_int_equal(out.period_ns, LEASE_BINS);
	assert_int_equal(out.bins[0] + out.bins[LEASE_BINS - 1], 0);
}

int main(void)
{
	return test_run(NULL, NULL);
}
