/*
 * verbs.h - transport over RDMA.
 *
 *   verbs:HOST:PORT          initiator -- queue pairs ------------> target's memory
 *   verbs:HOST:PORT;PATH     the same; on the node's own host also a mapping, by its socket
 *
 *   link    the connection: queue pairs made by rdma_cm      post    work on it: batches, lists
 *   device  what transports of the process share
 *
 * On the node's own host its regions are mapped, too (transport/mapped.h): plain reads and writes go
 * there, and every CAS and FAA through the device.
 *
 *   verbs target --+-- base: pool, regions, grants, local socket            (attach/target.h)
 *                  +-- listener: one rdma_cm address, one device           (listen.h)
 *                  +-- peers: links of clients, their queue pairs          (peers.h)
 *                        +-- rights: what is open to which queue pair      (rights.h)
 *
 * This host's processor sees no data operation, only connections and ATTACH messages. A client on
 * this host also maps the regions, through the socket of the base, to read and to write rows;
 * its atomics come through the device like everybody's.
 *
 * Proof of a fence: the client's queue pairs are destroyed, and its mappings here are the
 * base's to judge. A client whose queue pairs were cut is not let in again.
 */
#ifndef RLV_TRANSPORT_VERBS_VERBS_H
#define RLV_TRANSPORT_VERBS_VERBS_H

#include "transport/transport.h"

/*
 * Connects to a node. rest: the URI after the scheme. Returns within opts->open_ns. Errors: those
 * of link_open (transport/verbs/link.h), -EINVAL (rest, environment). The environment sets the
 * number of queue pairs (RLV_VERBS_QPS), the depth of their send queues (RLV_VERBS_DEPTH) and the
 * time of one try to reach a silent peer (RLV_VERBS_ACK_TIMEOUT: 4.096 us << it).
 */
RLV_MUST_CHECK int verbs_open(const char *rest, const struct transport_opts *opts,
			      struct transport **tr_out);

/*
 * Makes a target of kind verbs; its listen chooses the device. opts: clock set. -ENOTSUP (no
 * rdma-core); other errors are those of transport_target_open.
 */
RLV_MUST_CHECK int verbs_target_open(const struct target_opts *opts,
				     struct transport_target **tg_out);

/* transport_target_check: rdma-core is there, and a device that this process may open. */
RLV_MUST_CHECK int verbs_target_check(void);

#endif
