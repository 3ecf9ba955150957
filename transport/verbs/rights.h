/*
 * rights.h - opens regions to the queue pairs of a peer, with exactly the rights granted.
 *
 *   windows   each region is registered once, without remote rights, so that its own key is worth
 *             nothing. A queue pair gets a memory window of type 2 over the granted range: the key
 *             works on that queue pair alone, and for what was granted.
 *   domains   where the device has no such windows: each peer has a protection domain of its own,
 *             and each opening a registration in it. A key works on that peer's queue pairs alone.
 *
 * Either way the queue pairs of one peer cannot use the keys of another, and a key ends with its
 * opening. An opening holds its region (target_attach), and is closed before the queue
 * pairs that it is open to are destroyed: a device may wait for the windows of a queue pair.
 *
 * Not locked: the target does that.
 */
#ifndef RLV_TRANSPORT_VERBS_RIGHTS_H
#define RLV_TRANSPORT_VERBS_RIGHTS_H

#include <stdbool.h>
#include <stdint.h>

#include "transport/attach/target.h"
#include "transport/verbs/device.h"
#include "wire/verbs_layout.h"

struct rights_region;

struct rights {
	struct verbs_device *device; /* borrowed */
	struct target *target;       /* borrowed */
	bool windows;                /* else domains */
	struct rights_region *regions;
	uint32_t n_mrs, n_windows; /* held now */
};

/* A region that one ATTACH opened to the queue pairs of a peer. */
struct opening {
	struct opening *next; /* of its peer: the peer's */
	uint32_t request;
	struct target_map map;
	uint32_t n; /* queue pairs */
	uint32_t keys[VERBS_LINK_QPS];
	struct ibv_mw *windows[VERBS_LINK_QPS];
	struct ibv_mr *mr; /* domains: its own */
};

/*
 * Uses windows if the device has them, and registers the target's regions for them; otherwise logs
 * that and uses domains. After an error, such as -ENOMEM, the caller calls rights_fini.
 */
RLV_MUST_CHECK int rights_init(struct rights *rights, struct verbs_device *device,
			       struct target *target);

/* Ends the registrations of all regions. All openings must be closed. A second call is a no-op. */
void rights_fini(struct rights *rights);

/*
 * Registers a new region of the pool; *mr_out is NULL if domains are used, which need none. Called
 * without the lock, since it pins the memory, which takes a second for some GiB. -ENOMEM.
 */
RLV_MUST_CHECK int rights_register(const struct rights *rights, const struct target_region *region,
				   struct ibv_mr **mr_out);

/* Adds a region to the table; takes ownership of mr, its registration or NULL. */
void rights_add(struct rights *rights, uint32_t region, struct ibv_mr *mr);

/*
 * Removes a region that the pool has given back. Returns its registration for the caller to end
 * without the lock; NULL: there is none, or it ends with the last opening.
 */
struct ibv_mr *rights_remove(struct rights *rights, uint32_t region);

/*
 * Opens the range of map to n queue pairs of a peer, whose domain it is. The keys are good at once,
 * with windows only when rights_bind has completed for each queue pair. The opening takes over the
 * reference of map to its region; on failure it stays the caller's. -ENOMEM, -ENOSPC.
 */
RLV_MUST_CHECK int rights_open(struct rights *rights, struct ibv_pd *domain, uint32_t n,
			       const struct target_map *map, struct opening **opening_out);

/* Starts to bind the i-th window, on its queue pair; done at the completion with wr_id. */
RLV_MUST_CHECK int rights_bind(struct rights *rights, struct opening *opening, uint32_t i,
			       struct ibv_qp *qp, uint64_t wr_id);

/* Closes and frees an opening, and detaches its region; its keys are invalid on return. */
void rights_close(struct rights *rights, struct opening *opening);

/*
 * Gives the domain for a peer's queue pairs: with windows the device's, else a new one.
 * rights_domain_end takes it back.
 */
RLV_MUST_CHECK int rights_domain(struct rights *rights, struct ibv_pd **domain_out);
void rights_domain_end(struct rights *rights, struct ibv_pd *domain);

#endif
