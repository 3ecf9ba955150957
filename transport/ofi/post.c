/*
 * post.c - makes requests of libfabric, retires them, waits for them, and ends the link on errors.
 */
#include "transport/ofi/post.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "base/mem/alloc.h"
#include "base/bits.h"
#include "base/log.h"

enum {
	SMALL = 512,              /* bytes that travel as words, at most */
	LONG_MAX_BYTES = 1 << 20, /* of one part */
	REAP = 16,                /* completions of one fi_cq_read */
	LOOKS_SPIN = 8,           /* empty looks before we yield */
	LOOKS = 32,               /* and before we look at the clock */
	LOOKS_CHECK = 32 * LOOKS, /* and before we ask whether the target has hung up */
};

static struct ofi_post *post_of(struct transport *tr)
{
	return (struct ofi_post *)tr;
}

static struct ofi_batch *batch_of(struct ofi_post *post, uint64_t ticket)
{
	return &post->batches[ticket % OFI_BATCHES];
}

/* -------- the end -------- */

static int post_lost(const struct ofi_post *post, int code)
{
	return error_set(code, "the connection to the memory node was lost: %s", post->text);
}

/* Ends all requests, then the registrations of our buffers, then the link. */
static void post_cut(struct ofi_post *post)
{
	if (ofi_port_end(&post->link.port))
		log_error("close a link: %s", error_last());
	for (uint32_t i = 0; post->ops && i < OFI_OPS; i++) {
		if (post->ops[i].busy && post->ops[i].mr)
			(void)fi_close(&post->ops[i].mr->fid);
		post->ops[i].mr = NULL;
	}
	if (post->ops_mr)
		(void)fi_close(&post->ops_mr->fid);
	post->ops_mr = NULL;
	ofi_link_cut(&post->link);
}

int ofi_post_fail(struct ofi_post *post, int code, const char *text)
{
	if (post->link.cut)
		return post_lost(post, code);
	(void)snprintf(post->text, sizeof(post->text), "%s", text);
	post_cut(post);
	/* Atomics without a result keep the status that they were sent with: unknown. */
	for (uint32_t i = 0; i < OFI_OPS; i++)
		transport_account_cas(&post->tr, 0, post->ops[i].busy ? post->ops[i].n_atomics : 0);
	post->tr.broken = -ECONNRESET;
	return post_lost(post, code);
}

/* -------- completions -------- */

static void batch_release(struct ofi_post *post, struct ofi_batch *batch)
{
	if (--batch->left)
		return;
	while (post->oldest != post->next && batch_of(post, post->oldest)->left == 0)
		post->oldest++;
}

static void op_free(struct ofi_post *post, struct ofi_op *op)
{
	if (op->mr)
		(void)fi_close(&op->mr->fid);
	post->pending[op->chained][op->kind]--;
	op->busy = false;
	op->next = post->free;
	post->free = op;
	post->n_busy--;
	batch_release(post, &post->batches[op->batch]);
}

static void op_retire(struct ofi_post *post, struct ofi_op *op)
{
	for (uint32_t i = 0; i < op->n_atomics; i++) {
		struct transport_atomic *atomic = op->atomics[i];

		atomic->old = op->result[i];
		atomic->status = ATOMIC_DONE;
		if (op->is_cas && op->result[i] != op->expected[i])
			transport_account_cas(&post->tr, 1, 0);
	}
	op_free(post, op);
}

/* Retires up to REAP ops. Returns their number, or the error that ended the link. */
static int post_reap(struct ofi_post *post)
{
	struct fi_cq_entry done[REAP];
	struct fi_cq_err_entry bad = { 0 };
	ssize_t n;

	if (post->link.cut)
		return post_lost(post, -ECONNRESET);
	n = fi_cq_read(post->link.port.cq, done, REAP);
	if (n == -FI_EAGAIN)
		return 0;
	if (n == -FI_EAVAIL && fi_cq_readerr(post->link.port.cq, &bad, 0) == 1)
		n = -bad.err;
	if (n < 0)
		return ofi_post_fail(post, -ECONNRESET, post->link.port.calls->strerror((int)-n));
	for (ssize_t i = 0; i < n; i++) {
		struct ofi_op *op = done[i].op_context;

		if (op < post->ops || op >= post->ops + OFI_OPS || !op->busy)
			return ofi_post_fail(
				post, -ECONNRESET,
				"libfabric completed a request that was not outstanding");
		op_retire(post, op);
	}
	return (int)n;
}

