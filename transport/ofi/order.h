/*
 * order.h - which requests an endpoint of libfabric keeps in order, and which must be waited for.
 *
 * Requests are of five kinds. A small read or write travels as an atomic: the node's agent carries
 * it out whole, so that none of its words is torn, and in order with other atomics. A long one is a
 * read or write of memory, which may land in parts.
 *
 *   READ   long read       WRITE  long write
 *   FETCH  small read      PUT    small write      CHANGE  CAS or FAA
 */
#ifndef RLV_TRANSPORT_OFI_ORDER_H
#define RLV_TRANSPORT_OFI_ORDER_H

#include <stdbool.h>
#include <stdint.h>

#include "transport/ofi/port.h"

enum ofi_kind { OFI_READ, OFI_WRITE, OFI_FETCH, OFI_PUT, OFI_CHANGE, OFI_KINDS };

/* For each kind a mask, 1 << kind, of the earlier requests that one of it must wait for. */
struct ofi_order {
	uint8_t plain[OFI_KINDS];  /* in a chain (transport/transport.h) */
	uint8_t fenced[OFI_KINDS]; /* further, with its fence flag */
};

/*
 * Derives it from FI_ORDER_* (fi_endpoint(3)); messages_stay_behind: atomics are messages that
 * arrive after earlier writes.
 */
struct ofi_order ofi_order_of(uint64_t msg_order, bool messages_stay_behind);

#endif
