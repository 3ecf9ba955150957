#include "bench/replay/pattern.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/mem/alloc.h"
#include "base/bits.h"

#define SEQ_NAME "seq"
#define PERIOD (PATTERN_EPISODE + 1)
#define ROW_MASK ((UINT64_C(1) << 40) - 1)
#define REWARD_PERIOD 1000

int pattern_shape(struct shape *shape)
{
	return shape_add(shape, SEQ_NAME, RLV_U64, 0, NULL);
}

static uint32_t episode_step(uint64_t number)
{
	return (uint32_t)((number & ROW_MASK) % PERIOD);
}

uint16_t pattern_flags(uint64_t number)
{
	uint32_t step = episode_step(number);

	return step == PERIOD - 1 ? RLV_FINAL : step == PERIOD - 2 ? RLV_TERMINATED : 0;
}

/* The class of a row: its number modulo 13. 13 and 200, the rows of an episode, are coprime:
   each class occurs at each place of an episode. */
uint32_t pattern_class(uint64_t number)
{
	return (uint32_t)((number & ROW_MASK) % PATTERN_CLASSES);
}

double pattern_td(uint64_t number)
{
	return (double)(pattern_class(number) + 1) / 4;
}

static double reward_of(uint64_t number)
{
	return (double)(number % REWARD_PERIOD);
}

static bool is_seq(const struct rlv_column *column)
{
	return strcmp(column->name, SEQ_NAME) == 0;
}

/* Bytes at .. at + 7 of column c of the pattern's row `number`. */
static uint64_t cell_word(const struct shape *shape, uint32_t c, uint64_t number, size_t at)
{
	const struct rlv_column *column = &shape->columns[c];
	double reward = reward_of(number);
	float single = (float)reward;
	uint64_t word = 0;

	if (at == 0 && is_seq(column))
		return number;
	if (at == 0 && column->role == RLV_REWARD) {
		memcpy(&word, column->dtype == RLV_F32 ? (void *)&single : (void *)&reward,
		       shape->bytes[c]);
		return word;
	}
	word = number * 0x9e3779b97f4a7c15 + (uint64_t)c * 0xd6e8feb86659fd93 + at;
	word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9;
	word = (word ^ (word >> 27)) * 0x94d049bb133111eb;
	word ^= word >> 31;
	return column->dtype == RLV_BOOL ? word & 0x0101010101010101 : word;
}

static bool cell_is_right(const struct shape *shape, uint32_t c, uint64_t number,
			  const uint8_t *got)
{
	size_t bytes = shape->bytes[c];

	for (size_t at = 0; at < bytes; at += 8) {
		uint64_t word = cell_word(shape, c, number, at);

		if (memcmp(got + at, &word, min_u64(bytes - at, 8)) != 0)
			return false;
	}
	return true;
}

void pattern_fill(const struct shape *shape, uint64_t number, uint32_t n, uint8_t *const *out)
{
	for (uint32_t c = 0; c < shape->n_columns; c++) {
		size_t bytes = shape->bytes[c];

		for (uint32_t i = 0; i < n; i++) {
			uint8_t *cell = out[c] + i * bytes;

			for (size_t at = 0; at < bytes; at += 8) {
				uint64_t word = cell_word(shape, c, number + i, at);

				memcpy(cell + at, &word, min_u64(bytes - at, 8));
			}
		}
	}
}

int pattern_rows_open(struct pattern_rows *rows, const struct shape *shape, uint32_t n)
{
	bool ok = true;

	memset(rows, 0, sizeof(*rows));
	for (uint32_t c = 0; c < shape->n_columns; c++) {
		rows->columns[c] = rows->made[c] = mem_array(n, shape->bytes[c]);
		ok &= rows->made[c] != NULL;
	}
	rows->flags = mem_array(n, sizeof(*rows->flags));
	rows->td = mem_array(n, sizeof(*rows->td));
	return ok && rows->flags && rows->td ? 0 : -ENOMEM;
}

void pattern_rows_close(struct pattern_rows *rows)
{
	for (uint32_t c = 0; c < RLV_MAX_COLUMNS; c++)
		mem_free(rows->made[c]);
	mem_free(rows->flags);
	mem_free(rows->td);
}

void pattern_rows_fill(struct pattern_rows *rows, const struct shape *shape, uint64_t number,
		       uint32_t n, struct rlv_steps *steps)
{
	pattern_fill(shape, number, n, rows->made);
	for (uint32_t i = 0; i < n; i++) {
		rows->flags[i] = pattern_flags(number + i);
		rows->td[i] = pattern_td(number + i);
	}
	steps->n = n;
	steps->columns = rows->columns;
	steps->flags = rows->flags;
	steps->td_error = rows->td;
}

/* Number of steps in the return that begins at the row: n_step, or those left in the episode. */
static uint32_t return_steps(const struct pattern_view *view, uint64_t number)
{
	uint32_t left = PERIOD - 1 - episode_step(number);

	return left < view->n_step ? left : view->n_step;
}

/* Checks the frame stack `got` of column c that ends with row `number`; before the episode's
   first row that row repeats. */
