/*
 * process.h - a process identity that no later process can have: pid, start time, boot.
 *
 * A pid alone is reused. With its start time (clock ticks since boot) and the boot id of the host
 * it names one process for ever. Both sides must be in one pid namespace.
 */
#ifndef RLV_BASE_OS_PROCESS_H
#define RLV_BASE_OS_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

#define PROCESS_BOOT_ID_BYTES 16

struct process_id {
	uint32_t pid;
	uint64_t start_time; /* field 22 of /proc/PID/stat */
	uint8_t boot_id[PROCESS_BOOT_ID_BYTES];
};

/*
 * Reads a small file, as those of /proc, as text of at most room - 1 bytes and a final 0. Returns
 * the bytes read, or -errno. Thread: any.
 */
int process_read_text(const char *path, char *text_out, size_t room);

/* The identity of this process; ask again after fork(). -ENOTSUP: no /proc. Thread: any. */
RLV_MUST_CHECK int process_self(struct process_id *id_out);

/*
 * The identity of the process that has the pid now. -ESRCH: none has it, -EACCES: it is another
 * user's, and /proc hides it. Thread: any.
 */
RLV_MUST_CHECK int process_read(uint32_t pid, struct process_id *id_out);

/*
 * True if the process is stopped, as by SIGSTOP or a debugger (state T or t in /proc). false also
 * when that cannot be told. Thread: any.
 */
bool process_is_stopped(const struct process_id *id);

/*
 * True if the process cannot touch its memory any more: another boot, no such pid, the pid of
 * another process, or a zombie whose threads have all ended. false also when that cannot be told,
 * as where /proc hides it. Once true it stays true, so it proves a fence within one pid namespace.
 * Thread: any.
 */
bool process_is_gone(const struct process_id *id);

#endif
