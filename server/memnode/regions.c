/*
 * regions.c - describes the pool's regions for the registration: owner, and whether they can be
 * opened. The content of regions is untrusted input: clients and files may have changed it.
 */
#include "server/memnode/service.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "ds/replay/shard.h"
#include "ds/part/superblock.h"

#include "wire/region.h"

#include "base/mem/alloc.h"
#include "base/crc32c.h"

/* All regions of the pool. */
struct listed {
	const struct target_region *regions;
	size_t n;
	bool with_descs;
};

struct memnode_region {
	Relive__NodeRegion region;
	Relive__NodeShard shard;
	uint8_t uuid[16];
	char flaw[128];
	char table[TABLE_NAME_BYTES];
	struct table_desc *desc;
};

/* Other processes may change it concurrently. */
static uint64_t load_word(const struct target_region *from, uint64_t off)
{
	return __atomic_load_n((const uint64_t *)(const void *)(from->base + off),
			       __ATOMIC_RELAXED);
}

static void take_superblock(const struct target_region *from, struct memnode_region *out)
{
	struct region_superblock sb;
	int ret;

	memcpy(&sb, from->base, sizeof(sb));
	sb.state.word.raw = load_word(from, offsetof(struct region_superblock, state));
	ret = superblock_check(&sb, from->kind, from->role, from->size);
	if (ret)
		snprintf(out->flaw, sizeof(out->flaw), "%s", error_last());
	if (sb.magic != REGION_MAGIC ||
	    sb.crc != crc32c(0, &sb, offsetof(struct region_superblock, crc)))
		return;
	memcpy(out->uuid, sb.uuid, sizeof(out->uuid));
	out->region.uuid = (ProtobufCBinaryData){ sizeof(out->uuid), out->uuid };
}

/* Page region of the tree's shard, if intact; NULL. */
static const struct target_region *pages_of(const struct listed *all,
					    const struct target_region *tree)
{
	for (size_t i = 0; i < all->n; i++) {
		const struct target_region *region = &all->regions[i];

		if (region->kind == tree->kind && region->object == tree->object &&
		    region->part == tree->part && region->role == REGION_PAGES && !region->broken &&
		    region->size >= PAGES_OFF)
			return region;
	}
	return NULL;
}

/* desc was checked, and its regions fit. */
static void take_words(const struct listed *all, const struct target_region *from,
		       const struct table_desc *desc, Relive__NodeShard *out)
{
	const struct target_region *pages = pages_of(all, from);

	out->head = load_word(from, desc->words_off + offsetof(struct shard_words, head)) &
		    BLOCK_SEQ_MASK;
	out->used = load_word(from, desc->headers_off) != 0; /* the ring's head is its first word */
	if (pages)
		out->inserted =
			load_word(pages, LIMITS_OFF + offsetof(struct view_limits, ins_committed));
}

static int keep_desc(const struct table_desc *desc, struct memnode_region *out)
{
	out->desc = mem_alloc(sizeof(*desc));
	if (!out->desc)
		return error_set(-ENOMEM, "regions: cannot allocate memory");
	*out->desc = *desc;
	out->shard.desc =
		(ProtobufCBinaryData){ table_desc_used_bytes(desc), (uint8_t *)out->desc };
	return 0;
}

/* Returns only -ENOMEM: an invalid descriptor is recorded as a flaw. */
static int take_desc(const struct listed *all, const struct target_region *from,
		     struct memnode_region *out)
{
	struct table_desc desc;
	int ret;

	memcpy(&desc, from->base + DESC_OFF, sizeof(desc));
	ret = table_desc_check(&desc);
	if (ret == 0 && desc.tree_bytes > from->size)
		ret = error_set(-EPROTO, "region %u: smaller than its table needs", from->id);
	if (ret) {
		snprintf(out->flaw, sizeof(out->flaw), "%s", error_last());
		return 0;
	}
	relive__node_shard__init(&out->shard);
	memcpy(out->table, desc.name, sizeof(out->table));
	out->shard.table = out->table;
	out->region.shard = &out->shard;
	take_words(all, from, &desc, &out->shard);
	return all->with_descs ? keep_desc(&desc, out) : 0;
}

static int region_describe(const struct listed *all, const struct target_region *from,
			   struct memnode_region *out)
{
	relive__node_region__init(&out->region);
	out->region.region = from->id;
	out->region.kind = from->kind;
	out->region.object = from->object;
	out->region.part = from->part;
	out->region.role = from->role;
	out->region.size = from->size;
	out->region.sole = from->sole;
	out->region.broken = from->broken;
	out->region.flaw = out->flaw;
	if (from->broken) {
		snprintf(out->flaw, sizeof(out->flaw), "its file was cut short or cannot be read");
		return 0;
	}
	take_superblock(from, out);
	if (out->region.uuid.len && from->kind == OBJECT_TABLE && from->role == REGION_TREE)
		return take_desc(all, from, out);
	return 0;
}

static int describe_all(const struct listed *all, struct memnode_regions *out)
{
	int ret = 0;

	out->list = mem_array(out->n + 1, sizeof(Relive__NodeRegion *));
	out->parts = mem_array(out->n + 1, sizeof(*out->parts));
	if (!out->list || !out->parts)
		return error_set(-ENOMEM, "regions: cannot allocate memory");
	for (size_t i = 0; ret == 0 && i < out->n; i++) {
		ret = region_describe(all, &all->regions[i], &out->parts[i]);
		out->list[i] = &out->parts[i].region;
	}
	return ret;
}

int memnode_regions_open(struct transport_target *target, bool with_descs,
			 struct memnode_regions *out)
{
	struct target_region *regions;
	int ret;

	*out = (struct memnode_regions){ 0 };
	ret = memnode_list_regions(target, &regions, &out->n);
	if (ret)
		return ret;
	ret = describe_all(&(const struct listed){ regions, out->n, with_descs }, out);
	if (ret)
		memnode_regions_close(out);
	mem_free(regions);
	return ret;
}

void memnode_regions_close(struct memnode_regions *regions)
{
	for (size_t i = 0; regions->parts && i < regions->n; i++)
		mem_free(regions->parts[i].desc);
	mem_free(regions->list);
	mem_free(regions->parts);
	*regions = (struct memnode_regions){ 0 };
}
