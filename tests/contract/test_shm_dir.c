/*
 * test_shm_dir.c - the contract suite over a socket and a pool in a directory.
 */
#include "tests/contract/suite/contract.h"

int main(void)
{
	static const struct contract_kind kind = {
		.name = "shm_dir", .listens = true, .in_file = true, .in_dir = true
	};

	return contract_run(&kind);
}
