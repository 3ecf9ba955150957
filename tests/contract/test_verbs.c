/*
 * test_verbs.c - the contract suite over RDMA, with the target in the same process.
 */
#include "tests/contract/suite/contract.h"

int main(void)
{
	static const struct contract_kind kinds[] = {
		{ .name = "verbs", .target = "verbs", .listens = true },
		{ .name = "verbs without windows",
		  .target = "verbs",
		  .listens = true,
		  .no_windows = true },
		{ .name = "verbs dir",
		  .target = "verbs",
		  .listens = true,
		  .in_file = true,
		  .in_dir = true },
	};
	int failed = 0;

	if (contract_lacks_device("verbs"))
		return TEST_EXIT_SKIP;
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		failed += contract_run(&kinds[i]);
	return failed;
}
