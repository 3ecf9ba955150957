/*
 * test_verbs_fake.c - the contract suite over a fake of rdma-core: the verbs transport on every host.
 */
#include "tests/contract/contract.h"
#include "tests/support/fake_verbs.h"

static int run(const struct contract_kind *kind)
{
	int failed = contract_run(kind);

	fake_verbs_end();
	return failed;
}

int main(void)
{
	static const struct contract_kind kinds[] = {
		{ .name = "fake verbs", .target = "verbs", .listens = true },
		{ .name = "fake verbs without windows",
		  .target = "verbs",
		  .listens = true,
		  .no_windows = true },
		{ .name = "fake verbs far", .target = "verbs", .listens = true, .far = true },
	};
	static const struct contract_kind poor = { .name = "fake verbs of a poor device",
						   .target = "verbs",
						   .listens = true,
						   .far = true };
	int failed = 0;

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		fake_verbs_begin();
		failed += run(&kinds[i]);
	}
	fake_verbs_begin();
	fake_verbs.reads = 1;
	fake_verbs.wrs = 16;
	fake_verbs.inline_bytes = 0;
	fake_verbs.backwards = true;
	fake_verbs.no_windows = fake_verbs.no_parent_domains = true;
	return failed + run(&poor);
}
