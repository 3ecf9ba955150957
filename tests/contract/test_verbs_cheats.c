/*
 * test_verbs_cheats.c - clients that cheat, and bad input, over a fake of rdma-core.
 */
#include "tests/contract/suite/contract.h"
#include "tests/support/fake/fake_verbs.h"

int main(void)
{
	int failed;

	fake_verbs_begin();
	failed = contract_run_rights();
	fake_verbs_end();
	fake_verbs_begin();
	failed += contract_run_input(false);
	fake_verbs_end();
	return failed;
}
