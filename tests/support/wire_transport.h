/*
 * wire_transport.h - a transport as one over a wire, over any other: regions have no address here,
 * views are copies, and a posted chain is done later: by the next call that comes after it.
 */
#ifndef RLV_TESTS_SUPPORT_WIRE_TRANSPORT_H
#define RLV_TESTS_SUPPORT_WIRE_TRANSPORT_H

#include "transport/transport.h"

/*
 * Takes inner over. Regions must be attached through the new one. Fails the test, never returns
 * NULL.
 */
struct transport *wire_wrap(struct transport *inner);

#endif
