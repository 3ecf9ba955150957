/*
 * verbs.h - transport over RDMA.
 *
 *   verbs:HOST:PORT          initiator -- queue pairs ------------> target's memory
 *   verbs:HOST:PORT;PATH     the same; on the node's own host also a mapping, by its socket
 *
 *   link    the connection: queue pairs made by rdma_cm      post    work on it: batches, lists
 *   device  what transports of the process share             work    what is outstanding
 *
 * On the node's own host regions are mapped through an inner shm transport with the same grant:
 * plain reads and writes go there. Every CAS and FAA goes through the device all the same, because
 * its atomics are atomic only among themselves; in a chain, so does all that must follow one.
 */
#ifndef RLV_TRANSPORT_VERBS_VERBS_H
#define RLV_TRANSPORT_VERBS_VERBS_H

#include "transport/transport.h"

/*
 * rest: what follows the scheme. Ends within opts->timeout_ns. Errors: those of link_open
 * (transport/verbs/link.h). In the environment, RLV_VERBS_QPS and RLV_VERBS_DEPTH say how many queue
 * pairs, and how deep; RLV_VERBS_ACK_TIMEOUT, when a try of a silent peer ends: after 4.096 us << it.
 */
RLV_MUST_CHECK int verbs_open(const char *rest, const struct transport_opts *opts,
			      struct transport **tr_out);

#endif
