/*
 * Choice: the transport by which a memory node serves its clients, and the reason in words.
 *
 *   --transport given              that one
 *   auto, clients of this host     shm: memfds
 *   auto, clients of other hosts   verbs if this host has an RDMA device, else ofi
 *
 * Clients of other hosts are expected if the server is on another host, or --listen is given. Over
 * a wire, clients of this host map the memory, too.
 */
#ifndef RLV_SERVER_MEMNODE_CHOICE_H
#define RLV_SERVER_MEMNODE_CHOICE_H

#include "server/memnode/memnode.h"

#define CHOICE_WHY_BYTES 96
#define CHOICE_LISTEN_BYTES 280 /* HOST:PORT */

struct memnode_choice {
	const char *kind; /* of the target; static */
	char why[CHOICE_WHY_BYTES];
};

/*
 * Writes to listen_out the address to listen on, by opts->listen, interface and ports; "" if none is
 * given. Sets the environment of libfabric by provider and ports. -EINVAL: interface and a host are
 * given; -ENODEV: no such interface, or it has no address; -EADDRINUSE: no port is free. Thread:
 * setup, before others.
 */
RLV_MUST_CHECK int memnode_take_network(const struct memnode_opts *opts,
					char listen_out[CHOICE_LISTEN_BYTES]);

/*
 * Chooses by opts->transport, opts->listen and the server's host. -EINVAL: an unknown transport, or
 * shm with an address; -ENODEV: other hosts are to reach the node, and there is no RDMA device and
 * not the provider of libfabric that was named. Thread: setup.
 */
RLV_MUST_CHECK int memnode_choose(const struct memnode_opts *opts,
				  struct memnode_choice *choice_out);

#endif
