/*
 * test_fault.c - the contract suite over the fault decorator without faults.
 */
#include "tests/contract/suite/contract.h"

#include "tests/support/fake/fault.h"

static int open_wrapped(struct rig *rig, uint64_t client_id, struct transport **tr_out)
{
	struct transport_opts opts = { .target = rig->tg, .client_id = client_id };
	struct transport *inner = NULL;
	int ret = transport_open(rig->uri, &opts, &inner);

	return ret ? ret : fault_wrap(inner, NULL, tr_out);
}

int main(void)
{
	static const struct contract_kind kind = { .name = "fault",
						   .private_memory = true,
						   .open = open_wrapped };

	return contract_run(&kind);
}
