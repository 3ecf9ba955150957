/*
 * Column: one Python value (a number, an array, anything that numpy takes) as packed elements of a
 * column's dtype. The usual values cost no call into numpy: a buffer of the right dtype and shape is
 * used in place, a number is stored, a few elements of another dtype are converted here.
 */
#ifndef RLV_PYTHON_SRC_COLUMN_H
#define RLV_PYTHON_SRC_COLUMN_H

#include "python/src/core.h"

struct dtype {
	const char *name; /* numpy's */
	uint32_t bytes;
	char kind; /* b, i, u or f, as numpy's */
};

/* The static description of an rlv_dtype. NULL = the code is no rlv_dtype. */
const struct dtype *dtype_of(uint32_t code);

struct column {
	const char *name;
	uint32_t dtype;
	uint32_t bytes; /* of one step */
	int ndim;       /* of one step */
	bool is_obs;    /* role RLV_OBS */
	bool is_reward; /* floats of role RLV_REWARD, or named reward: sequences stack them */
	Py_ssize_t shape[RLV_MAX_DIMS];
};

void column_of(const struct rlv_column *in, struct column *out);

/* Returns element i of `data`, packed floats: float64 if dtype is RLV_F64, else float32. */
double column_number(uint32_t dtype, const void *data, size_t i);

/* Returns the index of the first NaN or infinite number in `data`, n packed floats of the column's
   dtype, float32 or float64. n = all are finite. */
uint32_t column_find_nonfinite(const struct column *col, const void *data, uint32_t n);

/* -------- elements of other dtypes -------- */

/*
 * Stores a number as an element of a dtype at `to`, which may be unaligned. false, with `to`
 * perhaps overwritten: the number does not fit (a finite one would become infinite), the dtype is
 * float16 or bfloat16, or convert_float is called for a dtype that is no float.
 */
bool convert_integer(uint32_t dtype, int64_t number, void *to);
bool convert_float(uint32_t dtype, double number, void *to);

/*
 * Converts n packed elements to another dtype. false, with `to` perhaps overwritten: an element
 * does not fit, floats would become integers, the first dtype is uint64, either is float16 or
 * bfloat16, or n is above MOST_ELEMENTS.
 */
bool convert_elements(uint32_t from_dtype, const void *from, uint32_t to_dtype, void *to, size_t n);

/* -------- column.c -------- */

/* Where the packed elements are until source_release. */
struct source {
	const void *data;
	void *own;       /* converted elements, or NULL */
	PyObject *owner; /* of the data: a reference, or NULL */
	Py_buffer view;  /* held if .obj */
};

/* Elements of a value in memory of the host. */
struct elements {
	const void *data;
	uint32_t dtype; /* 0 = no rlv_dtype */
	int ndim;
	const Py_ssize_t *shape; /* the value's */
	bool packed;             /* in C's order */
};

/* The number of elements wanted, and the memory for conversion. */
struct demand {
	uint32_t n;
	bool batched;   /* the value has a first dimension of n; else n is 1 and it has not */
	bool unchecked; /* numbers that do not fit are converted as numpy does */
	bool keys;      /* int64 are the same bits: torch has little use for unsigned integers */
	void *stage;    /* n * column.bytes, or NULL: allocated where it is needed */
};

/*
 * Points *source at the packed elements of a value, converted to the column's dtype if they have
 * another. 0: the caller calls source_release. -1 with an exception that names the column: wrong
 * shape, a dtype that does not convert by numpy's same_kind rule, a number that does not fit (and
 * its index), memory of a device.
 */
int column_bind(const struct column *col, PyObject *value, const struct demand *demand,
		struct source *source);

/* Releases the buffer and frees the converted elements that a source holds. A source that is all
   zeros holds nothing. */
void source_release(struct source *source);

#endif
