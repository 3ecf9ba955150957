#include "ds/part/part.h"

#include "ds/part/superblock.h"

#include "transport/barrier.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

struct target_region part_region_spec(const struct part_spec *spec, uint32_t role)
{
	return (struct target_region){
		.kind = spec->kind,
		.object = spec->object,
		.part = spec->part,
		.role = role,
		.size = spec->bytes[role],
	};
}

void part_region_uuid(const uint8_t uuid[16], uint32_t part, uint32_t role, uint8_t out[16])
{
	memmove(out, uuid, 16);
	out[15] = (uint8_t)(out[15] ^ role);
	out[14] = (uint8_t)(out[14] ^ part);
	out[13] = (uint8_t)(out[13] ^ part >> 8);
}

void part_regions_detach(struct part_regions *regions)
{
	for (size_t i = 0; i < PART_PLACES; i++)
		if (regions->at[i])
			transport_detach(&regions->at[i]);
	*regions = (struct part_regions){ .owner = 0 };
}

/* -------- rights -------- */

uint32_t part_grant_of(enum part_access access, uint32_t owner, uint32_t place,
		       struct region_range *range_out, uint32_t *rights_out)
{
	*range_out = (struct region_range){ .region = 0 };
	*rights_out = RIGHT_READ;
	switch (place) {
	case REGION_TREE:
		*rights_out = access == PART_READS ? RIGHT_READ : RIGHT_ALL;
		return place;
	case REGION_ROWS:
		if (access == PART_WRITES)
			*rights_out |= RIGHT_WRITE;
		return place;
	case REGION_SLOTS:
		return place;
	case PART_LIMITS:
		if (owner)
			*rights_out = RIGHT_ALL;
		range_out->off = LIMITS_OFF;
		range_out->len = CLIENT_PAGE_BYTES;
		return REGION_PAGES;
	case PART_PAGE:
		if (!owner)
			return 0;
		*rights_out = RIGHT_ALL;
		range_out->off = PAGES_OFF + (uint64_t)(owner - 1) * CLIENT_PAGE_BYTES;
		range_out->len = CLIENT_PAGE_BYTES;
		return REGION_PAGES;
	default: /* the whole pages region is the server's */
		return 0;
	}
}

/* -------- format -------- */

static int check_size(const struct region *region, const struct part_spec *spec, uint32_t role,
		      int code)
{
	if (region->size >= spec->bytes[role])
		return 0;
	return error_set(code,
			 "shard %u: its region %u has %" PRIu64 " bytes, the table needs %" PRIu64,
			 spec->part, region->id, region->size, spec->bytes[role]);
}

static int store_loading(struct region *slots, uint64_t word)
{
	return transport_store(slots, offsetof(struct region_superblock, loading), &word,
			       sizeof(word));
}

int part_format(const struct part_regions *regions, const struct part_spec *spec,
		const struct part_origin *origin)
{
	int rc = 0;

	for (uint32_t role = REGION_TREE; !rc && role < REGION_ROLES; role++)
		rc = check_size(regions->at[role], spec, role, -EINVAL);
	for (uint32_t role = REGION_TREE; !rc && role < REGION_ROLES; role++) {
		struct region *region = regions->at[role];
		struct region_superblock sb = {
			.kind = spec->kind,
			.object = spec->object,
			.part = spec->part,
			.role = role,
			.atomic_domain = superblock_domain(region),
			.ms_term = origin->ms_term,
			.incarnation = origin->incarnation,
			.desc_bytes = role == REGION_TREE ? spec->desc_bytes : 0,
		};

		memcpy(sb.name, spec->name, strnlen(spec->name, sizeof(sb.name) - 1));
		if (role == REGION_TREE)
			memcpy(sb.told, spec->told, sizeof(sb.told));
		memcpy(sb.store_uuid, origin->store_uuid, sizeof(sb.store_uuid));
		part_region_uuid(spec->uuid, spec->part, role, sb.uuid);
		superblock_seal(&sb, region);
		/* The mutable words behind it are zero, or already set by the memory node. */
		rc = transport_store(region, 0, &sb, offsetof(struct region_superblock, state));
	}
	if (!rc && origin->loading)
		rc = store_loading(regions->at[REGION_SLOTS], REGION_MARKED);
	if (!rc)
		rc = transport_store(regions->at[REGION_TREE], DESC_OFF, spec->desc,
				     spec->desc_bytes);
	/* Clients get a file descriptor of this page alone. */
	return rc ? rc : transport_renew(regions->at[REGION_PAGES], LIMITS_OFF);
}

int part_prepare(const struct part_regions *regions)
{
	return transport_prepare(regions->at[REGION_PAGES], LIMITS_OFF);
}

static int store_state(struct region *region, uint64_t state)
{
	uint64_t off = offsetof(struct region_superblock, state);
	int rc = transport_order(region->tr);

	return rc ? rc : transport_store(region, off, &state, sizeof(state));
}

