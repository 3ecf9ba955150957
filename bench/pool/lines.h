/*
 * lines.h - a text file line by line, each cut into fields, with errors that name file and line.
 */
#ifndef RLV_BENCH_POOL_LINES_H
#define RLV_BENCH_POOL_LINES_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/error.h"

#define LINES_FIELDS 32u
#define LINES_BYTES 1024u

struct lines {
	FILE *file;
	const char *path; /* borrowed */
	char separator;   /* between fields; of ' ' any number */
	uint32_t number;  /* of the line, from 1 */
	uint32_t n;       /* its fields */
	char *fields[LINES_FIELDS];
	char text[LINES_BYTES];
};

/* -ENOENT and other codes of open(2). */
RLV_MUST_CHECK int lines_open(struct lines *lines, const char *path, char separator);
void lines_close(struct lines *lines);

/*
 * The next line that is neither empty nor begins with #. 1: it is there, 0: the file has ended;
 * -EINVAL: a line is too long or has too many fields, -EIO.
 */
RLV_MUST_CHECK int lines_next(struct lines *lines);

/* -EINVAL and the message "FILE:LINE: ..". */
int lines_error(const struct lines *lines, const char *fmt, ...) RLV_PRINTF(2, 3);

/* Reads a field as a number in [least, most]; what: its name. -EINVAL also if it is not there. */
RLV_MUST_CHECK int lines_number(const struct lines *lines, uint32_t field, const char *what,
				const double limits[2], double *out);

#endif
