/*
 * Converts elements of one dtype to another. A loop over elements is slower than numpy's loops, but
 * faster than a call of numpy: use it for rows and for ends of episodes, not for images.
 */
#include "python/src/column.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { MOST_ELEMENTS = 16384 };

#define STORE(type, value) \
	do { \
		type stored = (type)(value); \
		memcpy(to, &stored, sizeof(stored)); \
	} while (0)

#define STORE_EXACT(type) \
	do { \
		type stored = (type)number; \
		memcpy(to, &stored, sizeof(stored)); \
		return (int64_t)stored == number; \
	} while (0)

#define LOAD(type) \
	do { \
		type loaded; \
		memcpy(&loaded, from, sizeof(loaded)); \
		return loaded; \
	} while (0)

bool convert_float(uint32_t dtype, double number, void *to)
{
	if (dtype == RLV_F32)
		STORE(float, number);
	else if (dtype == RLV_F64)
		STORE(double, number);
	return dtype == RLV_F64 ||
	       (dtype == RLV_F32 && (fabs(number) <= (double)FLT_MAX || !isfinite(number)));
}

bool convert_integer(uint32_t dtype, int64_t number, void *to)
{
	switch (dtype) {
	case RLV_BOOL:
		STORE(uint8_t, number);
		return number == 0 || number == 1;
	case RLV_U8:
		STORE_EXACT(uint8_t);
	case RLV_I8:
		STORE_EXACT(int8_t);
	case RLV_U16:
		STORE_EXACT(uint16_t);
	case RLV_I16:
		STORE_EXACT(int16_t);
	case RLV_U32:
		STORE_EXACT(uint32_t);
	case RLV_I32:
		STORE_EXACT(int32_t);
	case RLV_U64:
		STORE(uint64_t, number);
		return number >= 0;
	case RLV_I64:
		STORE_EXACT(int64_t);
	default:
		return convert_float(dtype, (double)number, to);
	}
}

static int64_t load_integer(uint32_t dtype, const char *from)
{
	switch (dtype) {
	case RLV_BOOL:
	case RLV_U8:
		LOAD(uint8_t);
	case RLV_I8:
		LOAD(int8_t);
	case RLV_U16:
		LOAD(uint16_t);
	case RLV_I16:
		LOAD(int16_t);
	case RLV_U32:
		LOAD(uint32_t);
	case RLV_I32:
		LOAD(int32_t);
	default:
		LOAD(int64_t);
	}
}

bool convert_elements(uint32_t from_dtype, const void *from, uint32_t to_dtype, void *to, size_t n)
{
	size_t step = dtype_of(from_dtype)->bytes, width = dtype_of(to_dtype)->bytes;
	bool is_float = from_dtype == RLV_F32 || from_dtype == RLV_F64;
	/* not U64: it may be more than an int64_t holds */
	bool is_integer = from_dtype == RLV_BOOL ||
			  (from_dtype >= RLV_U8 && from_dtype <= RLV_I64 && from_dtype != RLV_U64);
	bool fits = n <= MOST_ELEMENTS && (is_integer || is_float);
	const char *at = from;
	char *put = to;

	for (size_t i = 0; fits && i < n; i++, at += step, put += width)
		fits = is_float ? convert_float(to_dtype, column_number(from_dtype, from, i), put)
				: convert_integer(to_dtype, load_integer(from_dtype, at), put);
	return fits;
}
