/*
 * embed_reopen.c - embed:FILE opened again: the objects from their regions, each part recovered.
 */
#include "client/meta/embed.h"

#include "ds/part/superblock.h"
#include "transport/barrier.h"

#include "wire/region.h"

#include "base/mem/alloc.h"
#include "base/bits.h"
#include "base/log.h"

#include <errno.h>
#include <string.h>

#define MAX_REGIONS 4095u

/* The regions of the pool. */
struct listing {
	struct target_region *regions;
	size_t n;
};

/* What the extent table lists of a part. */
struct found_part {
	struct target_region *of[REGION_ROLES]; /* by role; NULL = not there */
	const struct target_region *first;
};

static struct found_part part_of(const struct listing *list, const struct target_region *like)
{
	struct found_part part = { .first = NULL };

	for (size_t i = 0; i < list->n; i++) {
		struct target_region *region = &list->regions[i];

		if (region->kind != like->kind || region->object != like->object ||
		    region->part != like->part || region->role >= REGION_ROLES)
			continue;
		part.of[region->role] = region;
		part.first = part.first ? part.first : region;
	}
	return part;
}

/* -------- regions in the file -------- */

/* The loading word of a part. */
static uint64_t part_loading(const struct part *part)
{
	const struct region_superblock *slots = (const void *)part->slots->base;

	return rword64_load_relaxed(&slots->loading.word);
}

/* Gives the object of the part with that tree region; the first part of an object adds it to the
   catalog. -EPROTO: its kind, number or descriptor is not valid. */
static int object_of(struct embed *embed, const struct target_region *tree,
		     struct catalog_object **object_out)
{
	const struct region_superblock *sb = (const void *)tree->base;
	const struct object_kind *kind = object_kind_find(tree->kind);
	struct object_desc desc;
	int ret;

	if (!kind || !kind->desc_of_part || tree->object == 0 || tree->object > OBJECT_MAX_ID)
		return error_set(-EPROTO, "its kind, %u, or its number is not known", tree->kind);
	*object_out = embed->cat.objects[tree->object];
	if (*object_out)
		return 0;
	ret = superblock_check(sb, tree->kind, REGION_TREE, tree->size);
	if (ret)
		return ret;
	if (sb->desc_bytes > DESC_MAX_BYTES || DESC_OFF + (uint64_t)sb->desc_bytes > tree->size)
		return error_set(-EPROTO, "its descriptor has %u bytes", sb->desc_bytes);
	ret = kind->desc_of_part(tree->base + DESC_OFF, sb->desc_bytes, tree->part, &desc);
	if (ret)
		return ret;
	ret = catalog_object_new(kind, tree->object, desc.bytes, desc.len, object_out);
	mem_free(desc.bytes);
	if (ret)
		return ret;
	(*object_out)->n_parts = (*object_out)->n_cut;
	(*object_out)->slots.sole = true;
	embed->cat.objects[tree->object] = *object_out;
	return 0;
}

static int open_part(struct embed *embed, const struct found_part *part)
{
	const struct target_region *tree = part->of[REGION_TREE];
	const struct region_superblock *slots = (const void *)part->of[REGION_SLOTS]->base;
	struct catalog_object *object;
	struct catalog_part *place;
	int ret = object_of(embed, tree, &object);

	if (ret)
		return ret;
	if (object->kind->id != tree->kind || tree->part >= object->n_cut ||
	    object->attached[tree->part])
		return error_set(
			-EPROTO,
			"two tables have the id %u, or one has more shards than its descriptor says",
			tree->object);
	place = &object->parts[tree->part];
	*place = (struct catalog_part){
		.node = &embed->node,
		.incarnation = embed->node.incarnation,
		.state = PART_ACTIVE,
		.announced = PART_ACTIVE,
		.joined = true,
	};
	for (uint32_t role = REGION_TREE; role < REGION_ROLES; role++) {
		place->ids[role] = part->of[role]->id;
		part->of[role]->id = 0; /* it is in use, and not to be freed */
	}
	if (!region_is_loaded(rword64_load_relaxed(&slots->loading.word)))
		object->loader = EMBED_CLIENT; /* of a former process: it is dropped */
	return catalog_part_attach(object, tree->part);
}

