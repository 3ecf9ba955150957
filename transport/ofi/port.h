/*
 * port.h - one endpoint of libfabric with all that it needs, of one link: an initiator's or the
 * target's end.
 *
 *   fabric - domain - completion queue - address vector - endpoint          registered memory
 *
 * Nothing is shared between ports, so a port belongs to one thread at a time, a key of memory is
 * good at one port only, and ending a port ends all that its peers have under way there.
 */
#ifndef RLV_TRANSPORT_OFI_PORT_H
#define RLV_TRANSPORT_OFI_PORT_H

#include <stdbool.h>

#include "transport/ofi/calls.h"

#include "wire/ofi_layout.h"

struct ofi_port {
	const struct ofi_calls *calls;
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_cq *cq;
	struct fid_av *av;
	struct fid_ep *ep;
	int fd; /* readable when fi_cq_read has work; -1: the provider cannot tell */
};

/* Where a port is opened. */
struct ofi_port_opts {
	const char *provider; /* as fi_info calls it: "tcp;ofi_rxm" */
	const char *host;     /* numeric: an address of this host (is_ours), or that of the peer */
	bool is_ours;
	bool sleeps; /* its owner wants to wait for port->fd */
};

/*
 * Opens a port, zeroed before. After an error it must be closed, too. -ENOTSUP: no module, no such
 * provider at that address, or one without one-sided operations.
 */
RLV_MUST_CHECK int ofi_port_open(const struct ofi_port_opts *opts, struct ofi_port *port);

/*
 * Closes the endpoint with all its connections. On 0 nothing that was sent to it lands any more, and
 * nothing that was sent from it reads or writes our memory; after an error that is not known.
 */
RLV_MUST_CHECK int ofi_port_end(struct ofi_port *port);

/* Ends the port, closes what is open, and zeroes *port. Memory is registered with it no more. */
RLV_MUST_CHECK int ofi_port_close(struct ofi_port *port);

/* The endpoint's name, for a peer's ofi_port_add. */
RLV_MUST_CHECK int ofi_port_name(const struct ofi_port *port, uint8_t name_out[OFI_ENDPOINT_BYTES],
				 uint32_t *bytes_out);
RLV_MUST_CHECK int ofi_port_add(const struct ofi_port *port, const uint8_t *name, uint32_t bytes,
				fi_addr_t *peer_out);

/*
 * Registers memory: for our own requests (key 0), or for a peer under that key, unless the provider
 * chooses keys. access: FI_READ .. *mr_out: fi_close ends it.
 */
RLV_MUST_CHECK int ofi_port_register(const struct ofi_port *port, const struct iovec *memory,
				     uint64_t access, uint64_t key, struct fid_mr **mr_out);

/*
 * Has libfabric carry out what has come to the port. False: there is more, or something comes; true:
 * port->fd says when. Where there is no descriptor, true.
 */
bool ofi_port_drive(const struct ofi_port *port);

/* True if the provider wants our own buffers registered, too. */
static inline bool ofi_port_is_local(const struct ofi_port *port)
{
	return (port->info->domain_attr->mr_mode & FI_MR_LOCAL) != 0;
}

/* Returns a negative errno for the negative result of a call of libfabric, with a message. */
int ofi_port_error(const struct ofi_port *port, const char *call, ssize_t result);

#endif
