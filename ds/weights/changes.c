#include "ds/weights/changes.h"

#include "wire/table_layout.h"

#include "base/bits.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define SAMPLE_ALL ((uint64_t)16 << 20) /* payload that is looked at whole */
#define SAMPLE_PART 64u                 /* of a larger one */
#define SAMPLE_MOST ((uint64_t)4 << 20) /* of a tensor: what delta_density reads */

static struct delta_array array_of(const struct weights_copy *copy, uint32_t i)
{
	const struct weights_tensor *tensor = &weights_tensors(copy->head)[i];
	uint32_t bytes = dtype_bytes(tensor->dtype); /* not 0: the tree was checked */

	return (struct delta_array){ .elements = bytes ? tensor->bytes / bytes : 0,
				     .element_bytes = bytes,
				     .key = i };
}

static uint8_t *tensor_in(const struct weights_copy *copy, uint32_t i)
{
	return copy->payload + weights_tensors(copy->head)[i].off;
}

static uint64_t bytes_of(const struct weights_copy *copy, uint32_t i)
{
	return weights_tensors(copy->head)[i].bytes;
}

uint64_t weights_changes_guess(const struct weights_copy *copy, const void *const *data)
{
	uint32_t part = copy->head->payload > SAMPLE_ALL ? SAMPLE_PART : 1;
	uint64_t credit = SAMPLE_MOST, seen = 0, guess = 0;

	for (uint32_t i = 0; i < copy->head->n; i++) {
		struct delta_array array = array_of(copy, i);
		uint64_t bytes = bytes_of(copy, i), cost = min_u64(bytes, SAMPLE_MOST);
		double density;

		if (!data[i])
			continue;
		credit += div_up(bytes, part);
		if (bytes == 0 || credit < cost)
			continue;
		credit -= cost;
		seen += bytes;
		density = delta_density(&array, tensor_in(copy, i), data[i]);
		guess += sizeof(struct weights_change) +
			 (uint64_t)(density * (double)array.elements) *
				 (array.element_bytes + (uint64_t)sizeof(uint16_t));
	}
	return seen ? (uint64_t)((double)guess * (double)copy->head->payload / (double)seen) : 0;
}

uint64_t weights_changes_room(const struct weights_copy *copy, uint64_t bytes)
{
	return sizeof(struct weights_entry) + bytes + DELTA_SPARE +
	       copy->head->n * sizeof(struct weights_change);
}

int weights_changes_make(struct weights_copy *copy, const void *const *data,
			 struct weights_entry *out, uint64_t room)
{
	uint8_t *at = (uint8_t *)(out + 1), *end = (uint8_t *)out + room;
	uint32_t n = 0;
	int ret = 0;

	for (uint32_t i = 0; i < copy->head->n; i++) {
		struct weights_change *change = (void *)at;
		struct delta_array array = array_of(copy, i);
		struct delta_copy of = { tensor_in(copy, i), copy->sums[i] };
		struct delta_out delta = { .at = change + 1 };

		if (!data[i] || bytes_of(copy, i) == 0)
			continue;
		if (ret == 0 && (uint64_t)(end - at) > sizeof(*change)) {
			delta.room = (uint64_t)(end - at) - sizeof(*change);
			ret = delta_diff(&array, &of, data[i], &delta);
		} else {
			ret = ret ? ret : error_set(-ENOSPC, "weights: a delta does not pay");
			memcpy(of.bytes, data[i], bytes_of(copy, i));
		}
		if (ret && ret != -ENOSPC)
			return ret;
		copy->sums[i] = of.sum;
		if (ret || delta.changed == 0)
			continue;
		*change = (struct weights_change){ .tensor = i, .bytes = delta.bytes };
		at = (uint8_t *)delta.at + change->bytes;
		n++;
	}
	*out = (struct weights_entry){ .magic = WEIGHTS_ENTRY_MAGIC,
				       .n = n,
				       .head_bytes = (uint64_t)(at - (uint8_t *)(out + 1)),
				       .payload = copy->head->payload };
	if (ret)
		memset(copy->sums, 0, copy->head->n * sizeof(copy->sums[0]));
	return ret;
}

void weights_copy_set(struct weights_copy *copy, const void *const *data)
{
	for (uint32_t i = 0; i < copy->head->n; i++)
		if (data[i] && bytes_of(copy, i))
			memcpy(tensor_in(copy, i), data[i], bytes_of(copy, i));
	memset(copy->sums, 0, copy->head->n * sizeof(copy->sums[0]));
}

uint64_t weights_copy_sum(const struct weights_copy *copy)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < copy->head->n; i++)
		sum += copy->sums[i];
	return sum;
}

static int changes_damaged(const struct weights_gen *gen)
{
	return error_set(-EBADMSG, "weights: the delta of version %" PRIu64 " is damaged",
			 gen->version);
}

/* An entry as far as it was applied. */
struct changes_cursor {
	const uint8_t *at;
	uint64_t left; /* bytes */
	uint32_t n;    /* changes */
};

