/*
 * Superblock: the first page of a region (wire/region.h), as written and checked by those who own
 * its object. What is checked here came from another machine or a file: input, never trusted.
 */
#ifndef RLV_DS_PART_SUPERBLOCK_H
#define RLV_DS_PART_SUPERBLOCK_H

#include <stdbool.h>

#include "transport/transport.h"

#include "wire/region.h"

#include "base/error.h"

/* What an object says about itself in its regions. */
struct superblock_owner {
	uint32_t kind; /* enum kind_id */
	uint32_t object;
	uint32_t part;
	uint32_t role;          /* enum region_role */
	uint32_t atomic_domain; /* enum atomic_domain: superblock_domain of the region */
	uint8_t uuid[16];       /* of the region */
	uint8_t store_uuid[16];
	uint64_t ms_term;
	uint64_t incarnation;
};

/* Who changes words where this host attached the region: its CPUs, or the NIC of the node. */
uint32_t superblock_domain(const struct region *region);

/* Fills all immutable fields and the crc; state is REGION_FORMATTING. Thread: any. */
void superblock_init(struct region_superblock *sb, const struct region *region,
		     const struct superblock_owner *owner);

/*
 * Is sb a live superblock of that kind and role for a region of region_bytes? Errors: -EPROTO (no magic,
 * another format, unknown incompat bit, wrong role or size; the message says which), -EBADMSG
 * (crc, state), -ESTALE (being formatted or dropped), -EHOSTDOWN (orphaned). Thread: any.
 */
RLV_MUST_CHECK int superblock_check(const struct region_superblock *sb, uint32_t kind,
				    uint32_t role, uint64_t region_bytes);

/*
 * May words be changed the way in which region is attached? Else they would be by two kinds of
 * atomics at once, which do not see each other. -EPROTO. Thread: any.
 */
RLV_MUST_CHECK int superblock_domain_check(const struct region_superblock *sb,
					   const struct region *region);

/*
 * The words of rows in a file (wire/region.h), in place, by their memory node: before it serves
 * anybody, and after the last. Thread: setup.
 */
bool superblock_is_of_rows(const struct region_superblock *sb);
/* Nobody else has it: this life is its opener, and its mark the one that was found. */
void superblock_begin_alone(struct region_superblock *sb, uint64_t incarnation);
void superblock_set_mark(struct region_superblock *sb);
/* All of it is durable. Unless it was made sound, the next life is to find what this one found. */
void superblock_end_alone(struct region_superblock *sb);

/* 0 for a state that allows calls, else -ESTALE, -EHOSTDOWN or -EBADMSG. Thread: any. */
RLV_MUST_CHECK int superblock_state_check(uint64_t state);

#endif
