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

/* NULL = no rlv_dtype. */
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

/* Element i of packed floats, f32 or f64. */
double column_number(uint32_t dtype, const void *data, size_t i);

/* Index of the first of n such elements that is NaN or infinite; n = none is. */
uint32_t column_find_nonfinite(const struct column *col, const void *data, uint32_t n);

/* -------- convert.c -------- */

/*
 * Stores a number as an element at `to`, which may be unaligned. false: it does not fit (a float may be
 * infinite, but does not become it), or the dtype is not among those known here.
 */
bool convert_integer(uint32_t dtype, int64_t number, void *to);
bool convert_float(uint32_t dtype, double number, void *to);

/*
 * n packed elements of one dtype as another's, by numpy's same_kind rule, integers if they fit. false:
 * some does not, or numpy is quicker.
 */
bool convert_elements(uint32_t from_dtype, const void *from, uint32_t to_dtype, void *to, size_t n);

/* -------- column.c -------- */

/* Where the packed elements are until source_release. */
struct source {
	const void *data;
	void *own;      /* converted elements, or NULL */
	Py_buffer view; /* held if .obj */
};

/* The number of elements wanted, and the memory for conversion. */
struct demand {
	uint32_t n;
	bool batched;   /* the value has a first dimension of n; else n is 1 and it has not */
	bool unchecked; /* numbers that do not fit are converted as numpy does */
	void *stage;    /* n * column.bytes, or NULL: allocated where it is needed */
};

/*
 * Binds a value. 0, or -1 with an exception that names the column: wrong shape, a dtype that does not
 * convert by numpy's same_kind rule, a number that does not fit (and its index), memory of a device.
 */
int column_bind(const struct column *col, PyObject *value, const struct demand *demand,
		struct source *source);

/* Frees what a bound source or one of zeros holds. */
void source_release(struct source *source);

#endif
