/* array.h - private to ds/weights/: sizes of arrays and deltas. */
#ifndef RLV_DS_WEIGHTS_ARRAY_H
#define RLV_DS_WEIGHTS_ARRAY_H

#include <errno.h>

#include "ds/weights/delta.h"

#include "base/bits.h"
#include "base/error.h"

/* Checks the arguments of a diff or an apply. */
static inline int array_check(const struct delta_array *array, const void *delta)
{
	if (!bits_is_pow2(array->element_bytes) || array->element_bytes > 8)
		return error_set(-EINVAL, "element_bytes %u: must be 1, 2, 4 or 8",
				 array->element_bytes);
	if (array->elements > INT64_MAX / 16)
		return error_set(-EINVAL, "elements %llu: too many",
				 (unsigned long long)array->elements);
	if (!is_aligned((uintptr_t)delta, 8))
		return error_set(-EINVAL, "the delta is not at a multiple of 8 bytes");
	return 0;
}

static inline uint64_t array_bytes(const struct delta_array *array)
{
	return array->elements * array->element_bytes;
}

static inline uint64_t array_blocks(const struct delta_array *array)
{
	return div_up(array->elements, DELTA_BLOCK);
}

static inline uint64_t counts_bytes(uint64_t blocks)
{
	return align_up(blocks * sizeof(uint32_t), 8);
}

static inline uint64_t places_bytes(uint64_t count)
{
	return align_up(count * sizeof(uint16_t), 8);
}

static inline uint64_t values_bytes(const struct delta_array *array, uint64_t count)
{
	return align_up(count * array->element_bytes, 8);
}

#endif