/* The state word in the region's superblock; of NULL that of a region not made yet:
   REGION_FORMATTING. */
static uint64_t state_of(const struct target_region *region)
{
	const struct region_superblock *sb = region ? (const void *)region->base : NULL;

	return sb ? rword64_load_relaxed(&sb->state.word) : REGION_FORMATTING;
}

static bool any_is(const struct found_part *part, uint64_t state)
{
	for (uint32_t role = REGION_TREE; role < REGION_ROLES; role++)
		if (state_of(part->of[role]) == state)
			return true;
	return false;
}

/*
 * Opens the part of region `any`. 0 without opening it: `any` is not its first region, or the part
 * was dropped or never complete. Changes nothing in the file. -EBADMSG: its regions contradict each
 * other.
 */
static int take_part(struct embed *embed, const struct listing *list,
		     const struct target_region *any)
{
	const struct found_part part = part_of(list, any);
	const struct target_region *rows = part.of[REGION_ROWS];
	int ret;

	if (part.first != any)
		return 0;
	/* A drop says so in all regions of the table before it gives the first one back. */
	if (any_is(&part, REGION_DROPPED))
		return 0;
	/* A create that was cut short, for sure: the word of the slots is set last of all, and nobody
	   has stored a row before that. A page that reads as zeros for another reason would look
	   alike but for the rows. */
	if (state_of(part.of[REGION_SLOTS]) == REGION_FORMATTING &&
	    (!rows || bits_all_zero(rows->base + REGION_SUPERBLOCK_BYTES,
				    rows->size - REGION_SUPERBLOCK_BYTES)))
		return 0;
	if (any_is(&part, REGION_FORMATTING))
		return error_set(-EBADMSG,
				 "table id %u shard %u: its regions contradict each other, one is "
				 "damaged",
				 any->object, any->part);
	ret = open_part(embed, &part);
	return ret ? error_prefix(ret, "table id %u shard %u: ", any->object, any->part) : 0;
}

/* -------- regions to free -------- */

/* Frees the listed regions that no open part uses. Those marked DROPPED are freed last: they
   alone record that the rest is to be freed. */
static void free_rest(struct embed *embed, const struct listing *list)
{
	struct transport_target *target = embed->base.target;

	for (int last = 0; last <= 1; last++)
		for (size_t i = 0; i < list->n; i++) {
			const struct target_region *region = &list->regions[i];

			if (!region->id || (state_of(region) == REGION_DROPPED) != last)
				continue;
			log_warn("pool file: table id %u shard %u was dropped or never complete, "
				 "region %u is freed",
				 region->object, region->part, region->id);
			(void)target->ops->unregister_region(target, region->id);
		}
}

/* -------- loads that were to replace a table -------- */

/* True if a part of the object, which is loaded, says that it replaces the other one. */
static bool replaces(const struct catalog_object *object, const struct catalog_object *other)
{
	bool does = false;

	if (object == other || object->loader || strcmp(object->name, other->name) != 0)
		return false;
	for (uint32_t s = 0; s < object->n_parts; s++) {
		if (!object->attached[s])
			return false;
		does |= part_loading(object->attached[s]) == region_replaces(other->uuid);
	}
	return does;
}

/* The object that has replaced this one, which its process had still to drop; NULL: none. */
static struct catalog_object *heir_of(const struct embed *embed,
				      const struct catalog_object *object)
{
	for (uint32_t id = 1; id <= OBJECT_MAX_ID; id++)
		if (embed->cat.objects[id] && replaces(embed->cat.objects[id], object))
			return embed->cat.objects[id];
	return NULL;
}

