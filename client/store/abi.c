#include "client/store/abi.h"

#include "base/bits.h"
#include "base/mem/alloc.h"

#include <relive/relive.h>

#include <errno.h>
#include <string.h>

/* No struct of any relive.h was smaller, and none will be larger: else the size is not set. */
#define SIZE_MIN 16u
#define SIZE_MOST (UINT32_C(1) << 16)

int abi_check(const void *theirs, const char *what)
{
	uint32_t size = abi_size(theirs);

	if (size < SIZE_MIN || size > SIZE_MOST)
		return error_set(-EINVAL,
				 "%ssize %u: set it to the sizeof of the struct, as its _INIT "
				 "macro does",
				 what, size);
	return 0;
}

int abi_read_other(void *ours, size_t bytes, const void *theirs, const char *what)
{
	const uint8_t *from = theirs;
	uint32_t size, known = (uint32_t)bytes;
	int ret = abi_check(theirs, what);

	if (ret)
		return ret;
	size = abi_size(theirs);
	for (size_t i = bytes; i < size; i++)
		if (from[i])
			return error_set(-EINVAL,
					 "%ssize %u: the program was built against a newer "
					 "relive.h and sets a field at byte %zu; library %s knows "
					 "%zu bytes: install a newer one, or leave the field 0",
					 what, size, i, rlv_version(), bytes);
	memset(ours, 0, bytes);
	memcpy(ours, theirs, min_u64(size, bytes));
	memcpy(ours, &known, sizeof(known));
	return 0;
}

static void copy_element(uint8_t *theirs, size_t size, const void *ours, size_t bytes)
{
	memcpy(theirs, ours, min_u64(size, bytes));
	if (size > bytes)
		memset(theirs + bytes, 0, size - bytes);
}

void abi_write_other(void *theirs, const void *ours, size_t bytes)
{
	uint32_t size = abi_size(theirs);

	copy_element(theirs, size, ours, bytes);
	memcpy(theirs, &size, sizeof(size));
}

int abi_array_begin(struct abi_array *array, size_t bytes, const char *what)
{
	array->bytes = bytes;
	array->n = *array->n_inout;
	array->ours = NULL;
	if (array->size < SIZE_MIN || array->size > SIZE_MOST)
		return error_set(-EINVAL, "%s: size %zu: want the sizeof of an element", what,
				 array->size);
	if (!array->n)
		return 0;
	array->ours = mem_array(array->n, bytes);
	return array->ours ? 0
			   : error_set(-ENOMEM, "%s: cannot allocate %zu elements of %zu bytes",
				       what, array->n, bytes);
}

int abi_array_end(struct abi_array *array, int ret)
{
	const uint8_t *from = array->ours;
	uint8_t *to = array->theirs;

	if (ret == 0) {
		size_t n = min_u64(array->n, *array->n_inout);

		for (size_t i = 0; i < n; i++)
			copy_element(to + i * array->size, array->size, from + i * array->bytes,
				     array->bytes);
		*array->n_inout = array->n;
	}
	mem_free(array->ours);
	return ret;
}
