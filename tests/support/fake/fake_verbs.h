/*
 * fake_verbs.h - rdma-core without RDMA: one device, whose queue pairs reach each other in this
 * process, behind struct verbs_calls. It keeps the rules that a device keeps (keys, rights,
 * protection domains, room in queues, order within a queue pair) and does on demand what no device
 * at hand does: fail in given ways, and lack what others have.
 *
 * Nothing runs by itself: the device works when somebody polls, and when there is nothing to be had,
 * `idle` is called, in which a test lets the target progress. One test at a time; calls are
 * serialized, so the ends may be in different threads.
 */
#ifndef RLV_TESTS_SUPPORT_FAKE_FAKE_VERBS_H
#define RLV_TESTS_SUPPORT_FAKE_FAKE_VERBS_H

#include <stdbool.h>
#include <stdint.h>

#include "transport/verbs/calls.h"

#define FAKE_SENT 1024

/* A fault in the next work request of this kind on a connected queue pair, or in a later one. */
struct fake_fault {
	bool armed;
	enum ibv_wr_opcode opcode;
	uint32_t skip; /* number of requests that succeed before */
	enum ibv_wc_status status;
	bool done; /* the failing request still has its effect */
};

/* A work request of a queue pair that connected, as it was posted. */
struct fake_sent {
	uint32_t qp; /* queue pair, numbered in order of connecting */
	enum ibv_wr_opcode opcode;
	unsigned flags;
	uint32_t bytes;
	uint32_t doorbell; /* of which ibv_post_send */
	uint64_t remote, local;
};

struct fake_verbs {
	/* Properties of the device: set before it is used. */
	uint32_t reads;       /* in flight from one queue pair */
	uint32_t wrs;         /* in a send queue */
	uint32_t completions; /* in a completion queue */
	uint32_t inline_bytes;
	bool no_atomics, no_windows, no_parent_domains;

	/* Set at any time. */
	void (*idle)(void *ctx);
	void *idle_ctx;
	bool slow_pins;      /* (un)registering memory takes long: others work meanwhile */
	bool hold;           /* the device accepts work and does not begin it */
	uint32_t hold_first; /* only on the first so many queue pairs that connected */
	bool hold_passive;   /* the same for queue pairs that accepted */
	bool lose_goodbyes;  /* the other end of a connection is not told that one end is gone */
	bool backwards;      /* the device serves queue pairs in the reverse order */
	bool overrun;        /* a completion queue has overrun: polling it fails */
	uint32_t post_room; /* + 1: work requests that ibv_post_send takes before it fails; 0 = off */
	uint32_t fail_call; /* the n-th call from now fails; 0 = off */
	bool fail_fired;
	struct fake_fault fault;

	/* Requests posted to connected queue pairs. Doorbells are calls of ibv_post_send. */
	uint32_t doorbells, n_sent;
	struct fake_sent sent[FAKE_SENT]; /* the first so many */
	uint32_t most_outstanding;        /* on one queue pair, as its owner can know */
	uint32_t broken_rules; /* broken rules of the device; fake_verbs_rule names the first */
	struct rdma_conn_param connect; /* of the last connect; its private data is freed */
	uint8_t ack_timeout;            /* of the last one that set it */
	uint32_t connected;             /* queue pairs, ever */
	uint32_t room;                  /* total depth of their send queues */
	uint32_t destroyed;             /* of them */
	uint32_t forks;                 /* ibv_fork_init */
};

extern struct fake_verbs fake_verbs;

/* Installs a new device without limitations in place of rdma-core. */
void fake_verbs_begin(void);

/* Ends a test: fails it if objects are left or a rule was broken. */
void fake_verbs_end(void);

/* Objects that exist now: queue pairs, registrations, ids, events .. */
uint32_t fake_verbs_live(void);

/* The first rule that was broken, or NULL. */
const char *fake_verbs_rule(void);

/*
 * Raises an event on every connected queue pair: its id gets the event and, except for
 * DEVICE_REMOVAL, its outstanding work is flushed.
 */
void fake_verbs_event(enum rdma_cm_event_type type);

/* Clears the record of posted requests. */
void fake_verbs_forget(void);

/* Number of recorded requests of this kind that have this flag (0 = any). */
uint32_t fake_verbs_count(enum ibv_wr_opcode opcode, unsigned flag);

#endif
