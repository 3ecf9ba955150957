/*
 * ofi.h - transport over TCP, for hosts without RDMA cards; long READs may go through a provider of
 * libfabric (OFI).
 *
 *   ofi:HOST:PORT          initiator -- lists over TCP -------> target's agent -> memory
 *                                    -- libfabric ------------> memory
 *   ofi:HOST:PORT;PATH     the same; on the node's own host also a mapping, by its socket
 *
 *   link    the connection: messages and lists, with a provider a port     post    work on it
 *   port    an endpoint of libfabric with all that it needs                far     READs through it
 *
 *   ofi target ----+-- base: pool, regions, grants, local socket           (attach/target.h)
 *                  +-- listener: one TCP address
 *                  +-- peers: links of clients                             (peers.h)
 *                  |     +-- carry: carries out lists                      (carry.h)
 *                  +-- agent: the thread that serves all links             (agent.h)
 *
 * A node is not passive here: its agent executes what clients ask for, and sleeps while nobody calls. It
 * alone changes the words of a region (ATOMIC_DOMAIN_AGENT): clients on the node's host map regions for
 * reads and bulk writes, and their atomics come over TCP like everybody's.
 *
 * Proof of a fence: the connection, and with a provider the link's endpoint, is closed by a thread that
 * holds the lock of the agent, so nothing of it is under way, and afterwards nothing can be. A client
 * whose link was closed so is not let in again.
 *
 * Data travels in clear, and libfabric trusts what comes to its endpoints: for networks whose hosts are
 * all trusted.
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
 * clients use for long READs, if any. opts: clock set. Errors are those of transport_target_open.
 */
RLV_MUST_CHECK int ofi_target_open(const struct target_opts *opts,
				   struct transport_target **tg_out);

/* transport_target_check: -ENOTSUP if a provider is named, and it or libfabric is missing. */
RLV_MUST_CHECK int ofi_target_check(void);

#endif
