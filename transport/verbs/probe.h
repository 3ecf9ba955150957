/*
 * probe.h - detects links whose peer is gone without a disconnect.
 *
 * A client says goodbye with one message, and nobody hears it while the network is down. Its queue
 * pairs on this side would then wait for ever, since it is the client that does all the asking. So
 * now and then each link is asked for nothing: an RDMA WRITE of no bytes, which needs neither
 * memory nor a receive there. The client's device acknowledges it, whatever its process does, or
 * else the completion says that the link is dead.
 *
 * Not locked: the target does that.
 */
#ifndef RLV_TRANSPORT_VERBS_PROBE_H
#define RLV_TRANSPORT_VERBS_PROBE_H

#include "transport/verbs/peer.h"

#include "base/os/clock.h"

#define PROBE_NS (5 * CLOCK_NS_PER_S)        /* between two probes of a link */
#define PROBE_LIMIT_NS (60 * CLOCK_NS_PER_S) /* a device that retries longer is dead */

/*
 * Probes a complete link if PROBE_NS have passed. -ECONNRESET: no answer within PROBE_LIMIT_NS.
 * Cost: a packet for each queue pair.
 */
RLV_MUST_CHECK int probe_link(struct peer *peer, uint64_t now_ns);

#endif
