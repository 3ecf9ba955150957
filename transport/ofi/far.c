/*
 * far.c - starts READs and takes their completions.
 */
#include "transport/ofi/far.h"

#include <errno.h>

#include "base/bits.h"
#include "base/mem/alloc.h"

enum { REAP = 16 }; /* completions of one fi_cq_read */

int ofi_far_init(struct ofi_far *far)
{
	far->ops = mem_array(OFI_FAR_OPS, sizeof(*far->ops));
	if (!far->ops)
		return error_set(-ENOMEM, "cannot allocate memory for %d requests", OFI_FAR_OPS);
	for (uint32_t i = 0; i < OFI_FAR_OPS; i++) {
		far->ops[i].next = far->free;
		far->free = &far->ops[i];
	}
	return 0;
}

void ofi_far_fini(struct ofi_far *far)
{
	mem_free(far->ops);
}

static void op_free(struct ofi_far *far, struct ofi_far_op *op)
{
	if (op->mr)
		(void)fi_close(&op->mr->fid);
	op->mr = NULL;
	op->left = NULL;
	op->next = far->free;
	far->free = op;
	far->n_busy--;
}

/* Starts one piece. -EAGAIN: no op, or libfabric has no room. */
static int far_start(struct ofi_far *far, struct ofi_link *link, const struct iovec *to,
		     const struct fi_rma_iov *from, uint32_t *left)
{
	struct ofi_far_op *op = far->free;
	ssize_t sent;
	int ret = 0;

	if (!op)
		return -EAGAIN;
	far->free = op->next;
	far->n_busy++;
	op->left = left;
	if (ofi_port_is_local(&link->port))
		ret = ofi_port_register(&link->port, to, FI_READ | FI_WRITE, 0, &op->mr);
	if (ret == 0) {
		sent = fi_read(link->port.ep, to->iov_base, to->iov_len,
			       op->mr ? fi_mr_desc(op->mr) : NULL, link->peer, from->addr,
			       from->key, op);
		ret = sent == -FI_EAGAIN ? -EAGAIN
		      : sent             ? ofi_port_error(&link->port, "fi_read", sent)
					 : 0;
	}
	far->stalled = ret == -EAGAIN;
	if (ret)
		op_free(far, op);
	else
		++*left;
	return ret;
}

int ofi_far_read(struct ofi_far *far, struct ofi_link *link, const struct transport_io *io,
		 uint64_t *done_inout, uint32_t *left)
{
	const struct ofi_region *region = (const struct ofi_region *)io->region;
	int ret = 0;

	while (ret == 0 && *done_inout < io->len) {
		uint64_t len = min_u64(io->len - *done_inout, OFI_FAR_BYTES);
		const struct iovec to = { (uint8_t *)io->dst + *done_inout, len };
		const struct fi_rma_iov from = { region->address + io->off + *done_inout, len,
						 region->key };

		ret = far_start(far, link, &to, &from, left);
		*done_inout += ret ? 0 : len;
	}
	return ret;
}

int ofi_far_reap(struct ofi_far *far, struct ofi_link *link)
{
	struct fi_cq_entry done[REAP];
	struct fi_cq_err_entry bad = { 0 };
	ssize_t n;

	if (!ofi_far_works(far))
		return 0;
	n = fi_cq_read(link->port.cq, done, REAP);
	if (n == -FI_EAGAIN)
		return 0;
	if (n == -FI_EAVAIL && fi_cq_readerr(link->port.cq, &bad, 0) == 1)
		n = -bad.err;
	if (n < 0)
		return ofi_port_error(&link->port, "fi_cq_read", n);
	for (ssize_t i = 0; i < n; i++) {
		struct ofi_far_op *op = done[i].op_context;

		if (op < far->ops || op >= far->ops + OFI_FAR_OPS || !op->left)
			return error_set(-EPROTO, "libfabric completed a request that was not "
						  "outstanding");
		--*op->left;
		op_free(far, op);
	}
	return (int)n;
}

void ofi_far_end(struct ofi_far *far)
{
	for (uint32_t i = 0; far->ops && i < OFI_FAR_OPS; i++) {
		if (far->ops[i].left)
			op_free(far, &far->ops[i]);
	}
}
