/*
 * Fuzzes the reader of traces. The header's checksum is put right first, or nothing but noise
 * would ever get past it; the chunks' checksums stay, so both outcomes are seen there.
 */
#include "bench/trace/trace.h"

#include <zlib.h>

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void repair(uint8_t *bytes, size_t size)
{
	uint32_t header, crc;

	if (size < 16)
		return;
	memcpy(&header, bytes + 12, sizeof(header));
	if (header < sizeof(crc) || header > size)
		return;
	crc = (uint32_t)crc32_z(0, bytes, header - sizeof(crc));
	memcpy(bytes + header - sizeof(crc), &crc, sizeof(crc));
}

/* Reads a byte of every row of every column, so that a sanitizer sees a short array. */
static unsigned int touch(const struct trace *trace)
{
	unsigned int sum = 0;

	for (uint64_t row = 0; row < trace->rows; row++) {
		sum += trace->flags[row] + trace->policy_version[row] + (trace->priority[row] > 1);
		for (uint32_t i = 0; i < trace->n_columns; i++) {
			const uint8_t *end = trace->columns[i].data;

			end += (row + 1) * trace->columns[i].row_bytes;
			sum += end[-1];
		}
	}
	return sum + (unsigned int)trace->episode_row[trace->episodes];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct trace *trace = NULL;
	uint8_t *bytes = malloc(size ? size : 1);

	if (!bytes)
		return 0;
	if (size)
		memcpy(bytes, data, size);
	repair(bytes, size);
	if (trace_open_bytes("fuzz", bytes, size, &trace) == 0) {
		volatile unsigned int seen = touch(trace);

		(void)seen;
	}
	trace_close(&trace);
	free(bytes);
	return 0;
}