/* -------- waiting -------- */

/*
 * Looks for completions in a waiting loop, whose empty looks are counted in *looks. 0: go on;
 * -ETIMEDOUT: `until` has passed; or the error that ended the link, as a batch past its own
 * deadline does.
 */
static int post_look(struct ofi_post *post, struct ofi_batch *batch, uint64_t until,
		     uint32_t *looks)
{
	int n = post_reap(post);
	uint64_t now;

	if (n)
		return n < 0 ? n : 0;
	if (++*looks > LOOKS_SPIN)
		(void)sched_yield(); /* the target may need this processor */
	if (*looks % LOOKS)
		return 0;
	if (*looks == LOOKS) /* an earlier call may have set a later deadline */
		batch->deadline = deadline_min(batch->deadline, transport_give_up_ns(&post->tr));
	now = clock_now_ns(post->tr.clock);
	if (now >= batch->deadline)
		return ofi_post_fail(post, -ETIMEDOUT, "an operation's deadline has passed");
	if (now >= until)
		return error_set(-ETIMEDOUT, "the operations did not complete in time");
	if (*looks % LOOKS_CHECK == 0 && ofi_link_check(&post->link))
		return ofi_post_fail(post, -ECONNRESET, "the target has hung up");
	return 0;
}

static bool batch_is_done(struct ofi_post *post, uint64_t ticket)
{
	return ticket < post->oldest || batch_of(post, ticket)->left == 0;
}

/*
 * Waits for the batch of a ticket until `until` (-ETIMEDOUT); until 0 only tests: -EAGAIN: not
 * done.
 */
static int batch_wait(struct ofi_post *post, uint64_t ticket, uint64_t until)
{
	uint32_t looks = 0;
	int ret = 0;

	if (until == 0 && !batch_is_done(post, ticket)) {
		ret = post_reap(post);
		if (ret < 0)
			return ret;
		return batch_is_done(post, ticket) ? 0 : -EAGAIN;
	}
	while (ret == 0 && !batch_is_done(post, ticket))
		ret = post_look(post, batch_of(post, ticket), until, &looks);
	return ret;
}

int ofi_post_poll(struct transport *tr, uint64_t ticket, uint64_t deadline_ns)
{
	return batch_wait(post_of(tr), ticket, deadline_ns);
}

int ofi_post_order(struct transport *tr)
{
	struct ofi_post *post = post_of(tr);
	int ret = post->link.cut ? post_lost(post, -ECONNRESET) : 0;

	while (ret == 0 && post->oldest != post->next)
		ret = batch_wait(post, post->oldest, DEADLINE_NEVER);
	return ret;
}

/* -------- ops -------- */

/* Takes an op for the batch that is being built; waits for one if all are busy. */
static int op_take(struct ofi_post *post, enum ofi_kind kind, struct ofi_op **op_out)
{
	uint32_t looks = 0;
	struct ofi_op *op;

	while (!post->free) {
		int ret = post_look(post, batch_of(post, post->ticket), DEADLINE_NEVER, &looks);

		if (ret)
			return ret;
	}
	op = post->free;
	post->free = op->next;
	op->n_atomics = 0;
	op->mr = NULL;
	op->batch = (uint32_t)(post->ticket % OFI_BATCHES);
	op->kind = (uint8_t)kind;
	op->chained = post->chained;
	op->busy = true;
	post->n_busy++;
	post->pending[op->chained][kind]++;
	batch_of(post, post->ticket)->left++;
	*op_out = op;
	return 0;
}

