/* Draws as steps; see ds/sumtree/steps.h. */
#include "ds/sumtree/steps.h"

#include "ds/sumtree/descent.h"
#include "ds/sumtree/kernel.h"
#include "ds/sumtree/place.h"
#include "ds/sumtree/tops.h"

#include "base/mem/alloc.h"
#include "base/bits.h"
#include "base/mem/chunk.h"
#include "base/error.h"
#include "base/rng.h"

#include <errno.h>
#include <string.h>

enum stage { STAGE_IDLE, STAGE_BEGUN, STAGE_TOPS, STAGE_LEVEL };

struct sumtree_steps {
	const struct forest *from;
	struct rng *rng;
	struct strata strata; /* for the first try; later tries are independent */
	struct draws out;
	enum stage stage;
	uint32_t level; /* level of all draws */
	uint32_t tries; /* starts from the tops */
	uint32_t turns;
	struct sumtree_tops tops;

	uint32_t *todo; /* draws without a result yet */
	size_t n_todo;
	struct sumtree_descent *downs; /* one for each DRAW_CHUNK of them */
	uint32_t *trees;               /* trees whose tops are being read */
	uint32_t n_trees;

	struct transport_io *io;
	size_t n_io;
	struct mem bytes; /* target of the reads */

	size_t room_draws, room_downs, room_trees, room_io;
};

/* -------- memory -------- */

int sumtree_steps_open(struct sumtree_steps **steps_out)
{
	struct sumtree_steps *steps = mem_zalloc(sizeof(*steps));

	if (!steps)
		return error_set(-ENOMEM, "draw: cannot allocate memory");
	*steps_out = steps;
	return 0;
}

void sumtree_steps_close(struct sumtree_steps **steps)
{
	struct sumtree_steps *s = *steps;

	if (!s)
		return;
	mem_free(s->todo);
	mem_free(s->downs);
	mem_free(s->trees);
	mem_free(s->io);
	chunk_drop(&s->bytes);
	sumtree_tops_fini(&s->tops);
	mem_free(s);
	*steps = NULL;
}

static int make_room(void *array_inout, size_t *room, size_t n, size_t size)
{
	return mem_make_room(array_inout, room, n, size)
		       ? 0
		       : error_set(-ENOMEM, "draw: cannot allocate memory for %zu items", n);
}

static int make_bytes(struct sumtree_steps *s, size_t bytes)
{
	return chunk_make_room(&s->bytes, bytes)
		       ? 0
		       : error_set(-ENOMEM, "draw: cannot allocate %zu bytes", bytes);
}

static size_t n_downs(const struct sumtree_steps *s)
{
	return div_up(s->n_todo, DRAW_CHUNK);
}

/* -------- tops -------- */

static int aim_tops(struct sumtree_steps *s)
{
	uint32_t bytes = (uint32_t)align_up(sumtree_tops_bytes(s->from), WIRE_LINE);
	int ret = make_room(&s->io, &s->room_io, (size_t)s->n_trees * TOPS_READS, sizeof(*s->io));

	if (ret == 0)
		ret = make_bytes(s, (size_t)s->n_trees * bytes);
	for (uint32_t i = 0; ret == 0 && i < s->n_trees; i++)
		sumtree_tops_aim(s->from, s->trees[i], &s->bytes, s->bytes.ptr + (size_t)i * bytes,
				 s->io + (size_t)i * TOPS_READS);
	s->n_io = (size_t)s->n_trees * TOPS_READS;
	s->stage = STAGE_TOPS;
	return ret;
}

static int begin_tops(struct sumtree_steps *s)
{
	if (s->tries++ == DRAW_RESTARTS)
		return error_set(-ENODATA, "draw: no item found in %d tries", DRAW_RESTARTS);
	s->turns = 0;
	s->n_trees = s->from->n;
	for (uint32_t t = 0; t < s->n_trees; t++)
		s->trees[t] = t;
	return aim_tops(s);
}

/* -------- levels -------- */

static void place_all(struct sumtree_steps *s)
{
	const struct strata independent = { 0 };
	const struct strata *strata = s->tries == 1 ? &s->strata : &independent;

	for (size_t d = 0; d < n_downs(s); d++) {
		struct sumtree_descent *down = &s->downs[d];
		size_t first = d * DRAW_CHUNK;

		down->from = s->from;
		down->rng = s->rng;
		down->kernel = sumtree_kernel_get();
		down->prefetch = false;
		down->writes = false;
		down->in_copies = true;
		sumtree_place(down, &s->tops, strata, first,
			      (uint32_t)min_u64(DRAW_CHUNK, s->n_todo - first));
		sumtree_descent_run_private(down);
	}
	s->level = s->from->trees[0].geo.levels;
	s->stage = STAGE_LEVEL;
}

/*
 * Sets the reads of the next level: the children of each draw's node. Neighbouring draws often have
 * the same node: they share its read.
 */
