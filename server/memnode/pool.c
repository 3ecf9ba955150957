#include "server/memnode/pool.h"

#include <errno.h>
#include <stddef.h>

#include "ds/part/superblock.h"

#include "base/mem/alloc.h"
#include "base/os/clock.h"
#include "base/log.h"

#include "server/memnode/service.h"

/* Regions of a part, by role: its rows, and the others or NULL. */
struct pool_part {
	const struct target_region *rows;
	const struct target_region *of[REGION_ROLES];
};

static struct pool_part part_of(const struct target_region *regions, size_t n,
				const struct target_region *rows)
{
	struct pool_part part = { .rows = rows };

	for (size_t i = 0; i < n; i++)
		if (regions[i].kind == rows->kind && regions[i].object == rows->object &&
		    regions[i].part == rows->part && regions[i].role < REGION_ROLES)
			part.of[regions[i].role] = &regions[i];
	return part;
}

/* Calls fn for each part of the pool until it fails. */
static int for_each_part(struct transport_target *target,
			 int (*fn)(struct transport_target *target, const struct pool_part *part))
{
	struct target_region *regions = NULL;
	size_t n = 0;
	int ret = memnode_list_regions(target, &regions, &n);

	for (size_t i = 0; ret == 0 && i < n; i++) {
		const struct target_region *rows = &regions[i];

		/* An unformatted region has no user yet. */
		if (!rows->broken && rows->base &&
		    superblock_is_of_rows((const void *)rows->base)) {
			const struct pool_part part = part_of(regions, n, rows);

			ret = fn(target, &part);
		}
	}
	mem_free(regions);
	return ret;
}

static int persist_mark(struct transport_target *target, const struct target_region *rows)
{
	const size_t off = offsetof(struct region_superblock, mark);

	return target->ops->persist(target, rows->id, off, sizeof(uint64_t));
}

/* Persisted even if set: its setter may have been killed before persisting it. */
static int set_mark(struct transport_target *target, const struct target_region *rows)
{
	superblock_set_mark((void *)rows->base);
	return persist_mark(target, rows);
}

/* -------- begin -------- */

static int pool_begin(struct transport_target *target, const struct pool_part *part)
{
	bool sole = true;

	for (uint32_t role = REGION_TREE; role < REGION_ROLES; role++)
		sole &= !part->of[role] || part->of[role]->sole;
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

/* From here on no new client is served. Never fails. */
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
	for (uint32_t role = REGION_TREE; ret == 0 && role < REGION_ROLES; role++)
		if (role != REGION_ROWS && part->of[role])
			ret = target->ops->persist(target, part->of[role]->id, 0, 0);
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
