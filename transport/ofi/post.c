/*
 * post.c - makes lists, takes their answers, waits for them, and ends the link on errors.
 */
#include "transport/ofi/post.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/mem/alloc.h"
#include "base/bits.h"
#include "base/log.h"

enum {
	LOOKS_SPIN = 8,     /* empty looks before we yield */
	LOOKS = 64,         /* and before we sleep, or look at the clock */
	LOOKS_CHECK = 1024, /* and before we ask whether the target has hung up */
	PIECES = 1024,      /* of a system call */
};

static_assert(TRANSPORT_VECTOR <= OFI_LIST_MAX, "a call is one list");

static struct ofi_post *post_of(struct transport *tr)
{
	return (struct ofi_post *)tr;
}

static struct ofi_batch *batch_of(struct ofi_post *post, uint64_t ticket)
{
	return &post->batches[ticket % BATCHES];
}

/* -------- the end -------- */

/* Ends all requests, then the registrations of our buffers, then the link. */
static void post_end(struct ofi_post *post)
{
	if (ofi_port_end(&post->link.port))
		log_error("close a link: %s", error_last());
	ofi_far_end(&post->far);
	ofi_link_cut(&post->link);
}

/* Atomics without a result keep the status that they were sent with: unknown. */
static void post_cut(struct transport *tr)
{
	struct ofi_post *post = post_of(tr);

	post_end(post);
	for (uint64_t ticket = post->due; ticket < post->pending.next; ticket++)
		transport_account_cas(tr, 0, batch_of(post, ticket)->n_atomics);
}

int ofi_post_fail(struct ofi_post *post, int code, const char *text)
{
	return batches_fail(&post->pending, code, text);
}

/* -------- answers -------- */

static bool post_is_done(const struct transport *tr, uint64_t ticket)
{
	const struct ofi_batch *batch = &((const struct ofi_post *)tr)->batches[ticket % BATCHES];

	return batch->answered && !batch->n_far;
}

static void batch_retire(struct ofi_post *post, struct ofi_batch *batch)
{
	bool failed = false;

	for (uint32_t i = 0; i < batch->n_atomics; i++) {
		struct transport_wr *wr = batch->atomics[i];

		wr->atomic.old = batch->results[i];
		wr->atomic.status = wr->guard && failed ? ATOMIC_SKIPPED : ATOMIC_DONE;
		if (wr->verb != VERB_CAS || wr->atomic.old == wr->atomic.expected)
			continue;
		failed = true;
		transport_account_cas(&post->tr, 1, 0);
	}
	batch->n_atomics = 0;
	batch->answered = true;
}

/* Skips n bytes of pieces. */
static void pieces_skip(struct iovec *pieces, uint32_t *at_inout, size_t n)
{
	while (n) {
		struct iovec *piece = &pieces[*at_inout];
		size_t part = min_u64(n, piece->iov_len);

		piece->iov_base = (uint8_t *)piece->iov_base + part;
		piece->iov_len -= part;
		*at_inout += piece->iov_len == 0;
		n -= part;
	}
}

