/*
 * share.c - memory of the host that is shared with the device, which gathers rows from it (gather.c).
 *
 * A range stays the device's until all its gathers have ended, or it stays for good: what is unmapped here must not
 * be read there. A driver takes memory of a process once, so landings of one device have it together.
 */
#include "client/landing/state.h"

#include <errno.h>
#include <inttypes.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/log.h"
#include "base/mem/alloc.h"

#define PAGE_BYTES 4096u

/* -------- pages of this process that devices have -------- */

struct shared_pages {
	struct shared_pages *next;
	uint64_t from, end;
	uint64_t va;    /* of the device */
	int32_t device; /* its number */
	uint32_t users; /* landings */
	pid_t pid;      /* a child of fork has none of them */
};

static LOCK_ROLE(pages_role, "pages of devices", LOCK_RANK_MEMORY);
static struct lock pages_lock = LOCK_INIT(&pages_role);
static struct shared_pages *pages LOCK_GUARDED_BY(pages_role);

/* Pages that the landing's device has, from there on; NULL: none. */
static struct shared_pages *pages_find(const struct rlv_landing *landing, uint64_t from)
	LOCK_REQUIRES(pages_role) LOCK_REQUIRES(landing_role)
{
	struct shared_pages *one = pages;

	while (one && (one->from != from || one->device != landing->info.device ||
		       one->pid != landing->pid))
		one = one->next;
	return one;
}

static int pages_share(const struct rlv_landing *landing, uint64_t from, uint64_t end,
		       struct shared_pages **out) LOCK_REQUIRES(pages_role)
	LOCK_REQUIRES(landing_role)
{
	struct shared_pages *one = mem_zalloc(sizeof(*one));
	int ret = one ? landing->backend->ops->host_share(landing->backend, (void *)(uintptr_t)from,
							  end - from, &one->va)
		      : error_set(-ENOMEM, "landing: cannot allocate memory");

	if (ret) {
		mem_free(one);
		return ret;
	}
	one->from = from;
	one->end = end;
	one->device = landing->info.device;
	one->pid = landing->pid;
	one->next = pages;
	pages = one;
	*out = one;
	return 0;
}

/* Sets range->pages and range->va. */
static int pages_take(const struct rlv_landing *landing, struct landing_range *range)
	LOCK_REQUIRES(landing_role)
{
	int ret = 0;

	lock_acquire(&pages_lock, &pages_role);
	range->pages = pages_find(landing, range->from);
	if (!range->pages || range->pages->end != range->end)
		ret = pages_share(landing, range->from, range->end, &range->pages);
	if (ret == 0) {
		range->pages->users++;
		range->va = range->pages->va;
	}
	lock_release(&pages_lock, &pages_role);
	return ret;
}

/* dev: NULL = it is closed. After an error the landing still has them. */
static int pages_give(struct shared_pages *one, struct backend *dev)
{
	struct shared_pages **link = &pages;
	int ret = 0;

	lock_acquire(&pages_lock, &pages_role);
	if (one->users == 1 && dev)
		ret = dev->ops->host_unregister(dev, (void *)(uintptr_t)one->from);
	if (ret == -ENODEV)
		ret = 0;
	if (ret == 0 && --one->users == 0) {
		while (*link != one)
			link = &(*link)->next;
		*link = one->next;
		mem_free(one);
	}
	lock_release(&pages_lock, &pages_role);
	return ret;
}

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
	int ret = share_await(landing);

	if (ret == 0 || ret == -ENODEV)
		ret = pages_give(range->pages, landing->backend);
	if (ret)
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
		(void)pages_give(range->pages, NULL);
		mem_free(range);
	}
}

static int range_add(struct rlv_landing *landing, uint64_t from, uint64_t end)
	LOCK_REQUIRES(landing_role)
{
	struct landing_range *range = mem_zalloc(sizeof(*range));
	int ret;

	if (!range)
		return error_set(-ENOMEM, "landing: cannot allocate memory");
	range->from = from;
	range->end = end;
	ret = pages_take(landing, range);
	if (ret) {
		mem_free(range);
		return ret;
	}
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
