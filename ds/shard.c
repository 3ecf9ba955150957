#include "ds/shard.h"

#include "ds/superblock.h"

#include "transport/barrier.h"

#include "base/alloc.h"
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

struct target_region shard_region_spec(const struct table_desc *desc, uint32_t shard,
				       enum region_role role)
{
	return (struct target_region){
		.kind = OBJECT_TABLE,
		.object = desc->table_id,
		.part = shard,
		.role = role,
		.size = role == REGION_TREE ? desc->tree_bytes : desc->rows_bytes,
	};
}

/* Words that do not start as zero. */
static int store_words(struct region *tree, const struct table_desc *desc,
		       const struct shard_ids *ids)
{
	uint64_t head = ids->first_ticket & BLOCK_SEQ_MASK, idle = SLOT_IDLE;
	uint64_t off = desc->words_off + offsetof(struct shard_words, head);
	int rc = transport_store(tree, off, &head, sizeof(head));

	for (uint32_t i = 0; !rc && i < desc->max_clients; i++) {
		off = desc->slots_off + i * sizeof(struct client_slot);
		off += offsetof(struct client_slot, promise);
		rc = transport_store(tree, off, &idle, sizeof(idle));
	}
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

static int check_sizes(const struct region *tree, const struct region *rows,
		       const struct table_desc *desc, int code)
{
	if (tree->size >= desc->tree_bytes && rows->size >= desc->rows_bytes)
		return 0;
	return error_set(code,
			 "shard %u: its regions have %" PRIu64 " and %" PRIu64
			 " bytes, the table needs %" PRIu64 " and %" PRIu64,
			 desc->shard, tree->size, rows->size, desc->tree_bytes, desc->rows_bytes);
}

static int persist(struct region *region, uint64_t bytes)
{
	bool can = (region->tr->caps & TRANSPORT_PERSISTENT) != 0;

	return can ? transport_persist(region, 0, bytes) : 0;
}

/* A power loss leaves no live shard that is not whole: the tree's word is the last. */
static int set_live(struct region *tree, struct region *rows)
{
	int rc = persist(tree, 0);

	if (!rc)
		rc = store_state(rows, REGION_LIVE);
	if (!rc)
		rc = persist(rows, REGION_SUPERBLOCK_BYTES);
	if (!rc)
		rc = store_state(tree, REGION_LIVE);
	return rc ? rc : persist(tree, REGION_SUPERBLOCK_BYTES);
}

int shard_format(struct region *tree, struct region *rows, const struct table_desc *desc,
		 const struct shard_ids *ids)
{
	int rc = check_sizes(tree, rows, desc, -EINVAL);

	if (!rc)
		rc = store_superblock(rows, desc, ids, REGION_ROWS);
	if (!rc)
		rc = store_superblock(tree, desc, ids, REGION_TREE);
	if (!rc)
		rc = transport_store(tree, DESC_OFF, desc, sizeof(*desc));
	if (!rc)
		rc = store_words(tree, desc, ids);
	return rc ? rc : set_live(tree, rows);
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

static int check_same_shard(const struct region_superblock *tree,
			    const struct region_superblock *rows, const struct table_desc *desc)
{
	if (tree->object != desc->table_id || tree->part != desc->shard ||
	    rows->object != desc->table_id || rows->part != desc->shard)
		return error_set(-EPROTO,
				 "shard %u of table %u: its regions belong to shards %u and %u "
				 "of tables %u and %u",
				 desc->shard, desc->table_id, tree->part, rows->part, tree->object,
				 rows->object);
	return 0;
}

static int load_shard(struct shard *shard)
{
	struct region_superblock tree = { .magic = 0 }, rows = { .magic = 0 };
	int rc = load_superblock(shard->tree, REGION_TREE, &tree);

	if (!rc)
		rc = load_superblock(shard->rows, REGION_ROWS, &rows);
	if (!rc)
		rc = load_bytes(shard->tree, DESC_OFF, &shard->desc, sizeof(shard->desc));
	if (!rc)
		rc = table_desc_check(&shard->desc);
	if (!rc)
		rc = check_same_shard(&tree, &rows, &shard->desc);
	return rc ? rc : check_sizes(shard->tree, shard->rows, &shard->desc, -EPROTO);
}

int shard_open(struct region *tree, struct region *rows, struct shard **shard_out)
{
	struct shard *shard = mem_aligned(WIRE_LINE, sizeof(*shard));
	int rc;

	if (!shard)
		return error_set(-ENOMEM, "shard: no memory");
	memset(shard, 0, sizeof(*shard));
	shard->tree = tree;
	shard->rows = rows;
	rc = load_shard(shard);
	if (rc)
		goto err_free_shard;
	for (uint32_t i = 0; i < shard->desc.n_views; i++) {
		const struct view_desc *view = &shard->desc.views[i];

		struct tree_place place = {
			.leaves_off = view->leaves_off,
			.inner_off = { view->inner_off[0], view->inner_off[1] },
			.max_prio = view->max_prio,
		};

		sumtree_init(&shard->trees[i], tree, &shard->desc.tree, &place);
	}
	*shard_out = shard;
	return 0;

err_free_shard:
	mem_free(shard);
	return rc;
}

void shard_close(struct shard **shard)
{
	mem_free(*shard);
	*shard = NULL;
}

/* -------- state -------- */

int shard_state(const struct shard *shard)
{
	const struct region_superblock *sb = (const void *)shard->tree->base;
	uint64_t state;
	int rc;

	if (sb) {
		state = rword64_load_relaxed(&sb->state.word); /* hint: nothing hangs on it */
		return state == REGION_LIVE ? 0 : superblock_state_check(state);
	}
	rc = transport_load(shard->tree, offsetof(struct region_superblock, state), &state);
	return rc ? rc : superblock_state_check(state);
}

int shard_set_state(struct shard *shard, uint32_t state)
{
	int rc = store_state(shard->tree, state);

	return rc ? rc : store_state(shard->rows, state);
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