/* Objects that were replaced count as never complete from here on. */
static void end_replaced(struct embed *embed)
{
	for (uint32_t id = 1; id <= OBJECT_MAX_ID; id++) {
		struct catalog_object *object = embed->cat.objects[id];

		if (object && heir_of(embed, object))
			object->loader = EMBED_CLIENT;
	}
}

/* Once those are gone. A word that stays says nothing. */
static void clear_words(struct embed *embed)
{
	for (uint32_t id = 1; id <= OBJECT_MAX_ID; id++) {
		struct catalog_object *object = embed->cat.objects[id];

		for (uint32_t s = 0; object && s < object->n_parts; s++) {
			struct part *part = object->attached[s];

			if (part && part_loading(part) && part_set_loaded(part, 0))
				log_warn("pool file: %s: %s", object->text, error_last());
		}
	}
}

/* Drops each object that lacks a part: its create was cut short, or its load was. */
static void drop_incomplete(struct embed *embed)
{
	for (uint32_t id = 1; id <= OBJECT_MAX_ID; id++) {
		struct catalog_object *object = embed->cat.objects[id];
		bool whole = true;

		for (uint32_t s = 0; object && s < object->n_parts; s++)
			whole &= object->attached[s] != NULL;
		if (!object || (whole && !object->loader))
			continue;
		log_warn("pool file: %s %u was never complete, or was replaced: its space is freed",
			 object->text, object->id);
		if (embed_drop_object(embed, object))
			log_warn("pool file: %s", error_last());
	}
}

/* -------- all of it -------- */

/* Recovers one part. rehearse: begins only, and changes nothing, so that what cannot be
   recovered, or is not trusted, is found first. */
static int recover_part(struct embed *embed, struct catalog_object *object, uint32_t s,
			bool rehearse)
{
	const struct slots_dead gone = { .client_id = EMBED_CLIENT };
	const struct object_kind *kind = object->kind;
	struct part_life *life = &object->parts[s].life;
	char found[KIND_TEXT_BYTES] = "";
	struct recovery *recovery = NULL;
	bool drift;
	int ret = part_is_marked(object->attached[s], &life->marked);

	if (ret == 0 && kind->recover_begin)
		ret = kind->recover_begin(&embed->cat, object, s, &recovery);
	if (ret == 0 && recovery && !rehearse)
		ret = kind->recover_go_on(recovery, embed->cat.clock, UINT64_MAX, found);
	if (recovery)
		kind->recover_end(&recovery);
	if (ret == 0 && !rehearse)
		ret = slots_read(&object->slots, s, NULL, NULL);
	if (ret == 0 && !rehearse) /* slots that the recovery of a kind left to a former process */
		ret = slots_settle(&object->slots, &gone, &drift);
	if (ret)
		return error_prefix(ret, "pool file: %s shard %u: ", object->text, s);
	if (!rehearse)
		log_info("recovered %s shard %u %s%s", object->text, s, found,
			 life->marked ? ", all rows read" : "");
	return 0;
}

static int recover_all(struct embed *embed, bool rehearse)
{
	int ret = 0;

	for (uint32_t id = 1; id <= OBJECT_MAX_ID; id++) {
		struct catalog_object *object = embed->cat.objects[id];

		for (uint32_t s = 0; ret == 0 && object && !object->loader && s < object->n_parts;
		     s++)
			ret = object->attached[s] ? recover_part(embed, object, s, rehearse) : 0;
		if (ret == 0 && object && !rehearse && object->kind->tick_clean)
			object->kind->tick_clean(object); /* no other client is attached yet */
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
	for (size_t i = 0; ret == 0 && i < list.n; i++)
		ret = take_part(embed, &list, &list.regions[i]);
	if (ret) {
		ret = error_prefix(ret, "pool file: ");
	} else {
		end_replaced(embed);
		ret = recover_all(embed, true);
	}
	if (ret == 0)
		free_rest(embed, &list);
	mem_free(list.regions);
	if (ret)
		return ret;
	drop_incomplete(embed);
	clear_words(embed);
	return recover_all(embed, false);
}
