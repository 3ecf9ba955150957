/*
 * share.c - memory of the host that is shared with the device, which gathers rows from it (gather.c).
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

struct landing_range **landing_range_link(struct rlv_landing *landing, uint64_t from, uint64_t end)
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
	range = *landing_range_link(landing, from, end);
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
	link = landing_range_link(landing, from, from + 1);
	if (*link && --(*link)->users == 0 && range_end(landing, link))
		log_error("landing: pages of a table are left to the device: %s", error_last());
	lock_release(&landing->lock, &landing_role);
}
