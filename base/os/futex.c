#include "base/os/futex.h"

#include <errno.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/os/clock.h"

/*
 * Without FUTEX_PRIVATE_FLAG: processes may share the word. FUTEX_WAIT_BITSET, as it alone takes an
 * absolute time, so that an interrupted wait needs no arithmetic.
 */
int futex_wait(_Atomic uint32_t *word, uint32_t expected, uint64_t deadline_ns)
{
	struct timespec until = {
		.tv_sec = (time_t)(deadline_ns / (uint64_t)CLOCK_NS_PER_S),
		.tv_nsec = (long)(deadline_ns % (uint64_t)CLOCK_NS_PER_S),
	};
	int saved = errno, ret = 0;

	if (syscall(SYS_futex, word, FUTEX_WAIT_BITSET, expected,
		    deadline_ns == DEADLINE_NEVER ? NULL : &until, NULL,
		    FUTEX_BITSET_MATCH_ANY) != 0)
		ret = errno == EINTR ? 0 : -errno;
	errno = saved;
	return ret;
}

int futex_wake(_Atomic uint32_t *word, int n)
{
	int saved = errno;
	long woken = syscall(SYS_futex, word, FUTEX_WAKE, n, NULL, NULL, 0);

	errno = saved;
	return woken < 0 ? 0 : (int)woken;
}
