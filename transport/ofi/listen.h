/*
 * listen.h - the TCP address at which a target accepts links.
 */
#ifndef RLV_TRANSPORT_OFI_LISTEN_H
#define RLV_TRANSPORT_OFI_LISTEN_H

#include "transport/attach/address.h"

/*
 * Listens at *address (empty host: at every address, port 0: any), and replaces both by what clients
 * use: with an empty host the first address of this host that other hosts reach, else one of the
 * loopback. *sock_out does not block. -ENOENT (no such host), -EADDRINUSE, -EADDRNOTAVAIL. The
 * system resolves host names, with time limits of its own.
 */
RLV_MUST_CHECK int ofi_listen_open(struct node_address *address, int *sock_out);

#endif
