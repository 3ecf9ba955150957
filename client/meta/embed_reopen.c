/*
 * embed:FILE opened again: the tables from their regions, each shard recovered.
 */
#include "client/meta/embed.h"

#include "ds/limiter/balance.h"
#include "ds/replay/recover.h"
#include "transport/barrier.h"

#include "wire/region.h"

#include "base/mem/alloc.h"
#include "base/bits.h"
#include "base/log.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define MAX_REGIONS 4095u

/* The regions of the pool. */
struct listing {
	struct target_region *regions;
	size_t n;
};

/* What the extent table lists of a shard, by role; NULL = not there. */
struct found_part {
	const struct target_region *of[REGION_ROLES];
};

static struct found_part part_of(const struct listing *list, const struct target_region *like)
{
	struct found_part part = { .of = { NULL } };

	for (size_t i = 0; i < list->n; i++) {
		const struct target_region *region = &list->regions[i];

		if (region->kind == like->kind && region->object == like->object &&
		    region->part == like->part && region->role < REGION_ROLES)
			part.of[region->role] = region;
	}
	return part;
}

/* -------- what the file holds -------- */

static int open_shard(struct embed *embed, const struct found_part *part, struct shard **shard_out)
{
	struct part_regions regions = { .owner = 0 };
	int ret = 0;

	for (uint32_t role = REGION_TREE; ret == 0 && role < REGION_ROLES; role++)
		ret = embed_attach(embed, part->of[role]->id, &regions.at[role]);
	if (ret == 0)
		ret = shard_open(&regions, NULL, shard_out);
	if (ret)
		part_regions_detach(&regions);
	return ret;
}

/* Adds a shard to its table, which its first shard creates. */
static int reopen_adopt(struct embed *embed, struct shard *shard)
{
	uint32_t id = shard->desc.table_id;
	struct embed_table *table = embed->tables[id];

	if (!table) {
		struct table_desc desc = shard->desc;

		table_desc_seal(&desc, 0);
		table = embed_table_new(&desc);
		if (!table)
			return error_set(-ENOMEM, "table %s: cannot allocate memory", desc.name);
		embed->tables[id] = table;
	}
	if (memcmp(table->desc.uuid, shard->desc.uuid, sizeof(table->desc.uuid)) != 0 ||
	    shard->desc.shard >= table->desc.n_shards || table->shards[shard->desc.shard])
		return error_set(
			-EPROTO,
			"two tables have the id %u, or one has more shards than its descriptor says",
			id);
	table->shards[shard->desc.shard] = shard;
	return 0;
}

/* NULL: as of one that was not made yet. */
static uint64_t state_of(const struct target_region *region)
{
	const struct region_superblock *sb = region ? (const void *)region->base : NULL;

	return sb ? rword64_load_relaxed(&sb->state.word) : REGION_FORMATTING;
}

/*
 * A create that was cut short, for sure: the word of the slots is set last of all, and nobody has
 * stored a row before that. A page that reads as zeros for another reason would look alike but for the
 * rows.
 */
static bool was_never_complete(const struct found_part *part)
{
	const struct target_region *rows = part->of[REGION_ROWS];

	return state_of(part->of[REGION_SLOTS]) == REGION_FORMATTING &&
	       (!rows || bits_all_zero(rows->base + REGION_SUPERBLOCK_BYTES,
				       rows->size - REGION_SUPERBLOCK_BYTES));
}

static bool any_is(const struct found_part *part, uint64_t state)
{
	for (uint32_t role = REGION_TREE; role < REGION_ROLES; role++)
		if (state_of(part->of[role]) == state)
			return true;
	return false;
}

/* Opens a part as a shard of its table, unless nothing is to be kept of it. Changes nothing. */
static int take_part(struct embed *embed, const struct found_part *part,
		     const struct target_region *any)
{
	struct shard *shard;
	int ret;

	/* A drop says so in all regions of the table before it gives the first one back. */
	if (any_is(part, REGION_DROPPED) || was_never_complete(part))
		return 0;
	if (any_is(part, REGION_FORMATTING))
		return error_set(-EBADMSG,
				 "table id %u shard %u: its regions contradict each other, one is "
				 "damaged",
				 any->object, any->part);
	ret = open_shard(embed, part, &shard);
	if (ret)
		return error_prefix(ret, "table id %u shard %u: ", any->object, any->part);
	ret = reopen_adopt(embed, shard);
	if (ret)
		shard_close(&shard);
	return ret;
}

/* True if it is the first listed region of its part: each part is taken once. */
static bool is_first(const struct found_part *part, const struct target_region *region)
{
	for (uint32_t role = REGION_TREE; role < REGION_ROLES; role++)
		if (part->of[role])
			return part->of[role] == region;
	return false;
}

static int take_all(struct embed *embed, const struct listing *list)
{
	int ret = 0;

	for (size_t i = 0; ret == 0 && i < list->n; i++) {
		struct found_part part = part_of(list, &list->regions[i]);

		if (is_first(&part, &list->regions[i]))
			ret = take_part(embed, &part, &list->regions[i]);
	}
	return ret;
}

