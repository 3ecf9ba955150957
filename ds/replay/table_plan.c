#include "ds/replay/shard.h"
#include "ds/replay/table_desc.h"

#include "wire/rptr.h"

#include "base/bits.h"

#include <errno.h>
#include <inttypes.h>

#define OPEN_SHARE 8u   /* all open blocks together: at most 1/8 of a shard */
#define SLACK_BLOCKS 2u /* for each stream: one open, one claimed or just closed */

/*
 * Over a wire a level costs a round trip, and each draw reads the children of a node on every level: two
 * levels of about the same fan-out, under tops that are read whole.
 */
enum {
	REMOTE_LEVELS = 4,  /* with the terminator */
	REMOTE_GROUP = 128, /* leaves under one node, at most */
	REMOTE_FLAT = 64,   /* and with no level between them and the top */
	REMOTE_TOPS = 1024, /* nodes of the tops of all shards together */
	REMOTE_TOP = 64,    /* of one top, at least */
	REMOTE_NARROW = 64, /* fan-outs of a third level */
	REMOTE_WIDE = 256,
	REMOTE_BLOCK = 1024, /* rows: a claim costs five round trips */
	LOCAL_BLOCK = 256,
};

/* Inputs for the choice of sizes. */
struct plan {
	struct table_desc *desc;
	const struct table_plan_opts *opts;
	const uint16_t *fanout; /* wish, or remote, or NULL */
	uint16_t remote[REMOTE_LEVELS];
	uint32_t top;       /* nodes of the top level, at most */
	uint32_t group;     /* leaves under one node */
	uint64_t share;     /* steps of one shard */
	uint64_t block_min; /* two windows, in whole groups */
};

static bool plan_is_remote(const struct plan *plan)
{
	return plan->opts && plan->opts->remote;
}

static uint64_t plan_slack(const struct plan *plan)
{
	return (uint64_t)SLACK_BLOCKS * plan->desc->max_writers;
}

/*
 * Returns how many blocks of `block` rows a shard needs: for its share of the capacity, and 2 for
 * each stream; at most about 2^64 / 8, so that sums with it do not wrap.
 */
static uint64_t blocks_for(const struct plan *plan, uint64_t block)
{
	uint64_t steps = table_block_steps(plan->desc, block);

	return min_u64(div_up(plan->share, steps), UINT64_MAX / 8) + plan_slack(plan);
}

static int choose_block(const struct plan *plan, uint64_t *block_out)
{
	const struct table_desc *desc = plan->desc;
	uint64_t wish = plan->opts ? plan->opts->block : 0, block, least;

	if (wish && wish < plan->block_min)
		return error_set(-EINVAL,
				 "block %" PRIu64 ": must be at least %" PRIu64
				 " rows (2 windows of %u, in leaf groups of %u)",
				 wish, plan->block_min, desc->window_max, plan->group);
	if (wish) {
		block = round_up(wish, plan->group);
	} else { /* some rows or 8 windows, but at most 1/16 of the writer's share of the shard */
		uint64_t most = plan->share / (16 * (uint64_t)desc->max_writers);

		block = plan_is_remote(plan) ? REMOTE_BLOCK : LOCAL_BLOCK;
		block = round_up(max_u64(block, 8 * (uint64_t)desc->window_max), plan->group);
		block = min_u64(block, most / plan->group * plan->group);
		block = max_u64(block, plan->block_min);
	}
	*block_out = block;
	if (blocks_for(plan, block) >= (uint64_t)OPEN_SHARE * desc->max_writers)
		return 0;
	least = (OPEN_SHARE - SLACK_BLOCKS) * (uint64_t)desc->max_writers - 1;
	least = least * table_block_steps(desc, block) + 1;
	return error_set(-EINVAL,
			 "capacity %" PRIu64 " over %u shards: blocks of %" PRIu64
			 " rows (window %u, leaf groups of %u), of which %u writers hold one each, "
			 "need at least %" PRIu64 " steps in a shard, so that open blocks stay "
			 "under 1/%u of it; it has %" PRIu64,
			 desc->capacity, desc->n_shards, block, desc->window_max, plan->group,
			 desc->max_writers, least, OPEN_SHARE, plan->share);
}

