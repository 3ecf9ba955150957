/*
 * grants.h - rights that the target has given to clients. * A grant names its slot in this table
 * and carries the slot's 128-bit secret, so it can be neither guessed nor used after its slot was
 * given away again. The same client, range and rights get the same grant. Not locked: the target
 * that owns the table does that.
 */
#ifndef RLV_TRANSPORT_ATTACH_GRANTS_H
#define RLV_TRANSPORT_ATTACH_GRANTS_H

#include <stdint.h>

#include "wire/attach_layout.h"

#include "transport/transport.h"

struct grant_slot {
	uint64_t client_id;
	uint32_t region; /* 0 = free */
	uint32_t rights;
	uint64_t off, len; /* the range of it; len 0 = all */
	uint8_t secret[GRANT_SECRET_BYTES];
};

struct grants {
	uint64_t incarnation;
	struct grant_slot *slots;
	uint32_t n, capacity;
};

void grants_fini(struct grants *grants);

RLV_MUST_CHECK int grants_add(struct grants *grants, const struct grant_slot *want,
			      struct region_grant *grant_out);

/*
 * 0 if grant is one of this table for client_id; *slot_out is then its slot, borrowed until the
 * next change. -EACCES (forged, revoked, or another client's), -EPROTO (damaged, or no grant of
 * this version), -ESTALE (given before this node restarted).
 */
RLV_MUST_CHECK int grants_check(const struct grants *grants, uint64_t client_id,
				const struct region_grant *grant,
				const struct grant_slot **slot_out);

/* Removes those of a client, or of any, of a range: region 0 = of all, len 0 = of the region and its ranges. */
#define GRANTS_ANY UINT64_MAX
void grants_remove(struct grants *grants, uint64_t client_id, const struct region_range *range);

#endif
