/*
 * regions.c - describes the pool's regions for the registration: owner, and whether they can be
 * opened. Of any kind: a part's tree region says which bytes and words of it to report
 * (wire/region.h). The content of regions is untrusted input: clients and files may have changed it.
 */
#include "server/memnode/service.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

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
	Relive__NodePart part;
	uint8_t uuid[16];
	char flaw[128];
	char name[OBJECT_NAME_BYTES];
	uint64_t told[PART_TOLD];
	uint8_t *desc;
};

/* The 8-byte word at off of the region, loaded atomically: other processes may change it. */
static uint64_t load_word(const struct target_region *from, uint64_t off)
{
	return __atomic_load_n((const uint64_t *)(const void *)(from->base + off),
			       __ATOMIC_RELAXED);
}

/* Fills in out->part from the superblock of a tree region: name, told words, descriptor if wanted.
   A told word whose region is missing or broken is 0; a bad descriptor size is a flaw. -ENOMEM. */
static int take_part(const struct listed *all, const struct target_region *from,
		     const struct region_superblock *sb, struct memnode_region *out)
{
	if (sb->desc_bytes == 0 || sb->desc_bytes > DESC_MAX_BYTES ||
	    DESC_OFF + (uint64_t)sb->desc_bytes > from->size) {
		snprintf(out->flaw, sizeof(out->flaw), "its descriptor has %u bytes",
			 sb->desc_bytes);
		return 0;
	}
	relive__node_part__init(&out->part);
	memcpy(out->name, sb->name, sizeof(out->name));
	for (uint32_t i = 0; i < PART_TOLD; i++) {
		uint64_t off = part_told_off(sb->told[i]);
		const struct target_region *region = memnode_region_beside(
			all->regions, all->n, from, part_told_role(sb->told[i]));

		if (region && !region->broken && off % 8 == 0 && off < region->size)
			out->told[i] = load_word(region, off);
	}
	out->part.name = out->name;
	out->part.told = out->told;
	out->part.n_told = PART_TOLD;
	out->region.has = &out->part;
	if (!all->with_descs)
		return 0;
	out->desc = mem_alloc(sb->desc_bytes);
	if (!out->desc)
		return error_set(-ENOMEM, "regions: cannot allocate memory");
	memcpy(out->desc, from->base + DESC_OFF, sb->desc_bytes);
	out->part.desc = (ProtobufCBinaryData){ sb->desc_bytes, out->desc };
	return 0;
}

static int region_describe(const struct listed *all, const struct target_region *from,
			   struct memnode_region *out)
{
	struct region_superblock sb;

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
	memcpy(&sb, from->base, sizeof(sb));
	sb.state.word.raw = load_word(from, offsetof(struct region_superblock, state));
	if (sb.magic == REGION_MAGIC &&
	    sb.crc == crc32c(0, &sb, offsetof(struct region_superblock, crc))) {
		memcpy(out->uuid, sb.uuid, sizeof(out->uuid));
		out->region.uuid = (ProtobufCBinaryData){ sizeof(out->uuid), out->uuid };
	}
	if (superblock_check(&sb, from->kind, from->role, from->size)) {
		snprintf(out->flaw, sizeof(out->flaw), "%s", error_last());
		return 0;
	}
	if (from->role == REGION_SLOTS)
		out->region.loading = load_word(from, offsetof(struct region_superblock, loading));
	if (!region_is_loaded(out->region.loading))
		snprintf(out->flaw, sizeof(out->flaw), "a load from a file did not end");
	return from->role == REGION_TREE ? take_part(all, from, &sb, out) : 0;
}

int memnode_regions_open(struct transport_target *target, bool with_descs,
			 struct memnode_regions *out)
{
	struct target_region *regions;
	struct listed all = { .with_descs = with_descs };
	int ret;

	*out = (struct memnode_regions){ 0 };
	ret = memnode_list_regions(target, &regions, &out->n);
	if (ret)
		return ret;
	all.regions = regions;
	all.n = out->n;
	out->list = mem_array(out->n + 1, sizeof(Relive__NodeRegion *));
	out->parts = mem_array(out->n + 1, sizeof(*out->parts));
	if (!out->list || !out->parts)
		ret = error_set(-ENOMEM, "regions: cannot allocate memory");
	for (size_t i = 0; ret == 0 && i < out->n; i++) {
		ret = region_describe(&all, &regions[i], &out->parts[i]);
		out->list[i] = &out->parts[i].region;
	}
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
