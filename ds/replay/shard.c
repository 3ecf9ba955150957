#include "ds/replay/shard.h"

#include "ds/part/superblock.h"

#include "transport/barrier.h"

#include "base/mem/alloc.h"
#include "base/bits.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* -------- format -------- */

void shard_region_uuid(const uint8_t uuid[16], uint32_t shard, uint32_t role, uint8_t out[16])
{
	memmove(out, uuid, 16);
	out[15] = (uint8_t)(out[15] ^ role);
	out[14] = (uint8_t)(out[14] ^ shard);
	out[13] = (uint8_t)(out[13] ^ shard >> 8);
}

static int store_superblock(struct region *region, const struct table_desc *desc,
			    const struct shard_ids *ids, uint32_t role)
{
	struct superblock_owner owner = {
		.kind = OBJECT_TABLE,
		.object = desc->table_id,
		.part = desc->shard,
		.role = role,
		.atomic_domain = superblock_domain(region),
		.ms_term = ids->ms_term,
		.incarnation = ids->incarnation,
	};
	struct region_superblock sb;

	memcpy(owner.store_uuid, ids->store_uuid, sizeof(owner.store_uuid));
	shard_region_uuid(desc->uuid, desc->shard, role, owner.uuid);
	superblock_init(&sb, region, &owner);
	/* The mutable words behind are zero, or what the region's node has set. */
	return transport_store(region, 0, &sb, offsetof(struct region_superblock, state));
}

struct target_region shard_region_spec(const struct table_desc *desc, uint32_t shard, uint32_t role)
{
	return (struct target_region){
		.kind = OBJECT_TABLE,
		.object = desc->table_id,
		.part = shard,
		.role = role,
		.size = table_region_bytes(desc, role),
	};
}

/* -------- who may what -------- */

uint32_t shard_grant_of(enum shard_access access, uint32_t owner, uint32_t part,
			struct region_range *range_out, uint32_t *rights_out)
{
	*range_out = (struct region_range){ .region = 0 };
	*rights_out = RIGHT_READ;
	switch (part) {
	case REGION_TREE:
		*rights_out = access == SHARD_READS ? RIGHT_READ : RIGHT_ALL;
		return part;
	case REGION_ROWS:
		if (access == SHARD_WRITES)
			*rights_out |= RIGHT_WRITE;
		return part;
	case REGION_SLOTS:
		return part;
	case SHARD_LIMITS:
		if (owner)
			*rights_out = RIGHT_ALL;
		range_out->off = LIMITS_OFF;
		range_out->len = CLIENT_PAGE_BYTES;
		return REGION_PAGES;
	case SHARD_PAGE:
		if (!owner)
			return 0;
		*rights_out = RIGHT_ALL;
		range_out->off = PAGES_OFF + (uint64_t)(owner - 1) * CLIENT_PAGE_BYTES;
		range_out->len = CLIENT_PAGE_BYTES;
		return REGION_PAGES;
	default: /* the region of pages: all of it is the server's */
		return 0;
	}
}

/* -------- format: words -------- */

/* Words that do not start as zero. Pages are made when their slots are taken. */
static int store_words(struct region *tree, const struct table_desc *desc,
		       const struct shard_ids *ids)
{
	uint64_t head = ids->first_ticket & BLOCK_SEQ_MASK;
	uint64_t off = desc->words_off + offsetof(struct shard_words, head);
	int rc = transport_store(tree, off, &head, sizeof(head));

	for (uint32_t i = 0; !rc && i < desc->n_views; i++) {
		uint64_t one = min_u64(desc->views[i].scale, desc->views[i].max_prio);

		off = desc->views[i].words_off + offsetof(struct view_words, max_priority);
		rc = transport_store(tree, off, &one, sizeof(one));
	}
	return rc;
}

static int store_state(struct region *region, uint64_t state)
{
	uint64_t off = offsetof(struct region_superblock, state);
	int rc = transport_order(region->tr);

	return rc ? rc : transport_store(region, off, &state, sizeof(state));
}

