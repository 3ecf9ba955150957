/*
 * test_verbs_fake.c - the contract suite over a fake of rdma-core: the verbs transport on every host.
 */
#include "tests/contract/suite/contract.h"
#include "tests/support/fake/fake_verbs.h"

int main(void)
{
	static const struct contract_kind kinds[] = {
		{ .name = "fake verbs", .target = "verbs", .listens = true },
		{ .name = "fake verbs without windows",
		  .target = "verbs",
		  .listens = true,
		  .no_windows = true },
		{ .name = "fake verbs dir",
		  .target = "verbs",
		  .listens = true,
		  .in_file = true,
		  .in_dir = true },
	};
	int failed = 0;

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		fake_verbs_begin();
		failed += contract_run(&kinds[i]);
		fake_verbs_end();
	}
	return failed;
}
