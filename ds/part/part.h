/*
 * Part: the share of an object of any kind on one memory node (wire/part_layout.h): four regions,
 * access rights, client slots, epoch and dirty word. A kind adds its structure (a replay shard:
 * ds/replay/shard.h) and has a struct part as its first member.
 *
 *   part_format, part_publish   fresh regions (metadata server, embed); the kind writes in between
 *   part_check_live, part_open  attach to formatted regions and check everything read
 *   slot.h, epoch.h, fence.h    client slots, epoch, and fencing of dead clients
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

/* The part as described by the descriptor of its kind. */
struct part_spec {
	uint32_t kind; /* enum kind_id */
	uint32_t object;
	uint32_t part;
	uint8_t uuid[16];             /* of the object */
	uint64_t bytes[REGION_ROLES]; /* of its regions, by role */
	uint64_t words_off;           /* struct part_words, in the tree region */
	uint64_t slots_off;           /* in the slots region */
	uint32_t max_clients;
	const char *name;         /* of the object */
	const void *desc;         /* of the part; its kind's, opaque otherwise */
	uint32_t desc_bytes;      /* at most DESC_MAX_BYTES */
	uint64_t told[PART_TOLD]; /* part_told_at: words that its node reports; 0 = none */
};

/*
 * Returns the part's region of that role (its size, and whose it is), as register_region needs it.
 */
struct target_region part_region_spec(const struct part_spec *spec, uint32_t role);

/*
 * Derives the uuid of a region from that of the object. Its own inverse: applied to the uuid of the
 * region it gives that of the object.
 */
void part_region_uuid(const uint8_t uuid[16], uint32_t part, uint32_t role, uint8_t out[16]);

/* -------- attached regions -------- */

/*
 * Attached regions of a part, by role. The server attaches the whole pages region. A client
 * attaches only the limits page and, if it has a slot, its own page.
 */
enum part_place { PART_LIMITS = REGION_ROLES, PART_PAGE, PART_PLACES };

struct part_regions {
	struct region *at[PART_PLACES]; /* by enum region_role and part_place; NULL = none */
	uint32_t owner;                 /* owner id of PART_PAGE; 0 = none */
};

/* Detaches all regions and zeroes the struct. */
void part_regions_detach(struct part_regions *regions);

/* Access that a client asks for, as TableOpenRequest.access. */
enum part_access {
	PART_READS = 1,  /* read all regions */
	PART_LEARNS = 2, /* and change the tree region */
	PART_WRITES = 3, /* and write the rows region */
};

/*
 * Returns the region role that a client is granted at a place (enum region_role or part_place),
 * with its range and rights; 0 = no grant. owner 0: a client without a slot, which only reads.
 * range_out->region is not set: it is the region of the role returned.
 */
uint32_t part_grant_of(enum part_access access, uint32_t owner, uint32_t place,
		       struct region_range *range_out, uint32_t *rights_out);

/* -------- format -------- */

/* Creator of a part, stored in its superblocks. */
struct part_origin {
	uint8_t store_uuid[16];
	uint64_t ms_term;
	uint64_t incarnation;
	bool loading; /* until part_set_loaded */
};

/*
 * Has the node make the fresh limits page that part_format takes. -EAGAIN: the node is making it,
 * call again before part_format (transport_prepare).
 */
RLV_MUST_CHECK int part_prepare(const struct part_regions *regions);

/*
 * Writes the superblocks of the four regions of one part, and its descriptor; the part is not live
 * before part_publish. The regions are zeroed and not shared yet. -EINVAL: a region is too small.
 * The attachment used here fixes the atomic domain for life (enum atomic_domain): the CPUs of one
 * host, or the node's NIC. Cost: control plane.
 */
RLV_MUST_CHECK int part_format(const struct part_regions *regions, const struct part_spec *spec,
			       const struct part_origin *origin);

/*
 * Makes the part durable, where the transport can, and live, after the kind wrote its structure.
 * The state word of the slots region is written last. Cost: control plane.
 */
RLV_MUST_CHECK int part_publish(const struct part_regions *regions);

/* -------- open -------- */

struct part {
	struct region *tree;
	struct region *slots;
	struct region *limits; /* page of words shared by all clients, at limits_off */
	struct region *pages;  /* client pages from page_first on: part_page_off; or NULL */
	uint64_t limits_off, pages_off;
	uint32_t page_first, n_pages;
	uint64_t words_off, slots_off;
	uint32_t max_clients;
	uint32_t number; /* in its object */
	struct part_regions regions;
};