static int check_size(const struct region *region, const struct table_desc *desc, uint32_t role,
		      int code)
{
	uint64_t want = table_region_bytes(desc, role);

	if (region->size >= want)
		return 0;
	return error_set(code,
			 "shard %u: its region %u has %" PRIu64 " bytes, the table needs %" PRIu64,
			 desc->shard, region->id, region->size, want);
}

static int persist(struct region *region, uint64_t bytes)
{
	bool can = (region->tr->caps & TRANSPORT_PERSISTENT) != 0;

	return can ? transport_persist(region, 0, bytes) : 0;
}

static int set_live_one(struct region *region)
{
	int rc = store_state(region, REGION_LIVE);

	return rc ? rc : persist(region, REGION_SUPERBLOCK_BYTES);
}

/* A power loss leaves no live shard that is not whole: the word of the slots is the last. */
static int set_live(const struct shard_parts *parts)
{
	static const uint32_t order[] = { REGION_ROWS, REGION_TREE, REGION_PAGES, REGION_SLOTS };
	int rc = 0;

	for (uint32_t role = REGION_TREE; !rc && role < REGION_ROLES; role++)
		if (role != REGION_ROWS)
			rc = persist(parts->at[role], 0);
	for (size_t i = 0; !rc && i < ARRAY_LEN(order); i++)
		rc = set_live_one(parts->at[order[i]]);
	return rc;
}

int shard_format(const struct shard_parts *parts, const struct table_desc *desc,
		 const struct shard_ids *ids)
{
	int rc = 0;

	for (uint32_t role = REGION_TREE; !rc && role < REGION_ROLES; role++)
		rc = check_size(parts->at[role], desc, role, -EINVAL);
	for (uint32_t role = REGION_TREE; !rc && role < REGION_ROLES; role++)
		rc = store_superblock(parts->at[role], desc, ids, role);
	if (!rc) /* a client is to get a descriptor of this page alone */
		rc = transport_renew(parts->at[REGION_PAGES], LIMITS_OFF);
	if (!rc)
		rc = transport_store(parts->at[REGION_TREE], DESC_OFF, desc, sizeof(*desc));
	if (!rc)
		rc = store_words(parts->at[REGION_TREE], desc, ids);
	return rc ? rc : set_live(parts);
}

/* -------- open -------- */

static int load_bytes(struct region *region, uint64_t off, void *dst, uint32_t len)
{
	struct transport_io io = { .region = region, .off = off, .dst = dst, .len = len };

	return transport_read(region->tr, &io, 1);
}

static int load_superblock(struct region *region, uint32_t role, struct region_superblock *sb)
{
	int rc = load_bytes(region, 0, sb, sizeof(*sb));

	if (!rc)
		rc = superblock_check(sb, role, region->size);
	if (!rc)
		rc = superblock_domain_check(sb, region);
	if (!rc && (sb->ro_compat & ~REGION_RO_COMPAT_KNOWN) &&
	    (region->rights & (RIGHT_WRITE | RIGHT_ATOMIC)))
		rc = error_set(-EPROTO, "superblock features %#llx: for reading only",
			       sb->ro_compat & ~REGION_RO_COMPAT_KNOWN);
	return rc ? error_prefix(rc, "region %u: ", region->id) : 0;
}

/* Of the shard that the descriptor names, by number and uuid. */
static int check_superblock(const struct region_superblock *sb, const struct table_desc *desc,
			    uint32_t role)
{
	uint8_t uuid[16];

	if (sb->object != desc->table_id || sb->part != desc->shard)
		return error_set(-EPROTO,
				 "shard %u of table %u: its region %u belongs to shard %u of table "
				 "%u",
				 desc->shard, desc->table_id, sb->region, sb->part, sb->object);
	shard_region_uuid(desc->uuid, desc->shard, role, uuid);
	if (memcmp(sb->uuid, uuid, sizeof(uuid)) != 0)
		return error_set(-EBADMSG, "shard %u of table %u: its region %u has another uuid",
				 desc->shard, desc->table_id, sb->region);
	return 0;
}

