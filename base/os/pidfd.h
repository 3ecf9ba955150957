/*
 * pidfd.h - a descriptor that names one process for ever, and tells when it has ended.
 */
#ifndef RLV_BASE_OS_PIDFD_H
#define RLV_BASE_OS_PIDFD_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/error.h"
#include "base/os/process.h"

/* Opens a pidfd on this process. -ENOTSUP where the kernel has none. */
RLV_MUST_CHECK int pidfd_open_self(int *pidfd_out);

/* Opens a pidfd on a process. -ESRCH: it has ended. */
RLV_MUST_CHECK int pidfd_open_process(const struct process_id *id, int *pidfd_out);

/* The pid that a pidfd stands for. -EINVAL if it is no pidfd, -ESRCH if that process is gone. */
RLV_MUST_CHECK int pidfd_pid(int pidfd, pid_t *pid_out);

/* True if the process ended, all its threads and memory. Waits at most timeout_ms. */
bool pidfd_is_dead(int pidfd, int timeout_ms);

/* Sends SIGKILL to the process, without waiting. -EPERM: not permitted; 0 if it is dead already. */
RLV_MUST_CHECK int pidfd_kill(int pidfd);

#endif
