/*
 * Part set: the parts of one object, of any kind, that one user has open while memory nodes come and
 * go, with the connections to their nodes. Each handle has its own, because a transport belongs to one
 * thread.
 *
 *   parts[p]    open, or NULL: then statuses[p].state says why
 *   states[p]   what the user keeps of an open part: made and ended by its hooks
 *
 *   ACTIVE, DRAINING --- its connection ended, or its memory was orphaned ---> DOWN or LOST, closed
 *          ^                                                                      |
 *          +---- the server grants it anew: connected, opened, attached ----------+
 *
 * Nothing here runs in a thread of its own. A call that meets a dead connection drops the node's
 * parts (part_set_drop) and goes on; while parts are unreachable, or the server has announced a newer
 * layout, calls ask it (part_set_heal), at most once per back-off time.
 */
#ifndef RLV_CLIENT_PART_PART_SET_H
#define RLV_CLIENT_PART_PART_SET_H

#include "client/meta/meta.h"

#include "ds/part/part.h"

/* A kind of object, as a client opens it. */
struct part_kind {
	const char *object, *part; /* words of messages: "table", "shard" */
	uint32_t max_parts;
	bool has_control; /* one of the parts has duties beside its own: the set asks until it has it */
	/* Opens part p of the object with that descriptor, over its regions, which the part owns
	   then; after an error the caller does. */
	int (*open)(const void *desc, uint32_t p, const struct part_regions *regions,
		    struct part **part_out);
	void (*close)(struct part *part);
};

/* Hooks of the user of a set. All may be NULL. */
struct part_hooks {
	/* Makes the state of open part p; it may leave it NULL. returned: the part was away and
	   came back; then after an error it is closed again. */
	int (*attach)(void *ctx, uint32_t p, bool returned, void **state_out);
	/* Ends the state of part p, which is not NULL, before the part is closed. If the part is
	   addressable, its memory can still be read. */
	void (*detach)(void *ctx, uint32_t p, void *state);
	/* Called by part_set_enter after the open parts, the control part or the slot changed;
	   after an error by the next one again. */
	int (*moved)(void *ctx);
};

struct part_node {
	char uri[META_NODE_URI_BYTES];
	struct transport *tr; /* NULL = not connected */
	uint64_t link;        /* of the last connection; the next one replaces it */
	uint32_t failed;      /* number of the request after which connecting failed */
};

/* State of a part, open or not. */
struct part_status {
	uint32_t state; /* enum rlv_shard_state as this user sees it */
	uint32_t weight;
	uint64_t weight_ns; /* time of that weight */
	uint64_t ramp_ns;
	uint64_t incarnation;
	uint64_t opened; /* the set's version then */
	uint32_t node;   /* index in nodes, where it is or was last; n_nodes and above = unknown */
	bool granted;    /* the server reaches it */
	char name[RLV_NAME_BYTES];
};

/*
 * Parts that a call looks at, [first, end): all where they are few. Of many a call takes PART_LOOKS in
 * turn, since a word of each is a cache line of each, but all when the turn has taken PART_TURN_NS.
 */
#define PART_FEW 8u
#define PART_LOOKS 2u
#define PART_TURN_NS (UINT64_C(1000) * 1000)

struct part_turn {
	uint32_t first, end;
	uint64_t began_ns; /* when it was at part 0 last */
};

/* part_turn_next of many parts. */
void part_turn_take(struct part_turn *turn, uint32_t n_parts, uint64_t now_ns);

/* Moves the turn on by one call, at that time; it is over when it has end == n_parts. */
static inline void part_turn_next(struct part_turn *turn, uint32_t n_parts, uint64_t now_ns)
{
	if (n_parts > PART_FEW)
		part_turn_take(turn, n_parts, now_ns);
	else
		*turn = (struct part_turn){ .end = n_parts };
}

struct part_set {
	struct meta *meta;
	struct meta_object object;
	const struct part_kind *kind;
	const void *desc;          /* of the object, as the kind knows it */
	struct meta_access access; /* the grants wanted */
	const struct clock *clock;
	const struct part_hooks *hooks; /* NULL = none */
	void *ctx;
	uint32_t n_nodes, n_parts;
	uint32_t n_up;           /* parts that are open */
	uint32_t n_away;         /* DOWN: may come back */
	struct part_node *nodes; /* one for each memory node */
	struct part **parts;     /* NULL = not open */
	void **states;           /* NULL = not attached */
	struct part_status *statuses;
	struct part_turn turn; /* of part_set_enter, which looks at parts */
	uint64_t now_ns;       /* time of the last part_set_enter, if the parts are many */
	uint32_t control;      /* part that keeps the words shared by all parts */
	uint64_t layout;       /* taken up */
	uint64_t version;      /* rises with each change of all that */
	uint64_t told;         /* version that `moved` was last called for */
	uint64_t lost;         /* parts that became unreachable */
	uint64_t ask_ns;       /* earliest time of the next request */
	uint64_t asked_ns;     /* time of the last request */
	uint32_t asked;        /* requests in a row that left parts missing */
	uint32_t questions;
	uint64_t deadline_ns;        /* deadline of the call in progress */
	int64_t patience_ns;         /* longest wait for the server, or for one connection */
	struct transport_stats past; /* of connections that were closed */
};

