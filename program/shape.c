#include "program/shape.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/column_name.h"

#define MAX_ROW_BYTES (UINT64_C(1) << 30)

static const struct {
	const char *name;
	size_t bytes;
} dtypes[] = {
	[RLV_BOOL] = { "bool", 1 }, [RLV_U8] = { "u8", 1 },   [RLV_I8] = { "i8", 1 },
	[RLV_U16] = { "u16", 2 },   [RLV_I16] = { "i16", 2 }, [RLV_U32] = { "u32", 4 },
	[RLV_I32] = { "i32", 4 },   [RLV_U64] = { "u64", 8 }, [RLV_I64] = { "i64", 8 },
	[RLV_F16] = { "f16", 2 },   [RLV_F32] = { "f32", 4 }, [RLV_F64] = { "f64", 8 },
	[RLV_BF16] = { "bf16", 2 },
};

static const struct {
	const char *name;
	const char *text;
} ready[] = {
	{ "cartpole", "obs:f32[4],action:i64,reward:f32,done:u8" },
	{ "cartpole-next", "obs:f32[4],action:i64,reward:f32,next_obs:f32[4],done:u8" },
	{ "atari", "obs:u8[84,84],action:i32,reward:f32,done:u8" },
};

const char *shape_dtype_name(uint32_t dtype)
{
	return shape_dtype_bytes(dtype) ? dtypes[dtype].name : "?";
}

size_t shape_dtype_bytes(uint32_t dtype)
{
	return dtype < ARRAY_LEN(dtypes) ? dtypes[dtype].bytes : 0;
}

/* The dtype of that name, as "f32"; 0 if unknown. */
static uint32_t dtype_of(const char *name)
{
	uint32_t dtype = ARRAY_LEN(dtypes) - 1;

	while (dtype > 0 && strcmp(dtypes[dtype].name, name) != 0)
		dtype--;
	return dtype;
}

uint32_t shape_numpy_dtype(const char *numpy)
{
	char name[8];

	if (strcmp(numpy, "|b1") == 0)
		return RLV_BOOL;
	snprintf(name, sizeof(name), "%c%d", numpy[1] == 'u' || numpy[1] == 'i' ? numpy[1] : 'f',
		 8 * (numpy[2] - '0'));
	return dtype_of(name);
}

const char *shape_type_text(const struct rlv_column *column, char text[SHAPE_TYPE_BYTES])
{
	size_t used = 0;

	snprintf(text, SHAPE_TYPE_BYTES, "%s", shape_dtype_name(column->dtype));
	for (uint32_t d = 0; d < column->ndim && d < RLV_MAX_DIMS; d++) {
		used = strlen(text);
		snprintf(text + used, SHAPE_TYPE_BYTES - used, "%c%u", d ? ',' : '[',
			 column->shape[d]);
	}
	used = strlen(text);
	if (column->ndim)
		snprintf(text + used, SHAPE_TYPE_BYTES - used, "]");
	return text;
}

int shape_add(struct shape *shape, const char *name, uint32_t dtype, uint32_t ndim,
	      const uint32_t *dims)
{
	struct rlv_column *column = &shape->columns[shape->n_columns];
	bool real = dtype == RLV_F32 || dtype == RLV_F64;
	uint64_t bytes = shape_dtype_bytes(dtype);

	if (shape->n_columns == RLV_MAX_COLUMNS)
		return error_set(-EINVAL, "column %s: at most %d columns", name, RLV_MAX_COLUMNS);
	if (!column_name_is_valid(name, RLV_NAME_BYTES))
		return error_set(-EINVAL, "column '%s': a name is " COLUMN_NAME_RULE, name);
	if (bytes == 0 || ndim > RLV_MAX_DIMS)
		return error_set(-EINVAL, "column %s: bad type", name);
	for (uint32_t c = 0; c < shape->n_columns; c++) {
		if (strcmp(shape->names[c], name) == 0)
			return error_set(-EINVAL, "column %s: given twice", name);
	}
	memset(column, 0, sizeof(*column));
	for (uint32_t d = 0; d < ndim; d++) {
		if (dims[d] == 0 || !checked_mul_u64(bytes, dims[d], &bytes) ||
		    bytes > MAX_ROW_BYTES)
			return error_set(-EINVAL, "column %s: dimension %u does not fit", name,
					 dims[d]);
		column->shape[d] = dims[d];
	}
	snprintf(shape->names[shape->n_columns], RLV_NAME_BYTES, "%s", name);
	column->name = shape->names[shape->n_columns];
	column->dtype = dtype;
	column->ndim = ndim;
	if (strcmp(name, "obs") == 0 || strncmp(name, "obs_", 4) == 0)
		column->role = RLV_OBS;
	else if (strncmp(name, "next_", 5) == 0)
		column->role = RLV_NEXT;
	else
		column->role = strcmp(name, "reward") == 0 && real && ndim == 0 ? RLV_REWARD
										: RLV_PLAIN;
	shape->bytes[shape->n_columns++] = (size_t)bytes;
	shape->row_bytes += (size_t)bytes;
	return 0;
}