static int cursor_open(struct changes_cursor *c, const struct weights_copy *copy,
		       const struct weights_delta *delta)
{
	const struct weights_entry *entry = delta->bytes;

	if (delta->n < sizeof(*entry) || entry->magic != WEIGHTS_ENTRY_MAGIC ||
	    entry->seq != delta->gen->seq || entry->head_bytes != delta->n - sizeof(*entry) ||
	    entry->payload != copy->head->payload)
		return changes_damaged(delta->gen);
	*c = (struct changes_cursor){ (const uint8_t *)(entry + 1), entry->head_bytes, entry->n };
	return 0;
}

/* Takes the cursor's next change, if it is one of the tensor. Tensors come in their order. */
static int cursor_next(struct changes_cursor *c, uint32_t tensor, struct delta_in *out,
		       bool *is_out)
{
	const struct weights_change *change = (const void *)c->at;

	*is_out = false;
	if (c->n == 0)
		return 0;
	if (c->left < sizeof(*change) || change->tensor < tensor || change->bytes % 8 ||
	    change->bytes > c->left - sizeof(*change))
		return -EBADMSG;
	if (change->tensor > tensor)
		return 0;
	*out = (struct delta_in){ change + 1, change->bytes };
	*is_out = true;
	c->at += sizeof(*change) + change->bytes;
	c->left -= sizeof(*change) + change->bytes;
	c->n--;
	return 0;
}

/* Applies the next change of each cursor that has one of the tensor. */
static int tensor_apply(struct weights_copy *copy, uint32_t tensor, struct changes_cursor *cursors,
			const struct weights_delta *deltas, uint32_t n)
{
	struct delta_array array = array_of(copy, tensor);
	struct delta_copy of = { tensor_in(copy, tensor), copy->sums[tensor] };
	struct delta_in in[DELTA_CHAIN];
	uint32_t n_in = 0;
	bool is_in;

	for (uint32_t k = 0; k < n; k++) {
		if (cursor_next(&cursors[k], tensor, &in[n_in], &is_in))
			return changes_damaged(deltas[k].gen);
		n_in += is_in;
	}
	if (n_in && delta_apply_chain(&array, &of, in, n_in))
		return error_prefix(-EBADMSG,
				    "version %" PRIu64 ", tensor %s: ", deltas[n - 1].gen->version,
				    weights_name(copy->head, &weights_tensors(copy->head)[tensor]));
	copy->sums[tensor] = of.sum;
	return 0;
}

/* Behind an anchor. */
static void sums_begin(struct weights_copy *copy)
{
	for (uint32_t i = 0; copy->bases && i < copy->head->n; i++)
		copy->bases[i] += copy->sums[i];
	memset(copy->sums, 0, copy->head->n * sizeof(copy->sums[0]));
}

int weights_changes_apply(struct weights_copy *copy, const struct weights_delta *deltas, uint32_t n)
{
	struct changes_cursor cursors[DELTA_CHAIN];
	const struct weights_gen *last = deltas[n - 1].gen;
	int ret = 0;

	for (uint32_t k = 0; ret == 0 && k < n; k++)
		ret = cursor_open(&cursors[k], copy, &deltas[k]);
	for (uint32_t i = 0; ret == 0 && i < copy->head->n; i++)
		ret = tensor_apply(copy, i, cursors, deltas, n);
	for (uint32_t k = 0; ret == 0 && k < n; k++)
		if (cursors[k].n || cursors[k].left)
			ret = changes_damaged(deltas[k].gen);
	if (ret == 0 && weights_copy_sum(copy) != last->sum)
		ret = changes_damaged(last);
	if (ret == 0 && last->anchor.entry)
		sums_begin(copy);
	return ret;
}

/* -------- full checks -------- */

/* The sum of all elements of tensor i. False: it has none, or is tied. *end_inout: where the tensors before end. */
static bool tensor_sum(const struct weights_copy *copy, uint32_t i, uint64_t *end_inout,
		       uint64_t *sum_out)
{
	const struct weights_tensor *tensor = &weights_tensors(copy->head)[i];
	struct delta_array array = array_of(copy, i);

	if (tensor->bytes == 0 || tensor->off < *end_inout)
		return false;
	*end_inout = tensor->off + tensor->bytes;
	*sum_out = delta_sum(&array, 0, tensor_in(copy, i), tensor->bytes);
	return true;
}

void weights_copy_base(const struct weights_copy *copy)
{
	uint64_t end = 0;

	for (uint32_t i = 0; i < copy->head->n; i++)
		if (!tensor_sum(copy, i, &end, &copy->bases[i]))
			copy->bases[i] = 0;
}

int weights_copy_check(const struct weights_copy *copy, const struct weights_gen *gen)
{
	uint64_t end = 0, sum;

	for (uint32_t i = 0; i < copy->head->n; i++)
		if (tensor_sum(copy, i, &end, &sum) && sum != copy->bases[i] + copy->sums[i])
			return error_set(-EBADMSG,
					 "version %" PRIu64
					 ", tensor %s: its elements have another sum",
					 gen->version,
					 weights_name(copy->head, &weights_tensors(copy->head)[i]));
	return 0;
}