static bool same_bytes(const void *a, const void *b, size_t n)
{
	return memcmp(a, b, n) == 0;
}

static int load_desc(struct shard *shard, const struct table_desc *want)
{
	int rc = load_bytes(shard->tree, DESC_OFF, &shard->desc, sizeof(shard->desc));

	if (!rc)
		rc = table_desc_check(&shard->desc);
	if (!rc && want && !same_bytes(&shard->desc, want, sizeof(*want)))
		rc = error_set(-EBADMSG,
			       "shard %u: its descriptor is not the catalog's: it was changed, or "
			       "the region is another shard's",
			       want->shard);
	return rc;
}

/* One region, all of it: the tree's and the slots' come first, and say of which store they are. */
static int load_region(struct shard *shard, uint32_t role, const uint8_t *store_uuid)
{
	struct region_superblock sb = { .magic = 0 };
	struct region *region = shard->parts.at[role];
	int rc;

	if (!region)
		return role == REGION_PAGES ? 0 : error_set(-EINVAL, "shard: a region is missing");
	rc = load_superblock(region, role, &sb);
	if (!rc)
		rc = check_superblock(&sb, &shard->desc, role);
	if (!rc && memcmp(sb.store_uuid, store_uuid, sizeof(sb.store_uuid)) != 0)
		rc = error_set(-EBADMSG, "region %u: of another store than its shard's slots",
			       region->id);
	return rc ? rc : check_size(region, &shard->desc, role, -EPROTO);
}

/* The state first, by the word that counts: a shard that is gone is not looked at. */
static int load_shard(struct shard *shard, const struct table_desc *want)
{
	struct region_superblock slots = { .magic = 0 }, tree = { .magic = 0 };
	int rc = load_superblock(shard->slots, REGION_SLOTS, &slots);

	if (!rc)
		rc = load_superblock(shard->tree, REGION_TREE, &tree);
	if (!rc)
		rc = load_desc(shard, want);
	for (uint32_t role = REGION_TREE; !rc && role < REGION_ROLES; role++)
		rc = load_region(shard, role, slots.store_uuid);
	return rc;
}

static int check_page(const struct region *page)
{
	if (page->size >= CLIENT_PAGE_BYTES)
		return 0;
	return error_set(-EPROTO, "region %u: a page of %" PRIu64 " bytes", page->id, page->size);
}

/* All pages of the server, or those that a client has. */
static int find_pages(struct shard *shard)
{
	struct region *const *at = shard->parts.at;
	int rc = 0;

	if (at[REGION_PAGES]) {
		shard->limits = shard->pages = at[REGION_PAGES];
		shard->limits_off = LIMITS_OFF;
		shard->pages_off = PAGES_OFF;
		shard->n_pages = shard->desc.max_clients;
		return 0;
	}
	shard->limits = at[SHARD_LIMITS];
	shard->pages = at[SHARD_PAGE];
	if (!shard->limits)
		return error_set(-EINVAL, "shard: its limits are missing");
	rc = check_page(shard->limits);
	if (rc || !shard->pages)
		return rc;
	shard->page_first = shard->parts.owner - 1;
	shard->n_pages = 1;
	return check_page(shard->pages);
}

int shard_take_page(struct shard *shard, struct region *page, uint32_t owner)
{
	int rc = check_page(page);

	if (rc)
		return rc;
	transport_detach(&shard->parts.at[SHARD_PAGE]);
	shard->parts.at[SHARD_PAGE] = page;
	shard->parts.owner = owner;
	return find_pages(shard);
}

