/*
 * test_ofi_lost.c - an initiator over libfabric whose target is killed, stopped, or not there.
 */
#include "tests/contract/suite/contract.h"

int main(int argc, char **argv)
{
	return contract_run_lost("ofi", false, argc, argv);
}
