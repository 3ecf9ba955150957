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
	const struct trace_info *info = trace_info(trace);
	const struct trace_rows *rows = trace_rows(trace);
	unsigned int sum = 0;
	size_t count;
	const struct trace_column *columns = trace_columns(trace, &count);

	for (uint64_t row = 0; row < info->rows; row++) {
		sum += rows->flags[row] + rows->policy_version[row] + (rows->priority[row] > 1);
		for (size_t i = 0; i < count; i++) {
			const uint8_t *end = columns[i].data;

			end += (row + 1) * columns[i].row_bytes;
			sum += end[-1];
		}
	}
	return sum + (unsigned int)rows->episode_row[info->episodes];
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
		volatile unsigned int seen = trace_load(trace) == 0 ? touch(trace) : 0;

		(void)seen;
	}
	trace_close(&trace);
	free(bytes);
	return 0;
}
