/*
 * Shard: one part of a table (ds/part/part.h), with a ring of rows and a tree for each view
 * (wire/ring_layout.h), and the access of one handle to it.
 *
 *   table_plan      signature and wishes -> complete descriptor with every offset, or an error
 *   shard_format    writes descriptor and words into fresh regions (the metadata server, embed)
 *   shard_open      attaches to formatted regions and checks everything read
 *   access_*        slot, epoch and deltas of a handle in that shard
 */
#ifndef RLV_DS_REPLAY_SHARD_H
#define RLV_DS_REPLAY_SHARD_H

#include "ds/part/epoch.h"
#include "ds/part/part.h"
#include "ds/part/unwaited.h"
#include "ds/sumtree/sumtree.h"
#include "ds/part/wr_list.h"

#include "transport/transport.h"

#include "wire/table_layout.h"

struct table_plan_opts {
	uint32_t block;         /* wish, 0 = default; rounded up to whole leaf groups */
	const uint16_t *fanout; /* as sumtree_geometry_init; NULL = by `remote` */
	/*
	 * Clients reach it over a wire: nodes of about 32 children and a top of up to 1024, so that
	 * 2^24 steps need 2 levels below the top. Else the default of sumtree_geometry_init.
	 */
	bool remote;
};

/*
 * Completes a descriptor. In: name, table_id, uuid, capacity, n_shards, columns (name, dtype,
 * role, ndim, shape, bytes), views (selector, stack, n_step, period, limits, alpha, eps, scale,
 * limit; a stack, n_step, period of 0 means 1, a scale of 0 means 2^20), max_writers,
 * max_clients, flags. Out: all other fields, shard = 0, crc; unchanged on failure.
 *
 * The default block is max(256, or 1024 over a wire, 8 windows), at most capacity / (16 x writers) of a shard, in
 * whole leaf groups, and never under 2 windows. A shard has the blocks that hold its share of
 * the capacity besides the repeated head rows, and two more for each stream. All open blocks
 * together stay under 1/8 of a shard.
 * Errors: -EINVAL; the message names the field, and the numbers if sizes do not fit.
 */
RLV_MUST_CHECK int table_plan(struct table_desc *desc, const struct table_plan_opts *opts);

/*
 * Checks a table name. -EINVAL: not 1 to TABLE_NAME_BYTES - 1 letters, digits, _ - . with the last
 * two not first. Names become file names, JSON keys and Python attributes: one rule for the
 * library, the server and names read from regions. Thread: any.
 */
RLV_MUST_CHECK int table_name_check(const char *name);

/*
 * Checks a descriptor read from a region or frame: every offset and size must follow from its
 * wishes, block and geometry. -EPROTO or -EBADMSG; the message names the field.
 */
RLV_MUST_CHECK int table_desc_check(const struct table_desc *desc);

/*
 * True if all bytes of the two descriptors are equal, as for the crc: a NaN equals itself, and
 * there is no padding.
 */
bool table_desc_is(const struct table_desc *a, const struct table_desc *b);

/* True if the two descriptors are equal in all but table_id, uuid, shard and crc. */
bool table_desc_same(const struct table_desc *a, const struct table_desc *b);

/* Sets desc->shard, then desc->crc, over all other bytes of the descriptor. */
void table_desc_seal(struct table_desc *desc, uint32_t shard);

/*
 * Returns the bytes of a descriptor up to its last used column: it is stored and sent without the
 * others.
 */
size_t table_desc_used_bytes(const struct table_desc *desc);

/*
 * Copies a descriptor of table_desc_used_bytes bytes to *out, with zeros for the other columns;
 * false = len is out of range. The contents are still unchecked.
 */
bool table_desc_unpack(const void *bytes, size_t len, struct table_desc *out);

/* Returns the part that the descriptor, sealed for its shard, describes. Borrows desc. */
struct part_spec shard_spec(const struct table_desc *desc);

/* Creator of a shard. */
struct shard_ids {
	struct part_origin origin;
	uint64_t first_ticket; /* above any ticket used before under that (table, shard) */
};

/*
 * Formats the part (part_format), writes descriptor and words, and makes it live (part_publish).
 * desc is sealed for the shard. Errors and cost: those of part_format.
 */
RLV_MUST_CHECK int shard_format(const struct part_regions *regions, const struct table_desc *desc,
				const struct shard_ids *ids);

struct shard {
	struct part part;    /* the first member: shard_of */
	struct region *tree; /* part.tree */
	struct region *rows;
	struct table_desc desc;
	struct sumtree trees[RING_MAX_VIEWS];
};

static inline struct shard *shard_of(struct part *part)
{
	return (struct shard *)(void *)part;
}

/*
 * Reads and checks superblocks and descriptor. want: the descriptor as the catalog has it,
 * sealed for the shard; NULL if the regions are the catalog. Sizes and offsets come from it,
 * never from words that others write. The shard owns the regions until shard_close; after an
 * error the caller does.
 * Errors: -EPROTO (another format, unknown incompat bit, wrong sizes, another atomic domain),
 * -EBADMSG (crc, state word, a descriptor or uuid that differs from want), -ESTALE (dropped),
 * -EHOSTDOWN (orphaned).
 */