/* -------- what is not to be kept -------- */

static bool has_region(const struct shard *shard, uint32_t id)
{
	for (uint32_t role = REGION_TREE; shard && role < REGION_ROLES; role++)
		if (shard->part.regions.at[role]->id == id)
			return true;
	return false;
}

static bool is_taken(const struct embed *embed, const struct target_region *region)
{
	for (uint32_t id = 1; id <= TABLE_MAX_ID; id++) {
		const struct embed_table *table = embed->tables[id];

		for (uint32_t s = 0; table && s < table->desc.n_shards; s++)
			if (has_region(table->shards[s], region->id))
				return true;
	}
	return false;
}

/* What says DROPPED goes last: alone it still says what becomes of it. */
static void free_rest(struct embed *embed, const struct listing *list)
{
	struct transport_target *target = embed->base.target;

	for (int last = 0; last <= 1; last++)
		for (size_t i = 0; i < list->n; i++) {
			const struct target_region *region = &list->regions[i];

			if ((state_of(region) == REGION_DROPPED) != last || is_taken(embed, region))
				continue;
			log_warn("pool file: table id %u shard %u was dropped or never complete, "
				 "region %u is freed",
				 region->object, region->part, region->id);
			(void)target->ops->unregister_region(target, region->id);
		}
}

/* A create that was cut short leaves some shards of a table live and others not there. */
static void drop_incomplete(struct embed *embed)
{
	for (uint32_t id = 1; id <= TABLE_MAX_ID; id++) {
		struct embed_table *table = embed->tables[id];
		bool whole = true;

		for (uint32_t s = 0; table && s < table->desc.n_shards; s++)
			whole &= table->shards[s] != NULL;
		if (!table || whole)
			continue;
		log_warn("pool file: table %s was never complete, its space is freed",
			 table->desc.name);
		embed->tables[id] = NULL;
		embed_table_destroy(embed, table);
	}
}

/* -------- all of it -------- */

static int for_each_shard(struct embed *embed, int (*fn)(struct embed *embed, struct shard *shard))
{
	int ret = 0;

	for (uint32_t id = 1; id <= TABLE_MAX_ID; id++) {
		const struct embed_table *table = embed->tables[id];

		for (uint32_t s = 0; ret == 0 && table && s < table->desc.n_shards; s++)
			ret = table->shards[s] ? fn(embed, table->shards[s]) : 0;
	}
	return ret;
}

/* Refuses rows that may be torn and have no checksums. */
static int check_trust(struct embed *embed, struct shard *shard)
{
	bool marked;
	int ret;

	ret = part_is_marked(&shard->part, &marked);
	if (ret || !marked || embed->trust || (shard->desc.flags & TABLE_ROW_CRC))
		return ret;
	return error_set(
		-EBADMSG,
		"table %s: it was not closed by its last writer's process, and its rows have "
		"no checksums (row_crc = 2), so a power loss or a copy made meanwhile would go "
		"unnoticed: open it with opts.trust (Python: trust=True) if there was none",
		shard->desc.name);
}

static int reopen_recover(struct embed *embed, struct shard *shard)
{
	struct recover_opts opts = { 0 };
	struct recover_report report;
	int ret;

	(void)embed;
	ret = part_is_marked(&shard->part, &opts.scan_rows);
	if (ret == 0)
		ret = recover_shard(shard, &opts, &report);
	if (ret == 0)
		log_info("recovered table %s shard %u items %" PRIu64 " closed %u retired %" PRIu64
			 "%s",
			 shard->desc.name, shard->desc.shard, report.items, report.closed,
			 report.retired, opts.scan_rows ? ", all rows read" : "");
	return ret;
}

/* Repairs the counts of queues at once: no other client is attached yet. */
static int balance_tables(struct embed *embed)
{
	int ret = 0;

	for (uint32_t id = 1; id <= TABLE_MAX_ID; id++) {
		const struct embed_table *table = embed->tables[id];

		for (uint32_t v = 0; ret == 0 && table && v < table->desc.n_views; v++) {
			int64_t moved;

			if (balance_applies(&table->desc.views[v]))
				ret = balance_view(table->shards, table->desc.n_shards, v, &moved);
		}
	}
	return ret;
}

int embed_reopen(struct embed *embed)
{
	struct transport_target *target = embed->base.target;
	struct listing list = { mem_array(MAX_REGIONS, sizeof(*list.regions)), MAX_REGIONS };
	int ret;

	if (!list.regions)
		return error_set(-ENOMEM, "pool file: no memory for its table of regions");
	ret = target->ops->list_regions(target, list.regions, &list.n);
	if (ret == 0)
		ret = take_all(embed, &list);
	if (ret == 0)
		ret = for_each_shard(embed, check_trust);
	if (ret == 0)
		free_rest(embed, &list);
	mem_free(list.regions);
	if (ret)
		return error_prefix(ret, "pool file: ");
	drop_incomplete(embed);
	ret = for_each_shard(embed, reopen_recover);
	return ret ? error_prefix(ret, "pool file: ") : balance_tables(embed);
}
