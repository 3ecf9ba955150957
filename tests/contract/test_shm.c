/*
 * test_shm.c - the contract suite over a socket and memfds.
 */
#include "tests/contract/suite/contract.h"

int main(void)
{
	static const struct contract_kind kind = { .name = "shm", .listens = true };

	return contract_run(&kind);
}
