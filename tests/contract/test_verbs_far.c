/*
 * test_verbs_far.c - the contract suite over RDMA by initiators that map nothing, as on another host:
 * through one queue pair, and through several of few work requests each.
 */
#include "tests/contract/suite/contract.h"

int main(void)
{
	static const struct contract_kind one = {
		.name = "verbs far", .target = "verbs", .listens = true, .far = true
	};
	static const struct contract_kind several = { .name = "verbs far by 3 queue pairs",
						      .target = "verbs",
						      .listens = true,
						      .far = true };
	int failed;

	if (contract_lacks_device("verbs"))
		return TEST_EXIT_SKIP;
	failed = contract_run(&one);
	assert_int_equal(setenv("RLV_VERBS_QPS", "3", 1), 0);
	assert_int_equal(setenv("RLV_VERBS_DEPTH", "16", 1), 0);
	return failed + contract_run(&several);
}
