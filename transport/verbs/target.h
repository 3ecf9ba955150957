/*
 * target.h - a memory node's regions, open to RDMA.
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
#ifndef RLV_TRANSPORT_VERBS_TARGET_H
#define RLV_TRANSPORT_VERBS_TARGET_H

#include "transport/transport.h"

/* opts: complete. listen chooses the device. -ENOTSUP (no rdma-core). */
RLV_MUST_CHECK int verbs_target_open(const struct target_opts *opts,
				     struct transport_target **tg_out);

#endif
