/* Messages of a device pool whose fields are out of bounds are refused. */
#include "wire/lease_message.h"

#include <errno.h>
#include <string.h>

#include "tests/support/must_internal.h"

static struct lease_message message;

static int check_jobs(void)
{
	lease_seal(&message, LEASE_JOBS_ANSWER);
	return lease_check(&message, message.head.bytes);
}

/* The second message of 20 jobs. */
static void fill_jobs(void)
{
	memset(&message, 0, sizeof(message));
	message.jobs.total = 20;
	message.jobs.first = LEASE_JOBS;
	message.jobs.n = 20 - LEASE_JOBS;
	for (uint32_t i = 0; i < message.jobs.n; i++)
		memset(message.jobs.jobs[i].name, 'a', LEASE_NAME_BYTES - 1);
}

TEST(lease_check__jobs_within_their_list)
{
	fill_jobs();
	must(check_jobs());
	memset(&message, 0, sizeof(message)); /* there are none */
	must(check_jobs());
	message.jobs.total = LEASE_JOBS_MOST;
	message.jobs.n = LEASE_JOBS;
	must(check_jobs());
}

TEST(lease_check__refuses_jobs_out_of_bounds)
{
	static const struct {
		uint32_t total, first, n, reserved;
	} bad[] = {
		{ 20, LEASE_JOBS, 7, 0 },     { 20, 21, 0, 0 },
		{ 20, LEASE_JOBS, 0, 0 },     { 20, LEASE_JOBS, 6, 1 },
		{ 20, 0, LEASE_JOBS + 1, 0 }, { LEASE_JOBS_MOST + 1, 0, LEASE_JOBS, 0 },
		{ 20, UINT32_MAX, 6, 0 },     { 20, LEASE_JOBS, UINT32_MAX, 0 },
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		fill_jobs();
		message.jobs.total = bad[i].total;
		message.jobs.first = bad[i].first;
		message.jobs.n = bad[i].n;
		message.jobs.reserved = bad[i].reserved;
		assert_int_equal(check_jobs(), -EPROTO);
	}
	fill_jobs();
	message.jobs.jobs[5].name[LEASE_NAME_BYTES - 1] = 'a';
	assert_int_equal(check_jobs(), -EPROTO);
	fill_jobs();
	message.n_fds = 1;
	assert_int_equal(check_jobs(), -EPROTO);
}

int main(void)
{
	return test_run(NULL, NULL);
}
