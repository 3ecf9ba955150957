/*
 * test_mapped.c - the contract suite over a wire whose regions are mapped, too.
 */
#include "tests/contract/suite/contract.h"

#include <string.h>

#include "tests/support/fake/wire_transport.h"

#include "base/os/process.h"

#include "transport/mapped.h"

static int open_mapped(struct rig *rig, uint64_t client_id, struct transport **tr_out)
{
	struct transport_opts opts = { .target = rig->tg, .client_id = client_id };
	struct process_id self;
	struct transport *wire = NULL;
	int ret = transport_open(rig->uri, &opts, &wire);

	if (ret)
		return ret;
	assert_int_equal(process_self(&self), 0);
	wire = wire_wrap_nic(wire);
	*tr_out = mapped_over(wire, rig->uri + strlen("shm:"), self.boot_id, &opts);
	assert_ptr_not_equal(*tr_out, wire);
	return 0;
}

int main(void)
{
	static const struct contract_kind kind = {
		.name = "mapped", .listens = true, .twice = true, .open = open_mapped
	};

	return contract_run(&kind);
}
