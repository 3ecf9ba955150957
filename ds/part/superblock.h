/*
 * Superblock: the first page of a region (wire/region.h): how the owner of the object writes and
 * checks it. Its bytes come from another machine or a file and are never trusted.
 */
#ifndef RLV_DS_PART_SUPERBLOCK_H
#define RLV_DS_PART_SUPERBLOCK_H

#include <stdbool.h>

#include "transport/transport.h"

#include "wire/region.h"

#include "base/error.h"

/* Returns the atomic domain of this attachment: the CPUs of this host, or the NIC of the node. */
uint32_t superblock_domain(const struct region *region);

/*
 * Completes a superblock for the region: magic, format, sizes, the region's number and the crc. The
 * caller has set kind, object, part, role, uuid, store_uuid, atomic_domain, ms_term, incarnation,
 * name and, of a tree region, desc_bytes and told; all else is zero, so the state is
 * REGION_FORMATTING. Thread: any.
 */
void superblock_seal(struct region_superblock *sb, const struct region *region);

/*
 * Checks that sb is a superblock of that kind and role for a region of region_bytes and, of a slots
 * region, that its state is live. Errors: -EPROTO (no magic, another format, unknown incompat bit
 * or atomic domain, wrong kind, role or size, a name that is not printable; the message names it),
 * -EBADMSG (crc, state), -ESTALE (being formatted or dropped), -EHOSTDOWN (orphaned).
 * Thread: any.
 */
RLV_MUST_CHECK int superblock_check(const struct region_superblock *sb, uint32_t kind,
				    uint32_t role, uint64_t region_bytes);

/*
 * Checks that this attachment uses the region's atomic domain. -EPROTO otherwise: two kinds of
 * atomics that do not see each other would change the same words. Thread: any.
 */
RLV_MUST_CHECK int superblock_domain_check(const struct region_superblock *sb,
					   const struct region *region);

/*
 * True if sb is a superblock of a rows region in our format. The words of such a region in a file
 * (wire/region.h) are changed in place by its memory node before it serves the first client and
 * after the last. Thread: setup.
 */
bool superblock_is_of_rows(const struct region_superblock *sb);
/*
 * Begins an exclusive open of a rows region: copies its mark to `found`, then stores the
 * incarnation as opener.
 */
void superblock_begin_alone(struct region_superblock *sb, uint64_t incarnation);
void superblock_set_mark(struct region_superblock *sb);
/*
 * Ends an exclusive open; all rows are durable. Clears the mark if the rows were recovered since it
 * began, else sets it to the mark found then.
 */
void superblock_end_alone(struct region_superblock *sb);

/*
 * Returns 0 for REGION_LIVE, else -ESTALE (dropped, being formatted), -EHOSTDOWN (orphaned) or
 * -EBADMSG (any other value). Thread: any.
 */
RLV_MUST_CHECK int superblock_state_check(uint64_t state);

#endif
