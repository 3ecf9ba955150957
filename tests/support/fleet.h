/*
 * fleet.h - a catalog over memory nodes within the test (memory_node.h), under a clock of the test's
 * own. Nothing runs by itself but the nodes' threads.
 */
#ifndef RLV_TESTS_SUPPORT_FLEET_H
#define RLV_TESTS_SUPPORT_FLEET_H

#include "tests/support/fake_clock.h"
#include "tests/support/memory_node.h"

#include "server/catalog.h"

#define FLEET_NODES 3
#define FLEET_RAMP_NS (4 * (uint64_t)CLOCK_NS_PER_S)
#define FLEET_PATIENCE_NS (10 * (uint64_t)CLOCK_NS_PER_S)

struct fleet {
	struct fake_clock clock;
	struct store *store;
	struct event_base *base;
	struct nodes nodes;
	struct catalog cat;
	struct memory_node mem[FLEET_NODES];
	struct node *node[FLEET_NODES]; /* of them, once it has joined */
	struct catalog_table *table;    /* that the test looks at */
	bool all_know;                  /* clients have taken up whatever they are to know */
	uint64_t asked;                 /* layout that they were to know last */
	uint32_t progress;              /* how often something may go on */
	bool hasty; /* fleet_claim leaves attaching and freeing to fleet_settle */
};

/* An empty store, without nodes. Fails the test on any error, as all of these do. */
int fleet_setup(void **state);
int fleet_teardown(void **state);

/* Makes node n, named so, and lets it register. */
void fleet_start(struct fleet *fx, uint32_t n);
/* The same with a pool on a file. */
void fleet_start_on_file(struct fleet *fx, uint32_t n);
/* It registers, once more. */
void fleet_join(struct fleet *fx, uint32_t n);
/* The same by a person's word (enum Relive__PoolClaim): what catalog_admit answers. */
int fleet_claim(struct fleet *fx, uint32_t n, uint32_t claim);
/* Its connection ends, and is seen to have. */
void fleet_go_down(struct fleet *fx, uint32_t n);

/* The server's part begins anew, on the store as it is; nobody has registered yet. */
void fleet_load(struct fleet *fx);

/* Nodes answer in real time: waits for all that they owe, and delivers it. */
void fleet_settle(struct fleet *fx);
/* Some time later the catalog looks after its tables, until nodes have nothing more to do for it. */
void fleet_tick(struct fleet *fx, uint64_t ns);

/* A small table "t" of one view. */
struct catalog_wish fleet_wish(uint32_t n_shards, bool auto_shards);
void fleet_make_table(struct fleet *fx, uint32_t n_shards, bool auto_shards);

/* To the end, however long nodes take. */
int fleet_create(struct fleet *fx, const struct catalog_wish *wish,
		 struct catalog_table **table_out);
int fleet_add_shard(struct fleet *fx, uint32_t n);

/* Rights on a shard of it, when its node has answered. */
int fleet_grant(struct fleet *fx, uint32_t s, const struct catalog_guest *guest,
		struct catalog_grants *out);

/* What clients are told of a shard of it. */
uint32_t fleet_view(struct fleet *fx, uint32_t s);

#endif
