/* The layout of messages of a device pool: see test_layouts.c. */
#include "tests/golden/golden.h"
#include "tests/support/test.h"

#include "wire/lease_message.h"

static void put_lease_structs_1(FILE *out)
{
	STRUCT(lease_ref);
	FIELD(lease_ref, extent);
	FIELD(lease_ref, flags);
	FIELD(lease_ref, generation);
	STRUCT(lease_bare);
	FIELD(lease_bare, head);
	STRUCT(lease_hello);
	FIELD(lease_hello, head);
	FIELD(lease_hello, name);
	FIELD(lease_hello, incarnation);
	FIELD(lease_hello, persistent);
	FIELD(lease_hello, peak);
	FIELD(lease_hello, quota);
	FIELD(lease_hello, duration_ns);
	FIELD(lease_hello, weight);
	FIELD(lease_hello, priority);
	FIELD(lease_hello, device);
	FIELD(lease_hello, flags);
	STRUCT(lease_take);
	FIELD(lease_take, head);
	FIELD(lease_take, n);
	FIELD(lease_take, reserved);
	STRUCT(lease_refs);
	FIELD(lease_refs, head);
	FIELD(lease_refs, n);
	FIELD(lease_refs, flags);
	FIELD(lease_refs, refs);
	FIELD(lease_refs, marks);
	STRUCT(lease_end);
	FIELD(lease_end, head);
	FIELD(lease_end, remaining_ns);
	STRUCT(lease_profile);
	FIELD(lease_profile, head);
	FIELD(lease_profile, period_ns);
	FIELD(lease_profile, bins);
	STRUCT(lease_ask);
	FIELD(lease_ask, head);
	FIELD(lease_ask, first);
	FIELD(lease_ask, device);
	STRUCT(lease_limit);
	FIELD(lease_limit, head);
	FIELD(lease_limit, kind);
	FIELD(lease_limit, uid);
	FIELD(lease_limit, bytes);
	FIELD(lease_limit, name);
	FIELD(lease_limit, device);
	FIELD(lease_limit, reserved);
}

static void put_lease_structs_2(FILE *out)
{
	STRUCT(lease_drain);
	FIELD(lease_drain, head);
	FIELD(lease_drain, on);
	FIELD(lease_drain, reserved);
	STRUCT(lease_answer);
	FIELD(lease_answer, head);
	FIELD(lease_answer, status);
	FIELD(lease_answer, reason);
	FIELD(lease_answer, position);
	FIELD(lease_answer, others);
	FIELD(lease_answer, room);
	FIELD(lease_answer, incarnation);
	FIELD(lease_answer, extent_bytes);
	FIELD(lease_answer, device_bytes);
	FIELD(lease_answer, flags);
	FIELD(lease_answer, n);
	FIELD(lease_answer, device);
	FIELD(lease_answer, cuda);
	FIELD(lease_answer, refs);
	FIELD(lease_answer, text);
	STRUCT(lease_pool_answer);
	FIELD(lease_pool_answer, head);
	FIELD(lease_pool_answer, jobs);
	FIELD(lease_pool_answer, flags);
	FIELD(lease_pool_answer, device_bytes);
	FIELD(lease_pool_answer, budget);
	FIELD(lease_pool_answer, held);
	FIELD(lease_pool_answer, extent_bytes);
	FIELD(lease_pool_answer, handovers);
	FIELD(lease_pool_answer, deaths);
	FIELD(lease_pool_answer, adopted);
	FIELD(lease_pool_answer, iterations);
	FIELD(lease_pool_answer, overshoots);
	FIELD(lease_pool_answer, cut);
	FIELD(lease_pool_answer, devices);
	FIELD(lease_pool_answer, reserved);
	FIELD(lease_pool_answer, name);
	STRUCT(lease_job);
	FIELD(lease_job, device);
	FIELD(lease_job, pid);
	FIELD(lease_job, uid);
	FIELD(lease_job, state);
	FIELD(lease_job, reason);
	FIELD(lease_job, position);
	FIELD(lease_job, connected);
	FIELD(lease_job, priority);
	FIELD(lease_job, held);
	FIELD(lease_job, most);
	FIELD(lease_job, quota);
	FIELD(lease_job, persistent);
	FIELD(lease_job, peak);
	FIELD(lease_job, iterations);
	FIELD(lease_job, waited_ns);
	FIELD(lease_job, served_ns);
	FIELD(lease_job, name);
	STRUCT(lease_jobs_answer);
	FIELD(lease_jobs_answer, head);
	FIELD(lease_jobs_answer, total);
	FIELD(lease_jobs_answer, first);
	FIELD(lease_jobs_answer, n);
	FIELD(lease_jobs_answer, reserved);
	FIELD(lease_jobs_answer, jobs);
}

static void put_lease(FILE *out)
{
	struct lease_message hello = { .hello = { .name = "job",
						  .incarnation = 1,
						  .persistent = 2,
						  .peak = 3,
						  .quota = 4,
						  .duration_ns = 5,
						  .weight = 6,
						  .priority = -7,
						  .device = 8,
						  .flags = LEASE_PARKED } };
	struct lease_message take = { .take = { .n = 8 } };
	struct lease_message limit = {
		.limit = { .kind = LEASE_LIMIT_JOB, .bytes = 9, .name = "job", .device = 10 }
	};

	put_lease_structs_1(out);
	put_lease_structs_2(out);
	lease_seal(&hello, LEASE_HELLO);
	lease_seal(&take, LEASE_TAKE);
	lease_seal(&limit, LEASE_LIMIT);
	put_bytes(out, "lease_hello", hello.bytes, hello.head.bytes);
	put_bytes(out, "lease_take", take.bytes, take.head.bytes);
	put_bytes(out, "lease_limit", limit.bytes, limit.head.bytes);
}

TEST(layout__of_lease_messages)
{
	char name[64];

	(void)snprintf(name, sizeof(name), "lease-v%d", LEASE_VERSION);
	check_golden(name, put_lease);
}

int main(void)
{
	return test_run(NULL, NULL);
}
