#include "tests/support/test.h"

#include "transport/transport.h"

#include <signal.h>

/* Of libraries that transports open: none may take a signal of the process. */
TEST(module_load__leaves_signals_as_they_were)
{
	struct sigaction before[32], now;

	for (int number = 1; number < 32; number++)
		assert_int_equal(sigaction(number, NULL, &before[number]), 0);
	if (transport_target_check("verbs"))
		print_message("%s\n", error_last());
	if (transport_target_check("ofi"))
		print_message("%s\n", error_last());
	for (int number = 1; number < 32; number++) {
		assert_int_equal(sigaction(number, NULL, &now), 0);
		if (now.sa_sigaction != before[number].sa_sigaction)
			fail_msg("signal %d has another handler", number);
	}
}

int main(void)
{
	if (test_skips_msan("libfabric"))
		return TEST_EXIT_SKIP;
	return test_run(NULL, NULL);
}
