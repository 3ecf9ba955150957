/*
 * test_verbs_fake_far.c - the same by initiators that map nothing.
 */
#include "tests/contract/suite/contract.h"
#include "tests/support/fake/fake_verbs.h"

int main(void)
{
	static const struct contract_kind far = {
		.name = "fake verbs far", .target = "verbs", .listens = true, .far = true
	};
	int failed;

	fake_verbs_begin();
	failed = contract_run(&far);
	fake_verbs_end();
	return failed;
}
