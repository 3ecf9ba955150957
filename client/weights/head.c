/*
 * head.c - the head of an anchor from the tensors of a program, and where their bytes lie. Tied tensors have one place in the payload.
 */
#include "client/weights/weights.h"

#include "base/mem/alloc.h"
#include "base/bits.h"

#include <errno.h>
#include <string.h>

static const uint8_t zeros[WEIGHTS_ALIGN];

/* Describes a tensor, but for its places. */
static int tensor_read(const struct rlv_tensor *tensor, uint32_t size, struct weights_tensor *out)
{
	size_t name = tensor->name ? strnlen(tensor->name, RLV_TENSOR_NAME_BYTES) : 0;

	if (tensor->size != size)
		return error_set(-EINVAL, "its size differs");
	if (name == 0 || name == RLV_TENSOR_NAME_BYTES)
		return error_set(-EINVAL, "its name has 1 to %u bytes", WEIGHTS_NAME_MAX);
	if (tensor->ndim > RLV_TENSOR_DIMS)
		return error_set(-EINVAL, "%s: ndim %u: at most %u", tensor->name, tensor->ndim,
				 RLV_TENSOR_DIMS);
	*out = (struct weights_tensor){ .name_len = (uint16_t)name,
					.dtype = (uint8_t)(tensor->dtype <= RLV_BF16 ? tensor->dtype
										     : 0),
					.n_dims = (uint8_t)tensor->ndim };
	memcpy(out->shape, tensor->shape, tensor->ndim * sizeof(out->shape[0]));
	out->bytes = weights_tensor_bytes(out);
	if (out->bytes > WEIGHTS_MOST)
		return error_set(-EINVAL, "%s: dtype %u is none, or the shape is too large",
				 tensor->name, tensor->dtype);
	if (out->bytes && !tensor->data)
		return error_set(-EINVAL, "%s: data is NULL", tensor->name);
	return 0;
}

/* Bytes of the head of the tensors. */
static int head_measure(const struct rlv_tensor *tensors, size_t n, uint64_t *bytes_out)
{
	uint64_t bytes = 0;

	if (!weights_tensors_fit(tensors))
		return error_set(-EINVAL, "tensors[0].size %u: begin with RLV_TENSOR_INIT",
				 tensors->size);
	for (size_t i = 0; i < n; i++) {
		struct weights_tensor tensor;
		int ret = tensor_read(weights_tensor_at(tensors, i), tensors->size, &tensor);

		if (ret)
			return error_prefix(ret, "tensors[%zu]: ", i);
		bytes += sizeof(tensor) + tensor.name_len + 1u;
	}
	if (bytes > UINT32_MAX >> 1)
		return error_set(-EINVAL, "the names of %zu tensors are too long", n);
	*bytes_out = align_up(bytes, WEIGHTS_ALIGN);
	return 0;
}

/* Gives tensor i its place, which is *off_inout unless it is tied, and adds its runs. Returns where the next runs go. */
static struct heap_run *tensor_place(struct weights_publisher *pub, uint32_t i, const void *data,
				     uint64_t *off_inout, struct heap_run *run)
{
	struct weights_tensor *tensors = (struct weights_tensor *)(void *)(pub->head + 1);
	struct weights_tensor *to = &tensors[i];
	uint64_t pad = align_up(to->bytes, WEIGHTS_ALIGN) - to->bytes;
	uint32_t first = to->bytes ? weights_tied_to(pub, i, data) : i;

	pub->data[i] = to->bytes && first == i ? data : NULL;
	to->off = first == i ? *off_inout : tensors[first].off;
	if (!pub->data[i])
		return run;
	*off_inout += to->bytes + pad;
	*run++ = (struct heap_run){ data, to->bytes };
	if (pad)
		*run++ = (struct heap_run){ zeros, pad };
	return run;
}

int weights_head_make(struct weights_publisher *pub, const struct rlv_tensor *tensors, size_t n)
{
	uint64_t head_bytes = 0, off = 0, name_off = n * sizeof(struct weights_tensor);
	struct heap_run *run;
	int ret;

	if (n == 0 || !tensors)
		return error_set(-EINVAL, "no tensors");
	ret = head_measure(tensors, n, &head_bytes);
	if (ret)
		return ret;
	if (!weights_make_room(&pub->head, &pub->head_room, sizeof(*pub->head) + head_bytes) ||
	    !mem_make_room(&pub->runs, &pub->runs_room, 2 * n + 1, sizeof(pub->runs[0])) ||
	    !mem_make_room(&pub->data, &pub->data_room, n, sizeof(pub->data[0])) ||
	    !weights_ties_begin(pub, n))
		return error_set(-ENOMEM, "weights: cannot allocate memory for %zu tensors", n);
	memset(pub->head, 0, sizeof(*pub->head) + head_bytes);
	pub->head->n = (uint32_t)n;
	run = pub->runs;
	*run++ = (struct heap_run){ pub->head, sizeof(*pub->head) + head_bytes };
	for (size_t i = 0; i < n; i++) {
		const struct rlv_tensor *tensor = weights_tensor_at(tensors, i);
		struct weights_tensor *to = (struct weights_tensor *)(void *)(pub->head + 1) + i;

		ret = tensor_read(tensor, tensors->size, to);
		if (ret)
			return ret;
		to->name_off = (uint32_t)name_off;
		memcpy((char *)(pub->head + 1) + name_off, tensor->name, to->name_len);
		name_off += to->name_len + 1u;
		run = tensor_place(pub, (uint32_t)i, tensor->data, &off, run);
	}
	pub->n_runs = (uint32_t)(run - pub->runs);
	*pub->head = (struct weights_entry){ .magic = WEIGHTS_ENTRY_MAGIC,
					     .n = (uint32_t)n,
					     .head_bytes = head_bytes,
					     .payload = off };
	return 0;
}
