/*
 * Converts elements of one dtype to another. A loop over elements is slower than numpy's loops, but
 * faster than a call of numpy: use it for rows and for ends of episodes, not for images.
 */
#include "python/src/column.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { MOST_ELEMENTS = 16384 };

/* Copies one element of 1, 2, 4 or 8 bytes, with sizes that the compiler knows: a call of memcpy
   would cost more than the rest of the conversion. */
static inline void copy_element(void *to, const void *from, uint32_t bytes)
{
	if (bytes == 8)
		memcpy(to, from, 8);
	else if (bytes == 4)
		memcpy(to, from, 4);
	else if (bytes == 2)
		memcpy(to, from, 2);
	else
		memcpy(to, from, 1);
}

bool convert_float(uint32_t dtype, double number, void *to)
{
	float single = (float)number;

	if (dtype == RLV_F32)
		memcpy(to, &single, sizeof(single));
	else if (dtype == RLV_F64)
		memcpy(to, &number, sizeof(number));
	return dtype == RLV_F64 ||
	       (dtype == RLV_F32 && (fabs(number) <= (double)FLT_MAX || !isfinite(number)));
}

/* Returns the integer that the low type->bytes bytes of `bits` hold, with its sign if the type has
   one. Elements are little-endian. */
static inline int64_t integer_of(const struct dtype *type, uint64_t bits)
{
	unsigned int unused = 64 - 8 * type->bytes;

	bits <<= unused;
	return type->kind == 'i' ? (int64_t)bits >> unused : (int64_t)(bits >> unused);
}

static inline bool store_integer(const struct dtype *type, int64_t number, void *to)
{
	copy_element(to, &number, type->bytes);
	if (type->kind == 'b')
		return number == 0 || number == 1;
	return integer_of(type, (uint64_t)number) == number && (number >= 0 || type->kind == 'i');
}

bool convert_integer(uint32_t dtype, int64_t number, void *to)
{
	const struct dtype *type = dtype_of(dtype);

	return type->kind == 'f' ? convert_float(dtype, (double)number, to)
				 : store_integer(type, number, to);
}

bool convert_elements(uint32_t from_dtype, const void *from, uint32_t to_dtype, void *to, size_t n)
{
	const struct dtype *type = dtype_of(from_dtype), *to_type = dtype_of(to_dtype);
	bool is_float = from_dtype == RLV_F32 || from_dtype == RLV_F64;
	/* not U64: it may be more than an int64_t holds */
	bool fits = n <= MOST_ELEMENTS && from_dtype != RLV_U64 && (is_float || type->kind != 'f');
	const char *at = from;
	uint64_t bits = 0;
	char *put = to;

	for (size_t i = 0; fits && i < n; i++, at += type->bytes, put += to_type->bytes) {
		copy_element(&bits, at, type->bytes);
		if (is_float)
			fits = convert_float(to_dtype, column_number(from_dtype, from, i), put);
		else if (to_type->kind == 'f')
			fits = convert_float(to_dtype, (double)integer_of(type, bits), put);
		else
			fits = store_integer(to_type, integer_of(type, bits), put);
	}
	return fits;
}