/* Takes what has come of the oldest answer that is due. Returns whether something has, or an error. */
static int post_receive(struct ofi_post *post)
{
	struct ofi_batch *batch;
	struct msghdr msg = { .msg_iov = NULL };
	ssize_t n;

	while (post->due != post->pending.next && batch_of(post, post->due)->answered)
		post->due++;
	if (post->due == post->pending.next)
		return 0;
	batch = batch_of(post, post->due);
	msg.msg_iov = batch->pieces + batch->piece;
	msg.msg_iovlen = min_u64(batch->n_pieces - batch->piece, PIECES);
	n = recvmsg(post->link.stream.sock, &msg, MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (n <= 0)
		return ofi_post_fail(post, -ECONNRESET,
				     n ? strerror(errno) : "the target has hung up");
	pieces_skip(batch->pieces, &batch->piece, (size_t)n);
	if (batch->piece < batch->n_pieces)
		return 1;
	if (batch->end.magic != OFI_ANSWER_MAGIC || batch->end.n != batch->n)
		return ofi_post_fail(post, -ECONNRESET, "an answer to another list came");
	batch_retire(post, batch);
	return 1;
}

/* Takes what is done. Returns whether something is, or the error that ended the link. */
static int post_reap(struct transport *tr)
{
	struct ofi_post *post = post_of(tr);
	int ret = batches_check(&post->pending), far;

	if (ret == 0)
		ret = post_receive(post);
	if (ret < 0)
		return ret;
	far = ofi_far_reap(&post->far, &post->link);
	if (far < 0)
		return ofi_post_fail(post, -ECONNRESET, error_last());
	batches_retire(&post->pending);
	return ret + far;
}

/* -------- waiting -------- */

/* Sleeps until the connection has something, or looks at the clock while libfabric is at work. */
static int post_sleep(struct ofi_post *post, short events, uint64_t until, uint32_t looks)
{
	if (!ofi_far_works(&post->far))
		return ofi_link_wait(&post->link, events, until);
	if (looks % LOOKS_CHECK == 0 && ofi_link_check(&post->link))
		return -ECONNRESET;
	return deadline_expired(post->tr.clock, until) ? -ETIMEDOUT : 0;
}

/* batches_ops.look; events: what the connection is awaited for. */
static int post_look_for(struct ofi_post *post, uint64_t ticket, short events, uint64_t until,
			 uint32_t *looks)
{
	int n = post_reap(&post->tr), ret;

	if (n > 0)
		*looks = 0;
	if (n)
		return n < 0 ? n : 0;
	if (++*looks < LOOKS && (*looks > LOOKS_SPIN || post->patience.crowded) &&
	    !patience_yield(&post->patience, post->tr.clock))
		*looks = LOOKS;
	if (*looks < LOOKS)
		return 0;
	if (*looks == LOOKS) /* an earlier call may have set a later deadline */
		batches_limit(&post->pending, ticket);
	ret = post_sleep(post, events,
			 deadline_min(until, post->pending.deadlines[ticket % BATCHES]), *looks);
	if (ret == 0)
		return 0;
	if (ret != -ETIMEDOUT)
		return ofi_post_fail(post, -ECONNRESET, "the target has hung up");
	return batches_late(&post->pending, ticket, until);
}

static int post_look(struct transport *tr, uint64_t ticket, uint64_t until, uint32_t *looks)
{
	return post_look_for(post_of(tr), ticket, POLLIN, until, looks);
}

int ofi_post_poll(struct transport *tr, uint64_t ticket, uint64_t deadline_ns)
{
	return batches_wait(&post_of(tr)->pending, ticket, deadline_ns);
}

int ofi_post_order(struct transport *tr)
{
	return batches_order(&post_of(tr)->pending);
}

/* -------- lists -------- */

/* Adds a piece, to the last one where they adjoin. */
static void pieces_add(struct iovec *pieces, uint32_t *n_inout, const void *at, size_t bytes)
{
	struct iovec *last = *n_inout ? &pieces[*n_inout - 1] : NULL;

	if (last && (uint8_t *)last->iov_base + last->iov_len == at)
		last->iov_len += bytes;
	else
		pieces[(*n_inout)++] = (struct iovec){ (void *)(uintptr_t)at, bytes };
}

/* Room for `bytes` at the end of the list. */
static void *draft_add(struct ofi_draft *draft, uint32_t bytes)
{
	uint8_t *at = (uint8_t *)draft->text + draft->bytes;

	draft->bytes += bytes;
	pieces_add(draft->pieces, &draft->n_pieces, at, bytes);
	return at;
}

static uint16_t opening_of(const struct region *region)
{
	return ((const struct ofi_region *)region)->opening;
}

static void draft_io(struct ofi_draft *draft, struct ofi_batch *batch,
		     const struct transport_wr *wr)
{
	const struct transport_io *io = &wr->io;
	bool is_read = wr->verb == VERB_READ;
	struct ofi_request *request = draft_add(draft, sizeof(*request));

	*request = (struct ofi_request){ .off = io->off,
					 .bytes = io->len,
					 .opening = opening_of(io->region),
					 .verb = is_read ? OFI_READ : OFI_WRITE,
					 .guard = wr->guard };
	if (is_read)
		pieces_add(batch->pieces, &batch->n_pieces, io->dst, io->len);
	else if (io->len <= OFI_INLINE)
		memcpy(draft_add(draft, io->len), io->src, io->len);
	else
		pieces_add(draft->pieces, &draft->n_pieces, io->src, io->len);
}

static void draft_atomic(struct ofi_draft *draft, struct ofi_batch *batch, struct transport_wr *wr)
{
	const struct transport_atomic *atomic = &wr->atomic;
	bool is_cas = wr->verb == VERB_CAS;
	struct ofi_request *request = draft_add(draft, sizeof(*request) + (is_cas ? 16 : 8));
	uint64_t *operands = (uint64_t *)(request + 1);

	*request = (struct ofi_request){ .off = atomic->off,
					 .bytes = 8,
					 .opening = opening_of(atomic->region),
					 .verb = is_cas ? OFI_CAS : OFI_FAA,
					 .guard = wr->guard };
	operands[0] = is_cas ? atomic->expected : atomic->value;
	if (is_cas)
		operands[1] = atomic->value;
	pieces_add(batch->pieces, &batch->n_pieces, &batch->results[batch->n_atomics], 8);
	batch->atomics[batch->n_atomics++] = wr;
}

/* Sends the list of the newest batch; meanwhile it takes answers, so that the target goes on. */
static int draft_send(struct ofi_post *post, uint64_t ticket)
{
	struct ofi_draft *draft = post->draft;
	uint32_t piece = 0, looks = 0;
	int ret = 0;

	while (ret == 0 && piece < draft->n_pieces) {
		struct msghdr msg = { .msg_iov = draft->pieces + piece,
				      .msg_iovlen = min_u64(draft->n_pieces - piece, PIECES) };
		ssize_t n = sendmsg(post->link.stream.sock, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n > 0)
			pieces_skip(draft->pieces, &piece, (size_t)n);
		else if (errno == EAGAIN || errno == EINTR)
			ret = post_look_for(post, ticket, POLLIN | POLLOUT, DEADLINE_NEVER, &looks);
		else
			ret = ofi_post_fail(post, -ECONNRESET, strerror(errno));
	}
	return ret;
}

/* -------- calls -------- */

/* Makes the list of a new batch, of all requests but READs that go through libfabric (far). */
static struct ofi_batch *batch_make(struct ofi_post *post, struct transport_wr *wrs, size_t n,
				    bool far)
{
	struct ofi_batch *batch = batch_of(post, batches_open(&post->pending));
	struct ofi_draft *draft = post->draft;
	struct ofi_list *head;

	batch->answered = false;
	batch->n_far = 1; /* while its call adds to it */
	batch->n = batch->n_atomics = batch->piece = batch->n_pieces = 0;
	draft->bytes = draft->n_pieces = 0;
	head = draft_add(draft, sizeof(*head));
	for (size_t i = 0; i < n; i++) {
		if (is_atomic(&wrs[i]))
			draft_atomic(draft, batch, &wrs[i]);
		else if (!far || !ofi_far_takes(&post->far, &wrs[i].io))
			draft_io(draft, batch, &wrs[i]);
		else
			continue;
		batch->n++;
	}
	pieces_add(batch->pieces, &batch->n_pieces, &batch->end, sizeof(batch->end));
	batch->answered = batch->n == 0;
	if (post->tr.unwaited)
		batch->n |= OFI_LIST_LATE;
	*head = (struct ofi_list){ OFI_LIST_MAGIC, batch->n };
	return batch;
}

/* Starts the READs of a batch that go through libfabric. */
static int batch_far(struct ofi_post *post, uint64_t ticket, const struct transport_wr *wrs,
		     size_t n)
{
	int ret = 0;

	for (size_t i = 0; ret == 0 && i < n; i++) {
		uint64_t done = 0;
		uint32_t looks = 0;

		if (!ofi_far_takes(&post->far, &wrs[i].io))
			continue;
		while (ret == 0 && (ret = ofi_far_read(&post->far, &post->link, &wrs[i].io, &done,
						       &batch_of(post, ticket)->n_far)) == -EAGAIN)
			ret = post_look(&post->tr, ticket, DEADLINE_NEVER, &looks);
		if (ret && !post->link.cut)
			ret = ofi_post_fail(post, -ECONNRESET, error_last());
	}
	return ret;
}

int ofi_post_submit(struct transport *tr, struct transport_wr *wrs, size_t n,
		    enum submit_order order, uint64_t *ticket_out)
{
	struct ofi_post *post = post_of(tr);
	bool far = order == SUBMIT_UNORDERED && post->far.ops;
	struct ofi_batch *batch;
	uint64_t ticket;
	int ret;

	for (size_t i = 0; i < n; i++) {
		if (is_atomic(&wrs[i]))
			wrs[i].atomic.status = ATOMIC_UNKNOWN; /* until it is done */
		far = far && wrs[i].verb == VERB_READ && !wrs[i].fence;
	}
	ret = batches_room(&post->pending, order);
	if (ret)
		return ret;
	ticket = post->pending.next;
	batch = batch_make(post, wrs, n, far);
	ret = batch->answered ? 0 : draft_send(post, ticket);
	if (ret == 0 && far)
		ret = batch_far(post, ticket, wrs, n);
	if (ret)
		return ret;
	batch->n_far--;
	*ticket_out = ticket;
	return 0;
}

/* -------- opening -------- */

int ofi_post_init(struct ofi_post *post)
{
	static const struct batches_ops ops = {
		.reap = post_reap, .is_done = post_is_done, .look = post_look, .cut = post_cut
	};

	batches_init(&post->pending, &post->tr, &ops);
	post->due = 1;
	post->batches = mem_array(BATCHES, sizeof(*post->batches));
	post->draft = mem_alloc(sizeof(*post->draft));
	if (!post->batches || !post->draft)
		return error_set(-ENOMEM, "cannot allocate memory for %d batches", BATCHES);
	return post->link.port.calls ? ofi_far_init(&post->far) : 0;
}

void ofi_post_fini(struct ofi_post *post, bool forked)
{
	if (!forked)
		post_end(post);
	ofi_link_close(&post->link, forked);
	ofi_far_fini(&post->far);
	mem_free(post->batches);
	mem_free(post->draft);
}