static int aim_level(struct sumtree_steps *s)
{
	uint32_t bytes = s->from->trees[0].geo.fanout[s->level - 1] * 8u;
	int ret = make_room(&s->io, &s->room_io, s->n_todo, sizeof(*s->io));

	if (ret == 0)
		ret = make_bytes(s, s->n_todo * bytes);
	s->n_io = 0;
	for (size_t k = 0; ret == 0 && k < s->n_todo; k++) {
		struct sumtree_descent *down = &s->downs[k / DRAW_CHUNK];
		const struct draw_lanes *lanes = &down->lanes;
		uint32_t i = (uint32_t)(k % DRAW_CHUNK);
		uint8_t *at;

		if (i == 0 || down->shard[i] != down->shard[i - 1] ||
		    lanes->node[i] != lanes->node[i - 1]) {
			sumtree_descent_aim(down, i, s->level, &s->io[s->n_io]);
			s->io[s->n_io].dst = s->bytes.ptr + s->n_io * bytes;
			s->io[s->n_io].mem = &s->bytes;
			s->n_io++;
		}
		at = s->bytes.ptr + (s->n_io - 1) * bytes;
		down->lanes.children[i] = (const uint64_t *)(const void *)at;
	}
	return ret;
}

/* -------- steps -------- */

int sumtree_steps_begin(struct sumtree_steps *steps, const struct steps_task *task)
{
	size_t n = task->n;
	int ret = make_room(&steps->todo, &steps->room_draws, n, sizeof(*steps->todo));

	steps->stage = STAGE_IDLE;
	if (ret == 0)
		ret = make_room(&steps->downs, &steps->room_downs, div_up(n, DRAW_CHUNK),
				sizeof(*steps->downs));
	if (ret == 0)
		ret = make_room(&steps->trees, &steps->room_trees, task->from->n,
				sizeof(*steps->trees));
	if (ret == 0)
		ret = sumtree_tops_fit(&steps->tops, task->from);
	if (ret)
		return ret;
	steps->from = task->from;
	steps->rng = task->rng;
	steps->strata = strata_make(task->opts, n);
	steps->out = task->out;
	steps->tries = 0;
	steps->tops.sizes = task->opts ? task->opts->sizes_out : NULL;
	steps->n_todo = n;
	for (size_t i = 0; i < n; i++)
		steps->todo[i] = (uint32_t)i;
	steps->stage = STAGE_BEGUN;
	return 0;
}

static int leave_tops(struct sumtree_steps *s)
{
	/* most reads of a top whose epoch names another array each time */
	const uint32_t turns = 3;
	uint32_t bytes = (uint32_t)align_up(sumtree_tops_bytes(s->from), WIRE_LINE);
	bool last = ++s->turns == turns;
	uint32_t left = 0;

	/* Trees to be read again stay in the list. */
	for (uint32_t i = 0; i < s->n_trees; i++)
		if (!sumtree_tops_take(&s->tops, s->trees[i], s->bytes.ptr + (size_t)i * bytes,
				       last))
			s->trees[left++] = s->trees[i];
	s->n_trees = left;
	if (left)
		return aim_tops(s);
	/* All are read. A total of 0 may be transient: retry. */
	sumtree_tops_end(&s->tops);
	if (!sumtree_tops_begin_draw(&s->tops))
		return begin_tops(s);
	place_all(s);
	return aim_level(s);
}

static int leave_level(struct sumtree_steps *s)
{
	size_t left = 0;

	for (size_t d = 0; d < n_downs(s); d++)
		sumtree_descent_step(&s->downs[d], s->level);
	if (--s->level > 0)
		return aim_level(s);
	/* Emits the draws that reached their leaves; lost draws stay in the list. */
	for (size_t k = 0; k < s->n_todo; k++) {
		const struct sumtree_descent *down = &s->downs[k / DRAW_CHUNK];
		uint32_t i = (uint32_t)(k % DRAW_CHUNK);

		if (sumtree_descent_is_lost(down, i))
			s->todo[left++] = s->todo[k];
		else
			sumtree_emit_one(down, i, &s->out, s->todo[k]);
	}
	s->n_todo = left;
	s->n_io = 0;
	s->stage = STAGE_IDLE;
	return left ? begin_tops(s) : 0;
}

int sumtree_steps_next(struct sumtree_steps *steps, const struct transport_io **io_out,
		       size_t *n_out)
{
	int ret = 0;

	switch (steps->stage) {
	case STAGE_IDLE:
		steps->n_io = 0;
		break;
	case STAGE_BEGUN:
		ret = begin_tops(steps);
		break;
	case STAGE_TOPS:
		ret = leave_tops(steps);
		break;
	case STAGE_LEVEL:
		ret = leave_level(steps);
		break;
	}
	if (ret) {
		steps->stage = STAGE_IDLE;
		return ret;
	}
	*io_out = steps->io;
	*n_out = steps->n_io;
	return 0;
}
