/*
 * post.h - the work that a transport has outstanding on its link.
 *
 *   call, chain ---> batch ---> work requests in the lanes' lists ---> one ibv_post_send a list
 *                      ^                                                        |
 *                      +------- retired: results and copies handed out <--- completion
 *
 * A batch is what one call or one chain has outstanding; its ticket names it, and tickets rise. A
 * call's operations are spread over the lanes (queue pairs); chains go through lane 0, so that all
 * of them together run in the order in which they were posted. Only the last work request of a
 * list, and one in a quarter of the lane's depth, asks for a completion: it stands for those before
 * it.
 *
 * Local memory: registered memory, as requests name it, is used where it is, small writes travel in
 * the work request, and the rest is copied through the arena, a ring whose oldest part belongs to the
 * oldest batch. Old words of atomics land in the lane's results and are copied from there.
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

#include "transport/verbs/work.h"

/* A region as this transport has attached it. */
struct verbs_region {
	struct region region;
	struct verbs_region *next;
	uint64_t address; /* of its first byte, in the target */
	uint32_t keys[VERBS_LINK_QPS];
	uint32_t request; /* its ATTACH */
};

struct post;

/* link and tr (for its clock, timeout and stats) are borrowed until post_close. -ENOMEM. */
RLV_MUST_CHECK int post_open(struct link *link, struct transport *tr, struct post **post_out);

/* The link must be cut, or nothing outstanding. NULL is a no-op. */
void post_close(struct post *post);

/*
 * Starts n <= TRANSPORT_VECTOR requests, ordered only by their fences; waits where queues or the
 * arena are full.
 */
RLV_MUST_CHECK int post_spread(struct post *post, struct transport_wr *wrs, size_t n,
			       uint64_t *ticket_out);

/* Starts a chain. -EAGAIN: no room; wait for outstanding work. */
RLV_MUST_CHECK int post_chain(struct post *post, struct transport_wr *wrs, size_t n,
			      uint64_t *ticket_out);

/* Sends a message through lane 0; returns when its bytes may be used again. */
RLV_MUST_CHECK int post_message(struct post *post, const union verbs_any *message);

/*
 * Waits for a batch, at most until the deadline: -ETIMEDOUT, or -EAGAIN if deadline_ns is 0; the
 * batch stays outstanding. The batch's own deadline ends the link.
 */
RLV_MUST_CHECK int post_wait(struct post *post, uint64_t ticket, uint64_t deadline_ns);

/* Waits for all that is outstanding. */
RLV_MUST_CHECK int post_drain(struct post *post);

/* Ends the link, if it has not ended; later calls return code with text. Returns code. */
int post_fail(struct post *post, int code, const char *text);

#endif
