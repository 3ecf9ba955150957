#include "server/memnode_pool.h"

#include <errno.h>
#include <stddef.h>

#include "ds/superblock.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"

#include "server/memnode_service.h"

#define WAIT_NS (10 * CLOCK_NS_PER_MS) /* between two looks at who is still there */

/* Calls fn for the rows of the pool until it fails. What is not formatted is nobody's. */
static int for_each_rows(struct transport_target *target,
			 int (*fn)(void *ctx, const struct target_region *rows), void *ctx)
{
	struct target_region *regions = NULL;
	size_t n = 0;
	int ret = memnode_list_regions(target, &regions, &n);

	for (size_t i = 0; ret == 0 && i < n; i++)
		if (superblock_is_of_rows((const void *)regions[i].base))
			ret = fn(ctx, &regions[i]);
	mem_free(regions);
	return ret;
}

static int persist_mark(struct transport_target *target, const struct target_region *rows)
{
	const size_t off = offsetof(struct region_superblock, mark);

	return target->ops->persist(target, rows->id, off, sizeof(uint64_t));
}

/* Also when it is set: whoever set it may have been killed before it was durable. */
static int set_mark(struct transport_target *target, const struct target_region *rows)
{
	superblock_set_mark((void *)rows->base);
	return persist_mark(target, rows);
}

/* -------- begin -------- */

static int begin(void *ctx, const struct target_region *rows)
{
	struct transport_target *target = ctx;
	struct target_stats stats;

	target->ops->stats(target, &stats);
	if (stats.sole_opener)
		superblock_begin_alone((void *)rows->base, target->incarnation);
	return set_mark(target, rows);
}

int memnode_pool_begin(struct transport_target *target)
{
	return for_each_rows(target, begin, target);
}

int memnode_pool_made(struct transport_target *target, const struct target_region *region)
{
	return region->role == REGION_ROWS ? set_mark(target, region) : 0;
}

/* -------- end -------- */

static int is_alone(void *ctx, const struct target_region *rows)
{
	struct transport_target *target = ctx;

	return target->ops->alone(target, rows->id) ? 0 : -EBUSY;
}

/* Who maps it holds a lock that ends with the mapping; connections are ended by progress. */
static void wait_until_alone(struct transport_target *target)
{
	uint64_t deadline = deadline_after(clock_monotonic(), MEMNODE_POOL_END_NS);

	while (for_each_rows(target, is_alone, target) == -EBUSY &&
	       !deadline_expired(clock_monotonic(), deadline))
		if (target->ops->progress(target, WAIT_NS))
			return;
}

static int persist_all(struct transport_target *target, const struct target_region *rows)
{
	struct target_region *regions = NULL;
	size_t n = 0;
	int ret = memnode_list_regions(target, &regions, &n);

	if (ret == 0)
		ret = target->ops->persist(target, rows->id, 0, 0);
	for (size_t i = 0; ret == 0 && i < n; i++)
		if (regions[i].kind == rows->kind && regions[i].object == rows->object &&
		    regions[i].part == rows->part && regions[i].role == REGION_TREE)
			ret = target->ops->persist(target, regions[i].id, 0, 0);
	mem_free(regions);
	return ret;
}

/* From here on nobody is served any more: who has it not, does not get it. */
static int end(void *ctx, const struct target_region *rows)
{
	struct transport_target *target = ctx;
	int ret;

	if (is_alone(target, rows)) {
		log_info("region %u is still in use: its rows are to be read by the next life of "
			 "this node that has it alone",
			 rows->id);
		return 0;
	}
	ret = persist_all(target, rows);
	if (ret)
		return ret;
	superblock_end_alone((void *)rows->base);
	return persist_mark(target, rows);
}

void memnode_pool_end(struct transport_target *target)
{
	wait_until_alone(target);
	if (for_each_rows(target, end, target))
		log_warn("the pool was not written back: %s", error_last());
}
