#include "server/net/metrics.h"

#include "tests/support/test.h"

#include <stdlib.h>

TEST(metrics__labels_are_escaped_and_seconds_have_nanoseconds)
{
	const struct metrics_label labels[] = { { "a", "x\\y\"z\nw" },
						{ "b", "" },
						{ NULL, NULL } };
	struct metrics m;

	assert_int_equal(metrics_open(&m), 0);
	metrics_family(&m, "n", METRICS_GAUGE, "What it is.");
	metrics_u64(&m, UINT64_MAX, labels);
	metrics_family(&m, "s_seconds_total", METRICS_COUNTER, "Time.");
	metrics_seconds(&m, 1000000007, NULL);
	assert_int_equal(metrics_close(&m), 0);
	assert_string_equal(m.text, "# HELP n What it is.\n"
				    "# TYPE n gauge\n"
				    "n{a=\"x\\\\y\\\"z\\nw\",b=\"\"} 18446744073709551615\n"
				    "# HELP s_seconds_total Time.\n"
				    "# TYPE s_seconds_total counter\n"
				    "s_seconds_total 1.000000007\n");
	free(m.text); /* NOLINT: of open_memstream */
}

int main(void)
{
	return test_run(NULL, NULL);
}
