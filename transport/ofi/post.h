/*
 * post.h - the work that an initiator has outstanding on its link.
 *
 *   call, chain ---> batch ---> list of its requests ----------------------> connection
 *                      ^                                                        |
 *                      +---- its buffers, results of atomics <------ answers, in order
 *
 *   batch   what one call has outstanding: one list; tickets are consecutive and start at 1
 *
 * The target carries out lists, and the requests of each, in order. So nothing here keeps order, and
 * every batch whose call needs it is one list. Long READs of a call that needs no order go through
 * libfabric beside it, where the target has a provider (far.h).
 *
 * Any error, and a batch past its deadline, end the link: then every outstanding atomic is *unknown* and
 * every batch and later call has -ECONNRESET; the call at whose deadline it was has -ETIMEDOUT. Nothing
 * is ever sent twice.
 *
 * Thread: owner.
 */
#ifndef RLV_TRANSPORT_OFI_POST_H
#define RLV_TRANSPORT_OFI_POST_H

#include <sys/uio.h>

#include "transport/ofi/far.h"
#include "transport/ofi/link.h"
#include "transport/ofi/patience.h"

#include "transport/batches.h"

#define OFI_INLINE 512u /* bytes of a WRITE that are copied into the list, at most */

struct ofi_batch {
	bool answered;  /* or it has no list */
	uint32_t n_far; /* READs through libfabric that are outstanding */
	/* where its answer goes */
	uint32_t n, piece, n_pieces;
	struct iovec pieces[OFI_LIST_MAX + 1];
	struct ofi_list end;
	/* its atomics: results come beside each other */
	uint32_t n_atomics;
	struct transport_wr *atomics[OFI_LIST_MAX];
	uint64_t results[OFI_LIST_MAX];
};

/* A list that is being made. */
struct ofi_draft {
	uint32_t bytes, n_pieces;
	struct iovec pieces[2 * OFI_LIST_MAX + 1];
	uint64_t text[(sizeof(struct ofi_list) +
		       OFI_LIST_MAX * (sizeof(struct ofi_request) + OFI_INLINE)) /
		      8];
};

/* Head of the initiator. Made by transport_new; its owner opens the link. */
struct ofi_post {
	struct transport tr;
	struct ofi_link link;

	/* private */
	struct ofi_far far;
	struct patience patience;
	struct ofi_batch *batches;
	struct ofi_draft *draft;
	struct batches pending;
	uint64_t due; /* ticket of the oldest without its answer, as far as there is one */
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