RLV_MUST_CHECK int shard_open(const struct part_regions *regions, const struct table_desc *want,
			      struct shard **shard_out);
/* Detaches the regions, frees the shard and sets *shard to NULL; *shard NULL is a no-op. */
void shard_close(struct shard **shard);

/*
 * Opens shard s of the table with descriptor desc (shard_open), as a part: for callers that know
 * parts of any kind. -EBADMSG: the regions describe another shard.
 */
RLV_MUST_CHECK int shard_open_part(const void *desc, uint32_t s, const struct part_regions *regions,
				   struct part **part_out);
void shard_close_part(struct part *part);

/* Offset of a member of struct shard_words, in the tree region. */
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

/*
 * Reads the headers of all blocks into headers_out, desc.blocks entries. Cost: 1 phase for each
 * 4096.
 */
RLV_MUST_CHECK int shard_read_headers(const struct shard *shard, uint64_t *headers_out);

static inline uint64_t shard_row_off(const struct shard *shard, uint32_t slot)
{
	return ROWS_OFF + (uint64_t)slot * shard->desc.row_bytes;
}

/* Offset of struct view_limits, in part.limits. */
static inline uint64_t shard_limits_off(const struct shard *shard, uint32_t view)
{
	return shard->part.limits_off + view * sizeof(struct view_limits);
}

/* -------- one handle's access to a shard -------- */

struct access {
	struct shard *shard;
	uint32_t owner;     /* 1 + client slot */
	uint32_t view_mask; /* views that this handle changes; a writer changes all */
	bool chained;       /* words cannot be changed in place: changes travel as chains */
	uint32_t max_epoch; /* in place: max_seen was read in that one, unless 0 */
	struct epoch epoch;
	struct tree_deltas *deltas[RING_MAX_VIEWS];
	uint64_t max_seen[RING_MAX_VIEWS]; /* running maxima, as last read: by open, claim, update */
	uint64_t next_ticket;              /* guess of the next ticket, for ring_claim */

	/* Chains only. */
	struct wr_list chain;               /* chain of the call in progress */
	struct unwaited unwaited;           /* unwaited chains */
	uint64_t max_raise[RING_MAX_VIEWS]; /* their required minimum; sent by leave */
	struct claim_buffers *claim;        /* of ds/ring/ring.c */
};

/*
 * Opens a handle's access to the shard, which is borrowed. owner: its owner id, whose slot is live
 * (ds/part/slot.h); 0 = no slot, read only. view_mask: the views that it changes. -EINVAL: one of
 * the two is out of range, or the owner's page is not attached. Thread: owner, for all. Cost:
 * control plane.
 */
RLV_MUST_CHECK int access_open(struct access *acc, struct shard *shard, uint32_t owner,
			       uint32_t view_mask);
/*
 * Accesses of one handle share the buffers of their deltas where calls flush shard by shard, which those
 * in place do: then the buffers of many shards stay in the cache. No-op over a wire.
 */
void access_share(struct access *acc, const struct access *with);
/*
 * Closes the access and drops its buffered deltas: flush first. Waits for posted chains. Cost: 1
 * phase if any.
 */
void access_close(struct access *acc);

/*
 * Enclose every call that changes leaves. access_leave flushes the deltas; it is called after an
 * error, too. Over a wire it posts the additions, with the withdrawal of the pin behind them, and
 * does not wait: a later call reports their errors. -EIO: an answer was lost, and the shard was
 * marked dirty; -EOWNERDEAD: another party had closed a block before this handle did, so the handle
 * was fenced.
 * Cost: none that is waited for; 1 phase in a call after one that met a rebuild.
 */
RLV_MUST_CHECK int access_enter(struct access *acc);
/* Ends the entering that epoch_enter_begin(&acc->epoch) began, in place. Errors: those of access_enter. */
RLV_MUST_CHECK int access_enter_end(struct access *acc);
RLV_MUST_CHECK int access_leave(struct access *acc);

/*
 * Between the two, over a wire: directs additions to that list of requests, and flushes the deltas of all
 * views: adds them to the sums above, or to that list. Returns the first error.
 */
void access_add_to(struct access *acc, struct wr_list *list);
RLV_MUST_CHECK int access_flush_sums(struct access *acc);

/*
 * Flushes the deltas, withdraws the pin, and waits for it and for all posted chains. Outside of
 * enter and leave; a no-op for a reader. -EIO: answers were lost, the shard was marked dirty.
 */
RLV_MUST_CHECK int access_flush(struct access *acc);

/*
 * Raises the running maximum of a view to at least quanta, between access_enter and access_leave; a
 * chained access sends it only in access_leave.
 */
RLV_MUST_CHECK int access_raise_max(struct access *acc, uint32_t view, uint64_t quanta);

#endif
