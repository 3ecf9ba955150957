/*
 * test_embed_file.c - the contract suite over an initiator and a target of one process, in a file.
 */
#include "tests/contract/suite/contract.h"

int main(void)
{
	static const struct contract_kind kind = { .name = "embed_file", .in_file = true };

	return contract_run(&kind);
}
