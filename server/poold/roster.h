/*
 * roster.h - who holds what, in a file that outlives the broker.
 *
 * The broker writes each change into a mapping of the file, so that it is there when the broker is
 * killed. A later broker reads it: jobs whose process is still there keep their extents, and bring
 * the descriptors when they come back.
 *
 * The order of writes: a generation before its owner, all of a job before its incarnation. Only
 * processes of the broker's user can write the file. Thread: owner, for all calls.
 */
#ifndef RLV_SERVER_POOLD_ROSTER_H
#define RLV_SERVER_POOLD_ROSTER_H

#include "device/ledger.h"

#include "base/error.h"
#include "base/os/process.h"

#define ROSTER_MAGIC 0x5244564c52u
#define ROSTER_VERSION 1u

struct roster_job {
	uint64_t incarnation; /* 0 = no job */
	uint64_t persistent, peak, quota, duration_ns;
	uint64_t start_time;
	uint8_t boot_id[PROCESS_BOOT_ID_BYTES];
	uint32_t pid, uid;
	uint32_t weight;
	int32_t priority;
	char name[LEDGER_NAME_BYTES];
};

struct roster_extent {
	uint64_t generation;
	uint32_t owner; /* place of its job + 1; 0 = nobody */
	uint32_t reserved;
};

struct roster_file {
	uint64_t magic;
	uint32_t version, n;
	uint64_t extent_bytes;
	uint64_t incarnation; /* given last */
	struct roster_job jobs[LEDGER_JOBS];
	struct roster_extent extents[];
};

struct roster {
	struct roster_file *file;
	size_t bytes;
};

/*
 * Maps the file, and makes one without jobs if there is none. path NULL: memory of this process,
 * for a broker that will not be followed. -EPROTO: it is of another version, or of a pool of other
 * sizes, and has jobs that live; it is made anew if none lives. -EACCES, -ENOMEM, -ENOSPC.
 */
RLV_MUST_CHECK int roster_open(struct roster *roster, const char *path, uint32_t n,
			       uint64_t extent_bytes);
void roster_close(struct roster *roster);
/* Removes a roster that no broker uses from now on, if there is one. -EPROTO: it has jobs that live. */
RLV_MUST_CHECK int roster_retire(const char *path);

/* The process of a job. */
struct process_id roster_process(const struct roster_job *job);

#endif
