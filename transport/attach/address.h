/*
 * address.h - "HOST:PORT[;SOCKET-PATH]": the address of a node over a wire.
 *
 * An IPv6 address stands in brackets.
 */
#ifndef RLV_TRANSPORT_ATTACH_ADDRESS_H
#define RLV_TRANSPORT_ATTACH_ADDRESS_H

#include "transport/transport.h"

struct node_address {
	char host[TRANSPORT_URI_BYTES]; /* without brackets; "" = none given */
	char port[8];                   /* decimal, 0 to 65535 */
	char path[TRANSPORT_URI_BYTES]; /* "" = none given */
};

/* Parses "HOST:PORT[;SOCKET-PATH]" into its parts. -EINVAL: malformed; the message says why. */
RLV_MUST_CHECK int node_address_parse(const char *text, struct node_address *address_out);

/* Formats an address, without a scheme. -ENAMETOOLONG: it needs more than room bytes. */
RLV_MUST_CHECK int node_address_format(const struct node_address *address, char *text_out,
				       size_t room);

#endif
