#include "client/sampler/scratch.h"

#include "base/mem/alloc.h"
#include "base/mem/chunk.h"

#include <errno.h>

int scratch_init(struct draw_scratch *s, size_t n)
{
	s->shard = mem_array(n, sizeof(*s->shard));
	s->slot = mem_array(n, sizeof(*s->slot));
	s->word = mem_array(n, sizeof(*s->word));
	s->probability = mem_array(n, sizeof(*s->probability));
	s->at = mem_array(n, sizeof(*s->at));
	s->window = mem_array(n, sizeof(*s->window));
	s->ops = mem_array(n, sizeof(*s->ops));
	s->order = mem_array(n, sizeof(*s->order));
	s->spare = mem_array(n, sizeof(*s->spare));
	s->quanta = mem_array(n, sizeof(*s->quanta));
	if (!chunk_make_room(&s->again_mem, n * sizeof(*s->again)) || !s->shard || !s->slot ||
	    !s->word || !s->probability || !s->at || !s->window || !s->ops || !s->order ||
	    !s->spare || !s->quanta)
		return error_set(-ENOMEM, "sampler: cannot allocate memory for batches of %zu", n);
	s->again = (uint64_t *)(void *)s->again_mem.ptr;
	return 0;
}

void scratch_fini(struct draw_scratch *s)
{
	mem_free(s->shard);
	mem_free(s->slot);
	mem_free(s->word);
	mem_free(s->probability);
	mem_free(s->at);
	mem_free(s->window);
	chunk_drop(&s->again_mem);
	mem_free(s->ops);
	mem_free(s->order);
	mem_free(s->spare);
	mem_free(s->quanta);
}