/* Sends the gathered words: small reads and writes, CASes or FAAs. */
static ssize_t words_send(struct ofi_post *post, struct ofi_op *op)
{
	const struct ofi_parts *parts = &post->parts;
	struct fid_ep *ep = post->link.port.ep;
	struct fid_mr *mr = post->ops_mr ? post->ops_mr : op->mr;
	void *desc[OFI_PARTS] = { NULL };
	struct fi_ioc words[OFI_PARTS], expected[OFI_PARTS], results[OFI_PARTS];
	struct fi_rma_ioc remote[OFI_PARTS];
	struct fi_msg_atomic msg = { .msg_iov = words,
				     .desc = desc,
				     .iov_count = parts->n,
				     .addr = post->link.peer,
				     .rma_iov = remote,
				     .rma_iov_count = parts->n,
				     .datatype = FI_UINT64,
				     .op = parts->is_cas ? FI_CSWAP : FI_SUM,
				     .context = op };

	for (uint32_t i = 0; i < parts->n; i++) {
		const struct fi_rma_iov *at = &parts->remote[i];

		desc[i] = mr ? fi_mr_desc(mr) : NULL;
		remote[i] = (struct fi_rma_ioc){ at->addr, at->len / 8, at->key };
		words[i] = (struct fi_ioc){ &op->operand[i], 1 };
		expected[i] = (struct fi_ioc){ &op->expected[i], 1 };
		results[i] = (struct fi_ioc){ &op->result[i], 1 };
		if (parts->kind != OFI_CHANGE)
			words[i] = (struct fi_ioc){ parts->local[i].iov_base, at->len / 8 };
	}
	switch (parts->kind) {
	case OFI_FETCH:
		msg.op = FI_ATOMIC_READ;
		msg.msg_iov = NULL;
		msg.iov_count = 0;
		return fi_fetch_atomicmsg(ep, &msg, words, desc, parts->n, 0);
	case OFI_PUT:
		msg.op = FI_ATOMIC_WRITE;
		return fi_atomicmsg(ep, &msg, 0);
	default:
		return parts->is_cas ? fi_compare_atomicmsg(ep, &msg, expected, desc, parts->n,
							    results, desc, parts->n, 0)
				     : fi_fetch_atomicmsg(ep, &msg, results, desc, parts->n, 0);
	}
}

/* Sends what was gathered. */
static ssize_t parts_send(struct ofi_post *post, struct ofi_op *op)
{
	const struct ofi_parts *parts = &post->parts;
	void *desc[OFI_PARTS] = { op->mr ? fi_mr_desc(op->mr) : NULL };
	struct fi_msg_rma msg = { .msg_iov = parts->local,
				  .desc = desc,
				  .iov_count = parts->n,
				  .addr = post->link.peer,
				  .rma_iov = parts->remote,
				  .rma_iov_count = parts->n,
				  .context = op };

	if (parts->kind == OFI_READ)
		return fi_readmsg(post->link.port.ep, &msg, 0);
	if (parts->kind == OFI_WRITE) /* done when it is in the target's memory */
		return fi_writemsg(post->link.port.ep, &msg, FI_DELIVERY_COMPLETE);
	return words_send(post, op);
}

/* -------- sending -------- */

/* Waits until nothing is outstanding that a request of the kind would have to follow. */
static int order_wait(struct ofi_post *post, uint8_t mask)
{
	const uint32_t *pending = post->pending[post->chained];
	uint32_t looks = 0;
	int ret = 0;

	for (int kind = 0; kind < OFI_KINDS; kind++) {
		while (ret == 0 && mask >> kind & 1 && pending[kind])
			ret = post_look(post, batch_of(post, post->ticket), DEADLINE_NEVER, &looks);
	}
	return ret;
}

/* The kinds of which something is outstanding. */
static uint8_t order_pending(const struct ofi_post *post)
{
	uint8_t mask = 0;

	for (int kind = 0; kind < OFI_KINDS; kind++)
		mask |= (uint8_t)((post->pending[post->chained][kind] > 0) << kind);
	return mask;
}

static uint8_t order_mask(const struct ofi_post *post, enum ofi_kind kind, bool fence)
{
	const uint8_t reads = 1u << OFI_READ | 1u << OFI_FETCH | 1u << OFI_CHANGE;

	if (post->chained)
		return fence ? post->order.fenced[kind] : post->order.plain[kind];
	return fence ? post->order.fenced[kind] & reads : 0;
}

