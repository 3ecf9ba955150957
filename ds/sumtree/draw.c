/*
 * Draws: maps points of the total mass to nodes of the top levels (ds/sumtree/place.h), and
 * these to leaves (descent.h). A lost draw restarts from the re-read tops, over all trees, after
 * the others are done. Over a wire: steps.h.
 */
#include "ds/sumtree/sumtree.h"

#include "ds/sumtree/descent.h"
#include "ds/sumtree/kernel.h"
#include "ds/sumtree/place.h"
#include "ds/sumtree/steps.h"
#include "ds/sumtree/tops.h"

#include "transport/wait_set.h"

#include "base/bits.h"
#include "base/error.h"
#include "base/rng.h"

#include <errno.h>
#include <string.h>

struct draw_call {
	struct sumtree_descent down;
	struct sumtree_tops *tops;
};

/*
 * Repeats one lost draw, result `to`, over all trees, tops re-read each time, until it finds a
 * leaf. -ENODATA: not in DRAW_RESTARTS tries.
 */
static int draw_restart(struct draw_call *call, const struct draws *out, size_t to)
{
	const struct strata independent = { 0 };

	for (int tries = 0; tries < DRAW_RESTARTS; tries++) {
		int ret = sumtree_tops_read(call->tops);

		if (ret)
			return ret;
		if (!sumtree_tops_begin_draw(call->tops))
			continue;
		sumtree_place(&call->down, call->tops, &independent, 0, 1);
		sumtree_descent_run(&call->down);
		if (!sumtree_descent_is_lost(&call->down, 0)) {
			sumtree_emit(&call->down, out, to);
			return 0;
		}
	}
	return error_set(-ENODATA, "draw: no item found in %d tries", DRAW_RESTARTS);
}

static int draw_chunk(struct draw_call *call, const struct strata *strata, const struct draws *out,
		      size_t first, uint32_t n)
{
	uint64_t lost[DRAW_CHUNK / 64];
	int ret;

	memset(lost, 0xff, sizeof(lost));
	if (sumtree_tops_begin_draw(call->tops)) {
		sumtree_place(&call->down, call->tops, strata, first, n);
		sumtree_descent_run(&call->down);
		sumtree_emit(&call->down, out, first);
		memcpy(lost, call->down.lost, sizeof(lost));
	}
	for (uint32_t w = 0; w < DRAW_CHUNK / 64; w++) {
		for (uint64_t bits = lost[w]; bits; bits &= bits - 1) {
			uint32_t i = w * 64 + bits_ctz(bits);

			ret = i < n ? draw_restart(call, out, first + i) : 0;
			if (ret)
				return ret;
		}
	}
	return 0;
}

/* -------- over a wire -------- */

static int draw_by_steps(const struct steps_task *task)
{
	struct wait_set reads;
	struct sumtree_steps *steps;
	const struct transport_io *io;
	size_t n_io;
	int ret = sumtree_steps_open(&steps);

	if (ret)
		return ret;
	ret = sumtree_steps_begin(steps, task);
	while (ret == 0 && (ret = sumtree_steps_next(steps, &io, &n_io)) == 0 && n_io > 0) {
		int posted = wait_set_read(&reads, io, n_io);

		ret = wait_set_wait(&reads);
		ret = posted ? posted : ret;
	}
	sumtree_steps_close(&steps);
	return ret;
}

/* -------- both -------- */

static int draw_in_place(const struct steps_task *task, struct sumtree_tops *tops)
{
	const struct draw_opts *opts = task->opts;
	struct strata strata = strata_make(opts, task->n);
	struct draw_call call;
	int ret;

	call.down.from = task->from;
	call.down.rng = task->rng;
	call.down.kernel = sumtree_kernel_get();
	call.down.prefetch = true;
	call.down.writes = opts && opts->writes;
	call.down.in_copies = false;
	call.tops = tops;
	tops->sizes = opts ? opts->sizes_out : NULL;
	ret = sumtree_tops_refresh(tops, opts ? opts->now_ns : 0);
	for (size_t first = 0; ret == 0 && first < task->n; first += DRAW_CHUNK)
		ret = draw_chunk(&call, &strata, &task->out, first,
				 (uint32_t)min_u64(DRAW_CHUNK, task->n - first));
	tops->sizes = NULL;
	return ret;
}

int sumtree_draw(const struct forest *from, const struct draw_opts *opts, struct rng *rng, size_t n,
		 const struct draws *out)
{
	const struct steps_task task = { from, opts, rng, n, *out };
	struct sumtree_tops once = { 0 }, *tops = from->tops ? from->tops : &once;
	int ret = tops->from == from ? 0 : sumtree_tops_fit(tops, from);

	if (ret == 0 && n > 0)
		ret = tops->in_place ? draw_in_place(&task, tops) : draw_by_steps(&task);
	sumtree_tops_fini(&once);
	return ret;
}