/* Parses dimensions, as "[84,84]", at *at, which moves past the ]. -EINVAL. */
static int parse_dims(const char **at, const char *name, uint32_t *ndim_out, uint32_t *dims)
{
	const char *text = *at + 1;
	uint32_t n = 0;

	for (;;) {
		size_t digits = strspn(text, "0123456789");
		unsigned long dim = strtoul(text, NULL, 10);

		if (digits == 0 || digits > 9 || dim == 0 || n == RLV_MAX_DIMS)
			return error_set(-EINVAL, "column %s: bad shape at '%.20s'", name, text);
		dims[n++] = (uint32_t)dim;
		text += digits;
		if (*text == ']')
			break;
		if (*text != ',' && *text != 'x')
			return error_set(-EINVAL, "column %s: shape without ]", name);
		text++;
	}
	*at = text + 1;
	*ndim_out = n;
	return 0;
}

/*
 * Parses one "name:dtype[dims]" at *at and adds the column; *at moves to the comma after it or to
 * the end. -EINVAL.
 */
static int parse_column(const char **at, struct shape *shape)
{
	const char *text = *at;
	size_t name_len = strcspn(text, ":,[");
	char name[RLV_NAME_BYTES], type[8];
	uint32_t ndim = 0, dims[RLV_MAX_DIMS], dtype;
	size_t type_len;

	if (name_len == 0 || name_len >= sizeof(name) || text[name_len] != ':')
		return error_set(-EINVAL,
				 "shape '%.40s': a column is NAME:DTYPE or NAME:DTYPE[4,4]", text);
	snprintf(name, sizeof(name), "%.*s", (int)name_len, text);
	text += name_len + 1;
	type_len = strcspn(text, ",[");
	snprintf(type, sizeof(type), "%.*s", (int)type_len, text);
	dtype = dtype_of(type);
	if (dtype == 0)
		return error_set(-EINVAL,
				 "column %s: no dtype '%s'; there are bool u8 i8 u16 i16 u32 i32 "
				 "u64 i64 f16 bf16 f32 f64",
				 name, type);
	text += type_len;
	if (*text == '[') {
		int ret = parse_dims(&text, name, &ndim, dims);

		if (ret)
			return ret;
	}
	if (*text && *text != ',')
		return error_set(-EINVAL, "column %s: '%.20s' after its type", name, text);
	*at = text;
	return shape_add(shape, name, dtype, ndim, dims);
}

int shape_parse(const char *text, struct shape *shape_out)
{
	memset(shape_out, 0, sizeof(*shape_out));
	for (size_t i = 0; i < ARRAY_LEN(ready); i++) {
		if (strcmp(text, ready[i].name) == 0)
			text = ready[i].text;
	}
	if (!strchr(text, ':'))
		return error_set(-EINVAL,
				 "shape '%.40s': there are cartpole, cartpole-next, atari, or "
				 "NAME:DTYPE[DIMS],...",
				 text);
	for (;;) {
		int ret = parse_column(&text, shape_out);

		if (ret)
			return ret;
		if (!*text)
			return 0;
		text++;
	}
}