static bool stack_is_right(const struct pattern_view *view, uint32_t c, uint64_t number,
			   const uint8_t *got)
{
	uint32_t step = episode_step(number);
	size_t bytes = view->shape->bytes[c];

	for (uint32_t s = 0; s < view->stack; s++) {
		uint32_t back = view->stack - 1 - s;
		uint64_t row = number - (back < step ? back : step);

		if (!cell_is_right(view->shape, c, row, got + s * bytes))
			return false;
	}
	return true;
}

static bool return_is_right(const struct pattern_view *view, uint32_t c, uint64_t number,
			    const uint8_t *got)
{
	uint32_t k = return_steps(view, number);
	double sum = 0, power = 1, value;
	float single;

	for (uint32_t i = 0; i < k; i++) {
		sum += power * reward_of(number + i);
		power *= view->gamma;
	}
	if (view->shape->columns[c].dtype == RLV_F64) {
		memcpy(&value, got, sizeof(value));
	} else {
		memcpy(&single, got, sizeof(single));
		value = (double)single;
	}
	return fabs(value - sum) <= 1e-5 * (1 + sum);
}

static const uint8_t *array_item(const struct rlv_array *array, uint32_t item)
{
	return (const uint8_t *)array->data + (int64_t)item * array->strides[0];
}

static const char *check_column(const struct pattern_view *view, uint32_t c, uint64_t number,
				const struct rlv_array *arrays, uint32_t item)
{
	const struct rlv_column *column = &view->shape->columns[c];
	uint32_t k = return_steps(view, number);
	bool over = episode_step(number) + k == PERIOD - 1;
	bool right;

	if (is_seq(column))
		return NULL;
	switch (column->role) {
	case RLV_OBS:
		if (!stack_is_right(view, c, number, array_item(&arrays[0], item)))
			return arrays[0].name;
		/* After a terminated step the next observation is not used for bootstrapping. */
		right = over || stack_is_right(view, c, number + k, array_item(&arrays[1], item));
		return right ? NULL : arrays[1].name;
	case RLV_REWARD:
		right = return_is_right(view, c, number, array_item(arrays, item));
		break;
	case RLV_NEXT:
		right = cell_is_right(view->shape, c, number + k - 1, array_item(arrays, item));
		break;
	default:
		right = cell_is_right(view->shape, c, number, array_item(arrays, item));
	}
	return right ? NULL : arrays[0].name;
}

static const struct rlv_array *find_array(const struct rlv_batch *batch, const char *name)
{
	for (uint32_t a = 0; a < batch->n_arrays; a++) {
		if (strcmp(batch->arrays[a].name, name) == 0)
			return &batch->arrays[a];
	}
	return NULL;
}

static uint64_t number_of(const struct rlv_array *seq, uint32_t item)
{
	uint64_t number;

	memcpy(&number, array_item(seq, item), sizeof(number));
	return number;
}

/* Checks an item of the batch, which is of row `number`: NULL, or the name of the first wrong
   array. */
static const char *check_item(const struct pattern_view *view, const struct rlv_batch *batch,
			      uint64_t number, uint32_t item)
{
	const struct rlv_array *array = batch->arrays, *steps = find_array(batch, "steps");
	uint32_t k = return_steps(view, number), got;

	if (pattern_flags(number) & RLV_FINAL)
		return "a final observation";
	for (uint32_t c = 0; c < view->shape->n_columns; c++) {
		const char *wrong = check_column(view, c, number, array, item);

		if (wrong)
			return wrong;
		array += view->shape->columns[c].role == RLV_OBS ? 2 : 1;
	}
	if (steps) {
		memcpy(&got, array_item(steps, item), sizeof(got));
		if (got != k)
			return "steps";
	}
	return NULL;
}

uint32_t pattern_check(const struct pattern_view *view, const struct rlv_batch *batch,
		       uint64_t classes[PATTERN_CLASSES], char why[PATTERN_WHY_BYTES])
{
	const struct rlv_array *seq = find_array(batch, SEQ_NAME);
	uint32_t bad = 0;

	if (!seq) {
		snprintf(why, PATTERN_WHY_BYTES, "the batch has no column " SEQ_NAME);
		return batch->n;
	}
	for (uint32_t i = 0; i < batch->n; i++) {
		uint64_t number = number_of(seq, i);
		const char *wrong = check_item(view, batch, number, i);

		if (!wrong) {
			classes[pattern_class(number)]++;
			continue;
		}
		if (bad++ == 0)
			snprintf(why, PATTERN_WHY_BYTES,
				 "item %u, row %llu of writer %llu: wrong %s", i,
				 (unsigned long long)(number & ROW_MASK),
				 (unsigned long long)(number >> 40), wrong);
	}
	return bad;
}

void pattern_update(const struct rlv_batch *batch, float *td_out)
{
	const struct rlv_array *seq = find_array(batch, SEQ_NAME);

	for (uint32_t i = 0; i < batch->n; i++)
		td_out[i] = seq ? (float)pattern_td(number_of(seq, i)) : 1;
}
