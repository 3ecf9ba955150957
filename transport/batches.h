/*
 * batches.h - tickets of the batches that a wire has outstanding, and waits for them.
 *
 *   submit ---> batch: ticket 1, 2, ..  ---> done in any order ---> oldest rises over what is done
 *
 * A wire keeps its batches at ticket % BATCHES. An error, and a batch past its own deadline, end its link:
 * then every later call has -ECONNRESET; the call at whose deadline it was has -ETIMEDOUT. Used only
 * within transport/.
 *
 * Thread: the transport's owner.
 */
#ifndef RLV_TRANSPORT_BATCHES_H
#define RLV_TRANSPORT_BATCHES_H

#include "transport/transport.h"

#define BATCHES 128 /* outstanding */

struct batches_ops {
	/* Takes what is done. Returns its number, or the error that ended the link. */
	int (*reap)(struct transport *tr);
	/* True if the batch of an outstanding ticket is done. */
	bool (*is_done)(const struct transport *tr, uint64_t ticket);
	/*
	 * Looks for what is done in a wait for the batch of a ticket; *looks: empty looks so far. 0: go on;
	 * -ETIMEDOUT: `until` has passed; or the error that ended the link.
	 */
	int (*look)(struct transport *tr, uint64_t ticket, uint64_t until, uint32_t *looks);
	/* Cuts the link and sets the status of its atomics to unknown. */
	void (*cut)(struct transport *tr);
};

struct batches {
	struct transport *tr;
	const struct batches_ops *ops;
	uint64_t next;               /* ticket of the next batch */
	uint64_t oldest;             /* ticket of the oldest that is not done; next = all are */
	uint64_t deadlines[BATCHES]; /* from when somebody first waits */
	bool cut;
	char text[160]; /* why the link was cut */
};

void batches_init(struct batches *batches, struct transport *tr, const struct batches_ops *ops);

/* The ticket of a new batch. There is room for it. */
uint64_t batches_open(struct batches *batches);

bool batches_are_full(const struct batches *batches);

/* Raises `oldest` over the batches that are done. */
void batches_retire(struct batches *batches);

/* 0, or -ECONNRESET: the link was cut. */
RLV_MUST_CHECK int batches_check(const struct batches *batches);

/*
 * Waits until there is room for a batch. A chain (SUBMIT_ORDERED) does not wait: -EAGAIN; poll an
 * outstanding one.
 */
RLV_MUST_CHECK int batches_room(struct batches *batches, enum submit_order order);

/* transport_ops.poll: deadline 0 only tests, -EAGAIN: not done. */
RLV_MUST_CHECK int batches_wait(struct batches *batches, uint64_t ticket, uint64_t until);

/* transport_ops.order: waits for all that is outstanding. */
RLV_MUST_CHECK int batches_order(struct batches *batches);

/* From now on a wait for the batch ends the link when the transport gives up. */
void batches_limit(struct batches *batches, uint64_t ticket);

/*
 * -ETIMEDOUT if `until` has passed, or the batch's own deadline, which ends the link; 0 if neither
 * has.
 */
RLV_MUST_CHECK int batches_late(struct batches *batches, uint64_t ticket, uint64_t until);

/* Cuts the link, if it is not cut yet; later calls return -ECONNRESET with text. Returns code. */
int batches_fail(struct batches *batches, int code, const char *text);

static inline bool is_atomic(const struct transport_wr *wr)
{
	return wr->verb == VERB_CAS || wr->verb == VERB_FAA;
}

#endif
