/*
 * finite.c - looks for NaN and infinity in tensors: elements whose exponent has all bits set.
 */
#include "client/weights/weights.h"

#include <errno.h>

#define HAS_NONE(type, mask) \
	static bool finite_##type(const void *data, uint64_t n) \
	{ \
		const type *at = data; \
		type found = 0; \
\
		for (uint64_t i = 0; i < n; i++) \
			found |= (type)((at[i] & (type)(mask)) == (type)(mask)); \
		return !found; \
	}

typedef uint16_t half;
typedef uint16_t bfloat;
typedef uint32_t single;
HAS_NONE(half, 0x7c00)
HAS_NONE(bfloat, 0x7f80)
HAS_NONE(single, 0x7f800000)
HAS_NONE(uint64_t, UINT64_C(0x7ff0000000000000))

static bool tensor_is_finite(uint32_t dtype, const void *data, uint64_t bytes)
{
	switch (dtype) {
	case RLV_F16:
		return finite_half(data, bytes / 2);
	case RLV_BF16:
		return finite_bfloat(data, bytes / 2);
	case RLV_F32:
		return finite_single(data, bytes / 4);
	case RLV_F64:
		return finite_uint64_t(data, bytes / 8);
	default:
		return true;
	}
}

int weights_finite_check(const struct weights_publisher *pub)
{
	for (uint32_t i = 0; i < pub->head->n; i++) {
		const struct weights_tensor *tensor = &weights_tensors(pub->head)[i];

		if (pub->data[i] && !tensor_is_finite(tensor->dtype, pub->data[i], tensor->bytes))
			return error_set(-ERANGE, "tensor %s has NaN or infinity",
					 weights_name(pub->head, tensor));
	}
	return 0;
}
