/*
 * test_ofi.c - the contract suite over libfabric, with the target in the same process.
 */
#include "tests/contract/suite/contract.h"
#include "tests/support/fake/fault.h"

static int open_wrapped(struct rig *rig, uint64_t client_id, struct transport **tr_out)
{
	struct transport_opts opts = { .client_id = client_id };
	struct transport *inner = NULL;
	int ret = transport_open(rig->uri, &opts, &inner);

	if (ret == 0)
		ret = fault_wrap(inner, NULL, tr_out);
	if (ret == 0)
		(*tr_out)->caps &= ~(uint32_t)TRANSPORT_ASYNC; /* it waits for each call */
	return ret;
}

int main(void)
{
	static const struct contract_kind kinds[] = {
		{ .name = "ofi", .target = "ofi", .listens = true },
		{ .name = "ofi far", .target = "ofi", .listens = true, .far = true },
		{ .name = "ofi under the fault decorator",
		  .target = "ofi",
		  .listens = true,
		  .far = true,
		  .open = open_wrapped },
		{ .name = "ofi dir",
		  .target = "ofi",
		  .listens = true,
		  .in_file = true,
		  .in_dir = true },
	};
	int failed = 0;

	if (contract_lacks_device("ofi"))
		return TEST_EXIT_SKIP;
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		failed += contract_run(&kinds[i]);
	return failed;
}
