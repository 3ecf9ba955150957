/*
 * peers.h - the links of clients as the target sees them: a TCP connection, what they ask over it,
 * and what is open to them.
 *
 *   accept --> HELLO, WELCOME --> ATTACH: a good grant proves the client --> lists (carry.h)
 *                                   |  with a provider its port is opened, once
 *                                 opening: the granted range; with a provider also its registration in
 *                                          that port, under a random key of 64 bits
 *   end of the connection, garbage, fence, deadline of the proof: everything of the link is closed
 *
 * A HELLO proves nothing: it may name any client. It costs the target a descriptor, for a bounded
 * time; there is no endpoint before an ATTACH.
 *
 * A long transfer is carried out in pieces. A link therefore holds a region (target_attach) whose
 * opening was revoked until a DETACH, which clients send when nothing of theirs is under way, or its own
 * end.
 *
 * Not locked: the target does that.
 */
#ifndef RLV_TRANSPORT_OFI_PEERS_H
#define RLV_TRANSPORT_OFI_PEERS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/os/process.h"

#include "transport/attach/target.h"
#include "transport/ofi/carry.h"
#include "transport/ofi/port.h"

#define OFI_PEERS_MAX 1024 /* links */
#define OFI_PORT (OFI_PEERS_MAX + 64)
#define OFI_UNPROVED_MAX 128 /* of them, without a good grant so far */
#define OFI_PROOF_S 30       /* time for it */
#define OFI_LOOK_S 2         /* between two looks at that time */
#define OFI_FENCED_MAX 4096  /* fenced clients to refuse: the latest ones */

struct ofi_peer {
	struct ofi_peers *all;
	uint32_t slot; /* in all->slots */
	int sock;
	bool greeted, proved;
	bool blocked;  /* answers wait until the connection takes more */
	bool restless; /* its port must be driven again */
	bool holds;    /* answers that may wait */
	uint64_t client_id, number;
	uint64_t deadline;    /* of the proof */
	struct ofi_port port; /* open if port.calls */
	uint8_t name[OFI_ENDPOINT_BYTES];
	uint32_t name_bytes;
	struct ofi_openings openings;
	struct ofi_carry carry;
};

struct ofi_peers {
	struct target *target;             /* borrowed */
	char provider[OFI_PROVIDER_BYTES]; /* of the ports; empty: there are none */
	uint8_t boot_id[PROCESS_BOOT_ID_BYTES];
	int ring; /* epoll of connections, by slot, and of ports, OFI_PORT + slot; borrowed */
	int bell; /* eventfd that wakes who drives the ports; borrowed */
	struct ofi_peer *slots[OFI_PEERS_MAX];
	uint32_t n, n_unproved, n_keys;
	uint32_t n_blind;    /* ports without a descriptor */
	uint32_t n_restless; /* peers */
	uint32_t n_holding;  /* peers */
	uint64_t attaches, lists, sends;
	uint64_t fenced[OFI_FENCED_MAX];
	uint64_t n_fenced; /* total; fenced holds the latest */
};

/* Makes the table of links, whose descriptors ring watches. target: borrowed. -ENOMEM. */
RLV_MUST_CHECK int ofi_peers_open(struct target *target, const char *provider, int ring,
				  struct ofi_peers **peers_out);

/*
 * Opens a port at a host of ours and closes it, to learn whether links can have one; a no-op without
 * a provider.
 */
RLV_MUST_CHECK int ofi_peers_try(struct ofi_peers *peers, const char *host);

/* Closes all links and frees peers. forked: a child only frees. NULL is a no-op. */
void ofi_peers_close(struct ofi_peers *peers, bool forked);

/* Takes over an accepted connection, or closes it: too many links. */
void ofi_peers_accept(struct ofi_peers *peers, int sock);

/* Serves the connection or the port that an event of ring names. Others are ignored. */
void ofi_peers_serve(struct ofi_peers *peers, uint32_t event);

/* Serves ports of which no event tells. True if one of them has more to do. */
bool ofi_peers_drive(struct ofi_peers *peers);

/* Sends all answers that wait. */
void ofi_peers_flush(struct ofi_peers *peers);

/* Closes links whose deadline for a proof has passed. */
void ofi_peers_look(struct ofi_peers *peers);

/*
 * Closes the links of a client and refuses it until OFI_FENCED_MAX others were fenced. Returns 1 if
 * it had any, or 0; or the error of one that could not be closed, which proves nothing.
 */
int ofi_peers_fence(struct ofi_peers *peers, uint64_t client_id);

bool ofi_peers_have(const struct ofi_peers *peers, uint64_t client_id);

/* Number of clients that have a link and that target_knows does not know. */
uint32_t ofi_peers_count_clients(const struct ofi_peers *peers);

/* Closes a client's keys of the region. */
void ofi_peers_revoke(struct ofi_peers *peers, uint64_t client_id, uint32_t region);

#endif
