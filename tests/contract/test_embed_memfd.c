/*
 * test_embed_memfd.c - the contract suite within one process, in memory that could be shared.
 */
#include "tests/contract/suite/contract.h"

int main(void)
{
	static const struct contract_kind kind = { .name = "embed_memfd" };

	return contract_run(&kind);
}