static int part_persist(struct region *region, uint64_t bytes)
{
	bool can = (region->tr->caps & TRANSPORT_PERSISTENT) != 0;

	return can ? transport_persist(region, 0, bytes) : 0;
}

/*
 * Makes all regions but the rows durable, then sets each one live. The slots region goes live last:
 * a part that is live after a power loss is whole.
 */
int part_publish(const struct part_regions *regions)
{
	static const uint32_t order[] = { REGION_ROWS, REGION_TREE, REGION_PAGES, REGION_SLOTS };
	int rc = 0;

	for (uint32_t role = REGION_TREE; !rc && role < REGION_ROLES; role++)
		if (role != REGION_ROWS)
			rc = part_persist(regions->at[role], 0);
	for (size_t i = 0; !rc && i < sizeof(order) / sizeof(order[0]); i++) {
		rc = store_state(regions->at[order[i]], REGION_LIVE);
		if (!rc)
			rc = part_persist(regions->at[order[i]], REGION_SUPERBLOCK_BYTES);
	}
	return rc;
}

/* -------- open -------- */

static int load_superblock(struct region *region, uint32_t kind, uint32_t role,
			   struct region_superblock *sb)
{
	int rc;

	if (!region)
		return error_set(-EINVAL, "part: one of its regions is missing");
	rc = transport_fetch(region, 0, sb, sizeof(*sb));
	if (rc)
		return rc;
	rc = superblock_check(sb, kind, role, region->size);
	if (!rc)
		rc = superblock_domain_check(sb, region);
	if (!rc && (sb->ro_compat & ~REGION_RO_COMPAT_KNOWN) &&
	    (region->rights & (RIGHT_WRITE | RIGHT_ATOMIC)))
		rc = error_set(
			-EPROTO,
			"superblock features %#llx: this library may only read such a region",
			sb->ro_compat & ~REGION_RO_COMPAT_KNOWN);
	if (rc)
		(void)error_prefix(rc, "region %u: ", region->id);
	return rc;
}

int part_check_live(const struct part_regions *regions, uint32_t kind)
{
	struct region_superblock sb = { .magic = 0 };
	int rc = load_superblock(regions->at[REGION_SLOTS], kind, REGION_SLOTS, &sb);

	return rc ? rc : load_superblock(regions->at[REGION_TREE], kind, REGION_TREE, &sb);
}

/*
 * Checks the superblock of the region of that role: it belongs to the part of spec, by number, uuid
 * and store, and is large enough. The slots region is checked first: it sets store_uuid, that of
 * the part. Only the pages region may be missing.
 */
static int check_region(const struct part_regions *regions, const struct part_spec *spec,
			uint32_t role, uint8_t store_uuid[16])
{
	struct region_superblock sb = { .magic = 0 };
	struct region *region = regions->at[role];
	uint8_t uuid[16];
	int rc;

	if (!region && role == REGION_PAGES)
		return 0;
	rc = load_superblock(region, spec->kind, role, &sb);
	if (rc)
		return rc;
	if (sb.object != spec->object || sb.part != spec->part)
		return error_set(-EPROTO,
				 "shard %u of table %u: its region %u belongs to shard %u of table "
				 "%u",
				 spec->part, spec->object, sb.region, sb.part, sb.object);
	part_region_uuid(spec->uuid, spec->part, role, uuid);
	if (memcmp(sb.uuid, uuid, sizeof(uuid)) != 0)
		return error_set(-EBADMSG, "shard %u of table %u: its region %u has another uuid",
				 spec->part, spec->object, sb.region);
	if (role == REGION_SLOTS)
		memcpy(store_uuid, sb.store_uuid, sizeof(sb.store_uuid));
	if (memcmp(sb.store_uuid, store_uuid, sizeof(sb.store_uuid)) != 0)
		return error_set(-EBADMSG,
				 "region %u: belongs to another store than the slots of its shard",
				 region->id);
	return check_size(region, spec, role, -EPROTO);
}

static int check_page(const struct region *page)
{
	if (page->size >= CLIENT_PAGE_BYTES)
		return 0;
	return error_set(-EPROTO, "region %u: a page of %" PRIu64 " bytes", page->id, page->size);
}

/*
 * Sets part->limits and part->pages: to the whole pages region if it is attached (the server), else
 * to the limits page and the client's own page, if it has one. -EINVAL: no limits page; -EPROTO: a
 * page is too small.
 */
