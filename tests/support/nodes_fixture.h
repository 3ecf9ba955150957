/*
 * nodes_fixture.h - a store over several memory nodes in this process, each of which can be cut off,
 * come back, be lost or drained. The server is this fixture: its own connections never fail.
 *
 * Clients reach a node in place, or over a transport as over a wire (wire_transport.h), and always
 * through one that can be cut (transport/fault). A node holds every n-th shard.
 */
#ifndef RLV_TESTS_SUPPORT_NODES_FIXTURE_H
#define RLV_TESTS_SUPPORT_NODES_FIXTURE_H

#include "client/handle.h"
#include "client/store.h"

#include "tests/support/fake_clock.h"
#include "tests/support/replay_fixture.h"

#define NODES_MAX 4
#define NODES_SHARDS 8

enum nodes_reach { NODES_IN_PLACE, NODES_WIRE };

struct nodes_link; /* one client's connection to one node */

struct nodes_node {
	struct transport_target *target;
	struct transport *tr; /* the server's */
	bool reachable;
	bool mute;
	uint64_t link, replaced; /* of the last connection, by the client's handles together */
};

struct nodes_fixture {
	struct replay_fixture fx; /* store, table, oracle: for replay_* */
	struct meta meta;         /* in place of the store's own, which is kept in: */
	struct meta *own;
	enum nodes_reach reach;
	uint32_t n_nodes, n_shards;
	struct nodes_node nodes[NODES_MAX];
	struct table_desc desc;
	struct shard *shards[NODES_SHARDS]; /* the server's */
	uint32_t states[NODES_SHARDS];
	uint32_t weights[NODES_SHARDS];
	uint64_t ramp_ns;
	uint32_t control;
	uint64_t layout;
	uint64_t lease; /* of new slots */
	struct nodes_link *links;
	uint64_t refreshes;
	bool server_away; /* answers nobody */
	bool server_mute; /* nor says so */
	bool dropped;     /* there is no such table any more */
	uint64_t opens;
	bool back_at_put;        /* all nodes are reachable again when a slot is put back */
	uint64_t back_at;        /* all nodes are reachable again at this one; 0 = no such */
	struct fake_clock clock; /* of handles that nodes_time was told of */
	bool timed;
	uint64_t unanswered; /* operations, connections and questions */
};

struct nodes_opts {
	uint32_t nodes; /* 0 = 3 */
	enum nodes_reach reach;
	struct rlv_table_opts table; /* as replay_open; shards 0 = one for each node */
};

/* Opens the table "t". Fails the test on any error. */
void nodes_open(struct nodes_fixture *nx, const struct nodes_opts *opts);
/* Verifies the shards that can be reached, then closes all. */
void nodes_close(struct nodes_fixture *nx);

/* Every connection to the node ends at its n-th call from now (1 = the next); no new one comes. */
void nodes_cut(struct nodes_fixture *nx, uint32_t node, uint64_t n);
/* The n-th call from now over each of its connections fails, and the connection stays. */
void nodes_fail(struct nodes_fixture *nx, uint32_t node, uint64_t n);
/* It can be connected to again; its memory is as it was. */
void nodes_return(struct nodes_fixture *nx, uint32_t node);
/* The handle lives by the fixture's clock: it moves when it is looked at, and while nobody answers. */
void nodes_time(struct nodes_fixture *nx, struct handle *h);
/* Nothing is answered from it any more: whatever is asked takes all of its time. After nodes_time. */
void nodes_mute(struct nodes_fixture *nx, uint32_t node);

/* It is cut, and the server gives its shards up: what is mapped of them says so. */
void nodes_lose(struct nodes_fixture *nx, uint32_t node);

/* The server names another control shard, and carries the counts over. */
void nodes_move_control(struct nodes_fixture *nx, uint32_t shard);

/* The server says something else of a shard. */
void nodes_set(struct nodes_fixture *nx, uint32_t shard, uint32_t state, uint32_t weight);

/* The server proves that everybody with a slot is dead: slots are settled, leases are new. */
void nodes_fence_all(struct nodes_fixture *nx);

/* Live items of a view in one shard, by a walk over its leaves; fails if its sums are wrong. */
uint64_t nodes_items(struct nodes_fixture *nx, uint32_t shard, uint32_t view);

#endif
