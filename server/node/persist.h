/*
 * Persist: makes the contents of all nodes durable for clients that wait, without blocking the
 * event loop.
 *
 * Each request starts its own round over all nodes that are up; a node works on one at a time. A
 * node that is down, or goes down during the round, fails it: its contents may not be durable.
 */
#ifndef RLV_SERVER_NODE_PERSIST_H
#define RLV_SERVER_NODE_PERSIST_H

#include "server/net/conns.h"
#include "server/node/nodes.h"

struct persist_round;

struct persist {
	struct nodes *nodes;
	struct persist_round *first;
};

/* Asks all nodes, but lost ones, to make their pools durable. Answers the request of conn when all
   have answered: with 0 or the first error, -EHOSTDOWN for a node that is down. */
void persist_begin(struct persist *persist, struct conn *conn, const struct frame_header *head);

/* Run when conn closes: its rounds go on without an answer. */
void persist_forget(struct persist *persist, const struct conn *conn);

void persist_fini(struct persist *persist);

#endif
