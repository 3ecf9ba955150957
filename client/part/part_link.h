/*
 * part_link.h - private to client/part/: single parts of a set, and the connections to their nodes.
 */
#ifndef RLV_CLIENT_PART_PART_LINK_H
#define RLV_CLIENT_PART_PART_LINK_H

#include "client/part/part_set.h"

/* Makes room for parts of numbers below n_parts. -ENOMEM, -EPROTO (too many). */
RLV_MUST_CHECK int part_link_grow(struct part_set *set, uint32_t n_parts);

/* The index of the node at that address, which need not be connected. -ENOMEM. */
RLV_MUST_CHECK int part_link_node_of(struct part_set *set, const char *uri, uint32_t *node_out);

/* Connects to the node if needed and opens a closed part, without a state. */
RLV_MUST_CHECK int part_link_open(struct part_set *set, uint32_t p, const struct meta_part *place);

/* Attaches the page of the set's slot in an open part. */
RLV_MUST_CHECK int part_link_take_page(struct part_set *set, uint32_t p,
				       const struct meta_part *place);

/* Closes an open part, whose state has ended, and its connection if no other part uses it. */
void part_link_close(struct part_set *set, uint32_t p);

/* Closes all parts and connections, and frees the room. */
void part_link_close_all(struct part_set *set);

#endif
