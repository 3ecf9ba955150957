#include "bench/harness/windows.h"

#include <errno.h>

#include "program/interrupt.h"

int windows_run(const struct windows *windows)
{
	uint32_t total = windows->n * windows->cases;

	for (uint32_t i = 0; i < total; i++) {
		double done = windows->from + (windows->to - windows->from) * i / total;
		int ret = windows->run(windows->ctx, i % windows->cases, done);

		if (ret == 0 && interrupt_pending())
			ret = error_set(-EINTR, "interrupted");
		if (ret)
			return ret;
	}
	return 0;
}
