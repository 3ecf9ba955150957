/*
 * memory_node.h - a memory node within the test: a real pool behind a real socket, whose requests
 * are answered by the code of relive-memnode on a thread, without the daemon around it.
 */
#ifndef RLV_TESTS_SUPPORT_MEMORY_NODE_H
#define RLV_TESTS_SUPPORT_MEMORY_NODE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "tests/support/temp_dir.h"

#include "server/memnode_service.h"
#include "server/nodes.h"

struct memory_node {
	char name[16];
	char dir[TEMP_DIR_BYTES];
	char path[80]; /* of its pool; empty = memory */
	struct transport_target *target;
	struct channel channel; /* the node's end */
	pthread_t thread;
	bool serving;
	_Atomic bool stop;
	_Atomic bool hold;         /* it works on what it is asked next, for ever */
	_Atomic uint32_t requests; /* answered so far */
};

/* Makes its pool. Fails the test on any error, as all of these do. */
void memory_node_open(struct memory_node *mn, const char *name, uint64_t pool_bytes);
/* The same, with a pool that stays. */
void memory_node_open_file(struct memory_node *mn, const char *name, uint64_t pool_bytes);
/* Another life of it after a kill, not registered yet: on its file if it has one, else empty. */
void memory_node_restart(struct memory_node *mn);
/* The same after a clean end. */
void memory_node_end_and_restart(struct memory_node *mn);
/* Hangs up, if it is connected, and frees the pool. */
void memory_node_close(struct memory_node *mn);

/* What it says of itself. */
struct node_news memory_node_news(struct memory_node *mn);

/* Registers it. Its answers come from a thread from now on. */
struct node *memory_node_join(struct memory_node *mn, struct nodes *nodes, bool *replaced_out);
/* Ends its connection to the server; its pool stays. */
void memory_node_hang_up(struct memory_node *mn);

#endif
