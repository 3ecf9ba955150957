#include "client/sampler/sampler.h"

#include "base/log.h"

#include <errno.h>

/* -------- rows that are shared with the device -------- */

void apart_choose(struct rlv_sampler *sp)
{
	uint32_t large = 0;

	for (uint32_t c = 0; c < sp->h.desc->n_columns; c++) {
		const struct window_output o = { .bytes = sp->h.desc->columns[c].bytes };

		large += sp->columns[c] && window_is_listed(&o);
	}
	/* of a column there are two arrays at most */
	sp->apart.wanted = large && 2 * large <= LANDING_LISTS && sp->opts.dest &&
			   landing_gathers(sp->opts.dest) && sp->reads_rows &&
			   sp->opts.verify != RLV_VERIFY_CRC && !sp->opts.short_batch &&
			   !sp->view->max_times_sampled;
}

static bool apart_share(struct rlv_sampler *sp, uint32_t s)
{
	const struct region *rows = handle_shard(&sp->h, s)->rows;

	if (sp->apart.shared[s])
		return true;
	if (!rows->base)
		return false;
	if (landing_share(sp->opts.dest, rows->base, rows->size)) {
		log_warn("sampler: batches land by a copy: %s", error_last());
		return false;
	}
	sp->apart.shared[s] = rows->base;
	return true;
}

int apart_follow(struct rlv_sampler *sp)
{
	uint32_t n = sp->h.set.n_parts;

	sp->apart.ready = false;
	if (!sp->apart.wanted || !sp->trees.addressable)
		return 0;
	if (n > sp->apart.n) {
		if (!mem_grow(&sp->apart.shared, sp->apart.n, n, sizeof(*sp->apart.shared)))
			return error_set(-ENOMEM, "sampler: cannot allocate memory for %u shards",
					 n);
		sp->apart.n = n;
	}
	sp->apart.ready = true;
	for (uint32_t s = 0; sp->apart.ready && s < n; s++)
		if (handle_access(&sp->h, s))
			sp->apart.ready = apart_share(sp, s);
	return 0;
}

void apart_leave(struct rlv_sampler *sp, uint32_t shard)
{
	if (shard >= sp->apart.n || !sp->apart.shared[shard])
		return;
	landing_unshare(sp->opts.dest, sp->apart.shared[shard]);
	sp->apart.shared[shard] = NULL;
	sp->apart.ready = false;
}

void apart_end(struct rlv_sampler *sp)
{
	for (uint32_t s = 0; s < sp->apart.n; s++)
		apart_leave(sp, s);
}

void apart_fini(struct rlv_sampler *sp)
{
	mem_free(sp->apart.shared);
}

/* -------- a round -------- */

/* Lists the large values of n items behind each other; values of one size are one list. Returns how many. */
static uint32_t apart_list(const struct rlv_sampler *sp, const struct batch *batch, uint32_t n,
			   struct landing_list *lists)
{
	struct window_value *at[LANDING_LISTS], *next = batch->values;
	struct window_plan plan = sp->plan;
	uint32_t n_lists = 0;

	plan.outputs = batch->outputs + batch->n_near;
	plan.n_outputs = batch->n_outputs - batch->n_near;
	for (uint32_t c = 0; c < plan.n_outputs; c++) {
		const struct window_output *o = &plan.outputs[c];
		size_t values = (size_t)n * window_values_of(&plan, o);

		if (!n_lists || lists[n_lists - 1].bytes != o->bytes)
			lists[n_lists++] =
				(struct landing_list){ .values = next, .bytes = o->bytes };
		lists[n_lists - 1].n += values;
		at[c] = next;
		next += values;
	}
	window_list_values(&plan, sp->scratch.window, sp->scratch.at, n, at);
	return n_lists;
}

int apart_gather(struct rlv_sampler *sp, const struct round *round)
{
	const struct batch *batch = round->batch;
	struct draw_scratch *s = &sp->scratch;
	struct landing_list lists[LANDING_LISTS];
	struct landing_mark mark;
	uint32_t n = round->found;
	int ret;

	/* After an error the device may still read the lists of an earlier try. */
	if (!landing_idle(sp->opts.dest, batch->memory))
		return error_set(-EAGAIN, "sample: the device still gathers for this batch");
	sampler_find_windows(sp, 0, n);
	ret = landing_gather(sp->opts.dest, lists, apart_list(sp, batch, n, lists), &mark);
	if (ret)
		return ret;
	sp->plan.outputs = batch->outputs;
	sp->plan.n_outputs = batch->n_near;
	window_gather(&sp->plan, s->window, s->at, n);
	ret = landing_await(sp->opts.dest, &mark);
	if (ret == 0) /* the device has read all rows, as this thread sees by the mark */
		sampler_look_in_place(sp, s, 0, n);
	return ret;
}