/* Takes an op for what was gathered. */
static int parts_take(struct ofi_post *post, struct ofi_op **op_out)
{
	const struct ofi_parts *parts = &post->parts;
	struct ofi_op *op = NULL;
	int ret = op_take(post, parts->kind, &op);

	if (ret)
		return ret;
	for (uint32_t i = 0; parts->kind == OFI_CHANGE && i < parts->n; i++) {
		op->atomics[op->n_atomics++] = parts->atomics[i];
		op->operand[i] = parts->atomics[i]->value;
		op->expected[i] = parts->atomics[i]->expected;
		op->is_cas = parts->is_cas;
	}
	if (parts->kind != OFI_CHANGE && ofi_port_is_local(&post->link.port))
		ret = ofi_port_register(&post->link.port, &parts->local[0], FI_READ | FI_WRITE, 0,
					&op->mr);
	if (ret)
		op_free(post, op);
	*op_out = op;
	return ret;
}

static int parts_flush(struct ofi_post *post)
{
	struct ofi_op *op = NULL;
	uint32_t looks = 0;
	ssize_t sent = 0;
	int ret;

	if (post->parts.n == 0)
		return 0;
	ret = parts_take(post, &op);
	while (ret == 0 && (sent = parts_send(post, op)) == -FI_EAGAIN)
		ret = post_look(post, batch_of(post, post->ticket), DEADLINE_NEVER, &looks);
	post->parts.n = 0;
	post->parts.bytes = 0;
	if (ret)
		return ret;
	return sent ? ofi_post_fail(post, -ECONNRESET, post->link.port.calls->strerror((int)-sent))
		    : 0;
}

/* Sends what was gathered and waits, if a request of the kind would pass something otherwise. */
static int order_keep(struct ofi_post *post, enum ofi_kind kind, bool fence)
{
	uint8_t mask = order_mask(post, kind, fence);
	int ret = 0;

	if (post->parts.kind != kind || mask & (1u << kind | order_pending(post)))
		ret = parts_flush(post);
	return ret ? ret : order_wait(post, mask);
}

/* Gathers a read or write, in as many parts as it needs. */
static int post_io(struct ofi_post *post, const struct transport_wr *wr)
{
	const struct transport_io *io = &wr->io;
	const struct ofi_region *region = (const struct ofi_region *)io->region;
	bool is_read = wr->verb == VERB_READ, small = io->len <= post->small;
	enum ofi_kind kind = small ? (is_read ? OFI_FETCH : OFI_PUT)
				   : (is_read ? OFI_READ : OFI_WRITE);
	uint64_t most = small ? post->link.port.max_words * 8 : LONG_MAX_BYTES;
	struct ofi_parts *parts = &post->parts;
	int ret = order_keep(post, kind, wr->fence);

	for (uint64_t done = 0, len; ret == 0 && done < io->len; done += len) {
		len = min_u64(io->len - done, LONG_MAX_BYTES);
		if (parts->n == post->parts_max || parts->bytes + len > most)
			ret = parts_flush(post);
		if (ret)
			return ret;
		parts->kind = kind;
		parts->local[parts->n] = (struct iovec){ (uint8_t *)io->dst + done, len };
		parts->remote[parts->n++] =
			(struct fi_rma_iov){ region->address + io->off + done, len, region->key };
		parts->bytes += len;
	}
	return ret;
}

/* Gathers a CAS or FAA. */
static int post_change(struct ofi_post *post, struct transport_wr *wr)
{
	struct transport_atomic *atomic = &wr->atomic;
	const struct ofi_region *region = (const struct ofi_region *)atomic->region;
	struct ofi_parts *parts = &post->parts;
	bool is_cas = wr->verb == VERB_CAS;
	int ret = order_keep(post, OFI_CHANGE, wr->fence);

	if (ret == 0 && parts->n && (parts->n == post->parts_max || parts->is_cas != is_cas))
		ret = parts_flush(post);
	if (ret)
		return ret;
	parts->kind = OFI_CHANGE;
	parts->is_cas = is_cas;
	parts->atomics[parts->n] = atomic;
	parts->remote[parts->n++] =
		(struct fi_rma_iov){ region->address + atomic->off, 8, region->key };
	return 0;
}

/* -------- calls -------- */

