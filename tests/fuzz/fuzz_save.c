/*
 * Fuzzes the reader of saved tables. Checksums of header and heads are put right first, or nothing but
 * noise would get past them; those of bodies stay as they are, so both outcomes are seen there.
 */
#include "client/save/format.h"

#include "base/crc32c.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void repair(uint8_t *bytes, size_t size)
{
	struct save_header head;
	struct save_chunk chunk;
	size_t at;

	if (size < sizeof(head))
		return;
	memcpy(&head, bytes, sizeof(head));
	if (head.bytes < sizeof(head) || head.bytes > size)
		return;
	memset(bytes + offsetof(struct save_header, crc), 0, sizeof(head.crc));
	head.crc = crc32c(0, bytes, head.bytes);
	memcpy(bytes + offsetof(struct save_header, crc), &head.crc, sizeof(head.crc));
	for (at = head.bytes; size - at >= sizeof(chunk); at += sizeof(chunk) + chunk.stored) {
		memcpy(&chunk, bytes + at, sizeof(chunk));
		chunk.crc = crc32c(0, &chunk, offsetof(struct save_chunk, crc));
		memcpy(bytes + at, &chunk, sizeof(chunk));
		if (chunk.stored > size - at - sizeof(chunk))
			return;
	}
}

/* Reads all bytes of a body, so that a sanitizer sees a short one. */
static void touch(const uint8_t *body, uint64_t n)
{
	volatile uint8_t sum = 0;

	for (uint64_t i = 0; i < n; i++)
		sum = (uint8_t)(sum + body[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct save_input *in = NULL;
	struct save_chunk head;
	uint8_t *bytes = malloc(size ? size : 1);
	uint64_t off;
	const void *body;
	int fd = memfd_create("fuzz", MFD_CLOEXEC);

	if (bytes && fd >= 0) {
		memcpy(bytes, data, size);
		repair(bytes, size);
		if (write(fd, bytes, size) == (ssize_t)size &&
		    save_input_open_fd(fd, "fuzz", &in) == 0) {
			while (save_input_next(in, &head, &off) == 0)
				if (save_input_body(in, &head, off, &body) == 0)
					touch(body, head.bytes);
			save_input_close(&in);
		}
	}
	free(bytes);
	return 0;
}
