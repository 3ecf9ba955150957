#include "server/memnode/pool.h"

#include <errno.h>
#include <stddef.h>

#include "ds/part/superblock.h"

#include "base/mem/alloc.h"
#include "base/os/clock.h"
#include "base/log.h"

#include "server/memnode/service.h"

/* A part: its rows, among all regions of the pool. */
struct pool_part {
	const struct target_region *rows, *all;
	size_t n;
};

/* Calls fn for each part of the pool whose rows are formatted and not broken, until fn fails.
   Returns the error of fn or of the listing. */
static int for_each_part(struct transport_target *target,
			 int (*fn)(struct transport_target *target, const struct pool_part *part))
{
	struct target_region *regions = NULL;
	size_t n = 0;
	int ret = memnode_list_regions(target, &regions, &n);

	for (size_t i = 0; ret == 0 && i < n; i++)
		/* An unformatted region has no user yet. */
		if (!regions[i].broken && regions[i].base &&
		    superblock_is_of_rows((const void *)regions[i].base))
			ret = fn(target, &(const struct pool_part){ &regions[i], regions, n });
	mem_free(regions);
	return ret;
}

static int persist_mark(struct transport_target *target, const struct target_region *rows)
{
	const size_t off = offsetof(struct region_superblock, mark);

	return target->ops->persist(target, rows->id, off, sizeof(uint64_t));
}

/* Sets the mark of the rows, and persists it even if it was set: its setter may have been killed
   before persisting it. */
static int set_mark(struct transport_target *target, const struct target_region *rows)
{
	superblock_set_mark((void *)rows->base);
	return persist_mark(target, rows);
}

/* -------- begin -------- */

static int pool_begin(struct transport_target *target, const struct pool_part *part)
{
	bool sole = true;

	for (uint32_t role = REGION_TREE; role < REGION_ROLES; role++) {
		const struct target_region *region =
			memnode_region_beside(part->all, part->n, part->rows, role);

		sole &= !region || region->sole;
	}
	if (sole)
		superblock_begin_alone((void *)part->rows->base, target->incarnation);
	return set_mark(target, part->rows);
}

int memnode_pool_begin(struct transport_target *target)
{
	return for_each_part(target, pool_begin);
}

int memnode_pool_made(struct transport_target *target, const struct target_region *region)
{
	return region->role == REGION_ROWS ? set_mark(target, region) : 0;
}

/* -------- end -------- */

static int check_alone(struct transport_target *target, const struct pool_part *part)
{
	return target->ops->alone(target, part->rows->id) ? 0 : -EBUSY;
}

/*
 * Persists a part that no other process uses, rows first, and then ends its mark: cleared if the
 * part was recovered, else as found. Always 0: failures are logged, and the mark stays.
 */
static int pool_end(struct transport_target *target, const struct pool_part *part)
{
	int ret;

	if (check_alone(target, part)) {
		log_info("region %u is still in use: its rows are to be read by the next life of "
			 "this node that has it alone",
			 part->rows->id);
		return 0;
	}
	ret = target->ops->persist(target, part->rows->id, 0, 0);
	for (uint32_t role = REGION_TREE; ret == 0 && role < REGION_ROLES; role++) {
		const struct target_region *region =
			memnode_region_beside(part->all, part->n, part->rows, role);

		if (region && role != REGION_ROWS)
			ret = target->ops->persist(target, region->id, 0, 0);
	}
	if (ret == 0) {
		superblock_end_alone((void *)part->rows->base);
		ret = persist_mark(target, part->rows);
	}
	if (ret)
		log_warn("region %u was not written back: %s", part->rows->id, error_last());
	return 0;
}

void memnode_pool_end(struct transport_target *target)
{
	uint64_t deadline = deadline_after(clock_monotonic(), MEMNODE_POOL_END_NS);

	/* Each mapping holds a lock that ends with it; progress() ends the connections. */
	while (for_each_part(target, check_alone) == -EBUSY &&
	       !deadline_expired(clock_monotonic(), deadline))
		if (target->ops->progress(target, 10 * CLOCK_NS_PER_MS))
			break;
	if (for_each_part(target, pool_end))
		log_warn("the pool's regions cannot be listed: %s", error_last());
}
