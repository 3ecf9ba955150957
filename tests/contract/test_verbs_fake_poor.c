/* test_verbs_fake_poor.c - the contract suite over a device with few capabilities. */
#include "tests/contract/suite/contract.h"
#include "tests/support/fake/fake_verbs.h"

int main(void)
{
	static const struct contract_kind poor = { .name = "fake verbs of a poor device",
						   .target = "verbs",
						   .listens = true,
						   .far = true };
	int failed;

	fake_verbs_begin();
	fake_verbs.reads = 1;
	fake_verbs.wrs = 16;
	fake_verbs.inline_bytes = 0;
	fake_verbs.backwards = true;
	fake_verbs.no_windows = fake_verbs.no_parent_domains = true;
	failed = contract_run(&poor);
	fake_verbs_end();
	return failed;
}
