/*
 * far.h - long READs through libfabric: beside a link's connection, in no order with it.
 *
 *   READ ---> op ---> fi_read of up to OFI_FAR_BYTES ---> completion: the op's batch has one less
 */
#ifndef RLV_TRANSPORT_OFI_FAR_H
#define RLV_TRANSPORT_OFI_FAR_H

#include "transport/ofi/link.h"

#include "transport/transport.h"

#define OFI_FAR_MIN (16u << 10) /* shorter READs cost less in a list */
#define OFI_FAR_BYTES (1u << 20)
#define OFI_FAR_OPS 512 /* outstanding */

/* A region as this transport has attached it. */
struct ofi_region {
	struct region region;
	struct ofi_region *next;
	uint32_t request; /* its ATTACH */
	uint16_t opening; /* what lists call it */
	uint64_t address; /* as the provider counts: of its first byte */
	uint64_t key;
};

struct ofi_far_op {
	struct fi_context2 context; /* first: libfabric's, and how a completion names the op */
	struct ofi_far_op *next;    /* free */
	struct fid_mr *mr;          /* of its buffer, where the provider wants that */
	uint32_t *left;             /* one less when it is done; NULL: free */
};

/* Zeroed: it has no ops, since the link has no port. */
struct ofi_far {
	struct ofi_far_op *ops, *free;
	uint32_t n_busy;
	bool stalled; /* libfabric could not start the last READ, such as before it is connected */
};

RLV_MUST_CHECK int ofi_far_init(struct ofi_far *far);
void ofi_far_fini(struct ofi_far *far);

/* True if the READ should go this way. */
static inline bool ofi_far_takes(const struct ofi_far *far, const struct transport_io *io)
{
	return far->ops && io->len >= OFI_FAR_MIN;
}

/* True while libfabric has something to do for which somebody must look for completions. */
static inline bool ofi_far_works(const struct ofi_far *far)
{
	return far->n_busy || far->stalled;
}

/*
 * Starts the part of a READ from *done_inout on, as far as there are ops, and counts it in *left.
 * -EAGAIN: not all is started. Other errors are those of libfabric.
 */
RLV_MUST_CHECK int ofi_far_read(struct ofi_far *far, struct ofi_link *link,
				const struct transport_io *io, uint64_t *done_inout,
				uint32_t *left);

/* Looks for completions. Returns their number, or an error, after which the link must end. */
RLV_MUST_CHECK int ofi_far_reap(struct ofi_far *far, struct ofi_link *link);

/* After the end of the port: nothing is outstanding any more. */
void ofi_far_end(struct ofi_far *far);

#endif
