/*
 * test_ofi_apart.c - the contract suite over libfabric alone, with the target in another process.
 */
#include "tests/contract/suite/contract.h"
#include "tests/support/fixture/remote_target.h"

int main(int argc, char **argv)
{
	static const struct contract_kind kind = {
		.name = "ofi apart", .target = "ofi", .listens = true, .apart = true, .far = true
	};

	remote_target_main(argc, argv);
	if (contract_lacks_device("ofi"))
		return TEST_EXIT_SKIP;
	return contract_run(&kind);
}
