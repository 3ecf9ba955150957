/*
 * Shard: one part of a table, four regions on one node (wire/ring_layout.h), and the access of one
 * handle to it.
 *
 *   table_plan      signature and wishes -> complete descriptor with every offset, or a refusal
 *   shard_format    writes descriptor and words into fresh regions (the metadata server, embed)
 *   shard_open      attaches to formatted regions, checks all that was read
 *   access_*        a handle's slot, epoch and deltas in that shard
 */
#ifndef RLV_DS_REPLAY_SHARD_H
#define RLV_DS_REPLAY_SHARD_H

#include "ds/part/epoch.h"
#include "ds/part/posted.h"
#include "ds/sumtree/sumtree.h"
#include "ds/part/wr_list.h"

#include "transport/transport.h"

#include "wire/region.h"
#include "wire/table_layout.h"

struct table_plan_opts {
	uint32_t block;         /* wish, 0 = default; rounded up to whole leaf groups */
	const uint16_t *fanout; /* as sumtree_geometry_init; NULL = by `remote` */
	/* Its clients reach it over a wire: wide nodes, so that 2^20 steps need two levels below the
	   top, and 2^24 three. Else as sumtree_geometry_init's default. */
	bool remote;
};

/*
 * Completes a descriptor. In: name, table_id, uuid, capacity, n_shards, columns (name, dtype, role,
 * ndim, shape, bytes), views (selector, stack, n_step, period, limits, alpha, eps, scale, limit; a
 * stack, n_step, period of 0 means 1, a scale of 0 means 2^20), max_writers, max_clients, flags.
 * Out: everything else, shard = 0, crc; on failure nothing.
 *
 * The default block is max(256, 8 windows), at most capacity / (16 x writers) of a shard, in whole
 * leaf groups, and never under 2 windows. A shard has the blocks that hold its share of the
 * capacity beside the repeated head rows, and two more for each stream. All open blocks together
 * stay under 1/8 of a shard.
 * Errors: -EINVAL; the message names the field, and the numbers where sizes do not fit.
 */
RLV_MUST_CHECK int table_plan(struct table_desc *desc, const struct table_plan_opts *opts);

/*
 * May a table be called so? Names become file names, JSON keys and Python attributes: the same rule for
 * the library, the server and all that is read from regions. -EINVAL. Thread: any.
 */
RLV_MUST_CHECK int table_name_check(const char *name);

/*
 * Checks a descriptor read from a region or frame: every offset and size in it follows from its
 * wishes, block and geometry. -EPROTO or -EBADMSG; the message names the field.
 */
RLV_MUST_CHECK int table_desc_check(const struct table_desc *desc);

/* Same signature and options: may a second create open it? Ignores ids, uuid and offsets. */
bool table_desc_same(const struct table_desc *a, const struct table_desc *b);

/* Sets desc->shard and the crc over all. */
void table_desc_seal(struct table_desc *desc, uint32_t shard);

/* Bytes of a descriptor that a message carries: the columns that it lacks are left out. */
size_t table_desc_used_bytes(const struct table_desc *desc);

/* The other way round; false = there are too few or too many. What they say is still to be checked. */
bool table_desc_unpack(const void *bytes, size_t len, struct table_desc *out);

/* The region of that role that shard needs, for register_region. */
struct target_region shard_region_spec(const struct table_desc *desc, uint32_t shard,
				       uint32_t role);

/*
 * The uuid of that region of a shard, from the table's; and the table's from the region's, since it is
 * its own inverse.
 */
void shard_region_uuid(const uint8_t uuid[16], uint32_t shard, uint32_t role, uint8_t out[16]);

struct shard_ids {
	uint8_t store_uuid[16];
	uint64_t ms_term;
	uint64_t incarnation;
	uint64_t first_ticket; /* above any used before under that (table, shard) */
};

/*
 * What somebody has attached of a shard: its regions, by role. A client has no region of pages, but
 * the limits page of it, and the page of its own slot, if it has one.
 */
enum shard_part { SHARD_LIMITS = REGION_ROLES, SHARD_PAGE, SHARD_PARTS };

