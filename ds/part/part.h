/*
 * Part: what an object of any kind has on one memory node (wire/part_layout.h): four regions, who may
 * use them, client slots, the epoch, and whether its sums are to be rebuilt. What lies in it is its
 * kind's (a replay shard: ds/replay/shard.h), which has a struct part as its first member.
 *
 *   part_format, part_publish   fresh regions (the metadata server, embed); the kind writes in between
 *   part_check_live, part_open  attaches to formatted regions, checks all that was read
 *   slot.h, epoch.h, fence.h    its client slots, epoch, and the dead
 */
#ifndef RLV_DS_PART_PART_H
#define RLV_DS_PART_PART_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "transport/transport.h"

#include "wire/part_layout.h"
#include "wire/region.h"

#include "base/error.h"

/* What the kind's descriptor says of a part. */
struct part_spec {
	uint32_t kind; /* enum kind_id */
	uint32_t object;
	uint32_t part;
	uint8_t uuid[16];             /* of the object */
	uint64_t bytes[REGION_ROLES]; /* of its regions, by role */
	uint64_t words_off;           /* struct part_words, in the tree region */
	uint64_t slots_off;           /* in the slots region */
	uint32_t max_clients;
};

/* The region of that role that the part needs, for register_region. */
struct target_region part_region_spec(const struct part_spec *spec, uint32_t role);

/*
 * The uuid of that region of a part, from the object's; and the object's from the region's, since it is
 * its own inverse.
 */
void part_region_uuid(const uint8_t uuid[16], uint32_t part, uint32_t role, uint8_t out[16]);

/* -------- attached regions -------- */

/*
 * What somebody has attached of a part: its regions, by role. A client has no region of pages, but the
 * limits page of it, and the page of its own slot, if it has one.
 */
enum part_place { PART_LIMITS = REGION_ROLES, PART_PAGE, PART_PLACES };

struct part_regions {
	struct region *at[PART_PLACES]; /* by enum region_role and part_place; NULL = none */
	uint32_t owner;                 /* whose page PART_PAGE is; 0 = none */
};

/* Detaches all of them; the struct is zeroed. */
void part_regions_detach(struct part_regions *regions);

/* What a client wants with a part: as TableOpenRequest.access says. */
enum part_access {
	PART_READS = 1,  /* to look at all of it */
	PART_LEARNS = 2, /* and to change the tree region */
	PART_WRITES = 3, /* and to write the rows region */
};

/*
 * What such a client is granted of a part at a place (enum region_role or part_place), and with which
 * rights; 0 = nothing. owner: whose page, 0 = of a client without a slot, which only looks.
 * range_out->region is not set: it is the region of the role that is returned.
 */
uint32_t part_grant_of(enum part_access access, uint32_t owner, uint32_t place,
		       struct region_range *range_out, uint32_t *rights_out);

/* -------- format -------- */

/* Who makes a part. */
struct part_origin {
	uint8_t store_uuid[16];
	uint64_t ms_term;
	uint64_t incarnation;
};

/*
 * Writes the superblocks of the four regions of one part, which are zeroed and nobody else has. -EINVAL:
 * a region is too small. The way in which they are attached now decides for life who changes their
 * words (enum atomic_domain): the CPUs of one host, or the node's NIC. Cost: control plane.
 */
RLV_MUST_CHECK int part_format(const struct part_regions *regions, const struct part_spec *spec,
			       const struct part_origin *origin);

/*
 * The kind has written its part: makes it durable, where the transport can, and live; the state of the
 * slots region is the last. Cost: control plane.
 */
RLV_MUST_CHECK int part_publish(const struct part_regions *regions);

/* -------- open -------- */

struct part {
	struct region *tree;
	struct region *slots;
	struct region *limits; /* page of words that all clients change, at limits_off */
	struct region *pages;  /* of client slots, from page_first: part_page_off; or NULL */
	uint64_t limits_off, pages_off;
	uint32_t page_first, n_pages;
	uint64_t words_off, slots_off;
	uint32_t max_clients;
	uint32_t number; /* in its object */
	struct part_regions regions;
};

/*
 * Are the superblocks of slots and tree those of a part of that kind that is live? Then its descriptor
 * may be read. Errors: -EPROTO (another kind or format, unknown incompat bit, wrong size, another
 * atomic domain), -EBADMSG (crc, state word), -ESTALE (dropped), -EHOSTDOWN (orphaned), -EINVAL (no such
 * region).
 */
RLV_MUST_CHECK int part_check_live(const struct part_regions *regions, uint32_t kind);

/*
 * Checks all superblocks against spec. The regions are the part's until it is closed, or the caller's
 * after an error. Errors: as above, and -EBADMSG (another uuid or store).
 */
RLV_MUST_CHECK int part_open(struct part *part, const struct part_regions *regions,
			     const struct part_spec *spec);
/* Detaches its regions. */
void part_close(struct part *part);

/* Another slot: page takes the place of the page that it had, which is detached. -EPROTO: too small. */
RLV_MUST_CHECK int part_take_page(struct part *part, struct region *page, uint32_t owner);

/* -------- state -------- */

/*
 * Once per call: is the part still there? By a word that no client can write. -ESTALE dropped,
 * -EHOSTDOWN orphaned. Cost: 1 phase over a wire, none counted where the region is addressable.
 */
RLV_MUST_CHECK int part_state(const struct part *part);

/* Sets the state word that counts, that of the slots region, and those of the others. */
RLV_MUST_CHECK int part_set_state(struct part *part, uint32_t state);

/*
 * The mark of the rows (wire/region.h). part_mark sets it and makes it durable, part_unmark clears it
 * likewise; after an error it is as it was, or set. Thread: setup. Cost: control plane.
 */
RLV_MUST_CHECK int part_is_marked(struct part *part, bool *marked_out);
RLV_MUST_CHECK int part_mark(struct part *part);
RLV_MUST_CHECK int part_unmark(struct part *part);

/* As its memory node left it when it had the rows alone last (wire/region.h). Thread: setup. */
struct part_life {
	uint64_t opener;
	bool is_sound; /* it was recovered since, and nobody has to do it again */
	bool marked;   /* if not: the rows are to be read for that */
};

RLV_MUST_CHECK int part_life(struct part *part, struct part_life *life_out);
/* It is sound from now on. */
RLV_MUST_CHECK int part_set_sound(struct part *part, const struct part_life *life);

/* An answer was lost, so a sum may be wrong until the next rebuild. -EIO: that answer, too. */
RLV_MUST_CHECK int part_mark_dirty(struct part *part);

/* Is a rebuild under way, or due since the last clean one? Cost: 1 phase. */
RLV_MUST_CHECK int part_rebuild_needed(struct part *part, bool *needed_out);

/* -------- where things are -------- */

/* A member of struct part_words, in the tree region. */
static inline uint64_t part_word_off(const struct part *part, size_t member)
{
	return part->words_off + member;
}

/* slot: index of the client slot = owner - 1. */
static inline uint64_t part_slot_off(const struct part *part, uint32_t slot)
{
	return part->slots_off + (uint64_t)slot * sizeof(struct client_slot);
}

/* Has this process the slot's page? The server has all, a client its own. */
static inline bool part_has_page(const struct part *part, uint32_t slot)
{
	return slot >= part->page_first && slot - part->page_first < part->n_pages;
}

/* In part->pages, of a slot whose page is there. */
static inline uint64_t part_page_off(const struct part *part, uint32_t slot)
{
	return part->pages_off + (uint64_t)(slot - part->page_first) * CLIENT_PAGE_BYTES;
}

#endif