/*
 * Connects to every node of the object and opens its parts, without states; those that cannot be
 * reached are DOWN, with a warning in the log. -EHOSTDOWN if none can; -ENOMEM, -EPROTO, -EBADMSG,
 * ..: a node's answer or regions are wrong. *like gives meta, object, kind, desc, access, hooks,
 * ctx. place is borrowed until return, desc until close. Cost: control plane.
 */
RLV_MUST_CHECK int part_set_open(const struct part_set *like, const struct meta_place *place,
				 uint64_t deadline_ns, struct part_set *out);
/* Closes all parts and connections and zeroes *set; end the states before, by part_set_detach. */
void part_set_close(struct part_set *set);

/* Calls the attach hook for each open part without a state; returns its first error. */
RLV_MUST_CHECK int part_set_attach(struct part_set *set);

/* Ends all states by `end`, in place of the detach hook; the parts stay open. */
void part_set_detach(struct part_set *set, void (*end)(void *ctx, uint32_t p, void *state));

/* Starts a call: sets its deadline, for the connections too, and the longest wait for one
   request to the server or for connecting to one node. */
void part_set_begin(struct part_set *set, uint64_t deadline_ns, int64_t patience_ns);

/*
 * Enters a call: closes broken connections and parts, asks the server for the placement when that
 * is due, and calls `moved` after changes. -ECHILD in a forked child, -ESTALE: the object was
 * dropped, -EHOSTDOWN: no part can be reached; errors of `moved`. Of many parts it looks at some in
 * turn (part_turn): a lost one is found by the next call after 2 ms, or after as many calls as that
 * takes. Cost while nothing changes: one load for each connection, and for each addressable part that it
 * looks at.
 */
RLV_MUST_CHECK int part_set_enter(struct part_set *set);

/* True if part_set_enter has nothing to do; false also if it takes longer to find out: of many parts, or
   some that are not addressable. */
bool part_set_is_quiet(const struct part_set *set);

/*
 * Longest wait in ns for the next request to the server or for connecting to the next node: half of
 * the time that the call has left, at least 20 ms or (patience_ns above 250 ms) 250 ms, at most
 * patience_ns.
 */
int64_t part_set_patience(const struct part_set *set);

/*
 * 0 if the regions of the open parts can be accessed. -ECHILD in a forked child, -ESTALE: the
 * object was dropped, -EHOSTDOWN: the memory of some part was orphaned, a connection has ended, or
 * nothing is open. Cost: one load for each part that is addressable.
 */
RLV_MUST_CHECK int part_set_check(const struct part_set *set);

/* True if the connection of an open part has ended, or its memory is orphaned. */
bool part_set_has_broken(const struct part_set *set);

/* Closes each part whose connection has ended (it is DOWN then) or whose memory is orphaned
   (LOST), and connections without parts; returns the number of parts. */
uint32_t part_set_drop(struct part_set *set);

/* True if parts are missing or a newer layout is known, and the pause since the last request to
   the server is over. Cost: one load, and the clock if parts are missing or the layout is old. */
bool part_set_is_due(const struct part_set *set);

/*
 * Asks the server for the placement and applies it: closes lost parts, opens those that are granted
 * anew. The request and each connection wait for part_set_patience at most. -ESTALE: the object was
 * dropped; -ECHILD; any other failure gives 0, and the server is asked again later.
 */
RLV_MUST_CHECK int part_set_heal(struct part_set *set);

/*
 * Moves the set to the slot `owner`: asks for new grants and attaches the slot's pages in place of
 * the old ones in open parts. A part whose page is not granted is closed: DOWN. After an error a
 * part may still have the old page.
 */
RLV_MUST_CHECK int part_set_move(struct part_set *set, uint32_t owner);

/* Current share of new data of a part: 0 (not open and ACTIVE) to META_WEIGHT_FULL; that of a
   new part rises with time. */
uint32_t part_set_weight(const struct part_set *set, uint32_t p, uint64_t now_ns);

static inline bool part_set_has_control(const struct part_set *set)
{
	return set->control < set->n_parts && set->parts[set->control];
}

/* True if the part is DOWN or LOST: it holds data that cannot be reached now. */
static inline bool part_set_is_away(const struct part_set *set, uint32_t p)
{
	return set->statuses[p].state == RLV_SHARD_DOWN || set->statuses[p].state == RLV_SHARD_LOST;
}

/* True if the memory of all open parts can be accessed in place. */
bool part_set_is_addressable(const struct part_set *set);

/* True in a child that was forked after a connection was made. */
bool part_set_is_forked(const struct part_set *set);

/* Sets *out to the sum of the counters of all connections, closed ones too. In-place connections
   count only CASes that failed and atomics without a known result. */
void part_set_stats(const struct part_set *set, struct transport_stats *out);

#endif