static int choose_sizes(const struct plan *plan)
{
	struct table_desc *desc = plan->desc;
	uint64_t max_slots =
		min_u64(TREE_MAX_LEAVES, (RPTR_MAX_OFFSET - ROWS_OFF) / desc->row_bytes);
	uint64_t block = 0, blocks, most, shards = 0;
	int rc = choose_block(plan, &block);

	if (rc)
		return rc;
	blocks = blocks_for(plan, block);
	most = max_slots / block;
	if (blocks <= most) {
		desc->block = (uint32_t)block;
		desc->blocks = (uint32_t)blocks;
		desc->slots = (uint32_t)(blocks * block);
		return 0;
	}
	if (most > plan_slack(plan)) /* shards of max_slots slots that hold the capacity */
		shards = div_up(desc->capacity,
				(most - plan_slack(plan)) * table_block_steps(desc, block));
	if (!shards || shards > TABLE_MAX_SHARDS)
		return error_set(-EINVAL,
				 "capacity %" PRIu64 ": not representable, %u shards of %" PRIu64
				 " slots with blocks of %" PRIu64 " rows are the most",
				 desc->capacity, TABLE_MAX_SHARDS, max_slots, block);
	return error_set(-EINVAL,
			 "capacity %" PRIu64 " over %u shards: a shard has at most %" PRIu64
			 " slots, so %" PRIu64 " shards are needed",
			 desc->capacity, desc->n_shards, max_slots, shards);
}

/* -------- geometry -------- */

/*
 * Sets the fan-outs above the leaf groups of a tree over a wire, unless the user chose them: of one
 * level while it is narrow enough, else of two.
 */
static void remote_upper(struct plan *plan, uint64_t slots)
{
	uint64_t groups = div_up(slots, plan->group);
	uint64_t wide = round_up(div_up(groups, plan->top), 8);

	if (plan->fanout != plan->remote || groups <= plan->top)
		return;
	if (wide <= REMOTE_WIDE) {
		plan->remote[1] = (uint16_t)wide;
		return;
	}
	plan->remote[1] = REMOTE_NARROW;
	wide = round_up(div_up(div_up(groups, REMOTE_NARROW), plan->top), 8);
	plan->remote[2] = (uint16_t)max_u64(wide, REMOTE_NARROW);
}

/*
 * Leaves under one node of a tree over a wire: enough for a small shard to have one level, and a larger
 * one two, but so few that open blocks of this size stay under 1/8 of the shard.
 */
static uint16_t remote_group(const struct plan *plan)
{
	uint64_t most = plan->share / ((uint64_t)OPEN_SHARE * plan->desc->max_writers);
	uint64_t under = div_up(plan->share, plan->top), group = TREE_MIN_FANOUT;
	bool flat = under <= REMOTE_FLAT;

	while (group < REMOTE_GROUP && group * 2 <= most && (flat ? group : group * group) < under)
		group *= 2;
	return (uint16_t)group;
}

/* Chooses plan->top, and plan->group: leaves under one node, the minimum of a block. */
static int leaf_group(struct plan *plan)
{
	struct tree_geometry geo;
	int rc;

	plan->top = (uint32_t)max_u64(REMOTE_TOPS / plan->desc->n_shards, REMOTE_TOP);
	if (plan->opts)
		plan->fanout = plan->opts->fanout;
	if (!plan->fanout && plan_is_remote(plan)) {
		plan->remote[0] = remote_group(plan);
		plan->fanout = plan->remote;
	}
	rc = sumtree_geometry_init(&geo, REMOTE_TOP, plan->fanout, REMOTE_TOP);
	if (!rc)
		plan->group = geo.fanout[0];
	return rc;
}

int table_plan(struct table_desc *desc, const struct table_plan_opts *opts)
{
	struct table_desc full = *desc;
	struct plan plan = { .desc = &full, .opts = opts };
	int rc;

	for (uint32_t i = 0; i < full.n_views && i < RING_MAX_VIEWS; i++) {
		struct view_desc *view = &full.views[i];

		view->stack = view->stack ? view->stack : 1;
		view->n_step = view->n_step ? view->n_step : 1;
		view->period = view->period ? view->period : 1;
		view->scale = view->scale ? view->scale : (uint64_t)1 << 20;
	}
	rc = table_wishes_check(&full);
	if (rc)
		return rc;
	plan.share = div_up(full.capacity, full.n_shards);
	rc = leaf_group(&plan);
	if (!rc)
		rc = table_layout_row(&full);
	if (rc)
		return rc;
	plan.block_min = table_block_min(&full, plan.group);
	rc = choose_sizes(&plan);
	if (rc)
		return rc;
	remote_upper(&plan, full.slots);
	/*
	 * Nodes of the top level: in place all tops together are a private copy of each sampler, which
	 * reads it again now and then; over a wire each draw reads them.
	 */
	if (!plan.fanout)
		plan.top = (uint32_t)max_u64(SUMTREE_TOP_MAX / full.n_shards, REMOTE_TOP);
	rc = sumtree_geometry_init(&full.tree, full.slots, plan.fanout, plan.top);
	if (rc)
		return rc;
	full.magic = TABLE_DESC_MAGIC;
	full.bytes = sizeof(full);
	table_layout_regions(&full);
	table_desc_seal(&full, 0);
	*desc = full;
	return 0;
}
