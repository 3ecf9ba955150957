/*
 * doctor.h - checks of `relive doctor`. Each looks at one thing and reports findings: a severity, and
 * in one text what was seen, a newline, and the line that fixes it (none if nothing is to be fixed).
 *
 * A check runs in a child process that is killed at its deadline, so a name server, a driver or a
 * device's library that hangs or crashes ends one check, not the command. The struct is memory that
 * both share.
 */
#ifndef RLV_CLI_DOCTOR_DOCTOR_H
#define RLV_CLI_DOCTOR_DOCTOR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

enum severity { FINDING_OK, FINDING_INFO, FINDING_WARNING, FINDING_ERROR };

struct finding {
	const char *check;
	uint32_t severity; /* enum severity */
	char text[1024];   /* the fix begins after the last newline */
};

#define DOCTOR_FINDINGS 256

struct doctor {
	const char *uri;    /* of the store; NULL = this host alone */
	const char *check;  /* name of the running check, or of its part */
	int64_t timeout_ns; /* of a check */
	uint32_t n;         /* findings */
	struct finding found[DOCTOR_FINDINGS];
};

/*
 * Adds a finding of the running check; those beyond DOCTOR_FINDINGS are dropped. A fix never advises
 * to destroy data.
 */
void doctor_found(struct doctor *doctor, enum severity severity, const char *fmt, ...)
	RLV_PRINTF(3, 4);

#define DOCTOR_LINE_BYTES 256

/* Reads the first line of the file whose path is formatted. False, and "": no such file, or empty. */
bool doctor_line(char line_out[DOCTOR_LINE_BYTES], const char *fmt, ...) RLV_PRINTF(2, 3);

/* This host (host.c). */
void doctor_versions(struct doctor *doctor);
void doctor_runtime_dir(struct doctor *doctor);
void doctor_limits(struct doctor *doctor);
void doctor_huge_pages(struct doctor *doctor);
void doctor_clock(struct doctor *doctor);
void doctor_memfd(struct doctor *doctor);
void doctor_dev_shm(struct doctor *doctor);
void doctor_pid_namespace(struct doctor *doctor);

/* Its network devices (devices.c). */
void doctor_memlock(struct doctor *doctor);
void doctor_rdma(struct doctor *doctor);
void doctor_libfabric(struct doctor *doctor);

/* How batches come to its GPU (gpu.c). */
void doctor_gpu(struct doctor *doctor);

/* The way to the store doctor->uri (way.c). */
void doctor_address(struct doctor *doctor);
void doctor_server(struct doctor *doctor);

#endif
