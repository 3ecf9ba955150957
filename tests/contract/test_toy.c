/*
 * test_toy.c - the contract suite over a transport made after the recipe of docs/architecture.md.
 */
#include "tests/contract/suite/contract.h"
#include "tests/support/toy/toy.h"

static int open_toy(struct rig *rig, uint64_t client_id, struct transport **tr_out)
{
	struct transport_opts opts = { .clock = clock_monotonic(),
				       .timeout_ns = CLOCK_NS_PER_S,
				       .target = rig->tg,
				       .client_id = client_id };

	return toy_open(&opts, tr_out);
}

int main(void)
{
	static const struct contract_kind kind = { .name = "toy",
						   .private_memory = true,
						   .open = open_toy };

	return contract_run(&kind);
}