static int find_pages(struct part *part)
{
	struct region *const *at = part->regions.at;
	int rc = 0;

	if (at[REGION_PAGES]) {
		part->limits = part->pages = at[REGION_PAGES];
		part->limits_off = LIMITS_OFF;
		part->pages_off = PAGES_OFF;
		part->n_pages = part->max_clients;
		return 0;
	}
	part->limits = at[PART_LIMITS];
	part->pages = at[PART_PAGE];
	if (!part->limits)
		return error_set(-EINVAL, "shard: the page of its limits is not attached");
	rc = check_page(part->limits);
	if (rc || !part->pages)
		return rc;
	part->page_first = part->regions.owner - 1;
	part->n_pages = 1;
	return check_page(part->pages);
}

int part_open(struct part *part, const struct part_regions *regions, const struct part_spec *spec)
{
	uint8_t store_uuid[16] = { 0 };
	int rc = check_region(regions, spec, REGION_SLOTS, store_uuid);

	for (uint32_t role = REGION_TREE; !rc && role < REGION_ROLES; role++)
		if (role != REGION_SLOTS)
			rc = check_region(regions, spec, role, store_uuid);
	if (rc)
		return rc;
	*part = (struct part){
		.tree = regions->at[REGION_TREE],
		.slots = regions->at[REGION_SLOTS],
		.words_off = spec->words_off,
		.slots_off = spec->slots_off,
		.max_clients = spec->max_clients,
		.number = spec->part,
		.regions = *regions,
	};
	return find_pages(part);
}

void part_close(struct part *part)
{
	part_regions_detach(&part->regions);
}

int part_take_page(struct part *part, struct region *page, uint32_t owner)
{
	int rc = check_page(page);

	if (rc)
		return rc;
	transport_detach(&part->regions.at[PART_PAGE]);
	part->regions.at[PART_PAGE] = page;
	part->regions.owner = owner;
	return find_pages(part);
}

/* -------- state -------- */

int part_state(const struct part *part)
{
	const struct region_superblock *sb = (const void *)part->slots->base;
	uint64_t state;
	int rc;

	if (sb) {
		state = rword64_load_relaxed(&sb->state.word); /* a hint: needs no order */
		return state == REGION_LIVE ? 0 : superblock_state_check(state);
	}
	rc = transport_load(part->slots, offsetof(struct region_superblock, state), &state);
	return rc ? rc : superblock_state_check(state);
}

int part_set_state(struct part *part, uint32_t state)
{
	int rc = store_state(part->slots, state);

	for (uint32_t role = REGION_TREE; !rc && role < REGION_ROLES; role++)
		if (role != REGION_SLOTS && part->regions.at[role])
			rc = store_state(part->regions.at[role], state);
	return rc;
}

int part_set_loaded(struct part *part, uint64_t replaces)
{
	int rc = store_loading(part->slots, replaces);

	return rc ? rc : part_persist(part->slots, REGION_SUPERBLOCK_BYTES);
}

#define MARK_OFF offsetof(struct region_superblock, mark)

int part_is_marked(struct part *part, bool *marked_out)
{
	uint64_t mark = REGION_MARKED;
	int rc = transport_load(part->regions.at[REGION_ROWS], MARK_OFF, &mark);

	*marked_out = mark != 0;
	return rc;
}

static int store_mark(struct part *part, uint64_t mark)
{
	struct region *rows = part->regions.at[REGION_ROWS];
	int rc = transport_store(rows, MARK_OFF, &mark, sizeof(mark));

	return rc ? rc : transport_persist(rows, MARK_OFF, sizeof(mark));
}

int part_mark(struct part *part)
{
	return store_mark(part, REGION_MARKED);
}

int part_unmark(struct part *part)
{
	return store_mark(part, 0);
}

int part_life(struct part *part, struct part_life *life_out)
{
	struct region_superblock sb = { .magic = 0 };
	int rc = transport_fetch(part->regions.at[REGION_ROWS], 0, &sb, sizeof(sb));

	life_out->opener = sb.opener.word.raw;
	life_out->is_sound = sb.recovered.word.raw == sb.opener.word.raw;
	life_out->marked = sb.found.word.raw != 0;
	return rc;
}

int part_set_sound(struct part *part, const struct part_life *life)
{
	return transport_store(part->regions.at[REGION_ROWS],
			       offsetof(struct region_superblock, recovered), &life->opener,
			       sizeof(life->opener));
}

int part_mark_dirty(struct part *part)
{
	uint64_t old;

	return transport_faa_word(part->tree,
				  part_word_off(part, offsetof(struct part_words, dirty)), 1, &old);
}

int part_rebuild_needed(struct part *part, bool *needed_out)
{
	struct part_words words;
	int rc = transport_fetch(part->tree, part->words_off, &words, sizeof(words));

	if (rc)
		return rc;
	*needed_out = epoch_mode_of(rword64_load_relaxed(&words.epoch.word)) != EPOCH_NORMAL ||
		      rword64_load_relaxed(&words.dirty.word) !=
			      rword64_load_relaxed(&words.clean.word);
	return 0;
}
