/*
 * post.h - the work that an initiator has outstanding on its link.
 *
 *   call, chain ---> batch ---> requests of libfabric, each with an op ---> endpoint
 *                      ^                                                       |
 *                      +------- retired: results of atomics <------------ completion
 *
 *   op      a request of libfabric: up to four requests of one kind (order.h)
 *   batch   what one call has outstanding; tickets are consecutive and start at 1
 *
 * A request that libfabric could carry out too early is sent when those before it are done: submit
 * waits for them. Between requests of one kind that is never so, and hardly ever in a chain.
 *
 * Any error of libfabric and a batch past its deadline end the link: the port is closed, then every
 * outstanding atomic is *unknown* and every batch and later call has -ECONNRESET; the call at whose
 * deadline it was has -ETIMEDOUT. Nothing is ever sent twice.
 *
 * Thread: owner. Waits poll the completion queue; this drives libfabric.
 */
#ifndef RLV_TRANSPORT_OFI_POST_H
#define RLV_TRANSPORT_OFI_POST_H

#include "transport/ofi/link.h"
#include "transport/ofi/order.h"

#include "transport/transport.h"

#define OFI_BATCHES 128 /* outstanding */
#define OFI_OPS 512     /* likewise */
#define OFI_PARTS 4     /* of one op */

/* A region as this transport has attached it. */
struct ofi_region {
	struct region region;
	struct ofi_region *next;
	uint64_t address; /* of its first byte, as the provider counts */
	uint64_t key;
	uint32_t request; /* its ATTACH */
};

struct ofi_op {
	struct fi_context2 context; /* first: libfabric's, and how a completion names the op */
	struct ofi_op *next;        /* free */
	struct fid_mr *mr;          /* of its buffer, where the provider wants that */
	uint32_t batch;             /* place in batches */
	uint8_t kind;               /* enum ofi_kind */
	bool chained, busy, is_cas;
	/* CHANGE: who gets the results, and the words that libfabric reads and writes */
	uint32_t n_atomics;
	struct transport_atomic *atomics[OFI_PARTS];
	uint64_t operand[OFI_PARTS], expected[OFI_PARTS], result[OFI_PARTS];
};

struct ofi_batch {
	uint64_t deadline; /* from when somebody first waits for it */
	uint32_t left;     /* ops not retired, and 1 while its call adds to it */
};

/* Requests that are gathered for one op. */
struct ofi_parts {
	uint32_t n;
	enum ofi_kind kind;
	bool is_cas; /* CHANGE: all of them, else none */
	uint64_t bytes;
	struct iovec local[OFI_PARTS];               /* not of a CHANGE */
	struct transport_atomic *atomics[OFI_PARTS]; /* of a CHANGE */
	struct fi_rma_iov remote[OFI_PARTS];
};

/* Head of the initiator. Made by transport_new; its owner opens the link. */
struct ofi_post {
	struct transport tr;
	struct ofi_link link;

	/* private */
	struct ofi_order order;
	uint64_t small;     /* bytes of a read or write that travels as an atomic, at most */
	uint32_t parts_max; /* of an op */
	struct ofi_op *ops;
	struct ofi_op *free;
	struct fid_mr *ops_mr; /* of ops, where the provider wants that */
	uint32_t n_busy;
	uint32_t pending[2][OFI_KINDS]; /* ops: of calls without order, of chains */
	struct ofi_batch batches[OFI_BATCHES];
	uint64_t next;   /* ticket of the next batch */
	uint64_t oldest; /* ticket of the oldest that is not done; next = all are */
	uint64_t ticket; /* of the batch that is being built ... */
	bool chained;    /* ... which is a chain */
	struct ofi_parts parts;
	char text[160]; /* why the link was cut */
};

/* Makes post ready, whose link is open. -ENOMEM. */
RLV_MUST_CHECK int ofi_post_init(struct ofi_post *post);

/* Closes the link and frees what ofi_post_init made. forked: a child only frees. */
void ofi_post_fini(struct ofi_post *post, bool forked);

/*
 * transport_ops.submit, poll and order. A batch that passes its own deadline (transport_give_up_ns)
 * ends the link.
 */
RLV_MUST_CHECK int ofi_post_submit(struct transport *tr, struct transport_wr *wrs, size_t n,
				   enum submit_order order, uint64_t *ticket_out);
RLV_MUST_CHECK int ofi_post_poll(struct transport *tr, uint64_t ticket, uint64_t deadline_ns);
RLV_MUST_CHECK int ofi_post_order(struct transport *tr);

/*
 * Cuts the link, if it is not cut yet: outstanding atomics stay unknown, later calls return
 * -ECONNRESET with text. Returns code.
 */
int ofi_post_fail(struct ofi_post *post, int code, const char *text);

#endif
