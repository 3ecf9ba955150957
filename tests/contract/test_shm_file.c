/*
 * test_shm_file.c - the contract suite over a socket and a pool file.
 */
#include "tests/contract/suite/contract.h"

int main(void)
{
	static const struct contract_kind kind = { .name = "shm_file",
						   .listens = true,
						   .in_file = true };

	return contract_run(&kind);
}
