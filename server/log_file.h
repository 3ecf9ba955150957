/*
 * Log file: lines that are appended to a file of bounded size. When it has LOG_FILE_BYTES it becomes
 * FILE.1, in place of the former one, and a new file begins: a store's log never has more than twice
 * as much, beside its catalog or wherever it is.
 */
#ifndef RLV_SERVER_LOG_FILE_H
#define RLV_SERVER_LOG_FILE_H

#include <stdint.h>
#include <stdio.h>

#include "base/error.h"

#define LOG_FILE_BYTES ((uint64_t)8 << 20)

struct log_file {
	FILE *file;
	const char *path; /* NULL: file is not ours, and grows as it likes */
	uint64_t bytes;
};

/* path: of a literal, or an argument of the program. -EINVAL. */
RLV_MUST_CHECK int log_file_open(const char *path, struct log_file *log_out);
/* What cannot be written is lost. Thread: one at a time. */
void log_file_write(struct log_file *log, const char *line);

#endif
