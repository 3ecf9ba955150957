/*
 * ofi.h - transport over libfabric, for hosts without RDMA cards (provider "tcp;ofi_rxm") and with
 * those that libfabric drives.
 *
 *   ofi:HOST:PORT          initiator -- libfabric ------------> target's memory
 *   ofi:HOST:PORT;PATH     the same; on the node's own host also a mapping, by its socket
 *
 *   link    the connection: TCP for messages, an endpoint for requests     post    work on it
 *   port    an endpoint of libfabric with all that it needs                order   what may pass what
 *
 *   ofi target ----+-- base: pool, regions, grants, local socket           (attach/target.h)
 *                  +-- listener: one TCP address
 *                  +-- peers: links of clients, with a port each           (peers.h)
 *                  +-- agent: the thread that drives all ports             (agent.h)
 *
 * A node is not passive here: libfabric's providers over TCP carry out a peer's requests only while
 * somebody drives its endpoint. The agent does, and sleeps while nobody calls. It alone changes the
 * words of a region (ATOMIC_DOMAIN_AGENT): clients on the node's host map regions for reads and bulk
 * writes, and their atomics come through libfabric like everybody's.
 *
 * Proof of a fence: every link has an endpoint of its own, and its keys are good there only. The
 * endpoint, with all connections to it, is closed by a thread that holds the lock of the agent, so
 * nothing is under way in libfabric, and afterwards nothing can be. A client whose endpoint was
 * closed is not let in again.
 *
 * Data and keys travel in clear, and libfabric trusts what comes to its endpoints: for networks
 * whose hosts are all trusted.
 */
#ifndef RLV_TRANSPORT_OFI_OFI_H
#define RLV_TRANSPORT_OFI_OFI_H

#include "transport/transport.h"

/*
 * Connects to a node. rest: the URI after the scheme. Returns within opts->open_ns. Errors: those
 * of ofi_link_open (transport/ofi/link.h), -EINVAL (rest).
 */
RLV_MUST_CHECK int ofi_open(const char *rest, const struct transport_opts *opts,
			    struct transport **tr_out);

/*
 * Makes a target of kind ofi. RLV_OFI_PROVIDER names the provider of libfabric that it and its
 * clients use (default "tcp;ofi_rxm"). opts: clock set. -ENOTSUP (no libfabric); other errors are
 * those of transport_target_open.
 */
RLV_MUST_CHECK int ofi_target_open(const struct target_opts *opts,
				   struct transport_target **tg_out);

/* transport_target_check: libfabric is there, with the provider. */
RLV_MUST_CHECK int ofi_target_check(void);

#endif
