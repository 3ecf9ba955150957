/*
 * inner.h - what the shm target is to a target built over it: within transport/ only.
 *
 * The outer target keeps the pool's memory open to devices, too. It asks here whether a grant is
 * good, and holds what the grant names, so that the memory is not given to anybody else while a
 * device can still reach it. In a forked child these do nothing, or say -ECHILD.
 *
 * tg is of kind shm. Thread: any.
 */
#ifndef RLV_TRANSPORT_INNER_H
#define RLV_TRANSPORT_INNER_H

#include "transport/transport.h"

/* A region that a grant opens. */
struct inner_region {
	struct target_region info; /* base and size are those of the granted range */
	uint32_t rights;           /* enum transport_rights */
	void *held;
};

/* As an attach, and counted as one. -EACCES, -EPROTO, -ESTALE: the grant is not good. */
RLV_MUST_CHECK int inner_hold(struct transport_target *tg, uint64_t client_id,
			      const struct region_grant *grant, struct inner_region *region_out);

/* What was held is out of every device's reach. A second call is a no-op. */
void inner_release(struct transport_target *tg, struct inner_region *region);

/* Does it know the client: as one of this process, or by its socket? */
bool inner_knows(struct transport_target *tg, uint64_t client_id);

/* Is the pool a file or device? */
bool inner_is_persistent(struct transport_target *tg);

#endif
