/*
 * Persist: makes what all nodes hold durable, for clients that wait for it, without the loop
 * waiting.
 *
 * Every request begins a round of its own over all nodes that are up; a node works on one at a
 * time. A node that is down, or goes down meanwhile, fails the round: what it holds may not be
 * durable.
 */
#ifndef RLV_SERVER_NODE_PERSIST_H
#define RLV_SERVER_NODE_PERSIST_H

#include "server/net/conns.h"
#include "server/node/nodes.h"

struct persist_round;

struct persist {
	struct nodes *nodes;
	struct persist_round *first;
	uint64_t last_id;
};

/* Answers the request when all nodes have. */
void persist_begin(struct persist *persist, struct conn *conn, const struct frame_header *head);

/* The connection ends: nobody is to be answered there. */
void persist_forget(struct persist *persist, const struct conn *conn);

void persist_fini(struct persist *persist);

#endif
