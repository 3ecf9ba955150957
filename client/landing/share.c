/*
 * share.c - rows that the device gathers itself, from memory of the host that is shared with it.
 *
 * A range stays the device's until all its gathers have ended, or it stays for good: what is unmapped here must not
 * be read there.
 */
#include "client/landing/state.h"

#include <errno.h>
#include <inttypes.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/log.h"
#include "base/mem/alloc.h"

#define PAGE_BYTES 4096u

bool landing_gathers(const struct rlv_landing *landing)
{
	return landing->gathers;
}

/* -------- ranges -------- */

static struct landing_range **range_link(struct rlv_landing *landing, uint64_t from, uint64_t end)
	LOCK_REQUIRES(landing_role)
{
	struct landing_range **link = &landing->ranges;

	while (*link && (end <= (*link)->from || from >= (*link)->end))
		link = &(*link)->next;
	return link;
}

/* Waits for all work of the landing's own stream. */
static int share_await(struct rlv_landing *landing) LOCK_REQUIRES(landing_role)
{
	struct landing_mark mark = { .stream = landing->streams[0].number };
	int ret = landing_queue_mark(landing, 0);

	mark.seq = landing->streams[0].marked;
	return ret ? ret : landing_await(landing, &mark);
}

/* Takes an unused range back from the device. After an error it is still there. */
static int range_end(struct rlv_landing *landing, struct landing_range **link)
	LOCK_REQUIRES(landing_role)
{
	struct landing_range *range = *link;
	struct backend *dev = landing->backend;
	int ret = share_await(landing);

	if (ret == 0)
		ret = dev->ops->host_unregister(dev, (void *)(uintptr_t)range->from);
	if (ret && ret != -ENODEV)
		return ret;
	*link = range->next;
	mem_free(range);
	return 0;
}

void landing_end_ranges(struct rlv_landing *landing)
{
	struct landing_range **link = &landing->ranges;

	while (*link) {
		if ((*link)->users || range_end(landing, link))
			link = &(*link)->next;
	}
}

void landing_forget_ranges(struct rlv_landing *landing)
{
	while (landing->ranges) {
		struct landing_range *range = landing->ranges;

		landing->ranges = range->next;
		mem_free(range);
	}
}

static int range_add(struct rlv_landing *landing, uint64_t from, uint64_t end)
	LOCK_REQUIRES(landing_role)
{
	struct backend *dev = landing->backend;
	struct landing_range *range = mem_zalloc(sizeof(*range));
	int ret;

	if (!range)
		return error_set(-ENOMEM, "landing: cannot allocate memory");
	ret = dev->ops->host_share(dev, (void *)(uintptr_t)from, end - from, &range->va);
	if (ret) {
		mem_free(range);
		return ret;
	}
	range->from = from;
	range->end = end;
	range->users = 1;
	range->next = landing->ranges;
	landing->ranges = range;
	return 0;
}

int landing_share(struct rlv_landing *landing, const void *memory, size_t bytes)
{
	uint64_t from = align_down((uint64_t)(uintptr_t)memory, PAGE_BYTES);
	uint64_t end = align_up((uint64_t)(uintptr_t)memory + bytes, PAGE_BYTES);
	struct landing_range *range;
	int ret = landing_enter(landing);

	if (ret == 0 && !landing->gathers)
		ret = error_set(-ENOTSUP, "landing: its path is no gather");
	if (ret)
		return ret;
	lock_acquire(&landing->lock, &landing_role);
	landing_end_ranges(
		landing); /* older ones that could not be ended then: their pages are others */
	range = *range_link(landing, from, end);
	if (!range)
		ret = range_add(landing, from, end);
	else if (range->users && range->from == from && range->end == end)
		range->users++;
	else
		ret = error_set(-EBUSY, "landing: the device has a part of this memory already");
	lock_release(&landing->lock, &landing_role);
	return ret;
}

void landing_unshare(struct rlv_landing *landing, const void *memory)
{
	uint64_t from = (uint64_t)(uintptr_t)memory;
	struct landing_range **link;

	if (getpid() != landing->pid)
		return;
	lock_acquire(&landing->lock, &landing_role);
	link = range_link(landing, from, from + 1);
	if (*link && --(*link)->users == 0 && range_end(landing, link))
		log_error("landing: pages of a table are left to the device: %s", error_last());
	lock_release(&landing->lock, &landing_role);
}

/* -------- gathers -------- */

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
	uint64_t host = (uint64_t)(uintptr_t)buffer->host;
	const struct landing_range *range = NULL;

	for (size_t i = 0; i < list->n; i++) {
		struct window_value *value = &list->values[i];
		uint64_t to = value->to - host;

		if (!range || value->from < range->from || value->from >= range->end)
			range = *range_link(landing, value->from, value->from + 1);
		if (!range || list->bytes > range->end - value->from || to > buffer->bytes ||
		    list->bytes > buffer->bytes - to)
			return error_set(-EINVAL,
					 "landing: a row of %zu bytes at %" PRIx64
					 " is not shared, or its place is in no buffer",
					 list->bytes, value->from);
		value->from += range->va - range->from - work->from;
		value->to = to;
		work->places |= value->from | to;
	}
	return 0;
}

/* Queues the lists' own copy, then a gather for each. */
static int queue_lists(struct rlv_landing *landing, struct landing_buffer *buffer,
		       const struct landing_list *lists, uint32_t n) LOCK_REQUIRES(landing_role)
{
	const struct landing_list *last = &lists[n - 1];
	struct backend *dev = landing->backend;
	uint32_t own = landing->streams[0].number;
	struct backend_gather work[LANDING_LISTS];
	struct backend_copy plan = { .src = (uint64_t)(uintptr_t)lists[0].values };
	int ret = 0;

	plan.dst = buffer->at + (plan.src - (uint64_t)(uintptr_t)buffer->host);
	plan.bytes = (uint64_t)(uintptr_t)(last->values + last->n) - plan.src;
	for (uint32_t i = 0; ret == 0 && i < n; i++) {
		uint64_t off = (uint64_t)(uintptr_t)lists[i].values - plan.src;

		work[i] = (struct backend_gather){ .to = buffer->at,
						   .from = lowest_va(landing),
						   .rows = plan.dst + off,
						   .n = lists[i].n,
						   .bytes = lists[i].bytes };
		ret = list_translate(landing, buffer, &lists[i], &work[i]);
	}
	if (ret)
		return ret;
	buffer->used |= 1; /* also if only some are queued */
	ret = dev->ops->copy_batch(dev, own, &plan, 1);
	for (uint32_t i = 0; ret == 0 && i < n; i++) {
		ret = dev->ops->gather(dev, own, &work[i]);
		landing->info.gathered_bytes += work[i].n * work[i].bytes;
	}
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
	ret = buffer ? queue_lists(landing, buffer, lists, n) : -EINVAL;
	if (ret == 0)
		ret = landing_mark_own(landing, buffer);
	*mark_out = (struct landing_mark){ landing->streams[0].number, landing->streams[0].marked };
	lock_release(&landing->lock, &landing_role);
	return ret;
}
