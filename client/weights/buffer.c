#include "client/weights/weights.h"

#include "base/mem/alloc.h"
#include "base/bits.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

bool weights_make_room(void *ptr_inout, size_t *room, uint64_t n)
{
	void **at = ptr_inout;

	if (*at && *room >= n)
		return true;
	mem_free(*at);
	*at = mem_aligned(WEIGHTS_ALIGN, align_up(n, WEIGHTS_ALIGN));
	*room = *at ? n : 0;
	return *at != NULL;
}

void weights_buffer_put(struct weights_buffer *buffer)
{
	/* Readers of the buffer in other threads are done with it before it is freed. */
	if (!buffer || atomic_fetch_sub_explicit(&buffer->holds, 1, memory_order_acq_rel) > 1)
		return;
	if (buffer->view)
		kv_view_close(buffer->view);
	mem_free(buffer->view);
	mem_free(buffer->entry);
	mem_free(buffer->tensors);
	mem_free(buffer->sums);
	mem_free(buffer->bases);
	mem_free(buffer);
}

void weights_buffer_part(struct weights_buffer **at)
{
	if (!*at || atomic_load_explicit(&(*at)->holds, memory_order_acquire) == 1)
		return;
	weights_buffer_put(*at);
	*at = NULL;
}

int weights_buffer_take(struct weights_buffer **at, uint64_t bytes)
{
	struct weights_buffer *buffer;

	weights_buffer_part(at);
	buffer = *at;
	if (!buffer) {
		buffer = *at = mem_zalloc(sizeof(*buffer));
		if (!buffer)
			return error_set(-ENOMEM, "weights: cannot allocate memory");
		atomic_init(&buffer->holds, 1);
	}
	if (!weights_make_room(&buffer->entry, &buffer->room, bytes))
		return error_set(-ENOMEM, "weights: cannot allocate %" PRIu64 " bytes", bytes);
	buffer->seq = 0;
	return 0;
}

int weights_buffer_copy(struct weights_buffer **to, const struct weights_buffer *from)
{
	int ret = weights_buffer_take(to, from->bytes);

	if (ret)
		return ret;
	memcpy((*to)->entry, from->entry, from->bytes);
	(*to)->bytes = from->bytes;
	ret = weights_buffer_parse(*to);
	if (ret)
		return ret;
	memcpy((*to)->sums, from->sums, from->entry->n * sizeof(from->sums[0]));
	memcpy((*to)->bases, from->bases, from->entry->n * sizeof(from->bases[0]));
	(*to)->seq = from->seq;
	return 0;
}

int weights_buffer_parse(struct weights_buffer *buffer)
{
	const struct weights_entry *entry = buffer->entry;
	uint8_t *payload = (uint8_t *)buffer->entry + weights_payload_off(entry);

	if (!mem_make_room(&buffer->tensors, &buffer->tensors_room, entry->n,
			   sizeof(buffer->tensors[0])) ||
	    !mem_make_room(&buffer->sums, &buffer->sums_room, entry->n, sizeof(buffer->sums[0])) ||
	    !mem_make_room(&buffer->bases, &buffer->bases_room, entry->n, sizeof(buffer->bases[0])))
		return error_set(-ENOMEM, "weights: cannot allocate memory for %u tensors",
				 entry->n);
	for (uint32_t i = 0; i < entry->n; i++) {
		const struct weights_tensor *from = &weights_tensors(entry)[i];
		struct rlv_tensor *to = &buffer->tensors[i];

		*to = (struct rlv_tensor){ .size = sizeof(*to),
					   .dtype = from->dtype,
					   .ndim = from->n_dims,
					   .name = weights_name(entry, from),
					   .data = payload + from->off,
					   .bytes = from->bytes };
		memcpy(to->shape, from->shape, sizeof(to->shape));
	}
	return 0;
}

void rlv_generation_release(struct rlv_generation *generation)
{
	if (!generation ||
	    generation->size < offsetof(struct rlv_generation, hold) + sizeof(void *))
		return;
	weights_buffer_put(generation->hold);
	memset((uint8_t *)generation + sizeof(generation->size), 0,
	       generation->size - sizeof(generation->size));
}
