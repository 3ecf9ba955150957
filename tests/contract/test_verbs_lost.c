/*
 * test_verbs_lost.c - an initiator over RDMA whose target is killed, stopped, or not there.
 */
#include "tests/contract/suite/contract.h"

int main(int argc, char **argv)
{
	return contract_run_lost("verbs", true, argc, argv);
}
