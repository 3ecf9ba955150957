/*
 * embed:FILE opened again: the tables from their regions, each shard recovered.
 */
#include "client/meta_embed.h"

#include "ds/balance.h"
#include "ds/recover.h"
#include "ds/slot.h"

#include "transport/barrier.h"

#include "wire/region.h"

#include "base/alloc.h"
#include "base/bits.h"
#include "base/log.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define MAX_REGIONS 4095u

/* What the extent table lists of a shard: both regions, or a create that was cut short. */
static const struct target_region *find_region(const struct target_region *regions, size_t n,
					       const struct target_region *like,
					       enum region_role role)
{
	for (size_t i = 0; i < n; i++)
		if (regions[i].kind == like->kind && regions[i].object == like->object &&
		    regions[i].part == like->part && regions[i].role == role)
			return &regions[i];
	return NULL;
}

/*
 * Was the host started anew since? Then pages may have reached the file in any order. Somebody who
 * had it open then left a slot that says in which boot; a store closed cleanly was persisted.
 */
static int lost_power(struct shard *shard, const struct process_id *self, bool *lost_out)
{
	struct slot_info slots[SLOT_READ_MAX];
	uint32_t n;

	*lost_out = false;
	for (uint32_t first = 0; first < shard->desc.max_clients; first += n) {
		int ret;

		n = (uint32_t)min_u64(SLOT_READ_MAX, shard->desc.max_clients - first);
		ret = slot_read_many(shard, first, n, slots);
		if (ret)
			return ret;
		for (uint32_t i = 0; i < n; i++)
			*lost_out |= slots[i].state != SLOT_FREE &&
				     memcmp(slots[i].process.boot_id, self->boot_id,
					    sizeof(self->boot_id)) != 0;
	}
	return 0;
}

static int recover(struct embed *embed, struct shard *shard)
{
	struct recover_opts opts = { 0 };
	struct recover_report report;
	int ret;

	ret = lost_power(shard, &embed->self, &opts.scan_rows);
	if (ret == 0)
		ret = recover_shard(shard, &opts, &report);
	if (ret == 0)
		log_info("recovered table %s shard %u items %" PRIu64 " closed %u retired %" PRIu64,
			 shard->desc.name, shard->desc.shard, report.items, report.closed,
			 report.retired);
	return ret;
}

static int open_shard(struct embed *embed, uint32_t tree_id, uint32_t rows_id,
		      struct shard **shard_out)
{
	struct region *tree;
	struct region *rows;
	int ret;

	ret = embed_attach(embed, tree_id, &tree);
	if (ret)
		return ret;
	ret = embed_attach(embed, rows_id, &rows);
	if (ret)
		goto err_detach_tree;
	ret = shard_open(tree, rows, shard_out);
	if (ret)
		goto err_detach_rows;
	ret = recover(embed, *shard_out);
	if (ret)
		goto err_close_shard;
	return 0;

err_close_shard:
	shard_close(shard_out);
err_detach_rows:
	transport_detach(&rows);
err_detach_tree:
	transport_detach(&tree);
	return ret;
}

/* Puts a shard into its table, which its first shard makes. */
static int adopt(struct embed *embed, struct shard *shard)
{
	uint32_t id = shard->desc.table_id;
	struct embed_table *table = embed->tables[id];

	if (!table) {
		struct table_desc desc = shard->desc;

		table_desc_seal(&desc, 0);
		table = embed_table_new(&desc);
		if (!table)
			return error_set(-ENOMEM, "table %s: no memory", desc.name);
		embed->tables[id] = table;
	}
	if (memcmp(table->desc.uuid, shard->desc.uuid, sizeof(table->desc.uuid)) != 0 ||
	    table->shards[shard->desc.shard])
		return error_set(-EPROTO, "pool file: two tables have the id %u", id);
	table->shards[shard->desc.shard] = shard;
	return 0;
}

/* Its superblock may be blank or half written, so only the state is asked. */
static bool was_formatting(const struct target_region *region)
{
	const struct region_superblock *sb = (const void *)region->base;

	return rword64_load_relaxed(&sb->state.word) == REGION_FORMATTING;
}

/* A shard that was never made live, or was being dropped: its space is free again. */
static void discard(struct embed *embed, const struct target_region *tree,
		    const struct target_region *rows)
{
	struct transport_target *target = embed->base.target;

	log_warn("pool file: table id %u shard %u was never complete, its space is freed",
		 tree->object, tree->part);
	(void)target->ops->unregister_region(target, tree->id);
	if (rows)
		(void)target->ops->unregister_region(target, rows->id);
}

static int reopen_shard(struct embed *embed, const struct target_region *regions, size_t n,
			const struct target_region *tree)
{
	const struct target_region *rows = find_region(regions, n, tree, REGION_ROWS);
	struct shard *shard;
	int ret = -ESTALE;

	if (rows && !was_formatting(tree) && !was_formatting(rows))
		ret = open_shard(embed, tree->id, rows->id, &shard);
	if (ret == -ESTALE) {
		discard(embed, tree, rows);
		return 0;
	}
	if (ret)
		return ret;
	ret = adopt(embed, shard);
	if (ret)
		shard_close(&shard);
	return ret;
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

/* A drop that was cut short leaves rows behind whose tree is gone already. */
static void free_rows_alone(struct embed *embed, const struct target_region *regions, size_t n)
{
	struct transport_target *target = embed->base.target;

	for (size_t i = 0; i < n; i++)
		if (regions[i].role == REGION_ROWS &&
		    !find_region(regions, n, &regions[i], REGION_TREE))
			(void)target->ops->unregister_region(target, regions[i].id);
}

/* Nobody else is there yet, so that the counts of queues can be put right at once. */
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
	struct target_region *regions = mem_array(MAX_REGIONS, sizeof(*regions));
	size_t n = MAX_REGIONS;
	int ret;

	if (!regions)
		return error_set(-ENOMEM, "pool file: no memory for its table of regions");
	ret = target->ops->list_regions(target, regions, &n);
	for (size_t i = 0; ret == 0 && i < n; i++)
		if (regions[i].role == REGION_TREE)
			ret = reopen_shard(embed, regions, n, &regions[i]);
	if (ret == 0)
		free_rows_alone(embed, regions, n);
	mem_free(regions);
	if (ret)
		return error_prefix(ret, "pool file: ");
	drop_incomplete(embed);
	return balance_tables(embed);
}
