/*
 * mapped.h - a transport over a wire that also maps its regions, where the node is on this host.
 *
 *   read, write, persist        ->  the mapping, by the node's socket
 *   CAS, FAA                    ->  the wire, whose atomics are atomic only among themselves
 *   a chain                     ->  the mapping as far as order allows; from the first operation
 *                                   that must follow an atomic on, the wire
 *
 * Regions are the wire's own, with an address. Within transport/ only.
 */
#ifndef RLV_TRANSPORT_MAPPED_H
#define RLV_TRANSPORT_MAPPED_H

#include "transport/transport.h"

/* The node's end, as the wire knows it: socket "" = none. */
struct mapped_node {
	const char *socket;
	const uint8_t *boot_id; /* 16 bytes, of its host */
};

/*
 * Takes wire over, which has attached nothing yet. Where the node is on another host, or its socket
 * cannot be reached, what it returns is wire. opts: those that wire was opened with.
 */
struct transport *mapped_over(struct transport *wire, const struct mapped_node *node,
			      const struct transport_opts *opts);

#endif
