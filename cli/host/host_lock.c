#include "cli/host/host_lock.h"

#include <errno.h>

#include "base/os/clock.h"
#include "base/os/runtime_dir.h"
#include "cli/cli.h"
#include "program/interrupt.h"

int host_lock_take(const char *store, int64_t timeout_ns, struct progress *progress,
		   struct host_lock *lock_out)
{
	uint64_t start = clock_now_ns(clock_monotonic());
	bool said = progress && progress->on;
	int fd, pid = 0;

	for (;;) {
		int ret = runtime_store_lock(store, &fd, &pid);
		int64_t spent = (int64_t)(clock_now_ns(clock_monotonic()) - start);

		if (ret == 0) {
			*lock_out = (struct host_lock){ .store = store, .fd = fd };
			return 0;
		}
		if (ret != -EBUSY)
			return ret;
		if (interrupt_pending())
			return error_set(-EINTR, "interrupted");
		if (spent > timeout_ns)
			break;
		if (progress)
			progress_show(progress, (double)spent / (double)timeout_ns,
				      "waiting for pid %d, which starts or stops store %s", pid,
				      store);
		if (!said && spent >= CLOCK_NS_PER_S) {
			cli_error("waiting for pid %d, which starts or stops store %s", pid, store);
			said = true;
		}
		interrupt_sleep(20 * CLOCK_NS_PER_MS);
	}
	return error_set(-ETIMEDOUT, "store %s: pid %d still starts or stops it after %.0f s",
			 store, pid, (double)timeout_ns / CLOCK_NS_PER_S);
}

void host_lock_give(struct host_lock *lock, bool gone)
{
	runtime_store_unlock(lock->store, lock->fd, gone);
}
