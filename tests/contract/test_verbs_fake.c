/*
 * test_verbs_fake.c - the contract suite over a fake of rdma-core: the verbs transport on every host.
 */
#include "tests/contract/suite/contract.h"
#include "tests/support/fake/fake_clock.h"
#include "tests/support/fake/fake_verbs.h"

/* The time is over at each step of connecting in turn. */
static void connect__ends_in_time_at_each_step(void **state)
{
	const struct rig *rig = rig_of(state);
	struct fake_clock time;
	struct transport_opts opts = { .clock = &time.clock, .client_id = 9 };
	struct transport *tr = NULL;
	int ret = -ETIMEDOUT, late = 0;

	for (; ret == -ETIMEDOUT && late < 1000; late += ret == -ETIMEDOUT) {
		fake_clock_init(&time, CLOCK_NS_PER_S);
		time.step_ns = CLOCK_NS_PER_MS;
		opts.open_ns = (uint64_t)late * CLOCK_NS_PER_MS + 1;
		ret = transport_open(rig->uri, &opts, &tr);
	}
	assert_int_equal(ret, 0);
	assert_in_range(late, 3, 999);
	transport_close(&tr);
}

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
	static const struct CMUnitTest timed[] = {
		CONTRACT_TEST(connect__ends_in_time_at_each_step),
	};
	int failed = 0;

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		fake_verbs_begin();
		failed += contract_run(&kinds[i]);
		if (i == 0)
			failed += TEST_RUN(timed, NULL, NULL);
		fake_verbs_end();
	}
	return failed;
}
