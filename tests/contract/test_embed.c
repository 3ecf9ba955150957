/*
 * test_embed.c - the contract suite within one process, in private memory.
 */
#include "tests/contract/suite/contract.h"

int main(void)
{
	static const struct contract_kind kind = { .name = "embed", .private_memory = true };

	return contract_run(&kind);
}
