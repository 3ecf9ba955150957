#include "client/sampler/scratch.h"

#include "base/mem/chunk.h"

#include <errno.h>

int scratch_init(struct draw_scratch *s, size_t n)
{
	const size_t item = sizeof(*s->ops) + 7 * sizeof(uint64_t) + 3 * sizeof(uint32_t);

	if (!chunk_make_room(&s->mem, n * item + sizeof(*s->at)))
		return error_set(-ENOMEM, "sampler: cannot allocate memory for batches of %zu", n);
	/* In the order of their alignment. */
	s->ops = (struct leaf_op *)(void *)s->mem.ptr;
	s->word = (uint64_t *)(s->ops + n);
	s->again = s->word + n;
	s->order = s->again + n;
	s->spare = s->order + n;
	s->quanta = s->spare + n;
	s->probability = (double *)(void *)(s->quanta + n);
	s->window = (const uint8_t **)(void *)(s->probability + n);
	s->shard = (uint32_t *)(void *)(s->window + n);
	s->slot = s->shard + n;
	s->at = s->slot + n;
	return 0;
}

void scratch_fini(struct draw_scratch *s)
{
	chunk_drop(&s->mem);
}
