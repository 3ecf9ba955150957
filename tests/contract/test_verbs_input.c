/*
 * test_verbs_input.c - bad input over a real device.
 */
#include "tests/contract/suite/contract.h"

int main(void)
{
	return contract_lacks_device("verbs") ? TEST_EXIT_SKIP : contract_run_input(true);
}
