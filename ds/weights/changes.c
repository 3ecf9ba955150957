#include "ds/weights/changes.h"

#include "wire/table_layout.h"

#include "base/bits.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define SAMPLE_ALL ((uint64_t)16 << 20) /* payload that is looked at whole */
#define SAMPLE_PART 16u                 /* of a larger one */
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

		if (bytes_of(copy, i) == 0)
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
		if (bytes_of(copy, i))
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

int weights_changes_apply(struct weights_copy *copy, const struct weights_gen *gen,
			  const void *bytes, uint64_t n)
{
	const struct weights_entry *entry = bytes;
	const uint8_t *at = (const uint8_t *)(entry + 1), *end = (const uint8_t *)bytes + n;

	if (n < sizeof(*entry) || entry->magic != WEIGHTS_ENTRY_MAGIC || entry->seq != gen->seq ||
	    entry->head_bytes != n - sizeof(*entry) || entry->payload != copy->head->payload)
		return changes_damaged(gen);
	for (uint32_t i = 0; i < entry->n; i++) {
		const struct weights_change *change = (const void *)at;
		struct delta_array array;
		struct delta_copy of;

		if ((uint64_t)(end - at) < sizeof(*change) || change->tensor >= copy->head->n ||
		    change->bytes % 8 || change->bytes > (uint64_t)(end - at) - sizeof(*change))
			return changes_damaged(gen);
		array = array_of(copy, change->tensor);
		of = (struct delta_copy){ tensor_in(copy, change->tensor),
					  copy->sums[change->tensor] };
		if (delta_apply(&array, &of, change + 1, change->bytes))
			return error_prefix(
				-EBADMSG, "version %" PRIu64 ", tensor %s: ", gen->version,
				weights_name(copy->head,
					     &weights_tensors(copy->head)[change->tensor]));
		copy->sums[change->tensor] = of.sum;
		at += sizeof(*change) + change->bytes;
	}
	if (at != end || weights_copy_sum(copy) != gen->sum)
		return changes_damaged(gen);
	return 0;
}
