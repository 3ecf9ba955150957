/*
 * post.h - the work that an initiator has outstanding on its link.
 *
 *   call, chain ---> batch ---> work requests in the lanes' lists ---> one ibv_post_send a list
 *                      ^                                                        |
 *                      +------- retired: results and copies handed out <--- completion
 *
 *   lane     a queue pair's sending side: a ring of slots, one for each posted work request
 *   batch    what one call or chain has outstanding; tickets are consecutive and start at 1
 *   arena    a ring of registered bytes for copies; its oldest part is the oldest batch's
 *
 * Counters of lanes, arena and batches only rise; their low bits are the place. A call's operations
 * are spread over the lanes; chains go through lane 0, so that all of them together run in the
 * order in which they were posted. Only the last work request of a list, and one in a quarter of the
 * lane's depth, asks for a completion: it stands for those before it in its lane.
 *
 * Local memory: registered memory, as requests name it, is used where it is, small writes travel in
 * the work request, and the rest is copied through the arena. Old words of atomics land in the
 * lane's results and are copied from there.
 *
 * A failed completion (whatever its status: a first error may come as a flush) and a batch past its
 * deadline end the link: the queue pairs are destroyed, then every outstanding atomic is *unknown*
 * and every batch and later call has -ECONNRESET; the call at whose deadline it was has -ETIMEDOUT.
 * Nothing is ever posted twice.
 *
 * Thread: owner. No allocation and no system call of ours per operation; waits poll the completion
 * queue, and yield the processor when it stays empty.
 */
#ifndef RLV_TRANSPORT_VERBS_POST_H
#define RLV_TRANSPORT_VERBS_POST_H

#include "transport/verbs/link.h"

#include "transport/batches.h"

/* A region as this transport has attached it. */
struct verbs_region {
	struct region region;
	struct verbs_region *next;
	uint64_t address; /* of its first byte, in the target */
	uint32_t keys[VERBS_LINK_QPS];
	uint32_t request; /* its ATTACH */
};

/* A posted work request, with the copy to make at its completion. */
struct slot {
	union {
		struct transport_atomic *atomic; /* CAS, FAA: gets the result */
		void *dst;                       /* COPY: gets len bytes from src */
	};
	const void *src;
	uint32_t len;
	uint16_t batch; /* place in batches */
	uint16_t kind;  /* enum slot_kind */
};

struct lane {
	uint32_t idx;         /* of its queue pair */
	uint32_t unsignalled; /* since the last that asks for a completion */
	struct slot *slots;   /* depth of them */
	uint64_t *results;    /* registered: one old word for each slot */
	uint64_t head;        /* next slot */
	uint64_t tail;        /* oldest not retired */
};

struct batch {
	uint64_t arena_end; /* end of its part of the arena */
	uint32_t left;      /* work requests not retired, and 1 while its call adds to it */
};

#define POST_LIST TRANSPORT_VECTOR /* work requests of one ibv_post_send */

/* Head of the initiator. Made by transport_new; its owner opens the link. */
struct post {
	struct transport tr;
	struct link *link;

	/* private */
	struct lane lanes[VERBS_LINK_QPS];
	uint64_t mask; /* of a lane's counters */
	struct batches pending;
	struct batch batches[BATCHES];
	struct mem memory; /* registered: the arena, with the results and the message behind it */
	union verbs_any *message;
	uint64_t arena_head, arena_tail;
	uint32_t key;        /* of memory */
	uint32_t first_lane; /* of the next call, modulo their number */

	/* The list that is being built, for one lane, and the batch that it is for. */
	struct lane *lane;
	uint32_t listed;
	uint64_t ticket;
	struct ibv_send_wr wrs[POST_LIST];
	struct ibv_sge sges[POST_LIST];
};

/*
 * Makes the lanes and the registered memory of post, whose link is open. -ENOMEM: the caller calls
 * post_fini.
 */
RLV_MUST_CHECK int post_init(struct post *post);

/* Frees what post_init made. The link must be cut, or nothing outstanding. */
void post_fini(struct post *post);

/*
 * transport_ops.submit. SUBMIT_UNORDERED waits where queues or the arena are full; for a chain
 * (SUBMIT_ORDERED) -EAGAIN: lane 0 or the batches are full.
 */
RLV_MUST_CHECK int post_submit(struct transport *tr, struct transport_wr *wrs, size_t n,
			       enum submit_order order, uint64_t *ticket_out);

/* transport_ops.poll. A batch that passes its own deadline (transport_give_up_ns) ends the link. */
RLV_MUST_CHECK int post_poll(struct transport *tr, uint64_t ticket, uint64_t deadline_ns);

/* transport_ops.order: waits for all that is outstanding. */
RLV_MUST_CHECK int post_order(struct transport *tr);

/* Sends a copy of the message through lane 0, and waits until the SEND has completed. */
RLV_MUST_CHECK int post_message(struct post *post, const union verbs_any *message);

/*
 * Cuts the link, if it is not cut yet: outstanding atomics stay unknown, later calls return
 * -ECONNRESET with text. Returns code.
 */
int post_fail(struct post *post, int code, const char *text);

#endif
