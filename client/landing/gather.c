/*
 * gather.c - rows that the device gathers itself.
 *
 * A batch asks for the copy of its lists, and for a launch for each size of values. With opts.graph that is recorded
 * once for each buffer: addresses and numbers are the same for each batch of one shape, and what differs is
 * the lists, which the copy brings. A round of fewer items, which are drawn again, is asked for call by call.
 */
#include "client/landing/state.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/bits.h"
#include "base/mem/alloc.h"

#define ALIGN_MOST 16u /* beyond it alignment is of no use to a gather */

static uint64_t lowest_va(const struct rlv_landing *landing) LOCK_REQUIRES(landing_role)
{
	uint64_t lowest = UINT64_MAX;

	for (const struct landing_range *range = landing->ranges; range; range = range->next)
		lowest = min_u64(lowest, range->va);
	return lowest;
}

/* Turns addresses of this process into offsets from those of the work. -EINVAL: one is of no range, or out of
   the buffer. */
static int list_translate(struct rlv_landing *landing, const struct landing_buffer *buffer,
			  const struct landing_list *list, struct backend_gather *work)
	LOCK_REQUIRES(landing_role)
{
	uint64_t host = (uint64_t)(uintptr_t)buffer->host, places = ALIGN_MOST;
	const struct landing_range *range = NULL;

	for (size_t i = 0; i < list->n; i++) {
		struct window_value *value = &list->values[i];
		uint64_t to = value->to - host;

		if (!range || value->from < range->from || value->from >= range->end)
			range = *landing_range_link(landing, value->from, value->from + 1);
		if (!range || list->bytes > range->end - value->from || to > buffer->bytes ||
		    list->bytes > buffer->bytes - to)
			return error_set(-EINVAL,
					 "landing: a row of %zu bytes at %" PRIx64
					 " is not shared, or its place is in no buffer",
					 list->bytes, value->from);
		value->from += range->va - range->from - work->from;
		value->to = to;
		places |= value->from | to;
	}
	work->places = places & -places; /* the alignment alone: it is the same for most batches */
	return 0;
}

static int plan_make(struct rlv_landing *landing, const struct landing_buffer *buffer,
		     const struct landing_list *lists, struct landing_plan *plan)
	LOCK_REQUIRES(landing_role)
{
	const struct landing_list *last = &lists[plan->n - 1];
	uint64_t src = (uint64_t)(uintptr_t)lists[0].values;
	uint64_t dst = buffer->at + (src - (uint64_t)(uintptr_t)buffer->host);
	int ret = 0;

	plan->lists = (struct backend_copy){
		.dst = dst, .src = src, .bytes = (uint64_t)(uintptr_t)(last->values + last->n) - src
	};
	for (uint32_t i = 0; ret == 0 && i < plan->n; i++) {
		uint64_t off = (uint64_t)(uintptr_t)lists[i].values - src;

		plan->work[i] = (struct backend_gather){ .to = buffer->at,
							 .from = lowest_va(landing),
							 .rows = dst + off,
							 .n = lists[i].n,
							 .bytes = lists[i].bytes };
		ret = list_translate(landing, buffer, &lists[i], &plan->work[i]);
	}
	return ret;
}

static int plan_queue(struct rlv_landing *landing, const struct landing_plan *plan)
	LOCK_REQUIRES(landing_role)
{
	struct backend *dev = landing->backend;
	uint32_t own = landing->streams[0].number;
	int ret = dev->ops->copy_batch(dev, own, &plan->lists, 1);

	for (uint32_t i = 0; ret == 0 && i < plan->n; i++)
		ret = dev->ops->gather(dev, own, &plan->work[i]);
	return ret;
}

/* -------- graphs -------- */

void landing_drop_graph(struct rlv_landing *landing, struct landing_buffer *buffer)
{
	struct backend *dev = landing->backend;

	if (!buffer->recorded)
		return;
	(void)dev->ops->graph_drop(dev, buffer->recorded->graph);
	mem_free(buffer->recorded);
	buffer->recorded = NULL;
}

static bool plan_is(const struct landing_plan *recorded, const struct landing_plan *plan)
{
	return recorded->n == plan->n &&
	       memcmp(&recorded->lists, &plan->lists, sizeof(plan->lists)) == 0 &&
	       memcmp(recorded->work, plan->work, plan->n * sizeof(plan->work[0])) == 0;
}

static int plan_record(struct rlv_landing *landing, struct landing_buffer *buffer,
		       const struct landing_plan *plan) LOCK_REQUIRES(landing_role)
{
	struct backend *dev = landing->backend;
	uint32_t own = landing->streams[0].number;
	struct landing_plan *recorded;
	int ret;

	landing_drop_graph(landing, buffer);
	recorded = mem_alloc(sizeof(*recorded));
	if (!recorded)
		return error_set(-ENOMEM, "landing: cannot allocate memory");
	*recorded = *plan;
	ret = dev->ops->graph_begin(dev, own);
	if (ret == 0) {
		struct error_kept kept;
		int ended;

		ret = plan_queue(landing, plan);
		error_keep(&kept);
		ended = dev->ops->graph_end(dev, own, ret ? NULL : &recorded->graph);
		if (ret)
			error_restore(&kept);
		else
			ret = ended;
	}
	if (ret) {
		mem_free(recorded);
		return ret;
	}
	buffer->recorded = recorded;
	landing->info.graphs++;
	return 0;
}

/* A smaller round leaves the graph of a whole batch alone. */
static int plan_run(struct rlv_landing *landing, struct landing_buffer *buffer,
		    const struct landing_plan *plan) LOCK_REQUIRES(landing_role)
{
	const struct landing_plan *recorded = buffer->recorded;
	struct backend *dev = landing->backend;
	int ret = 0;

	if (!landing->graphs)
		return plan_queue(landing, plan);
	if (!recorded || !plan_is(recorded, plan)) {
		if (recorded && plan->lists.bytes < recorded->lists.bytes)
			return plan_queue(landing, plan);
		ret = plan_record(landing, buffer, plan);
	}
	if (ret == 0)
		ret = dev->ops->graph_launch(dev, landing->streams[0].number,
					     buffer->recorded->graph);
	landing->info.graph_launches += ret == 0;
	return ret;
}

/* -------- gathers -------- */

static int gather_queue(struct rlv_landing *landing, struct landing_buffer *buffer,
			const struct landing_list *lists, uint32_t n) LOCK_REQUIRES(landing_role)
{
	struct landing_plan plan;
	int ret;

	plan.n = n;
	plan.graph = 0;
	ret = plan_make(landing, buffer, lists, &plan);
	if (ret)
		return ret;
	buffer->used |= 1; /* also if only some is queued */
	ret = plan_run(landing, buffer, &plan);
	for (uint32_t i = 0; ret == 0 && i < n; i++)
		landing->info.gathered_bytes += plan.work[i].n * plan.work[i].bytes;
	return ret;
}

int landing_gather(struct rlv_landing *landing, const struct landing_list *lists, uint32_t n,
		   struct landing_mark *mark_out)
{
	struct landing_buffer *buffer;
	int ret = landing_enter(landing);

	if (ret)
		return ret;
	lock_acquire(&landing->lock, &landing_role);
	buffer = landing_find(landing, lists[0].values);
	ret = buffer ? gather_queue(landing, buffer, lists, n) : -EINVAL;
	if (ret == 0)
		ret = landing_mark_own(landing, buffer);
	*mark_out = (struct landing_mark){ landing->streams[0].number, landing->streams[0].marked };
	lock_release(&landing->lock, &landing_role);
	return ret;
}
