/*
 * backing.h - a node's pool, its grants and its clients: the target of kind shm, and the lower half
 * of the target of any wire. Within transport/ only.
 *
 * A wire's target keeps the pool's memory open to devices, too. It asks here whether a grant is
 * good, and holds what the grant names, so that the memory is not given to anybody else while a
 * device can still reach it. In a forked child these do nothing, or say -ECHILD.
 *
 * tg is one that backing_open made. Thread: any.
 */
#ifndef RLV_TRANSPORT_ATTACH_BACKING_H
#define RLV_TRANSPORT_ATTACH_BACKING_H

#include "transport/transport.h"

/* opts: complete, with a clock. Errors: those of transport_target_open. */
RLV_MUST_CHECK int backing_open(const struct target_opts *opts, struct transport_target **tg_out);

/* A region that a grant opens. */
struct backing_region {
	struct target_region info; /* base and size are those of the granted range */
	uint32_t rights;           /* enum transport_rights */
	void *held;
};

/* As an attach, and counted as one. -EACCES, -EPROTO, -ESTALE: the grant is not good. */
RLV_MUST_CHECK int backing_hold(struct transport_target *tg, uint64_t client_id,
				const struct region_grant *grant,
				struct backing_region *region_out);

/* Memory that devices held is out of their reach when it returns. A second call is a no-op. */
void backing_release(struct transport_target *tg, struct backing_region *region);

/* True if the client is known: it is of this process, or has a socket. */
bool backing_knows(struct transport_target *tg, uint64_t client_id);

/* True if the pool is a file or a device. */
bool backing_is_persistent(struct transport_target *tg);

#endif
