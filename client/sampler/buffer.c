/*
 * Buffers of chunks, for users of the library.
 */
#include "relive/relive.h"

#include "base/bits.h"
#include "base/mem/chunk.h"

#include <errno.h>

int rlv_buffer_alloc(size_t align, size_t bytes, void **buffer_out)
{
	void *buffer;

	if (!buffer_out)
		return error_set(-EINVAL, "buffer_out is NULL");
	if (!bits_is_pow2(align) || align > CHUNK_UNIT)
		return error_set(-EINVAL, "align %zu: want a power of two, at most %zu", align,
				 CHUNK_UNIT);
	if (bytes == 0)
		return error_set(-EINVAL, "bytes 0: must be at least 1");
	buffer = chunk_alloc(align, bytes);
	if (!buffer)
		return error_set(-ENOMEM, "buffer: cannot allocate %zu bytes", bytes);
	*buffer_out = buffer;
	return 0;
}

void rlv_buffer_free(void *buffer, size_t bytes)
{
	chunk_free(buffer, bytes);
}

int rlv_buffer_find(const void *ptr, size_t bytes)
{
	uint32_t index;

	return bytes && chunk_find(ptr, bytes, &index) ? 0 : -ENOENT;
}
