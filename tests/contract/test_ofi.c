/*
 * test_ofi.c - the contract suite over libfabric, with the target in the same process.
 */
#include "tests/contract/suite/contract.h"

int main(void)
{
	static const struct contract_kind kinds[] = {
		{ .name = "ofi", .target = "ofi", .listens = true },
		{ .name = "ofi far", .target = "ofi", .listens = true, .far = true },
	};
	int failed = 0;

	if (contract_lacks_device("ofi"))
		return TEST_EXIT_SKIP;
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		failed += contract_run(&kinds[i]);
	return failed;
}
