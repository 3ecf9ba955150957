/*
 * process.h - which process is it? Numbers of processes are reused; (pid, start time) are not, and
 * a pidfd names one process for ever.
 */
#ifndef RLV_TRANSPORT_SHM_PROCESS_H
#define RLV_TRANSPORT_SHM_PROCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"

/* Clock ticks since boot, from /proc. -ESRCH. */
RLV_MUST_CHECK int process_start_time(pid_t pid, uint64_t *ticks_out);

/* Opens a pidfd on this process. -ENOTSUP where the kernel has none. */
RLV_MUST_CHECK int process_open_self(int *pidfd_out);

/* The pid that a pidfd stands for. -EINVAL if it is no pidfd, -ESRCH if that process is gone. */
RLV_MUST_CHECK int process_of_pidfd(int pidfd, pid_t *pid_out);

/* Has it ended, all threads and memory? Waits for that at most timeout_ms. */
bool process_is_dead(int pidfd, int timeout_ms);

/* SIGKILL. -EPERM; 0 if it is dead already. */
RLV_MUST_CHECK int process_kill(int pidfd);

#endif
