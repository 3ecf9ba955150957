#include "ds/weights/tree.h"

#include "ds/chain/chain.h"

#include "wire/table_layout.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

uint64_t weights_tensor_bytes(const struct weights_tensor *tensor)
{
	uint64_t bytes = dtype_bytes(tensor->dtype);

	if (bytes == 0 || tensor->n_dims > WEIGHTS_DIMS_MAX)
		return UINT64_MAX;
	for (uint32_t i = 0; i < tensor->n_dims; i++)
		if (__builtin_mul_overflow(bytes, tensor->shape[i], &bytes))
			return UINT64_MAX;
	return bytes;
}

static bool tensor_check(const struct weights_entry *entry, const struct weights_tensor *tensor)
{
	uint64_t names = entry->n * sizeof(*tensor);

	if (tensor->bytes != weights_tensor_bytes(tensor) || tensor->off % WEIGHTS_ALIGN ||
	    tensor->off > entry->payload || tensor->bytes > entry->payload - tensor->off)
		return false;
	if (tensor->name_off < names || tensor->name_len == 0 ||
	    tensor->name_len > WEIGHTS_NAME_MAX ||
	    (uint64_t)tensor->name_off + tensor->name_len >= entry->head_bytes)
		return false;
	return memchr(weights_name(entry, tensor), 0, tensor->name_len + 1u) ==
	       weights_name(entry, tensor) + tensor->name_len;
}

int weights_anchor_check(const void *bytes, uint64_t n, uint64_t seq)
{
	const struct weights_entry *entry = bytes;

	if (n < sizeof(*entry) || entry->magic != WEIGHTS_ENTRY_MAGIC || entry->seq != seq ||
	    entry->head_bytes > n - sizeof(*entry) || entry->head_bytes % WEIGHTS_ALIGN ||
	    entry->head_bytes > UINT32_MAX || entry->payload != n - weights_payload_off(entry) ||
	    entry->n > entry->head_bytes / sizeof(struct weights_tensor))
		return error_set(-EBADMSG,
				 "weights: an anchor of generation %" PRIu64 " is damaged", seq);
	for (uint32_t i = 0; i < entry->n; i++)
		if (!tensor_check(entry, &weights_tensors(entry)[i]))
			return error_set(-EBADMSG,
					 "weights: tensor %u of generation %" PRIu64 " is damaged",
					 i, seq);
	return 0;
}

uint64_t weights_tree_hash(const struct weights_entry *entry)
{
	return chain_key(entry + 1, (uint32_t)entry->head_bytes, entry->n).hash;
}

bool weights_trees_alike(const struct weights_entry *a, const struct weights_entry *b)
{
	uint64_t tensors = a->n * sizeof(struct weights_tensor);

	if (b->magic != WEIGHTS_ENTRY_MAGIC || a->n != b->n || a->head_bytes != b->head_bytes)
		return false;
	for (uint32_t i = 0; i < a->n; i++) {
		struct weights_tensor of_a = weights_tensors(a)[i], of_b = weights_tensors(b)[i];

		of_a.off = of_b.off;
		if (memcmp(&of_a, &of_b, sizeof(of_a)) != 0)
			return false;
	}
	return memcmp((const uint8_t *)(a + 1) + tensors, (const uint8_t *)(b + 1) + tensors,
		      a->head_bytes - tensors) == 0;
}
