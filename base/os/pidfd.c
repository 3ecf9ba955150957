/* pidfd.c - pidfd system calls, and state of a process from /proc. */
#include "base/os/pidfd.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/os/clock.h"

static int pidfd_of(pid_t pid, int *pidfd_out)
{
	long fd = syscall(SYS_pidfd_open, pid, 0);

	if (fd < 0)
		return error_set(errno == ENOSYS ? -ENOTSUP : -errno, "pidfd_open: %s",
				 strerror(errno));
	*pidfd_out = (int)fd;
	return 0;
}

int pidfd_open_self(int *pidfd_out)
{
	return pidfd_of(getpid(), pidfd_out);
}

int pidfd_open_process(const struct process_id *id, int *pidfd_out)
{
	int ret = pidfd_of((pid_t)id->pid, pidfd_out);

	if (ret || !process_is_gone(id))
		return ret;
	close(*pidfd_out); /* perhaps of a later process */
	return error_set(-ESRCH, "process %u has ended", id->pid);
}

int pidfd_pid(int pidfd, pid_t *pid_out)
{
	char path[64], line[128];
	int pid = 0;
	FILE *file;

	(void)snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", pidfd);
	file = fopen(path, "re");
	if (!file)
		return error_set(-EINVAL, "open %s: %s", path, strerror(errno));
	while (fgets(line, sizeof(line), file)) {
		if (strncmp(line, "Pid:", 4) == 0)
			pid = (int)strtol(line + 4, NULL, 10);
	}
	fclose(file);
	if (pid == 0)
		return error_set(-EINVAL, "the descriptor is not a pidfd");
	if (pid < 0)
		return error_set(-ESRCH, "the pidfd is of a process that has ended");
	*pid_out = pid;
	return 0;
}

bool pidfd_is_dead(int pidfd, int timeout_ms)
{
	uint64_t deadline = deadline_after(clock_monotonic(), timeout_ms * CLOCK_NS_PER_MS);
	struct pollfd ready = { .fd = pidfd, .events = POLLIN };
	int n;

	do /* a signal ends no wait */
		n = poll(&ready, 1, deadline_left_ms(clock_monotonic(), deadline));
	while (n < 0 && errno == EINTR);
	return n == 1 && (ready.revents & POLLIN);
}

int pidfd_kill(int pidfd)
{
	if (syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0) == 0 || errno == ESRCH)
		return 0;
	return error_set(-errno, "pidfd_send_signal: %s", strerror(errno));
}