static void init_trees(struct shard *shard)
{
	for (uint32_t i = 0; i < shard->desc.n_views; i++) {
		const struct view_desc *view = &shard->desc.views[i];

		struct tree_place place = {
			.leaves_off = view->leaves_off,
			.inner_off = { view->inner_off[0], view->inner_off[1] },
			.max_prio = view->max_prio,
		};

		sumtree_init(&shard->trees[i], shard->tree, &shard->desc.tree, &place);
	}
}

int shard_open(const struct shard_parts *parts, const struct table_desc *want,
	       struct shard **shard_out)
{
	struct shard *shard = mem_aligned(WIRE_LINE, sizeof(*shard));
	int rc;

	if (!shard)
		return error_set(-ENOMEM, "shard: no memory");
	memset(shard, 0, sizeof(*shard));
	shard->parts = *parts;
	shard->tree = parts->at[REGION_TREE];
	shard->rows = parts->at[REGION_ROWS];
	shard->slots = parts->at[REGION_SLOTS];
	rc = load_shard(shard, want);
	if (!rc)
		rc = find_pages(shard);
	if (rc) {
		mem_free(shard);
		return rc;
	}
	init_trees(shard);
	*shard_out = shard;
	return 0;
}

void shard_parts_detach(struct shard_parts *parts)
{
	for (size_t i = 0; i < SHARD_PARTS; i++)
		if (parts->at[i])
			transport_detach(&parts->at[i]);
	*parts = (struct shard_parts){ .owner = 0 };
}

void shard_close(struct shard **shard)
{
	if (!*shard)
		return;
	shard_parts_detach(&(*shard)->parts);
	mem_free(*shard);
	*shard = NULL;
}

/* -------- state -------- */

int shard_state(const struct shard *shard)
{
	const struct region_superblock *sb = (const void *)shard->slots->base;
	uint64_t state;
	int rc;

	if (sb) {
		state = rword64_load_relaxed(&sb->state.word); /* hint: nothing hangs on it */
		return state == REGION_LIVE ? 0 : superblock_state_check(state);
	}
	rc = transport_load(shard->slots, offsetof(struct region_superblock, state), &state);
	return rc ? rc : superblock_state_check(state);
}

int shard_set_state(struct shard *shard, uint32_t state)
{
	int rc = store_state(shard->slots, state);

	for (uint32_t role = REGION_TREE; !rc && role < REGION_ROLES; role++)
		if (role != REGION_SLOTS && shard->parts.at[role])
			rc = store_state(shard->parts.at[role], state);
	return rc;
}

#define MARK_OFF offsetof(struct region_superblock, mark)

int shard_is_marked(struct shard *shard, bool *marked_out)
{
	uint64_t mark = REGION_MARKED;
	int rc = transport_load(shard->rows, MARK_OFF, &mark);

	*marked_out = mark != 0;
	return rc;
}

static int store_mark(struct shard *shard, uint64_t mark)
{
	int rc = transport_store(shard->rows, MARK_OFF, &mark, sizeof(mark));

	return rc ? rc : transport_persist(shard->rows, MARK_OFF, sizeof(mark));
}

int shard_mark(struct shard *shard)
{
	return store_mark(shard, REGION_MARKED);
}

int shard_unmark(struct shard *shard)
{
	return store_mark(shard, 0);
}

int shard_life(struct shard *shard, struct shard_life *life_out)
{
	struct region_superblock sb = { .magic = 0 };
	int rc = load_bytes(shard->rows, 0, &sb, sizeof(sb));

	life_out->opener = sb.opener.word.raw;
	life_out->is_sound = sb.recovered.word.raw == sb.opener.word.raw;
	life_out->marked = sb.found.word.raw != 0;
	return rc;
}

int shard_set_sound(struct shard *shard, const struct shard_life *life)
{
	return transport_store(shard->rows, offsetof(struct region_superblock, recovered),
			       &life->opener, sizeof(life->opener));
}

int shard_mark_dirty(struct shard *shard)
{
	uint64_t old;

	return transport_faa_word(
		shard->tree, shard_word_off(shard, offsetof(struct shard_words, dirty)), 1, &old);
}