static bool is_atomic(const struct transport_wr *wr)
{
	return wr->verb == VERB_CAS || wr->verb == VERB_FAA;
}

static bool chain_fits(const struct ofi_post *post, uint64_t ops)
{
	return post->next - post->oldest < OFI_BATCHES &&
	       (post->n_busy == 0 || post->n_busy + ops <= OFI_OPS);
}

/* Looks whether there is room for a chain. -EAGAIN: no; wait for outstanding work. */
static int chain_room(struct ofi_post *post, const struct transport_wr *wrs, size_t n)
{
	uint64_t ops = 0; /* that these can need at most */
	int ret;

	for (size_t i = 0; i < n; i++)
		ops += is_atomic(&wrs[i]) ? 1 : div_up(wrs[i].io.len, LONG_MAX_BYTES);
	if (chain_fits(post, ops))
		return 0;
	ret = post_reap(post);
	if (ret < 0)
		return ret;
	return chain_fits(post, ops)
		       ? 0
		       : error_set(-EAGAIN, "too many chains are outstanding: poll one first");
}

static int batch_open(struct ofi_post *post, bool chained)
{
	int ret = post->link.cut ? post_lost(post, -ECONNRESET) : 0;

	while (ret == 0 && post->next - post->oldest >= OFI_BATCHES)
		ret = batch_wait(post, post->oldest, DEADLINE_NEVER);
	if (ret)
		return ret;
	*batch_of(post, post->next) = (struct ofi_batch){ .deadline = DEADLINE_NEVER, .left = 1 };
	post->ticket = post->next++;
	post->chained = chained;
	post->parts.n = 0;
	post->parts.bytes = 0;
	return 0;
}

int ofi_post_submit(struct transport *tr, struct transport_wr *wrs, size_t n,
		    enum submit_order order, uint64_t *ticket_out)
{
	struct ofi_post *post = post_of(tr);
	bool chained = order == SUBMIT_ORDERED;
	int ret;

	for (size_t i = 0; i < n; i++) {
		if (is_atomic(&wrs[i]))
			wrs[i].atomic.status = ATOMIC_UNKNOWN; /* until it is done */
	}
	ret = chained ? chain_room(post, wrs, n) : 0;
	if (ret == 0)
		ret = batch_open(post, chained);
	if (ret)
		return ret;
	for (size_t i = 0; ret == 0 && i < n; i++)
		ret = is_atomic(&wrs[i]) ? post_change(post, &wrs[i]) : post_io(post, &wrs[i]);
	if (ret == 0)
		ret = parts_flush(post);
	if (post->link.cut)
		return ret;
	batch_release(post, batch_of(post, post->ticket));
	*ticket_out = post->ticket;
	return ret;
}

/* -------- opening -------- */

int ofi_post_init(struct ofi_post *post)
{
	const struct ofi_port *port = &post->link.port;
	const struct fi_tx_attr *tx = port->info->tx_attr;
	int ret = 0;

	post->order = ofi_order_of(tx->msg_order, port->messages_stay_behind);
	post->small = min_u64(SMALL, port->max_words * 8);
	post->parts_max =
		(uint32_t)max_u64(1, min_u64(OFI_PARTS, min_u64(tx->iov_limit, tx->rma_iov_limit)));
	post->next = post->oldest = 1;
	post->ops = mem_array(OFI_OPS, sizeof(*post->ops));
	if (!post->ops)
		return error_set(-ENOMEM, "cannot allocate memory for %d requests", OFI_OPS);
	for (uint32_t i = 0; i < OFI_OPS; i++) {
		post->ops[i].next = post->free;
		post->free = &post->ops[i];
	}
	if (ofi_port_is_local(port)) {
		struct iovec ops = { post->ops, OFI_OPS * sizeof(*post->ops) };

		post->parts_max = 1; /* each has a registration of its own */
		ret = ofi_port_register(port, &ops, FI_READ | FI_WRITE, 0, &post->ops_mr);
	}
	return ret;
}

void ofi_post_fini(struct ofi_post *post, bool forked)
{
	if (!forked)
		post_cut(post);
	ofi_link_close(&post->link, forked);
	mem_free(post->ops);
}
