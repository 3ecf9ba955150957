/*
 * copy.c - rlv_generation_copy: all is checked first, so that an error leaves the caller's tensors as they are.
 */
#include "client/weights/weights.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* The generation's tensor of that name; NULL: none. It is looked for from *hint on, which is then behind it. */
static const struct rlv_tensor *tensor_find(const struct rlv_generation *generation,
					    const char *name, uint32_t *hint)
{
	for (uint32_t i = 0; i < generation->n_tensors; i++) {
		uint32_t at = (*hint + i) % generation->n_tensors;

		if (strcmp(generation->tensors[at].name, name) == 0) {
			*hint = at + 1;
			return &generation->tensors[at];
		}
	}
	return NULL;
}

static int tensor_match(const struct rlv_generation *generation, const struct rlv_tensor *to,
			const struct rlv_tensor *from)
{
	if (!from)
		return error_set(-EINVAL, "version %" PRIu64 " has no tensor %s",
				 generation->version, to->name);
	if (from->dtype != to->dtype || from->ndim != to->ndim ||
	    memcmp(from->shape, to->shape, from->ndim * sizeof(from->shape[0])) != 0)
		return error_set(-EINVAL, "%s has another dtype or shape in version %" PRIu64,
				 to->name, generation->version);
	return from->bytes && !to->data ? error_set(-EINVAL, "%s: data is NULL", to->name) : 0;
}

int rlv_generation_copy(const struct rlv_generation *generation, const struct rlv_tensor *into,
			size_t n)
{
	uint32_t hint = 0;
	int ret = 0;

	if (!generation || !generation->tensors || (n && !into))
		return error_set(-EINVAL, "generation or into is NULL, or it was released");
	if (n && !weights_tensors_fit(into))
		return error_set(-EINVAL, "into[0].size %u: begin with RLV_TENSOR_INIT",
				 into->size);
	for (size_t i = 0; ret == 0 && i < n; i++) {
		const struct rlv_tensor *to = weights_tensor_at(into, i);

		ret = to->size != into->size || !to->name
			      ? error_set(-EINVAL, "its size differs, or name is NULL")
			      : tensor_match(generation, to,
					     tensor_find(generation, to->name, &hint));
		if (ret)
			ret = error_prefix(ret, "into[%zu]: ", i);
	}
	hint = 0;
	for (size_t i = 0; ret == 0 && i < n; i++) {
		const struct rlv_tensor *to = weights_tensor_at(into, i);
		const struct rlv_tensor *from = tensor_find(generation, to->name, &hint);

		if (from && from->bytes)
			memcpy((void *)(uintptr_t)to->data, from->data, from->bytes);
	}
	return ret;
}
