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

/* The next work request of this kind, or one of those after it, on a queue pair that connected. */
struct fake_fault {
	bool armed;
	enum ibv_wr_opcode opcode;
	uint32_t skip; /* so many succeed before */
	enum ibv_wc_status status;
	bool done; /* it has its effect all the same */
};

/* A work request of a queue pair that connected, as it was posted. */
struct fake_sent {
	uint32_t qp; /* 0 = the first that connected, .. */
	enum ibv_wr_opcode opcode;
	unsigned flags;
	uint32_t bytes;
	uint32_t doorbell; /* of which ibv_post_send */
	uint64_t remote, local;
};

struct fake_verbs {
	/* What the device has: set before it is used. */
	uint32_t reads;       /* in flight from one queue pair */
	uint32_t wrs;         /* in a send queue */
	uint32_t completions; /* in a completion queue */
	uint32_t inline_bytes;
	bool no_atomics, no_windows, no_parent_domains;

	/* Set at any time. */
	void (*idle)(void *ctx);
	void *idle_ctx;
	bool slow_pins;      /* (un)registering memory takes long: others work meanwhile */
	bool hold;           /* it takes work and does not begin it */
	uint32_t hold_first; /* only on the first so many queue pairs that connected */
	bool hold_passive;   /* the same for queue pairs that accepted */
	bool lose_goodbyes;  /* that one end of a connection is gone, the other does not hear */
	bool backwards;      /* it serves queue pairs in the other order */
	bool overrun;        /* a completion queue has overrun: polling it fails */
	uint32_t post_room; /* + 1: work requests that ibv_post_send takes before it fails; 0 = off */
	uint32_t fail_call; /* the n-th call from now fails; 0 = off */
	bool fail_fired;
	struct fake_fault fault;

	/* What connected queue pairs were asked: doorbells are calls of ibv_post_send. */
	uint32_t doorbells, n_sent;
	struct fake_sent sent[FAKE_SENT]; /* the first so many */
	uint32_t most_outstanding;        /* on one queue pair, as its owner can know */
	uint32_t broken_rules;          /* 0, or the caller is at fault: fake_verbs_rule says how */
	struct rdma_conn_param connect; /* the last one's; its private data is gone */
	uint8_t ack_timeout;            /* of the last one that set it */
	uint32_t connected;             /* queue pairs, ever */
	uint32_t room;                  /* of all of their send queues that are there now */
	uint32_t destroyed;             /* of them */
	uint32_t forks;                 /* ibv_fork_init */
};

extern struct fake_verbs fake_verbs;

/* A new device, as good as they come, instead of rdma-core. */
void fake_verbs_begin(void);

/* The end of a test: fails it when anything is left, or a rule was broken. */
void fake_verbs_end(void);

/* Objects that exist now: queue pairs, registrations, ids, events .. */
uint32_t fake_verbs_live(void);

/* The first rule that was broken, or NULL. */
const char *fake_verbs_rule(void);

/* What happens to every queue pair that connected: the event comes to its id, and unless
   DEVICE_REMOVAL, its outstanding work is flushed. */
void fake_verbs_event(enum rdma_cm_event_type type);

/* Forgets what was asked so far. */
void fake_verbs_forget(void);

/* How many of what was asked are of this kind, and have this flag (0 = any). */
uint32_t fake_verbs_count(enum ibv_wr_opcode opcode, unsigned flag);

#endif
