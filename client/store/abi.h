/*
 * abi.h - structs of programs that were compiled against another relive.h than the library.
 *
 * A struct of options or of answers begins with its size, as the program knows it; arrays come with the
 * size of an element. Fields are only ever added at the end. A field that the program does not know is 0,
 * its default. A field that the library does not know must be 0, and is 0 in answers.
 *
 * `what` is how messages name the struct, its separator included: "opts.", "info_out->".
 */
#ifndef RLV_CLIENT_STORE_ABI_H
#define RLV_CLIENT_STORE_ABI_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* abi_read and abi_write of structs whose sizes differ. */
RLV_MUST_CHECK int abi_read_other(void *ours, size_t bytes, const void *theirs, const char *what);
void abi_write_other(void *theirs, const void *ours, size_t bytes);

static inline uint32_t abi_size(const void *theirs)
{
	uint32_t size;

	memcpy(&size, theirs, sizeof(size));
	return size;
}

/* Fills ours, of that many bytes, from the options of a program. -EINVAL: their size is not set, or a field
   that the library does not know is not 0. */
RLV_MUST_CHECK static inline int abi_read(void *ours, size_t bytes, const void *theirs,
					  const char *what)
{
	if (abi_size(theirs) != bytes)
		return abi_read_other(ours, bytes, theirs, what);
	memcpy(ours, theirs, bytes);
	return 0;
}

/* -EINVAL: the size of a struct to be filled is not set. */
RLV_MUST_CHECK int abi_check(const void *theirs, const char *what);

/* Copies ours into a struct that abi_check has passed, but for its size: no byte behind that
   size is touched, and fields that ours lacks become 0. */
static inline void abi_write(void *theirs, const void *ours, size_t bytes)
{
	if (abi_size(theirs) == bytes)
		memcpy((uint8_t *)theirs + sizeof(uint32_t),
		       (const uint8_t *)ours + sizeof(uint32_t), bytes - sizeof(uint32_t));
	else
		abi_write_other(theirs, ours, bytes);
}

/* An array that a call fills. */
struct abi_array {
	void *theirs;
	size_t size;     /* of an element of theirs */
	size_t *n_inout; /* elements that it has room for; then, how many there are */
	void *ours;      /* as much room, zeroed; from abi_array_begin to abi_array_end */
	size_t n;        /* of ours: its room, then how many there are */
	size_t bytes;
};

/* Allocates array->ours, zeroed: *n_inout elements of that many bytes. abi_array_end frees it.
   -EINVAL: array->size is not that of a struct. -ENOMEM. */
RLV_MUST_CHECK int abi_array_begin(struct abi_array *array, size_t bytes, const char *what);

/* Unless ret is an error, copies n elements of ours to theirs, or as many as these have room
   for, and sets *n_inout to n. Frees ours. Returns ret. */
RLV_MUST_CHECK int abi_array_end(struct abi_array *array, int ret);

#endif
