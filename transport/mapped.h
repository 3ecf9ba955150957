/*
 * mapped.h - a transport over a wire that also maps the regions of a node on this host.
 *
 *   read, write, persist        ->  the mapping, by the node's socket
 *   CAS, FAA                    ->  the wire, whose atomics are atomic only among themselves
 *   a chain                     ->  the mapping while order allows; from the first operation
 *                                   that must follow an atomic, the wire
 *
 * Regions belong to the wire transport; their base is set. Used only within transport/.
 */
#ifndef RLV_TRANSPORT_MAPPED_H
#define RLV_TRANSPORT_MAPPED_H

#include "transport/transport.h"

/*
 * Returns a transport over wire, which it owns, that also maps the node's regions through its
 * socket; wire itself if the node is on another host or its socket cannot be reached. wire has
 * attached nothing yet. socket: the node's, as the wire knows it, "" = none; boot_id: of its host.
 * opts: the options that wire was opened with.
 */
struct transport *mapped_over(struct transport *wire, const char *socket, const uint8_t boot_id[16],
			      const struct transport_opts *opts);

#endif