struct shard_parts {
	struct region *at[SHARD_PARTS]; /* by enum region_role and shard_part; NULL = none */
	uint32_t owner;                 /* whose page SHARD_PAGE is; 0 = none */
};

/* What a client wants with a shard: as TableOpenRequest.access says. */
enum shard_access {
	SHARD_READS = 1,  /* rows and priorities, both to look at */
	SHARD_LEARNS = 2, /* and changes priorities */
	SHARD_WRITES = 3, /* and rows */
};

/*
 * What such a client is granted for a part (enum region_role or shard_part), and with which rights; 0 =
 * nothing. owner: whose page, 0 = of a client without a slot, which only looks. range_out->region is
 * not set: it is the region of the role that is returned.
 */
uint32_t shard_grant_of(enum shard_access access, uint32_t owner, uint32_t part,
			struct region_range *range_out, uint32_t *rights_out);

/* Detaches all of them; the struct is zeroed. */
void shard_parts_detach(struct shard_parts *parts);

/*
 * Writes the four regions of one shard: superblocks, descriptor, words; the state of the slots region
 * becomes live last. The regions are zeroed and nobody else has them. desc is sealed for the shard.
 * -EINVAL: a region is too small. Durable where the transport can persist. Cost: control plane.
 * The way in which they are attached now decides for life who changes their words (enum
 * atomic_domain): the CPUs of one host, or the node's NIC.
 */
RLV_MUST_CHECK int shard_format(const struct shard_parts *parts, const struct table_desc *desc,
				const struct shard_ids *ids);

struct shard {
	struct region *tree;
	struct region *rows;
	struct region *slots;
	struct region *limits; /* page of the views' limiter words: shard_limits_off */
	struct region *pages;  /* of client slots, from page_first: shard_page_off; or NULL */
	uint64_t limits_off, pages_off;
	uint32_t page_first, n_pages;
	struct table_desc desc;
	struct sumtree trees[RING_MAX_VIEWS];
	struct shard_parts parts;
};

/*
 * Reads and checks superblocks and descriptor. want: what they must say, as the catalog knows it,
 * sealed for the shard; NULL where the regions are the catalog. Sizes and offsets are taken from it,
 * never from words that others write. The parts are the shard's until it is closed, or the caller's
 * after an error. Errors: -EPROTO (another format, unknown incompat bit, wrong sizes, another atomic
 * domain), -EBADMSG (crc, state word, a descriptor or uuid that differs from want), -ESTALE (dropped),
 * -EHOSTDOWN (orphaned).
 */
RLV_MUST_CHECK int shard_open(const struct shard_parts *parts, const struct table_desc *want,
			      struct shard **shard_out);
/* Detaches its parts, too. */
void shard_close(struct shard **shard);

/* Another slot: page takes the place of the page that it had, which is detached. -EINVAL: too small. */
RLV_MUST_CHECK int shard_take_page(struct shard *shard, struct region *page, uint32_t owner);

/*
 * Once per call: is the shard still there? By a word that no client can write. -ESTALE dropped, -EHOSTDOWN orphaned. Cost: 1 phase over
 * a wire, none counted where the region is addressable.
 */
RLV_MUST_CHECK int shard_state(const struct shard *shard);

/* Sets the state word that counts, that of the slots region, and those of the others. */
RLV_MUST_CHECK int shard_set_state(struct shard *shard, uint32_t state);

/*
 * The mark of the rows (wire/region.h). shard_mark sets it and makes it durable, shard_unmark clears
 * it likewise; after an error it is as it was, or set. Thread: setup. Cost: control plane.
 */
RLV_MUST_CHECK int shard_is_marked(struct shard *shard, bool *marked_out);
RLV_MUST_CHECK int shard_mark(struct shard *shard);
RLV_MUST_CHECK int shard_unmark(struct shard *shard);

/* As its memory node left it when it had the rows alone last (wire/region.h). Thread: setup. */
struct shard_life {
	uint64_t opener;
	bool is_sound; /* it was recovered since, and nobody has to do it again */
	bool marked;   /* if not: the rows are to be read for that */
};

RLV_MUST_CHECK int shard_life(struct shard *shard, struct shard_life *life_out);
/* It is sound from now on. */
RLV_MUST_CHECK int shard_set_sound(struct shard *shard, const struct shard_life *life);