/*
 * Checks that the superblocks of the slots and tree regions are of that kind and the part is live;
 * then its descriptor may be read. Errors: -EPROTO (another kind or format, unknown incompat bit,
 * wrong size, another atomic domain), -EBADMSG (crc, state word), -ESTALE (dropped or being
 * formatted), -EHOSTDOWN (orphaned), -EINVAL (region missing).
 */
RLV_MUST_CHECK int part_check_live(const struct part_regions *regions, uint32_t kind);

/*
 * Checks all superblocks against spec. On success the part owns the regions until part_close; after
 * an error the caller does. Errors: as part_check_live, and -EBADMSG (another uuid or store),
 * -EPROTO (another object or part number).
 */
RLV_MUST_CHECK int part_open(struct part *part, const struct part_regions *regions,
			     const struct part_spec *spec);
/* Detaches all regions of the part. */
void part_close(struct part *part);

/*
 * Gives the part the attached page of another slot, owner - 1, and detaches its previous one.
 * -EPROTO: the page is too small, and stays the caller's.
 */
RLV_MUST_CHECK int part_take_page(struct part *part, struct region *page, uint32_t owner);

/* -------- state -------- */

/*
 * Checks, once per call, that the part exists, by the state word of its slots region, which no
 * client can write. -ESTALE: dropped or being formatted; -EHOSTDOWN: orphaned; -EBADMSG: damaged.
 * Cost: 1 phase over a wire; none counted where the region is addressable.
 */
RLV_MUST_CHECK int part_state(const struct part *part);

/*
 * Writes the state (enum region_state) to the slots region, which is authoritative, then to the
 * other attached regions.
 */
RLV_MUST_CHECK int part_set_state(struct part *part, uint32_t state);

/*
 * The object is loaded: sets the loading word, durably, to 0, or to region_replaces() until the one that it
 * replaces is gone. Thread: setup. Cost: control plane.
 */
RLV_MUST_CHECK int part_set_loaded(struct part *part, uint64_t replaces);

/*
 * *marked_out: true if the rows region has its mark (after a power loss its rows must be checked,
 * wire/region.h), or after an error. part_mark sets and part_unmark clears it durably; after an
 * error the mark is unchanged or set. Thread: setup. Cost: control plane.
 */
RLV_MUST_CHECK int part_is_marked(struct part *part, bool *marked_out);
RLV_MUST_CHECK int part_mark(struct part *part);
RLV_MUST_CHECK int part_unmark(struct part *part);

/* State left by the last exclusive opener of the rows (wire/region.h). Thread: setup. */
struct part_life {
	uint64_t opener;
	bool is_sound; /* recovered since then: no recovery is due */
	bool marked;   /* as found by that opener; set = the rows must be checked */
};

RLV_MUST_CHECK int part_life(struct part *part, struct part_life *life_out);
/* Records in the rows region that the part is sound since its node opened it (life->opener). */
RLV_MUST_CHECK int part_set_sound(struct part *part, const struct part_life *life);

/*
 * Adds 1 to the dirty word, so that a rebuild is due: a lost answer may have made a sum wrong.
 * -EIO: this answer was lost, too.
 */
RLV_MUST_CHECK int part_mark_dirty(struct part *part);

/*
 * *needed_out: a rebuild is running, or the dirty word changed since the last clean one. Cost: 1
 * phase.
 */
RLV_MUST_CHECK int part_rebuild_needed(struct part *part, bool *needed_out);

/* -------- where things are -------- */

/* Offset of a member of struct part_words, in the tree region. */
static inline uint64_t part_word_off(const struct part *part, size_t member)
{
	return part->words_off + member;
}

/* Offset of a client slot in the slots region. slot: index of the client slot = owner - 1. */
static inline uint64_t part_slot_off(const struct part *part, uint32_t slot)
{
	return part->slots_off + (uint64_t)slot * sizeof(struct client_slot);
}

/* True if the page of the slot is attached: the server has all pages, a client its own. */
static inline bool part_has_page(const struct part *part, uint32_t slot)
{
	return slot >= part->page_first && slot - part->page_first < part->n_pages;
}

/* Offset of the page of the slot in the region part->pages; part_has_page(part, slot) holds. */
static inline uint64_t part_page_off(const struct part *part, uint32_t slot)
{
	return part->pages_off + (uint64_t)(slot - part->page_first) * CLIENT_PAGE_BYTES;
}

#endif
