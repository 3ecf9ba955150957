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

/* Fills ours, of that many bytes, from the options of a program. -EINVAL: their size is not set, or a field
   that the library does not know is not 0. */
RLV_MUST_CHECK int abi_read(void *ours, size_t bytes, const void *theirs, const char *what);

/* Checks the size of a struct that a call is to fill. -EINVAL. */
RLV_MUST_CHECK int abi_check(const void *theirs, const char *what);

/* Fills a struct that abi_check has passed: no byte behind its size is touched. */
void abi_write(void *theirs, const void *ours, size_t bytes);

/* An array that a call fills. */
struct abi_array {
	void *theirs;
	size_t size;     /* of an element of theirs */
	size_t *n_inout; /* elements that it has room for; then, how many there are */
	void *ours;      /* as much room, zeroed; from abi_array_begin to abi_array_end */
	size_t n;        /* of ours: its room, then how many there are */
	size_t bytes;
};

/* Makes room for elements of that many bytes in array->ours. -EINVAL: array->size is not that of a struct.
   -ENOMEM. */
RLV_MUST_CHECK int abi_array_begin(struct abi_array *array, size_t bytes, const char *what);

/* Copies the n elements, or as many as there is room for, unless ret is an error. Returns ret. */
RLV_MUST_CHECK int abi_array_end(struct abi_array *array, int ret);

#endif