/* An answer was lost, so a sum may be wrong until the next rebuild. -EIO: that answer, too. */
RLV_MUST_CHECK int shard_mark_dirty(struct shard *shard);

static inline uint64_t shard_word_off(const struct shard *shard, size_t member)
{
	return shard->desc.words_off + member;
}

static inline uint64_t shard_leaf_off(const struct shard *shard, uint32_t view, uint32_t slot)
{
	return shard->desc.views[view].leaves_off + (uint64_t)slot * 8;
}

static inline uint64_t shard_header_off(const struct shard *shard, uint32_t block)
{
	return shard->desc.headers_off + (uint64_t)block * 8;
}

static inline uint64_t shard_row_off(const struct shard *shard, uint32_t slot)
{
	return ROWS_OFF + (uint64_t)slot * shard->desc.row_bytes;
}

/* slot: index of the client slot = owner - 1. */
static inline uint64_t shard_slot_off(const struct shard *shard, uint32_t slot)
{
	return shard->desc.slots_off + (uint64_t)slot * sizeof(struct client_slot);
}

static inline uint64_t shard_limits_off(const struct shard *shard, uint32_t view)
{
	return shard->limits_off + view * sizeof(struct view_limits);
}

/* Has this process the slot's page? The server has all, a client its own. */
static inline bool shard_has_page(const struct shard *shard, uint32_t slot)
{
	return slot >= shard->page_first && slot - shard->page_first < shard->n_pages;
}

/* In shard->pages, of a slot whose page is there. */
static inline uint64_t shard_page_off(const struct shard *shard, uint32_t slot)
{
	return shard->pages_off + (uint64_t)(slot - shard->page_first) * CLIENT_PAGE_BYTES;
}

/* -------- one handle's access to a shard -------- */

struct access {
	struct shard *shard;
	uint32_t owner; /* 1 + client slot */
	struct epoch epoch;
	struct tree_deltas *deltas[RING_MAX_VIEWS];
	uint32_t view_mask;   /* views that this handle changes; a writer changes all */
	uint64_t next_ticket; /* guess of the next ticket, for ring_claim */

	/* Where words cannot be changed in place: changes travel as chains. */
	bool chained;
	struct wr_list chain;              /* of the call in progress */
	struct posted posted;              /* what nobody waits for */
	uint64_t max_seen[RING_MAX_VIEWS]; /* running maxima, as last read: by open, claim, update */
	uint64_t max_raise[RING_MAX_VIEWS]; /* what they should be at least; sent by leave */
	struct claim_buffers *claim;        /* of ds/ring/chain.c */
};

/* owner's slot is live already (ds/part/slot.h); 0: none, to read only. Thread: owner, for all. Cost: control plane. */
RLV_MUST_CHECK int access_open(struct access *acc, struct shard *shard, uint32_t owner,
			       uint32_t view_mask, const struct tree_deltas_opts *opts);
/*
 * What is buffered is lost: access_flush first. Waits for what was posted. Cost: 1 phase if that is
 * not done yet.
 */
void access_close(struct access *acc);

/*
 * Around every call that changes leaves. Leave flushes, or keeps deltas and promise if allowed; it
 * is called after an error, too. Over a wire it posts the additions, with the end of the promise
 * behind them, and does not wait: what becomes of them is found out by a later call.
 * -EIO: an answer was lost, and the shard was marked dirty; -EOWNERDEAD: a block that this handle
 * had closed was closed by another before, so it was fenced.
 * Cost: none that is waited for; 1 phase in a call after one that met a rebuild.
 */
RLV_MUST_CHECK int access_enter(struct access *acc);
RLV_MUST_CHECK int access_leave(struct access *acc);

/*
 * Adds all that was kept and withdraws the promise, and waits for all of it. Outside of enter and
 * leave.
 */
RLV_MUST_CHECK int access_flush(struct access *acc);

/*
 * The running maximum of a view is quanta at least. Between enter and leave; over a wire sent by
 * leave.
 */
RLV_MUST_CHECK int access_raise_max(struct access *acc, uint32_t view, uint64_t quanta);

#endif
