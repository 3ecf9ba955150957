/*
 * tied.c - tensors in the same memory, such as the embedding of a network that is its last layer, too. They are found by
 * address, bytes and dtype in a hash table that has twice as many places as there are tensors, or more.
 */
#include "client/weights/weights.h"

#include "base/bits.h"

#include <string.h>

static uint64_t ties_places(uint64_t n)
{
	return UINT64_C(1) << (bits_log2_floor(2 * n) + 1);
}

bool weights_ties_begin(struct weights_publisher *pub, size_t n)
{
	uint64_t bytes = ties_places(n) * sizeof(pub->ties[0]);

	if (!weights_make_room(&pub->ties, &pub->ties_room, bytes))
		return false;
	memset(pub->ties, 0, bytes);
	return true;
}

uint32_t weights_tied_to(struct weights_publisher *pub, uint32_t i, const void *data)
{
	const struct weights_tensor *tensors = weights_tensors(pub->head);
	uint64_t places = ties_places(pub->head->n);
	uint64_t place = ((uintptr_t)data >> 3) * UINT64_C(0x9e3779b97f4a7c15) >> 32;

	for (;; place++) {
		uint32_t *at = &pub->ties[place & (places - 1)]; /* tensor + 1 */
		uint32_t found = *at - 1;

		if (*at == 0) {
			*at = i + 1;
			return i;
		}
		if (pub->data[found] == data && tensors[found].bytes == tensors[i].bytes &&
		    tensors[found].dtype == tensors[i].dtype)
			return found;
	}
}
